"""What of the README is computed: tables between a comment that is a command and one that ends it, the table of
variants, and the numbers of planted bugs and of theorems.

`python -m tests.readme_tables` writes all of it anew.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path

from refattn import bugs, cli, theorems
from refattn.attention.pages import PAGES

README = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(r"(<!-- (refattn reproduce [^>]*?|variants) -->\n)(.*?)(<!-- end -->)", re.S)
PAPERS = {"Schug et al. 2025": "H", "Mittal et al. 2022": "C", "Chi et al. 2023": "R"}
TUTORIALS = {"softmax": "01_attention_forward_and_backward", "linear": "02_attention_is_a_hypernetwork",
             "hyla": "03_hyla", "ablations": "03_hyla", "compositional": "04_compositional",
             "sliding_dilated": "06_regulargpt"}


def variants() -> str:
    """The table of variants: name, equation, files."""
    lines = ["| variant | equation | page | loops | row in Table A1 | tutorial |", "|---|---|---|---|---|---|"]
    for name, row in PAGES.items():
        stem = row.file.removesuffix(".py")
        cells = (f"`{name}`", f"{PAPERS.get(row.paper, row.paper)}, {row.equation}", f"`refattn/attention/{row.file}`",
                 f"`refattn/naive/{row.file}`", row.row or "–", f"`{TUTORIALS[stem]}`" if stem in TUTORIALS else "–")
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("| any other `Knobs(normaliser, code_uses, phi)` | H, A.1 | `refattn/attention/ablations.py` | "
                 "`refattn/naive/ablations.py` | – | `03_hyla` |")
    return "\n".join(lines) + "\n"


def printed(command: str) -> str:
    """What a command line prints on standard output, or the table of variants."""
    if command == "variants":
        return variants()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert cli.main(shlex.split(command)[1:]) == 0
    return said.getvalue()


def counted(text: str) -> str:
    """The text with the numbers of today."""
    count = len(theorems.every())
    text = re.sub(r"plants \d+ mistakes", f"plants {len(bugs.BUGS)} mistakes", text)
    return re.sub(r"\d+ of \d+ hold", f"{count} of {count} hold", text)


def blocks() -> list[tuple[str, str]]:
    """(command, what the README says it prints)."""
    return [(command, text) for _, command, text, _ in BLOCK.findall(README.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    text = counted(README.read_text(encoding="utf-8"))
    README.write_text(BLOCK.sub(lambda found: found[1] + printed(found[2]) + found[4], text), encoding="utf-8")
