"""From intervals to verdicts, by one rule for all statements, fixed before the runs of lines with a star were seen.

A comparison's effect is the mean over seeds of the paired difference, positive as claimed.  Its p is that of Student's
t, two-sided: of the effect against 0, or, where the claim is that two numbers are the same within a margin, of |effect|
against the margin; where all differences are the same, that of the sign test, which came later.  Holm's step-down over
all comparisons of one paper that have two seeds or more adjusts it.
"""

from .statistics import Mean, student_t

LEVEL = 0.05
SHOWN, SMALLER, SUGGESTED = "shown at the paper's scale", "shown smaller", "suggested"
OPEN, OPPOSITE, AGAINST = "not supported at this scale", "suggests the opposite", "contradicted at this scale"
REFUTED, EXACT, ONE, NEVER = "refuted", "holds exactly", "one seed only", "never run"
ALL = SHOWN, EXACT, SMALLER, SUGGESTED, OPEN, OPPOSITE, AGAINST, REFUTED, ONE, NEVER
NORMAL = 1.959964              # the normal quantile of a 95 % interval
RULE = (f"Verdicts follow from the numbers alone. {SHOWN}, or {SMALLER}: the effect is as claimed with an adjusted p "
        f"below {LEVEL}, of runs with the paper's settings, or with smaller ones. {SUGGESTED}: only its own p is. "
        f"{REFUTED}, {AGAINST}, {OPPOSITE}: the same three the other way. {OPEN}: none of these, or a result that is "
        f"not finite. {ONE}: no interval. {EXACT}: `refattn verify` checks it; {REFUTED} too, where it checks the "
        f"opposite. A count or a computed number has no p: {SHOWN} up to what the paper allows, {REFUTED} above it, "
        f"{OPEN} where a count's 95 % interval holds that limit. p: Student's t, two-sided, of the effect against 0, "
        "or of its size against the margin of \"the same within\"; adjusted: Holm over all comparisons of one paper. "
        "Where all differences are the same, p is that of the sign test.")


def one_sided(number: float, error: float, freedom: int) -> float:
    """P(t > number / error) of Student's t; where all differences are the same, that of as many equal signs."""
    if number == 0:
        return 0.5
    if error == 0:
        return 0.5 ** (freedom + 1) if number > 0 else 1 - 0.5 ** (freedom + 1)
    inside = min(1.0, student_t(abs(number) / error, freedom))          # far out it rounds to more
    return (1 - inside) / 2 if number > 0 else (1 + inside) / 2


def p_value(found: Mean, margin: float = 0.0) -> float | None:
    """Two-sided p of an effect against 0, or of its size against the margin; None for fewer than two seeds, or NaN."""
    if found.mean is None or found.standard_error is None:
        return None
    number = margin - abs(found.mean) if margin else found.mean
    below = one_sided(number, found.standard_error, found.n - 1)
    return min(1.0, 2 * min(below, 1 - below))


def holm(p_values) -> list[float | None]:
    """Adjusted p's, in the order given; None stays None and is no comparison.

    >>> holm([0.01, 0.04, None, 0.03])
    [0.03, 0.06, None, 0.06]
    """
    order = sorted((p, at) for at, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    least = 0.0
    for rank, (p, at) in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p))
        adjusted[at] = round(least, 12)
    return adjusted


def verdict(found: Mean, adjusted: float | None, at_the_papers_scale: bool, margin: float = 0.0) -> str:
    """The verdict on one comparison."""
    own, number = p_value(found, margin), found.mean
    if not found.n:
        return NEVER
    if number is None:
        return OPEN
    if adjusted is None or own is None:
        return ONE
    yes = abs(number) < margin if margin else number > 0    # as claimed
    if adjusted < LEVEL and at_the_papers_scale:
        return SHOWN if yes else REFUTED
    if adjusted < LEVEL:
        return SMALLER if yes else AGAINST
    if own < LEVEL:
        return SUGGESTED if yes else OPPOSITE
    return OPEN


def limited(number: float, error: float, most: float) -> str:
    """The verdict on a number against the most that a paper allows; open where its normal 95 % interval holds it."""
    half = NORMAL * error
    if half and abs(number - most) <= half:
        return OPEN
    return REFUTED if number > most else SHOWN
