"""Where the command line writes: a new directory, one that an option gives, a figure."""

import os
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

from ..files import whole_file
from .options import Usage


def new(name: str) -> Path:
    """A directory below runs/ that no other command has, of this name or with a number behind it."""
    writable(Path("runs"))
    for n in count(1):
        out = Path("runs", f"{name}-{n}" if n > 1 else name)
        with suppress(FileExistsError):
            out.mkdir()
            break
    return out


def writable(out: Path, given: str = "--out") -> None:
    """Raises Usage unless the directory, which an option gave, is there, or can be made, and can be written."""
    try:
        if given == "--out" and (of := [x for x in (out, *out.absolute().parents) if (x / "recipe.json").exists()]):
            raise Usage(f"--out is {str(out)!r}, but {of[0]} is a run; allowed: a directory that is in none")
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except (OSError, ValueError) as error:                  # ValueError: of a name with a null character
        reason = getattr(error, "strerror", error)
        raise Usage(f"{given} is {str(out)!r}, which cannot be written ({reason}); allowed: a directory that can "
                    f"be made or written") from None


def plot_file(file: str) -> Path:
    """Where a figure goes, a .png unless the name says otherwise.  Raises Usage where none can be written."""
    from matplotlib.figure import Figure
    path = Path(file if Path(file).suffix else f"{file}.png")
    known = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in known:
        raise Usage(f"--plot is {file!r}; allowed: files that end in .{', .'.join(known)}")
    if path.is_dir() or not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        reason = "it is a directory" if path.is_dir() else os.strerror(13 if path.parent.is_dir() else 2)
        raise Usage(f"--plot is {file!r}, which cannot be written ({reason}); allowed: a file in a directory that "
                    f"can be written")
    return path


def save(file: str, draw) -> None:
    """Write the figure that `draw` makes.  Raises Usage where it cannot be written."""
    path = plot_file(file)
    with whole_file(path, "wb") as opened:
        draw().savefig(opened, format=path.suffix[1:], dpi=120)
    print(f"{path.resolve()} is written", file=sys.stderr)
