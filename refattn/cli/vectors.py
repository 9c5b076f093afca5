"""`refattn vectors`: reference vectors for people in other languages."""

import sys
from pathlib import Path

from ..verification import vectors
from .options import Parser, Usage, directory
from .places import writable


def run(argv) -> int:
    """Write reference vectors."""
    parser = Parser("refattn vectors", "Small float64 cases: inputs, outputs, every gradient, and a manifest.")
    parser.add_argument("--out", type=directory, required=True, metavar="DIR", help="where to")
    given = parser.parse(argv)["out"]
    out = Path(given)
    writable(out)
    if odd := [x.name for x in out.iterdir() if x.suffix != ".npz" and x.name != "manifest.json"]:
        raise Usage(f"--out is {str(out)!r}, which holds {odd[0]}; allowed: a directory of nothing but vectors")
    vectors.write(given)
    print(f"the vectors are in {given}", file=sys.stderr)
    return 0
