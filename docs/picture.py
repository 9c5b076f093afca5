"""The picture in the README, from a site that was built: `python docs/picture.py DIR` writes docs/hyla.png.

Lines (1) to (7) of HYLA, side by side, with the checksum of their page in the PNG's text, which a test reads.  Needs
the extra `docs` and Chromium (`apt-get install chromium`).
"""

import hashlib
import shutil
import struct
import sys
import zlib
from pathlib import Path

from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "refattn/attention/hyla.py"
PICTURE = HERE / "hyla.png"
STYLE = ("tr.edge, .note small {display: none !important} table.pair {width: 1310px !important; background: white} "
         "table.pair td, table.pair th {padding-bottom: 8px !important} table.pair td.eq {width: 300px}")


def picture(site: Path) -> bytes:
    """The table as a PNG."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1800, "height": 1200}, color_scheme="light", device_scale_factor=1.2)
        tab.goto((site.resolve() / "side_by_side/attention_hyla.html").as_uri())
        tab.add_style_tag(content=STYLE)
        return tab.locator("table.pair").first.screenshot()


def marked(png: bytes, checksum: str) -> bytes:
    """The same picture with a text `source` in it, before its last chunk."""
    text = b"tEXtsource\0" + checksum.encode()
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    return png[:-12] + chunk + png[-12:]


if __name__ == "__main__":
    PICTURE.write_bytes(marked(picture(Path(sys.argv[1])), hashlib.sha256(PAGE.read_bytes()).hexdigest()))
    print(PICTURE)
