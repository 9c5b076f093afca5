"""The site: `python docs/build.py --out DIR`.  Needs the extra `docs`; opens from a folder, without a network.

Tables side by side, results and other documents, tutorials as they were rendered, and every module's docstrings.
"""

import argparse
import ast
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tqdm import tqdm

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from docs.site import page, units  # noqa: E402

ROOMS = ("attention", "layers", "models", "automata", "tasks", "train", "recipes", "analysis", "reproduce", "check",
         "verification/naive")
RAW = "{title}\n{line}\n\n.. raw:: html\n\n{body}\n"
INDEX = """# refattn

{about}

## Side by side

Each equation, its forward line, and the backward line that answers it; below them small arrays, to step through.

{sentences}

```{{toctree}}
:caption: Tutorials
:maxdepth: 1
{tutorials}
```

```{{toctree}}
:caption: Side by side
:maxdepth: 1
:hidden:
{pages}
```

```{{toctree}}
:caption: Documents
:maxdepth: 1
{documents}
```

```{{toctree}}
:caption: Modules
:maxdepth: 2
:hidden:
{modules}
```
"""


def raw(title: str, html: str) -> str:
    """A page of reStructuredText around HTML."""
    return RAW.format(title=title, line="=" * len(title), body="\n".join(f"   {row}" for row in html.splitlines()))


def linked(text: str, own: str, places: dict[str, str]) -> str:
    """Markdown whose links between files of the repository lead between the site's pages, or are words where none is.

    `own` is the path of the text in the repository; `places` says where its files are on the site, or which "#module".
    """
    def turned(match):
        words, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or not target:
            return match[0]
        place = places.get(posixpath.normpath(posixpath.join(posixpath.dirname(own), target)))
        if place is None:
            return words
        if not place.startswith("#"):
            place = posixpath.relpath(place, posixpath.dirname(places.get(own, own)))
        return f"[{words}]({place}{anchor})"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", turned, text)


def documents() -> dict[str, str]:
    """Where README, CONTRIBUTING, CHANGELOG, docs/*.md and the tutorials are on the site, by their paths here."""
    own = [f.relative_to(ROOT).as_posix() for f in sorted(HERE.glob("*.md"))]
    notebooks = [f.stem for f in sorted((ROOT / "tutorials/rendered").glob("*.ipynb"))]
    return {name: posixpath.basename(name) for name in ("README.md", *own, "CONTRIBUTING.md", "CHANGELOG.md")} | {
        "tutorials/README.md": "tutorials/README.md"} | {
        f"tutorials/rendered/{name}.ipynb": f"tutorials/{name}.ipynb" for name in notebooks} | {
        "tutorials/exercises/README.md": "tutorials/exercises.md"}


def write_documents(source: Path, places: dict[str, str]) -> None:
    """The documents and the notebooks as rendered, with links of the site."""
    for name, place in documents().items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".ipynb"):
            notebook = json.loads(text)
            for cell in notebook["cells"]:
                if cell["cell_type"] == "markdown":
                    cell["source"] = linked("".join(cell["source"]), name, places)
            text = json.dumps(notebook)
        else:                                               # a figure in a table stays in one line
            text = re.sub(r"(?m)^\|.*", lambda row: row[0].replace(" ± ", "\xa0±\xa0"), linked(text, name, places))
        (source / place).parent.mkdir(exist_ok=True)
        (source / place).write_text(text, encoding="utf-8")


def numbered(name: str, place: str) -> str:
    """A document's line in a table of contents; a notebook's title has its number."""
    number = re.match(r"(\d+)_.*\.ipynb", Path(name).name)
    if not number:
        return place
    title = "".join(json.loads((ROOT / name).read_text(encoding="utf-8"))["cells"][0]["source"]).split("\n")[0]
    return f"{int(number[1])}. {title.removeprefix('# ')} <{place}>"


def table(file: str) -> str:
    """Where a page's table side by side is."""
    return f"side_by_side/{file.removesuffix('.py').replace('/', '_')}.rst"


def write_pages(source: Path, planted: bool, only: str) -> dict[str, str]:
    """The tables side by side; {file: what is on it}.  Raises Unanswered for a tagged line without an answer."""
    found = {file: x for file, x in units.pages().items() if only in file}
    shown = {file: page.page(file, x, planted) for file, x in tqdm(found.items(), "side by side", disable=None)}
    shown["ops.py"] = f'<div class="sbs">{page.operations()}</div>'
    (source / "side_by_side").mkdir()
    sentences = {}
    for file, html in shown.items():
        title = file.removesuffix(".py")
        (source / table(file)).write_text(raw(title, html), encoding="utf-8")
        sentence = ast.get_docstring(ast.parse((units.ROOT / file).read_text(encoding="utf-8"))).split("\n")[0]
        sentences[file] = f"* [{title}]({table(file)}): {sentence}"
    return sentences


def rooms() -> dict[str, dict[str, str]]:
    """The modules of each room of the package: their names by their paths."""
    found = {"ground floor": [p for p in (ROOT / "refattn").glob("*.py") if p.stem[0] != "_"]} | {
        room: [p for p in (ROOT / "refattn" / room).glob("*.py") if p.stem != "__init__"] for room in ROOMS}
    return {room: {p.relative_to(ROOT).as_posix(): ".".join(p.relative_to(ROOT).with_suffix("").parts)
                   for p in sorted(files)} for room, files in found.items()}


def write_modules(source: Path) -> list[str]:
    """One page for each room of the package; their names."""
    names = []
    (source / "modules").mkdir()
    for room, modules in rooms().items():
        parts = [f"{room}\n{'=' * len(room)}\n"]
        parts += [f"{x}\n{'-' * len(x)}\n\n.. automodule:: {x}\n   :members:\n" for x in modules.values()]
        name = f"modules/{re.sub('[ /]', '_', room)}"
        (source / f"{name}.rst").write_text("\n".join(parts), encoding="utf-8")
        names.append(name)
    return names


def build(out: Path, planted: bool = True, only: str = "") -> None:
    """Writes the site into `out`.  Raises CalledProcessError where Sphinx fails."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(HERE / "site/static", source / "_static")
        (source / "docs").mkdir()
        shutil.copy(HERE / "hyla.png", source / "docs")                     # where the README looks for it
        shutil.copy(HERE / "site/conf.py", source / "conf.py")
        (source / "conf.py").write_text((HERE / "site/conf.py").read_text(encoding="utf-8").replace(
            "Path(__file__).resolve().parents[2]", repr(str(ROOT))), encoding="utf-8")
        sentences, own = write_pages(source, planted, only), documents()
        pages = {f"refattn/{file}": table(file) for file in sentences}
        places = {path: f"#{module}" for modules in rooms().values() for path, module in modules.items()} | pages | own
        write_documents(source, places)
        parts = {"sentences": sentences.values(), "pages": pages.values(), "modules": write_modules(source),
                 "tutorials": [numbered(name, x) for name, x in own.items() if x.startswith("tutorials/")],
                 "documents": [x for x in own.values() if "/" not in x]}
        about = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0].partition("\n")[2]
        text = INDEX.format(about=linked(about, "README.md", places), **{k: "\n".join(v) for k, v in parts.items()})
        (source / "index.md").write_text(text, encoding="utf-8")
        print("Sphinx puts the site together, which takes a minute, more on a busy machine", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "sphinx", "-q", "-b", "html", "-j", "auto", str(source), str(out)],
                       check=True)
        shutil.rmtree(out / ".doctrees", ignore_errors=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the site")
    parser.add_argument("--only", default="", help="of the tables side by side, those whose file has this in its name")
    parser.add_argument("--without-mistakes", action="store_true", help="leave planted bugs out: half a minute less")
    given = parser.parse_args()
    build(given.out, not given.without_mistakes, given.only)
    print(given.out / "index.html")


if __name__ == "__main__":
    main()
