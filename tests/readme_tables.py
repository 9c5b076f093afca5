"""Tables of the README that a command prints: between a comment that is the command and one that ends it.

`python -m tests.readme_tables` writes them anew.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

from refattn import cli

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"(<!-- (refattn reproduce [^>]*?) -->\n)(.*?)(<!-- end -->)", re.S)


def printed(command: str) -> str:
    """What a command line prints on standard output."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert cli.main(shlex.split(command)[1:]) == 0
    return said.getvalue()


def blocks() -> list[tuple[str, str]]:
    """(command, what the README says it prints)."""
    return [(command, text) for _, command, text, _ in BLOCK.findall(README.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    README.write_text(BLOCK.sub(lambda found: found[1] + printed(found[2]) + found[4], text), encoding="utf-8")
