"""The site: `python docs/build.py --out DIR`.  Needs the extra `docs`; opens from a folder, without a network.

Tables side by side, results and other documents, tutorials as they were rendered, and every module's docstrings.
"""

import argparse
import ast
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from docs.site import page, units  # noqa: E402

ROOMS = "attention", "layers", "models", "automata", "tasks", "train", "recipes", "analysis", "reproduce", "check"
RAW = "{title}\n{line}\n\n.. raw:: html\n\n{body}\n"
INDEX = """# refattn

{about}

## Side by side

Each equation, its forward line, and the backward line that answers it; below them small arrays, to step through.

{sentences}

```{{toctree}}
:caption: Side by side
:maxdepth: 1
:hidden:
{pages}
```

```{{toctree}}
:caption: Tutorials
:maxdepth: 1
{tutorials}
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


def linked(text: str, own: str, names: set[str]) -> str:
    """Markdown whose links to files of the repository point to the site's pages, or are words where it has none."""
    def turned(match):
        words, target, anchor = match[1], match[2], match[3] or ""
        path = (Path(own).parent / target).as_posix() if "://" not in target else target
        path = re.sub(r"[^/]+/\.\./", "", path)
        path = re.sub(r"^tutorials/(?:rendered/)?(\d\d_\w+)\.(?:py|ipynb)$", r"tutorials/\1.ipynb", path)
        path = re.sub(r"^(?:docs/)?(\w+\.md)$", r"\1", path)
        if "://" in target or not target:
            return match[0]
        if path not in names:
            return words
        up = "../" if own.startswith("tutorials/") else ""
        return f"[{words}]({up}{path}{anchor})"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)\s]*)?\)", turned, text)


def write_documents(source: Path) -> list[str]:
    """README, CONTRIBUTING, CHANGELOG and docs/*.md; their names."""
    files = [ROOT / "README.md", *sorted(HERE.glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    names = {f.name for f in files} | {f"tutorials/{f.name}" for f in (ROOT / "tutorials/rendered").glob("*.ipynb")}
    guide = ROOT / "tutorials/README.md"
    names |= {"tutorials/README.md"} & {"tutorials/README.md" if guide.exists() else ""}
    for file in files:
        own = file.relative_to(ROOT).as_posix().removeprefix("docs/")
        (source / file.name).write_text(linked(file.read_text(encoding="utf-8"), own, names), encoding="utf-8")
    (source / "tutorials").mkdir()
    if guide.exists():
        (source / "tutorials/README.md").write_text(
            linked(guide.read_text(encoding="utf-8"), "tutorials/README.md", names), encoding="utf-8")
    return [f.stem for f in files]


def write_tutorials(source: Path) -> list[str]:
    """The notebooks as rendered; their names."""
    names = ["tutorials/README"] if (source / "tutorials/README.md").exists() else []
    for file in sorted((ROOT / "tutorials/rendered").glob("*.ipynb")):
        shutil.copy(file, source / "tutorials" / file.name)
        names.append(f"tutorials/{file.stem}")
    return names


def write_pages(source: Path, planted: bool, only: str) -> dict[str, str]:
    """The tables side by side; {name: what is on it}.  Raises Unanswered for a tagged line without an answer."""
    shown = {file: page.page(file, found, planted) for file, found in units.pages().items() if only in file}
    shown["ops.py"] = f'<div class="sbs">{page.operations()}</div>'
    (source / "side_by_side").mkdir()
    names = {}
    for file, html in shown.items():
        title = file.removesuffix(".py")
        name = f"side_by_side/{title.replace('/', '_')}"
        (source / f"{name}.rst").write_text(raw(title, html), encoding="utf-8")
        sentence = ast.get_docstring(ast.parse((units.ROOT / file).read_text(encoding="utf-8"))).split("\n")[0]
        names[name] = f"* [{title}]({name}.rst): {sentence}"
    return names


def write_modules(source: Path) -> list[str]:
    """One page for each room of the package; their names."""
    names = []
    (source / "modules").mkdir()
    rooms = {"ground floor": sorted(p for p in (ROOT / "refattn").glob("*.py") if p.stem[0] != "_")} | {
        room: sorted(p for p in (ROOT / "refattn" / room).glob("*.py") if p.stem != "__init__") for room in ROOMS}
    for room, files in rooms.items():
        parts = [f"{room}\n{'=' * len(room)}\n"]
        for file in files:
            module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            parts.append(f"{module}\n{'-' * len(module)}\n\n.. automodule:: {module}\n   :members:\n")
        name = f"modules/{room.replace(' ', '_')}"
        (source / f"{name}.rst").write_text("\n".join(parts), encoding="utf-8")
        names.append(name)
    return names


def build(out: Path, planted: bool = True, only: str = "") -> None:
    """Writes the site into `out`.  Raises CalledProcessError where Sphinx fails."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copytree(HERE / "site/static", source / "_static")
        shutil.copy(HERE / "site/conf.py", source / "conf.py")
        (source / "conf.py").write_text((HERE / "site/conf.py").read_text(encoding="utf-8").replace(
            "Path(__file__).resolve().parents[2]", repr(str(ROOT))), encoding="utf-8")
        parts = {"pages": write_pages(source, planted, only), "documents": write_documents(source),
                 "tutorials": write_tutorials(source), "modules": write_modules(source)}
        about = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0].partition("\n")[2]
        names = {f"{x}.md" for x in parts["documents"]}
        text = INDEX.format(about=linked(about, "README.md", names), sentences="\n".join(parts["pages"].values()),
                            **{k: "\n".join(v) for k, v in parts.items()})
        (source / "index.md").write_text(text, encoding="utf-8")
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
