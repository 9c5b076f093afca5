"""Run the tutorials and write them as notebooks with their outputs: `python tutorials/render.py [NAME ...]`.

Each notebook in `tutorials/rendered/` carries the sha256 of its script, which a test compares, and the script's links,
turned to lead on from there.
Needs the extra `tutorials`.  A tutorial that fails, or writes to standard error, is not written.
"""

import hashlib
import os
import re
import socket
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RENDERED = HERE / "rendered"


def sources() -> list[Path]:
    """The tutorials, in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def digest(source: Path) -> str:
    """sha256 of the script's text, whatever the line ends of the checkout."""
    return hashlib.sha256(source.read_text(encoding="utf-8").encode()).hexdigest()


def seen_from_rendered(text: str) -> str:
    """Markdown of a script in `tutorials/` with its links as a notebook in `tutorials/rendered/` needs them.

    >>> seen_from_rendered("[1](01_a.py), [2](README.md#b), [3](https://c.d)")
    '[1](01_a.ipynb), [2](../README.md#b), [3](https://c.d)'
    """
    text = re.sub(r"(\]\()(?![a-z]+:|#)(?=\S+\))", r"\1../", text)
    return re.sub(r"(\]\()\.\./(\d\d_\w+)\.py\b", r"\1\2.ipynb", text)


def render(source: Path) -> Path:
    """Execute one tutorial and write its notebook.  Raises RuntimeError for what cannot be published."""
    import jupytext
    import nbformat
    from nbclient import NotebookClient

    os.environ["TQDM_DISABLE"] = "1"                # bars belong to whoever waits, not to what is published
    os.environ.pop("MPLBACKEND", None)              # any but a notebook's own shows no figure
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")      # what tutorial 9 says of its searches holds for these
    notebook = jupytext.read(source)
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False, coalesce_streams=True,
                   resources={"metadata": {"path": str(HERE.parent)}}).execute()
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type == "code":                # the value of a last line holds an address
            cell.outputs = [out for out in cell.outputs if out.output_type != "execute_result"]
            if noise := [out.text for out in cell.outputs if out.get("name") == "stderr"]:
                raise RuntimeError(f"{source.name} writes to standard error:\n{''.join(noise)}")
        else:
            cell.source = seen_from_rendered(cell.source)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "refattn": {"source": f"tutorials/{source.name}", "sha256": digest(source)},
    }
    said = "\n".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", ()))
    for private in str(HERE.parent), str(Path.home()), socket.gethostname(), sys.prefix:
        if re.search(rf"(?<!\w){re.escape(private)}(?!\w)", said):
            raise RuntimeError(f"{source.name} prints {private!r}, which belongs to this machine")
    target = RENDERED / f"{source.stem}.ipynb"
    target.parent.mkdir(exist_ok=True)
    target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    return target


def main(names) -> None:
    """Render the tutorials whose names contain one of `names`, all of them when there are none."""
    chosen = [source for source in sources() if not names or any(name in source.name for name in names)]
    if not chosen:
        sys.exit(f"no tutorial is called {', '.join(names)}; allowed: {', '.join(s.stem for s in sources())}")
    for source in chosen:
        print(render(source).relative_to(HERE.parent))


if __name__ == "__main__":
    main(sys.argv[1:])
