"""How large the house is: lines of code for each room, without docstrings, comments and blank lines.

    python -m tests.size            prints the table
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

import refattn

ROOT = Path(refattn.__file__).parent
NUMERICS = "ground floor", "attention", "layers", "models"
CEILINGS = {"refattn": 18_272, "numerics": 3_597}       # numerics: what computes a network, without what checks it
NEW_PAGE = {"refattn": 90, "numerics": 60}              # more for every variant beyond the twelve of H
AIMS = {"refattn": 13_000, "numerics": 3_200}           # set before images, sequences, text and diagnosis came in
APART = "__main__.py",
SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def lines_of_code(source: str) -> int:
    """Lines that hold a token which is neither a comment nor a docstring.

    >>> lines_of_code('x = 1  # one\\n\\n# two\\ndef f():\\n    "three"\\n    return (1,\\n        2)\\n')
    4
    """
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node, False) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    found = {line for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type not in SILENT
             for line in range(token.start[0], token.end[0] + 1)}
    return len(found - docstrings)


def rooms() -> Counter:
    """{room: lines}; files directly below the package are the ground floor, those that only check are `apart`."""
    found = Counter()
    for path in ROOT.rglob("*.py"):
        room, *rest = path.relative_to(ROOT).parts
        found[room if rest else "apart" if room in APART else "ground floor"] += lines_of_code(
            path.read_text(encoding="utf-8"))
    return found


def step_files(recipe) -> set[str]:
    """The files of the package that one step of training calls into, from drawing the batch to counting the step."""
    from refattn import train
    from refattn.train.record import Record
    found, inside, after = set(), [False], Record.after_step

    def note(frame, event, argument):
        if inside[0] and event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            found.add(Path(frame.f_code.co_filename).relative_to(ROOT).as_posix())

    def watched(self):
        after(self)
        inside[0] = self.state.step == 1                    # the second step is watched, the first one fills tables

    import threading
    Record.after_step = watched
    try:
        sys.setprofile(note)
        threading.setprofile(note)
        train.fit(recipe, progress=False)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        Record.after_step = after
    return found


if __name__ == "__main__":
    table = rooms()
    for name, lines in table.most_common():
        print(f"{name:<14}{lines:>7,}{' *' * (name in NUMERICS)}")
    print(f"{'in all':<14}{table.total():>7,}, at most {CEILINGS['refattn']:,}, aim {AIMS['refattn']:,}")
    numerics = sum(table[name] for name in NUMERICS)
    print(f"{'* together':<14}{numerics:>7,}, at most {CEILINGS['numerics']:,}, aim {AIMS['numerics']:,}")
