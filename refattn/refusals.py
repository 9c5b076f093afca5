"""Words of refusals.  All have one form: NAME is VALUE, perhaps but WHY; allowed: WHAT IS ALLOWED."""

from difflib import get_close_matches


def choices(given, allowed) -> str:
    """The end of a refusal: "; allowed: A, B", and before it a question where some begin with, or one is near to, that.

    >>> print(choices("soft", ["softmax", "linear"]))
    , did you mean softmax? allowed: softmax, linear
    """
    low, names = str(given).lower(), {name.lower(): name for name in allowed}
    begun = [name for name in allowed if low and name.lower().startswith(low)][:3]
    near = names.get(low) or " or ".join(begun or [names[name] for name in get_close_matches(low, names, n=1)])
    return f"{f', did you mean {near}?' if near else ';'} allowed: {', '.join(allowed) or 'nothing, there is none'}"


def unknown(what: str, name, allowed) -> str:
    """The refusal of a name that is none of those allowed."""
    return f"{what} {name!r} is unknown{choices(name, allowed)}"
