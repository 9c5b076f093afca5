"""Write the exercises of pages: `python tutorials/exercises/make.py`.

Each is a page of the library with its forward or its backward taken out; the names and numbers of the lines that are
missing stay as comments.  A test compares the files with what this script makes of the sources.
"""

import ast
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EXERCISES = {                  # file -> (page, function whose lines are taken out)
    "softmax": ("softmax", "softmax_backward"),
    "linear": ("linear", "linear"),
    "hyla": ("hyla", "hyla_backward"),
    "compositional": ("compositional", "compositional_backward"),
    "sliding_dilated": ("sliding_dilated", "sliding_dilated_backward"),
}
TAG = re.compile(r"^(?P<code>.*?)\s+#\s+(?P<tags>\(\d.*)$")


def page_of(name: str) -> Path:
    return ROOT / "refattn" / "attention" / f"{name}.py"


def segments(source: str) -> dict[str, str]:
    """The top-level functions and classes by name, with the comments in them."""
    lines = source.splitlines()
    return {node.name: "\n".join(lines[node.lineno - 1 - len(node.decorator_list):node.end_lineno])
            for node in ast.parse(source).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def names_in(code: str) -> set[str]:
    """The names that the code reads or writes, attributes not included."""
    return {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}


def needed(parts: dict[str, str], names) -> list[str]:
    """The named segments and those that they use, in the order of the file."""
    wanted, queue = set(), list(names)
    while queue:
        name = queue.pop()
        if name in parts and name not in wanted:
            wanted.add(name)
            queue += names_in(parts[name]) & set(parts) - wanted
    return [name for name in parts if name in wanted]


def imports(source: str, used: set[str]) -> list[str]:
    """The page's import lines, absolute, of the names that are used."""
    found = []
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        package = {0: "", 1: "refattn.attention", 2: "refattn"}[node.level]
        names = [f"{each.name} as {each.asname}" if each.asname else each.name
                 for each in node.names if (each.asname or each.name) in used]
        if names:
            found.append(f"from {'.'.join(x for x in (package, node.module) if x)} import {', '.join(names)}")
    ours = sorted(line for line in found if line.startswith("from refattn"))
    return [*(line for line in found if line not in ours), "", *ours]


def blanked(function: str) -> str:
    """The function without its numbered lines: of each, its number, remark and targets are left as a comment."""
    kept, tags = [], []
    for line in function.splitlines():
        found = TAG.match(line)
        if not found or "again" in found["tags"]:
            kept.append(line)
            continue
        code, indent = found["code"].strip(), " " * (len(line) - len(line.lstrip()))
        target = re.split(r"\s[-+*/]?=\s", code)[0]
        if (comment := f"{indent}# {found['tags']:<36} {target} = ?") != kept[-1]:      # dq *= scale is of dq's line
            kept.append(comment)
        tags.append(re.findall(r"\d+", found["tags"])[0])
    body = "\n".join(kept)
    say = f'    raise NotImplementedError("lines ({tags[0]}) to ({tags[-1]}) are to be written")\n    return'
    return say.join(body.rsplit("    return", 1)) if "    return" in body else body


def exercise(name: str) -> str:
    """The text of one exercise."""
    page, out = EXERCISES[name]
    source = page_of(page).read_text(encoding="utf-8")
    parts = segments(source)
    chosen = needed(parts, (page, f"{page}_backward"))
    body = "\n\n\n".join(blanked(parts[part]) if part == out else parts[part] for part in chosen)
    constants = [line for line in source.splitlines() if re.match(r"[A-Z_]+ = ", line) and line.split()[0] in body]
    equation = ast.get_docstring(ast.parse(source)).split("Source:")[0].rstrip()
    what = "backward" if out.endswith("_backward") else "forward"
    given = "forward" if what == "backward" else "backward"
    last = "w" if page == "sliding_dilated" else "k"
    options = f"--bias h1{last} --keep bhq{last} --dropout bhq{last}"       # without one its mistakes are not seen
    return "\n".join([
        "# ruff: noqa: F401, F821, F841",
        f'"""Exercise: write the {what} of {page} attention.  The {given} is given.', "", equation, "",
        "Each missing line has left its number and the arrays that it makes; dx is the gradient of x.",
        f"    refattn check tutorials/exercises/{name}.py --as {page} {options}",
        "says for the output and each gradient whether it is right, and where not, which line is wrong.  Without",
        "--bias, --keep or --dropout it does not look at what belongs to it.",
        f"Made by make.py from refattn/attention/{page}.py.", '"""', "",
        *imports(source, names_in("\n\n".join(parts[part] for part in chosen))), "",
        *constants, *[""] * bool(constants), "", body, ""])


def main() -> None:
    for name in EXERCISES:
        (HERE / f"{name}.py").write_text(exercise(name), encoding="utf-8")
        print(f"tutorials/exercises/{name}.py")


if __name__ == "__main__":
    main()
