"""refattn: a reference implementation of attention, forward and backward by hand, on NumPy and CuPy."""

import subprocess
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

version = next(line.split('"')[1] for line in Path(__file__).with_name("refattn").joinpath("__init__.py")
               .read_text(encoding="utf-8").splitlines() if line.startswith("__version__"))
plots = ["matplotlib>=3.8", "scikit-learn>=1.4"]
extras = {
    "cuda12x": ["cupy-cuda12x[ctk]>=14.2"],
    "cuda13x": ["cupy-cuda13x[ctk]>=14.2"],
    "plots": plots,
    "cluster": ["distributed>=2024.8"],
    "mpi": ["mpi4py>=4"],
    "test": ["build>=1.2", "hypothesis>=6.100", "mypy>=1.15", "pytest>=8", "pytest-xdist>=3.5",
             "pyyaml>=6", "ruff>=0.6"],
    "docs": ["sphinx>=8", "furo>=2024.8", "myst-nb>=1.2", "latex2mathml>=3.77", "playwright>=1.49"],
    "tutorials": [*plots, "jupytext>=1.16", "nbclient>=0.10", "nbformat>=5.10", "ipykernel>=6"],
    "bench": ["torch>=2.4", "jax>=0.4.30", "triton>=3; platform_system == 'Linux'"],
}


def write_commit(package: Path) -> None:
    """What is built from a checkout says from which commit, so that records of runs can."""
    if Path(__file__).with_name(".git").exists():
        asked = subprocess.run(["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+"], text=True,
                               capture_output=True, cwd=Path(__file__).parent, check=False)
        if asked.returncode == 0:
            (package / "COMMIT").write_text(asked.stdout, encoding="utf-8")


class BuildWithCommit(build_py):
    """A wheel has refattn/COMMIT, written here or found in the sdist that it is built from."""

    def run(self):
        super().run()
        if not self.editable_mode:
            write_commit(Path(self.build_lib, "refattn"))


class SourceWithCommit(sdist):
    """An sdist has refattn/COMMIT too."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, files)
        write_commit(Path(base_dir, "refattn"))


setup(
    cmdclass={"build_py": BuildWithCommit, "sdist": SourceWithCommit},
    name="refattn",
    version=version,
    description="Reference implementation of attention: every backward pass by hand, NumPy and CuPy, no autograd",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    packages=find_packages(include=["refattn", "refattn.*"]),
    package_data={"refattn": ["py.typed", "COMMIT", "reproduce/records/*.json", "reproduce/statements/quotes.txt",
                              "tasks/*.npy", "tasks/*.json", "check/formulas.txt", "check/mistakes.txt",
                              "verification/revealed.json"]},
    python_requires=">=3.10",
    install_requires=["numpy>=2.0", "tqdm>=4.66", "threadpoolctl>=3.5"],
    extras_require=extras,
    entry_points={"console_scripts": ["refattn = refattn.cli:main"]},
    classifiers=["Intended Audience :: Science/Research", "Intended Audience :: Education",
                 "Programming Language :: Python :: 3", "Topic :: Scientific/Engineering :: Artificial Intelligence"],
)
