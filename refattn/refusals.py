"""Words of refusals.  All have one form: NAME is VALUE, perhaps but WHY; allowed: WHAT IS ALLOWED."""

from difflib import get_close_matches


def choices(given, allowed) -> str:
    """The end of a refusal: "; allowed: A, B", and before it a question where some begin with, or one is near to, that.

    >>> print(choices("soft", ["softmax", "linear"]))
    , did you mean softmax? allowed: softmax, linear
    """
    begun = [name for name in allowed if given and name.startswith(str(given))][:3]
    near = " or ".join(begun or get_close_matches(str(given), allowed, n=1))
    return f"{f', did you mean {near}?' if near else ';'} allowed: {', '.join(allowed)}"


def unknown(what: str, name, allowed) -> str:
    """The refusal of a name that is none of those allowed."""
    return f"{what} {name!r} is unknown{choices(name, allowed)}"
