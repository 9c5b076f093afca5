"""What of the documents is computed: tables between a comment that is a command and one that ends it, the tables of
variants, of verdicts, of main claims, of quotations, of what is public and of diagnoses, the numbers of planted bugs
and of theorems.

`python -m tests.readme_tables` writes all of it anew.
"""

import contextlib
import io
import json
import re
import shlex
from collections import Counter
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import refattn
from refattn import cli
from refattn.attention.pages import PAGES
from refattn.recipes import RECIPES, SHORT
from refattn.reproduce.all_tables import TABLES
from refattn.reproduce.statements import QUOTES, STATEMENTS
from refattn.reproduce.verdicts import ALL
from refattn.verification import theorems
from tests import planted

ROOT = Path(__file__).parents[1]
MAIN = ("HYLA generalises better than softmax attention", "Compositional attention is better on held-out pairings",
        "RegularGPT beats a vanilla Transformer on longer words")       # the main claim of each paper
README, PUBLIC = ROOT / "README.md", ROOT / "docs" / "public_api.md"
DOCUMENTS = README, *sorted((ROOT / "docs").glob("*.md"))
BLOCK = re.compile(r"(<!-- (refattn reproduce [^>]*?|variants|recipes|verdicts|main|quotes [HCR]|public|diagnoses) "
                   r"-->\n)(.*?)(<!-- end -->)", re.S)
PAPERS = {"Schug et al. 2025": "H", "Mittal et al. 2022": "C", "Chi et al. 2023": "R"}
TUTORIALS = {"softmax": "01_attention_forward_and_backward", "linear": "02_attention_is_a_hypernetwork",
             "hyla": "03_hyla", "ablations": "03_hyla", "compositional": "04_compositional",
             "sliding_dilated": "06_regulargpt"}


def variants() -> str:
    """The table of variants: name, equation, links to its files."""
    def cells(name, source, file, row):
        tutorial = TUTORIALS.get(file.removesuffix(".py"))
        story = f"[{int(tutorial[:2])}](tutorials/rendered/{tutorial}.ipynb)" if tutorial else "–"
        return (name, source, f"[{file}](refattn/attention/{file})", f"[loops](refattn/verification/naive/{file})",
                story, row or "–")
    rows = [cells(f"`{name}`", f"{PAPERS.get(x.paper, x.paper)}, {x.equation}", x.file, x.row)
            for name, x in PAGES.items()]
    rows.append(cells("any other `Knobs(normaliser, code_uses, phi)`", "H, A.1", "ablations.py", ""))
    head = "| variant | equation | page | definition | tutorial | row in Table A1 of H |", "|---|---|---|---|---|---|"
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def recipes() -> str:
    """The table of experiments: name, source, links to task and recipe, scales with their steps."""
    rows = []
    for name, kind in RECIPES.items():
        names = [f"`{name}`", *(f"`{short}`" for short, (task, _) in SHORT.items() if task == name)]
        source = re.sub("|".join(PAPERS), lambda paper: PAPERS[paper[0]], kind.SOURCE)
        files = f"[task](../refattn/tasks/{kind.DATA or name}.py), [recipe](../refattn/recipes/{name}.py)"
        scales = ", ".join(f"{scale} {kind(**kind.scale(scale, {})).steps:,}" for scale in kind.SCALES)
        rows.append(f"| {', '.join(names)} | {source} | {files} | {scales} |")
    head = "| name | source | files | scales, with the steps of the first name |"
    return "\n".join([head, "|---|---|---|---|", *rows]) + "\n"


def judged() -> list[tuple[str, dict]]:
    """(paper, line) of all verdicts."""
    claims = TABLES["claims"]
    return [(label.split(";")[0].removeprefix("paper "), row)
            for label, row in claims.judged(claims.recorded()).items()]


def verdicts() -> str:
    """How many lines of each paper have which verdict."""
    found = Counter((paper, row["verdict"]) for paper, row in judged())
    papers, names = dict.fromkeys(paper for paper, _ in found), [x for x in ALL if any(x == name for _, name in found)]
    rows = [(paper, *(str(found[paper, name] or "–") for name in names)) for paper in papers]
    head = f"| paper | {' | '.join(names)} |", "|---|" + "---:|" * len(names)
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def main_claims() -> str:
    """All lines of the main claim of each paper."""
    lines = ["| main claim | measured here | effect | 95 % interval | n | verdict |", "|---|---|---:|---:|---:|---|"]
    for paper, row in judged():
        if row["words"] in MAIN:
            low, high = row["interval_95"]
            cells = (f"{paper}: {row['words']}", row["measured"], f"{row['effect']:+.3f}", f"{low:+.3f} to {high:+.3f}",
                     f"{len(row['differences'])}{'*' * row['fixed_before']}", row["verdict"])
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def quotes(paper: str) -> str:
    """The table of a paper's statements in its own words."""
    rows = dict.fromkeys((one.words, one.source) for one in STATEMENTS if one.paper == paper)
    said = {words: quote for words, quote in QUOTES.items() if quote}
    lines = [f"| {words} | {source.partition(', ')[2]} | {f'“{said[words]}”' if words in said else '–'} |"
             for words, source in rows]
    return "\n".join(["| line | where | in the paper's words |", "|---|---|---|", *lines]) + "\n"


def public_modules() -> dict:
    """{dotted name: module} of every module that says what of it is public."""
    names = ["refattn", *sorted(found.name for found in walk_packages(refattn.__path__, "refattn."))]
    modules = {name: import_module(name) for name in names if not name.endswith("__main__")}
    return {name: module for name, module in modules.items() if hasattr(module, "__all__")}


def public() -> str:
    """The table of what is public."""
    names = {name: ", ".join(f"`{x}`" for x in module.__all__) for name, module in public_modules().items()}
    return "\n".join(["| module | names |", "|---|---|", *(f"| `{x}` | {y} |" for x, y in names.items())]) + "\n"


def diagnoses() -> str:
    """The table of what is found in banks of kernels, from what `tests.bench.diagnoses --record` counted."""
    names = "wrong", "seen", "located", "named", "misnamed", "right", "called wrong"
    head = "mistakes", "seen", "located", "named", "named in another line", "right kernels", "called wrong"
    words = ("first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth "
             "fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth").split()
    order = [f"kernels_blind{f'_{n}' * (n > 1)}" for n in range(1, len(words) + 1)]
    known = json.loads((ROOT / "tests" / "bench" / "diagnoses.json").read_text(encoding="utf-8"))
    rows = [f"| [{word} bank](../tests/{bank}/__init__.py) | {dtype} | {' | '.join(str(counts[n]) for n in names)} |"
            for word, bank in zip(words, order, strict=True) for dtype, counts in known.get(bank, {}).items()]
    return "\n".join([f"| | precision | {' | '.join(head)} |", "|---|---|" + "---:|" * len(head), *rows]) + "\n"


def printed(command: str) -> str:
    """What a command line prints on standard output, or one of the tables."""
    name, *paper = command.split()
    own = {"variants": variants, "recipes": recipes, "verdicts": verdicts, "main": main_claims, "quotes": quotes,
           "public": public, "diagnoses": diagnoses}
    if name in own:
        return own[name](*paper)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert cli.main(shlex.split(command)[1:]) == 0
    return said.getvalue()


def counted(text: str) -> str:
    """The text with the numbers of today."""
    count = len(theorems.every())
    text = re.sub(r"plants \d+ mistakes", f"plants {len(planted.BUGS)} mistakes", text)
    return re.sub(r"\d+ of \d+ hold", f"{count} of {count} hold", text)


def blocks() -> list[tuple[str, str]]:
    """(command, what a document says it prints)."""
    return [(command, text) for document in DOCUMENTS
            for _, command, text, _ in BLOCK.findall(document.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    for document in DOCUMENTS:
        text = counted(document.read_text(encoding="utf-8"))
        document.write_text(BLOCK.sub(lambda found: found[1] + printed(found[2]) + found[4], text), encoding="utf-8")
