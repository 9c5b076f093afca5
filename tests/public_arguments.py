"""The arguments of everything public, written down once more: `python -m tests.public_arguments` writes the file anew.

Others call what is public, so a change of an argument is to be seen, and meant.
"""

import json
from inspect import Parameter, isclass, signature
from pathlib import Path

from tests.readme_tables import public_modules

FILE = Path(__file__).with_suffix(".json")
MARKS = {Parameter.KEYWORD_ONLY: "*, ", Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}


def arguments(function) -> list[str]:
    """Each argument as it is written, without its type; `*, ` stands before each that is given by name alone."""
    def default(value):
        plain = isinstance(value, bool | int | float | str | tuple | None)
        return "" if value is Parameter.empty else f"={value!r}" if plain else "=..."
    return [MARKS.get(x.kind, "") + x.name + default(x.default) for x in signature(function).parameters.values()]


def table() -> dict:
    """{dotted name: arguments} of public functions, of public classes, and of the methods that these have from here."""
    found = {f"{module}.{name}": each for module, it in public_modules().items() for name in it.__all__
             if callable(each := getattr(it, name)) and not (isclass(each) and issubclass(each, BaseException))}
    found |= {f"{name}.{method}": getattr(kind, method) for name, kind in found.items() if isclass(kind)
              for base in kind.__mro__ if base.__module__.startswith("refattn")
              for method, each in vars(base).items()
              if method[0] != "_" and callable(getattr(kind, method)) and not isclass(each)}
    return {name: arguments(found[name]) for name in sorted(found)}


def broken(before: list[str], now: list[str]) -> bool:
    """Whether a call that was right need not be so now: what is new stands at the end, or has a name, and a default."""
    def by_place(words):
        return [x for x in words if not x.startswith("*, ")]
    new = [x for x in now if x not in before]
    return (by_place(now)[:len(by_place(before))] != by_place(before) or not set(before) <= set(now)
            or not all("=" in x for x in new))


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(x)}" for name, x in table().items())
    FILE.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
