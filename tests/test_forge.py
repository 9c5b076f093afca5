"""What the forge reads: the workflow tests the oldest versions that setup.py allows, the citation has this version."""

import re
from pathlib import Path

import pytest

import refattn

ROOT = Path(__file__).parents[1]
SETUP = (ROOT / "setup.py").read_text(encoding="utf-8")
yaml = pytest.importorskip("yaml")


def loaded(name: str):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_workflow_runs_the_oldest_and_the_newest_versions_on_three_systems():
    path = ROOT / ".github/workflows/tests.yml"
    jobs = loaded(path)["jobs"]
    matrix = jobs["tests"]["strategy"]["matrix"]
    oldest, newest = matrix["versions"]
    assert oldest["python"] == re.search(r'python_requires=">=([\d.]+)"', SETUP)[1]
    assert oldest["numpy"] == f"=={re.search(r'numpy>=([0-9.]+)', SETUP)[1]}.*"
    assert newest == {"python": "3.x", "numpy": f">={re.search(r'numpy>=([0-9.]+)', SETUP)[1]}"}
    assert [name.split("-")[0] for name in matrix["os"]] == ["ubuntu", "macos", "windows"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert any("python -m pytest" in command for command in commands["tests"])
    assert commands["everything"] == [".ci/run"] and (ROOT / ".ci/run").stat().st_size
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 60


def test_the_citation_names_this_version_and_the_three_papers():
    citation = loaded("CITATION.cff")
    assert citation["version"] == refattn.__version__ and citation["license"] == "MIT"
    assert [paper["authors"][0]["family-names"] for paper in citation["references"]] == ["Schug", "Mittal", "Chi"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
