"""`refattn vectors`: reference vectors for people in other languages."""

import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from ..train.json_files import read_json
from ..train.progress import progress_bar
from ..verification import vectors
from .options import Parser, Usage, directory
from .places import writable


def own(file: Path) -> bool:
    """Whether the file may be one that was written here before, and is replaced."""
    with suppress(ValueError, OSError):
        return file.suffix == ".npz" or (file.name == "manifest.json"
                                         and str(read_json(file).get("library")).startswith("refattn "))
    return False


def run(argv) -> int:
    """Write reference vectors."""
    parser = Parser("refattn vectors", "Small float64 cases: inputs, outputs, every gradient, and a manifest.")
    parser.add_argument("--out", type=directory, required=True, metavar="DIR", help="where to")
    given = parser.parse(argv)["out"]
    out = Path(given)
    writable(out)
    if odd := [x.name for x in out.iterdir() if not own(x)]:
        raise Usage(f"--out is {str(out)!r}, which holds {odd[0]}; allowed: a directory of nothing but vectors")
    vectors.write(given, partial(progress_bar, progress=True, total=sum(1 for _ in vectors.rows()), unit="file"))
    print(f"the vectors are in {given}", file=sys.stderr)
    return 0
