"""Words of refusals.  All have one form: NAME is VALUE, perhaps but WHY; allowed: WHAT IS ALLOWED."""

from difflib import get_close_matches


def guess(given, allowed) -> str:
    """', did you mean A or B?' of the names that begin with what was given; else of the one nearest to it; else ';'.

    A name is as near as the whole of it, or as its beginning of the same length.

    >>> guess("fuzy", ["fuzzy_logic", "esbn"]), guess("chess", ["fuzzy_logic", "esbn"])
    (', did you mean fuzzy_logic?', ';')
    """
    low, whole = str(given).lower(), {name.lower(): name for name in allowed}
    begun = [name for name in allowed if low and name.lower().startswith(low)][:3]
    names = {name[:len(low) or 1]: whole[name] for name in reversed(whole)} | whole
    near = whole.get(low) or " or ".join(begun or [names[x] for x in get_close_matches(low, names, n=1, cutoff=0.7)])
    return f", did you mean {near}?" if near and "?" not in low else ";"           # who types one asks for the list


def choices(given, allowed) -> str:
    """The end of a refusal: "; allowed: A, B", or a `guess` before it; names that have commas are quoted.

    >>> print(choices("soft", ["softmax", "linear"]), choices("?", ["Block pre", "Block pre, read"]))
    , did you mean softmax? allowed: softmax, linear ; allowed: 'Block pre', 'Block pre, read'
    """
    names = ", ".join(map(repr if any("," in name for name in allowed) else str, allowed))
    return f"{guess(given, allowed)} allowed: {names or 'nothing, there is none'}"


def unknown(what: str, name, allowed) -> str:
    """The refusal of a name that is none of those allowed."""
    return f"{what} {name!r} is unknown{choices(name, allowed)}"
