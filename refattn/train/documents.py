"""JSON files that appear whole or not at all, and what they say of the machine."""

import json
import math
import platform
from pathlib import Path

import numpy as np

from .. import __version__, params


def plain(x):
    """The same as JSON takes it: numbers that are not finite become null."""
    if isinstance(x, dict):
        return {name: plain(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [plain(value) for value in x]
    if isinstance(x, float | np.floating):
        return float(x) if math.isfinite(x) else None
    return x.item() if isinstance(x, np.generic) else x


def write_json(path, document) -> None:
    """Write a JSON file that appears whole or not at all."""
    with params.whole_file(path) as file:
        file.write(json.dumps(plain(document), indent=1) + "\n")


def read_json(path) -> dict:
    """The object in a JSON file.  Raises ValueError, one line, when it is not one."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise ValueError(f"it holds a {type(document).__name__}")
    except ValueError as error:
        raise ValueError(f"{path} is not a JSON object as refattn writes it ({error})") from error
    return document


def environment() -> dict:
    """Platform and versions, as results have them."""
    return {"platform": f"{platform.system()} {platform.machine()}",
            "versions": {"refattn": __version__, "numpy": np.__version__, "python": platform.python_version()}}
