"""JSON files that appear whole or not at all, and what they say of the machine."""

import json
import math
import os
import platform
from functools import cache
from pathlib import Path
from subprocess import SubprocessError, run

import numpy as np
from threadpoolctl import threadpool_info

from .. import __version__
from ..files import whole_file


def plain(x):
    """The same as JSON takes it: numbers that are not finite become null."""
    if isinstance(x, dict):
        return {name: plain(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [plain(value) for value in x]
    x = x.item() if isinstance(x, np.generic) else x
    return None if isinstance(x, float) and not math.isfinite(x) else x


def write_json(path, document) -> None:
    """Write a JSON file that appears whole or not at all."""
    with whole_file(path) as file:
        file.write(json.dumps(plain(document), indent=1) + "\n")


def read_json(path) -> dict:
    """The object in a JSON file.  Raises ValueError, one line, when it is not one."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise ValueError(f"it holds {document!r:.40}")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not a JSON object as refattn writes it ({error})") from error
    return document


@cache
def commit() -> str | None:
    """The commit that this package was built from or is checked out at, "+" behind it where files differ; else None."""
    package = Path(__file__).parents[1]
    built = package / "COMMIT"                              # written into a wheel by setup.py
    if built.exists():
        return built.read_text(encoding="utf-8").strip()
    try:
        asked = run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"], cwd=package, text=True,
                    capture_output=True, timeout=10)
    except (OSError, SubprocessError):
        return None
    ours = (package.parent / ".git").exists()               # a package installed below another checkout is not its
    return asked.stdout.strip() if ours and asked.returncode == 0 else None


def processor() -> str:
    """The processor's name, as the system tells it."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        return next(line.split(":", 1)[1].strip() for line in text.splitlines() if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def environment() -> dict:
    """Where a result was computed: commit, platform, processor, cores, kernels of the BLAS, versions."""
    kernels = sorted({" ".join(str(found[key]) for key in ("internal_api", "version", "architecture") if key in found)
                      for found in threadpool_info() if found["user_api"] == "blas"})
    return {"commit": commit(), "platform": f"{platform.system()} {platform.machine()}", "processor": processor(),
            "cores": os.cpu_count(), "blas": kernels,
            "versions": {"refattn": __version__, "numpy": np.__version__, "python": platform.python_version()}}
