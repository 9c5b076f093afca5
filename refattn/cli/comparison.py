"""Results as text tables and as JSON."""

from ..reproduce.published import figures_for
from ..reproduce.statistics import mean


def columns(rows, right=()) -> str:
    """Rows of texts as aligned columns, the first row being the heading; columns in `right` end flush.

    >>> print(columns([["a", "n"], ["bc", "10"]], right={1}))
    a    n
    --  --
    bc  10
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [rows[0], ["-" * width for width in widths], *rows[1:]]
    return "\n".join("  ".join(text.rjust(width) if i in right else text.ljust(width)
                               for i, (text, width) in enumerate(zip(line, widths, strict=True))).rstrip()
                     for line in lines)


def shown(middle, error=None, digits: int = 3) -> str:
    """0.412 ± 0.013, or a dash."""
    if middle is None:
        return "-"
    return f"{middle:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def summary(kind, outcomes) -> list[dict]:
    """One row for each value that is compared: mean and standard error over seeds of the columns `kind.TABLE`; the
    paper's."""
    rows, field = [], kind.COMPARES
    for name in dict.fromkeys(outcome["fields"][field] for outcome in outcomes):
        mine = [outcome for outcome in outcomes if outcome["fields"][field] == name]
        done = [outcome for outcome in mine if outcome["finished"]]
        row = {field: name, "runs": len(mine), "finished": len(done),
               "seeds": [outcome["fields"]["seed"] for outcome in done],
               "minutes": mean(outcome["seconds"] / 60 for outcome in done).mean, "metrics": []}
        for heading, split, metric in kind.TABLE:
            found = mean(outcome["metrics"].get(split, {}).get(metric) for outcome in done)
            row["metrics"].append({"heading": heading, "split": split, "metric": metric, "mean": found.mean,
                                   "standard_error": found.standard_error})
        theirs = figures_for(kind.TASK, mine[0]["fields"])
        figure = theirs.figures.get(name)
        row["published"] = figure and {"metric": theirs.metric, "mean": figure[0], "standard_error": figure[1]}
        rows.append(row)
    return rows


def table(kind, outcomes) -> str:
    """The comparison as text, with the paper's figures marked as such."""
    rows = summary(kind, outcomes)
    texts = [[kind.COMPARES.replace("_", " "), *(heading for heading, _, _ in kind.TABLE), "minutes", "paper*"]]
    for row in rows:
        figure = row["published"] or {"mean": None, "standard_error": None}
        cells = [shown(m["mean"], m["standard_error"], 4 if m["metric"] == "mse" else 3) for m in row["metrics"]]
        texts.append([str(row[kind.COMPARES]), *cells,
                      shown(row["minutes"], digits=1), shown(figure["mean"], figure["standard_error"])])
    fields, seeds = outcomes[0]["fields"], sorted({outcome["fields"]["seed"] for outcome in outcomes})
    shards = f" in {fields['shards']} shards" if fields.get("shards", 1) > 1 else ""
    notes = [f"{outcomes[0]['task']}: {fields['steps']:,} steps of {fields['batch']} samples{shards}, "
             f"rate {fields['rate']:g}, decay {fields['decay']:g}, "
             + (f"clipped to norm {fields['clip']:g}, " if fields["clip"] else "")
             + f"{fields['evaluation']:,} {kind.COUNTED}; seed"
             + (f" {seeds[0]}" if len(seeds) == 1 else f"s {', '.join(map(str, seeds))}: mean ± standard error")]
    theirs = figures_for(kind.TASK, outcomes[0]["fields"])
    ends = [f"* {theirs.metric}, not measured here. {theirs.source}"]
    for outcome in outcomes:
        if not outcome["finished"]:
            reason = outcome.get("error") or f"stopped at step {outcome['step']:,} of {outcome['fields']['steps']:,}"
            ends.append(f"{outcome['name']} is not complete: {reason}")
    return "\n".join([*notes, "", columns(texts, right=set(range(1, len(texts[0])))), "", *ends])
