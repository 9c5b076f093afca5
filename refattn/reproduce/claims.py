"""What the papers say, each statement with a verdict that follows from our records: `refattn reproduce claims`.

A comparison is a list of pairs of runs that differ in nothing but what the statement is about; the difference of a seed
is the mean over the pairs, less that over pairs `beside` them, and the interval is Student's t over seeds.
`statements` lists them, `verdicts` has the rule.
"""

from dataclasses import asdict, dataclass
from math import isnan, nan
from pathlib import Path

from ..recipes import recipe
from ..train.json_files import read_json
from . import drawing, records, verdicts
from .codes import with_codes
from .sheet import Sheet, chosen
from .statements import STATEMENTS, Comparison, Computed, Counted, Exact, Side
from .statistics import interval, mean
from .table import Exhibit, differing, homogeneous, made_of, matches, put

ASKED = "evaluation", "evaluation_batch", "far", "stride", "max_length", "released_split"
# settings that say what is asked of a trained network, or whose numbers are random, but not how it is trained


def reached(history: dict, side: Side, column: str, level: float) -> float | None:
    """A side's number where its run first was at that step, or at most at that loss: NaN where it is not finite; None
    where it never was."""
    ahead = (lambda x: x >= level) if column == "step" else (lambda x: x <= level)
    values = history.get(f"{side.split}.{side.metric}", ())
    return next((nan if value is None else value for x, value in zip(history.get(column, ()), values, strict=True)
                 if x is not None and ahead(x)), None)


def apart(run, comparison: Comparison, side: Side) -> tuple:
    """((field, value, value of the side), ...) of a fresh run; nothing of a recorded one."""
    return () if "record" in run else differing(run["fields"], asdict(recipe(
        comparison.task, comparison.scale, **side.fields, seed=run["fields"]["seed"])))


def among(runs, comparison: Comparison) -> list[dict]:
    """The runs in the records of a comparison, and all fresh ones."""
    return [run for run in runs if run.get("record", comparison.records[0]) in comparison.records]


def own(runs, comparison: Comparison, side: Side) -> list[dict]:
    """The runs of a side, in the records of its comparison.

    Of fresh ones, which may be of several comparisons, those nearest to its own settings.
    """
    mine = [run for run in among(runs, comparison) if matches(run, comparison.task, side.fields)]
    far = [len(apart(run, comparison, side)) for run in mine]
    return [run for run, n in zip(mine, far, strict=True) if n == min(far)]


def value(runs, side: Side, comparison: Comparison) -> dict:
    """{seed: number} of a side, NaN where it is not finite; of seeds without what is `given`, or never `at`, none."""
    mine = [run for run in own(runs, comparison, side)
            if (side.split in run["metrics"] if side.at is None else run["history"])]
    homogeneous(mine, f"{comparison.measured}: {side.words(side)}")
    if comparison.given:
        split, metric, least = comparison.given
        mine = [run for run in mine if (run["metrics"][split][metric] or 0) >= least]
    if side.at is None:
        found = {run["fields"]["seed"]: run["metrics"][side.split][side.metric] for run in mine}
        return {seed: nan if number is None else number for seed, number in found.items()}
    found = {run["fields"]["seed"]: reached(run["history"], side, *side.at) for run in mine}
    return {seed: number for seed, number in found.items() if number is not None}


def differences(runs, comparison: Comparison, pair=None) -> dict:
    """{seed: mean over the pairs of better minus worse, less that over the pairs `beside`}; positive is as claimed.

    Of the seeds that every side has; of one pair alone where it is given, with its sign.
    """
    wanted = [pair] if pair else comparison.all_pairs
    sides = [[value(runs, side, comparison) for side in each] for each in wanted]
    sign, sizes = -1 if comparison.less else 1, comparison.sizes and not pair
    found = {}
    for seed in sorted(set.intersection(*(set(side) for each in sides for side in each))):
        row = [sign * (better[seed] - worse[seed]) for better, worse in sides]
        row = [abs(x) for x in row] if sizes else row
        claimed, beside = row[:len(comparison.pairs)], row[len(comparison.pairs):]
        found[seed] = sum(claimed) / len(claimed) - (sum(beside) / len(beside) if beside else 0)
    return found


def at_the_papers_scale(runs, comparison: Comparison) -> bool:
    """Whether the runs are meant to be, and were trained with the settings of the paper's scale."""
    if comparison.scale != comparison.paper:
        return False
    for side in comparison.every_side:
        reference = asdict(recipe(comparison.task, comparison.paper, **side.fields))
        mine = [run for run in runs if matches(run, comparison.task, side.fields)]
        if any(name not in ASKED for run in mine for name, *_ in differing(run["fields"], reference)):
            return False
    return True


def row_of(words: str, found: dict, runs, seen: bool, margin: float = 0.0) -> dict:
    """Effect, interval and what they were made of; the verdict comes later, when all p's are known.

    seen: whether the pairs were listed after runs of theirs had been seen.
    """
    effect = mean(found.values())
    return {"measured": words, "effect": effect.mean, "interval_95": interval(effect),
            "p": verdicts.p_value(effect, margin),
            "differences": {str(seed): None if isnan(x) else x for seed, x in found.items()},
            "fixed_before": {run.get("fixed_before") for run in runs} == {True} and not seen,
            "seconds_a_run": sum(run.get("cpu_seconds", run["seconds"]) for run in runs) / len(runs) if runs else None}


def at_most(most: float, number: float, error: float | None = None) -> dict:
    """What is known of a number against the most that the paper allows; of a count there is a standard error too."""
    half = verdicts.NORMAL * (error or 0)
    interval = {} if error is None else {"interval_95": (number - half, number + half)}
    return {"effect": number, "most": most, **interval, "verdict": verdicts.limited(number, error or 0, most)}


def made(comparison: Comparison, runs, pair=None) -> tuple[dict, list]:
    """The differences of a comparison, or of one of its pairs, and the runs that they are made of."""
    found = differences(runs, comparison, pair)
    mine = {id(run): run for side in pair or comparison.every_side for run in own(runs, comparison, side)}
    return found, [run for run in mine.values() if run["fields"]["seed"] in found]


def compared(comparison: Comparison, runs) -> dict:
    """What is known of a comparison, and below it of each of its pairs; a single one is the statement's own row."""
    runs = among(runs, comparison)                          # once, where `own` would ask each of hundreds
    pairs, seen = comparison.all_pairs, comparison.seen
    several = [name for name in ("split", "metric") if len({getattr(a, name) for a, _ in pairs}) > 1]
    below = []
    for a, b in pairs if len(pairs) > 1 else ():
        words = f"{a.words(b, pairs)} − {b.words(a, pairs)}"
        if (a.split, a.metric) == (b.split, b.metric):
            words += "".join(f", {getattr(a, name)}" for name in several)
        if (a, b) in comparison.beside:
            words = f"less {words}"
        below.append(row_of(words, *made(comparison, runs, (a, b)), seen))
    other = any(apart(run, comparison, side) for side in comparison.every_side for run in own(runs, comparison, side))
    measured = comparison.measured + (" (but at other settings)" if other else "")
    found, used = made(comparison, runs)
    return {**row_of(measured, found, used, seen, comparison.margin),
            "papers_scale": at_the_papers_scale(used, comparison), "pairs": below}


@dataclass(frozen=True)
class Claims(Exhibit):
    """All statements as one table."""
    statements: tuple = STATEMENTS
    name = "claims"
    title = "What the papers say, and what our runs say of it"
    source = ""                        # as named in each row; figures are ours alone
    default_scale = None               # each comparison has its own
    whole = True                       # what was never run says what it would cost
    plot = staticmethod(drawing.forest)

    def comparisons(self, only=()) -> list:
        """Those of `chosen` statements that are held against runs."""
        return [one.evidence for one in self.chosen(only).values() if isinstance(one.evidence, Comparison)]

    def recorded(self) -> list[dict]:
        """All recorded runs that a comparison is made of."""
        return records.recorded(dict.fromkeys(name for one in self.comparisons() for name in one.records))

    def labelled(self) -> dict:
        """{paper, source, words and measure: statement}."""
        return {f"paper {one.paper}; {one.source}: {one.words}: {getattr(one.evidence, 'measured', '')}": one
                for one in self.statements}

    def chosen(self, only=()) -> dict:
        """{label: statement} of those whose label contains one of `only`; all without any."""
        return chosen(self.labelled(), only)

    def recipes(self, scale: str | None, seeds, only=(), **changes) -> dict:
        """{directory below OUT: recipe} of all runs; each comparison has a scale of its own unless one is given."""
        jobs: dict = {}
        for one in self.comparisons(only):
            for side in one.every_side:
                for seed in seeds:
                    run = recipe(one.task, scale or one.scale, **{**changes, **side.fields}, seed=seed)
                    put(jobs, Path(one.task), one.records[0], run)
        return jobs

    def after(self, outcomes, only=()) -> list[dict]:
        """Finished fresh runs, and beside those whose codes a comparison is about what their codes say."""
        outcomes = records.with_histories(outcomes)
        about = [(one.task, side.fields) for one in self.comparisons(only) if one.records[0].endswith("_codes")
                 for side in one.every_side]
        return outcomes + with_codes(run for run in outcomes if any(matches(run, *one) for one in about))

    def judged(self, runs, only=()) -> dict:
        """{label: row}, every statement with a verdict, or those that `only` chooses; p is adjusted for all of them."""
        rows = {label: (one, self.row(one, runs)) for label, one in self.chosen(only).items()}
        for paper in sorted({one.paper for one in self.statements}):
            mine = [(one, row) for one, row in rows.values() if one.paper == paper and "p" in row]
            every = sum(one.paper == paper and isinstance(one.evidence, Comparison) for one in self.statements)
            p = [row["p"] for _, row in mine] + [1.0] * (every - len(mine))     # those that are not asked for count too
            for (one, row), adjusted in zip(mine, verdicts.holm(p), strict=False):
                row["adjusted_p"] = adjusted
                row["verdict"] = verdicts.verdict(mean(row["differences"].values()), adjusted, row["papers_scale"],
                                                  one.evidence.margin)
        return {label: row for label, (_, row) in rows.items()}

    def row(self, one, runs) -> dict:
        """What is known of a statement, without the verdict where that needs all p's."""
        known = {"words": one.words, "quote": one.quote, "source": one.source, "cost": one.cost}
        match one.evidence:
            case None:
                return {**known, "verdict": verdicts.NEVER}
            case Exact(_, theorems, refutes):
                found = {"verdict": verdicts.REFUTED if refutes else verdicts.EXACT, "theorems": list(theorems)}
            case Computed(_, number, most):
                found = at_most(most, number())
            case Counted(_, record, wanted, most):
                document = read_json(records.RECORDS / f"{record}.json")
                row, = (row for row in document["rows"] if wanted.items() <= row.items())
                found = at_most(most, row["fraction"], row["standard_error"])
            case Comparison():
                found = compared(one.evidence, runs)
        return {**known, "measured": one.evidence.measured, **found}

    def sheet(self, runs, only=()) -> Sheet:
        """One row for each statement; below it one for each pair of its runs, where there are several."""
        # by recorded runs all statements are judged, whichever are shown; by fresh ones those that they are trained for
        judged = self.judged(runs, only if any("record" not in run for run in runs) else ())
        texts, data = [], [judged[label] for label in self.chosen(only)]
        for row in data:
            texts.append(texts_of(row))
            texts += [texts_of({**pair, "words": "…", "source": "", "verdict": ""}) for pair in row.get("pairs", ())
                      if pair["differences"]]
        used, others = self.used(runs, only)
        told = f"; settings that are not the statement's: {', '.join(others)}" if others else ""
        counted = {name: sum(row["verdict"] == name for row in data) for name in verdicts.ALL}
        notes = ["Verdicts: " + ", ".join(f"{n} {name}" for name, n in counted.items() if n) + ".", verdicts.RULE,
                 "Effect: mean over seeds of the paired difference, positive as claimed, with Student's 95 % interval, "
                 "which knows no bounds: of a difference of shares it may pass 1. Of counts the fraction, and at most "
                 "what the paper allows. n: seeds, * where setting and seeds were fixed before the runs. Rows below a "
                 "statement: its pairs. Seconds: of one core, in older records wall clock.",
                 *([f"Made of {made_of(used)}{told}."] if used else [])]
        return Sheet(self.name, self.title, self.source, ["", "source", "verdict", "effect", "95 % interval",
                                                          "adjusted p", "n", "seconds a run", "measured here"],
                     texts, data, notes, len(used))

    def used(self, runs, only) -> tuple[list, list]:
        """The runs that the table is made of, and words on those of their settings that are not the statement's."""
        used, others = {}, []
        for one in self.comparisons(only):
            mine = among(runs, one)
            for side in one.every_side:
                for run in own(mine, one, side):
                    used[run["task"], str(run["fields"]), run["seconds"]] = run     # a record of its codes counts once
                    others += [f"{name} {ours} ({theirs})" for name, ours, theirs in apart(run, one, side)]
        return [*used.values()], [*dict.fromkeys(others)]


def texts_of(row: dict) -> list[str]:
    """One row of the table; a dash where there is nothing to say."""
    verdict, texts = row["verdict"], dict.fromkeys(("effect", "interval", "p", "n", "seconds"), "–")
    if verdict == verdicts.NEVER:
        verdict += " in full" if any(pair["differences"] for pair in row.get("pairs", ())) else ""
        verdict += f": {row['cost']}" if row["cost"] else ""
    if (effect := row.get("effect")) is not None:
        texts["effect"] = f"{effect:.4f}, at most {row['most']:g}" if "most" in row else f"{effect:+.3f}"
    elif row.get("differences"):
        texts["effect"] = "not finite"
    if (span := row.get("interval_95")) is not None:
        texts["interval"] = f"{span[0]:+.3f} to {span[1]:+.3f}"
    if (adjusted := row.get("adjusted_p")) is not None:
        texts["p"] = f"{adjusted:.2g}" if adjusted >= 1e-3 else "< 0.001"
    if found := row.get("differences"):
        texts["n"] = f"{len(found)}*" if row["fixed_before"] else f"{len(found)}"
    if seconds := row.get("seconds_a_run"):
        texts["seconds"] = f"{seconds:,.0f}"
    return [row["words"], row["source"], verdict, *texts.values(), row.get("measured", "–")]
