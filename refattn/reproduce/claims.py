"""The papers' claims as paired differences over seeds, each as the smallest experiment that can show it.

A claim is a list of pairs of runs that differ in nothing but what the claim is about; the difference of a seed is the
mean over the pairs, and the interval is Student's t over seeds.  Where it does not clear zero, the sheet says so.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from ..recipes import recipe
from . import records
from .codes import read_codes
from .finished_table import NEVER, Sheet, chosen
from .published_table import homogeneous, made_of, matches
from .statistics import interval, mean


class Side(NamedTuple):
    """One number of a run: that of the fields, in a split and metric."""
    fields: dict
    split: str
    metric: str

    @property
    def words(self) -> str:
        """What tells a pair of a claim from its others."""
        return ", ".join(self.fields[x] for x in ("problem", "attention") if x in self.fields)


class Claim(NamedTuple):
    words: str
    source: str
    task: str
    pairs: tuple               # (better, worse) Sides
    records: tuple
    scale: str                 # of the runs
    less: bool = False         # whether less is better, as of a loss


PLAIN = {"experts": 0}         # without a mixture of experts


def attention(pairs, split="held_out", metric="r2_per_task", fields=PLAIN) -> tuple:
    """Pairs of Sides from pairs of variants."""
    return tuple(tuple(Side({"attention": name, **fields}, split, metric) for name in pair) for pair in pairs)


def says(layer: str, label: str, variant: str, beside: str) -> tuple:
    """The code's score of a label, and what stands beside it: after shuffled labels, or from the answer alone."""
    side = Side({"attention": variant, **PLAIN}, layer, label)
    return ((side, side._replace(metric=f"{beside} {label}")),)


def longer(fields) -> Side:
    """Accuracy beyond the trained lengths, every length weighing the same."""
    return Side(fields, "longer", "corrected")


PARITY = {"language": "parity", "attention": "sliding_dilated", "chunk": 2, "layers": 5, "width": 64, "heads": 8}
CYCLE = {**PARITY, "language": "cycle", "rate": 1e-3}
TRANSFORMER = {**PARITY, "attention": "transformer_xl", "layers": 2, "width": 32, "heads": 4}
REGULAR = ("regular_languages_quick",)
NEITHER = "hyla_no_nonlinearity_no_rms_head"
LOGIC, CODES = ("fuzzy_logic_short",), ("fuzzy_logic_codes",)
TEXT = {"text": "tiny_shakespeare.txt", "unit": "characters"}
SHORT, FAR = {**TEXT, "position": "learned", "length": 64}, {**TEXT, "length": 128, "longest": 4096}


def far(times: int, **fields) -> Side:
    """Bits for the last character of windows so many times as long as those of training."""
    return Side({**FAR, "attention": "softmax", **fields}, f"times_{times}", "bits")


def composed(split="held_out", scoring="dot", retrievals=1, **fields) -> Side:
    """Accuracy of compositional attention."""
    return Side({"attention": "compositional", "scoring": scoring, "retrievals": retrievals, **fields}, split,
                "accuracy")


def beside_softmax(side: Side) -> tuple:
    """It and the accuracy of softmax attention in the same setting, whose other fields are the defaults of its task."""
    return side, side._replace(fields={**side.fields, "attention": "softmax", "retrievals": 1})


PROBLEMS = "same_different", "rmts", "distribution_of_three", "identity_rules"
SCAN = {"split": "longer", "cutoff": 26}
CLAIMS = (
    Claim("Using the code twice beats using it once, all else equal", "H, section 3.1, table A1", "fuzzy_logic",
          attention((("hyla", "linear_rms_head_relu_values"), ("hyla_no_nonlinearity", "linear_rms_head"),
                     (NEITHER, "linear"))), LOGIC, "short"),
    Claim("HYLA beats softmax attention", "H, figure 2C", "fuzzy_logic", attention((("hyla", "softmax"),)), LOGIC,
          "short"),
    Claim("RMSHead adds to what there is", "H, section 3.1, table A1", "fuzzy_logic",
          attention((("hyla", "hyla_no_rms_head"), ("hyla_no_nonlinearity", NEITHER), ("linear_rms_head", "linear"))),
          LOGIC, "short"),
    Claim("The nonlinearity adds to what there is", "H, section 3.1, table A1", "fuzzy_logic",
          attention((("hyla", "hyla_no_nonlinearity"), ("hyla_no_rms_head", NEITHER))), LOGIC, "short"),
    *(Claim(f"{of} code in layer 2 says more about the terms of held-out tasks than {than} ({fixed} fixed)",
            "H, figure 2B", "fuzzy_logic", says(f"fixed {fixed}, layer 2", "any term", variant, beside), CODES, "short")
      for of, variant in (("HYLA's", "hyla"), ("Softmax attention's", "softmax"))
      for than, beside in (("chance", "shuffled"), ("the answer does", "answer")) for fixed in ("context", "query")),
    Claim("HYLA beats softmax attention on held-out rule combinations", "H, figure 4, table A1", "sraven",
          attention((("hyla", "softmax"),), metric="panel_accuracy"), ("sraven_quick",), "quick"),
    *(Claim(f"HYLA's code in layer 4 says more about the rule of held-out combinations than {than}", "H, figure 5F",
            "sraven", says("second panel, layer 4", "rule", "hyla", beside), ("sraven_codes",), "quick")
      for than, beside in (("chance", "shuffled"), ("the answer does", "answer"))),
    Claim("Compositional attention beats 4-head attention on held-out pairings", "C, section 4.1, table 6",
          "contextual_retrieval", attention((("compositional", "softmax"),), metric="loss", fields={}),
          ("contextual_retrieval_separation",), "quick", less=True),
    Claim("Compositional attention beats softmax attention on triangles", "C, section 4.3, table 3", "triangles",
          attention((("compositional", "softmax"),), split="test", metric="accuracy", fields={}), ("triangles",),
          "small"),
    Claim("At width 32 compositional attention beats softmax attention on relational questions of Sort-of-CLEVR",
          "C, section 4.2, table 7", "sort_of_clevr", tuple(
              pair for kind in ("binary", "ternary") for pair in attention(
                  (("compositional", "softmax"),), split="chosen", metric=kind, fields={"width": 32})),
          ("sort_of_clevr",), "small"),
    *(Claim(f"Compositional attention, 1 retrieval, beats softmax attention on objects never seen, m = {m}",
            "C, section 4.5, figure 6", "esbn", tuple(beside_softmax(composed(problem=problem, hold_out=m))
                                                      for problem in PROBLEMS), ("esbn",), "paper") for m in (50, 95)),
    *(Claim(f"Compositional attention, {words}, says more long SCAN commands rightly than softmax attention",
            "C, section 4.6, table 4", "scan", (beside_softmax(composed(scoring="linear", retrievals=r, **SCAN)),),
            ("scan_10000",), "fifth") for r, words in ((1, "1 retrieval"), (2, "2 retrievals"))),
    Claim("Dot scoring, which sees the query, says more of them rightly than linear scoring", "C, section 4.6 (text)",
          "scan", ((composed(retrievals=2, **SCAN), composed(scoring="linear", retrievals=2, **SCAN)),),
          ("scan_10000",), "fifth"),
    Claim("On longer words of PARITY RegularGPT beats a Transformer", "R, section 5.3, table 1", "regular_languages",
          ((longer(PARITY), longer(TRANSFORMER)),), REGULAR, "quick"),
    Claim("On longer words of PARITY a chunk of 2 beats a chunk of 3", "R, section 5.3, table 1", "regular_languages",
          ((longer(PARITY), longer({**PARITY, "chunk": 3})),), REGULAR, "quick"),
    *(Claim(f"Layer outputs cluster by the automaton's maps, {words}: purity, above the most frequent map's share",
            "R, section 7.3, figure 3", "regular_languages",
            (tuple(Side(fields, "layer outputs", metric) for metric in ("purity", "most frequent")),),
            ("regular_languages_codes",), "quick") for words, fields in (("PARITY", PARITY), ("Cycle", CYCLE))),
    *(Claim(f"{of} predicts characters better than {than}", source, "text", attention((pair,), "test", "bits", SHORT),
            ("text_models",), "small", less=True) for of, than, source, pair in (
        ("HYLA", "linear attention", "H, section 5, figure 6", ("hyla", "linear")),
        ("Compositional attention", "softmax attention", "C, section 4.7, figure 7", ("compositional", "softmax")))),
    Claim("At 32 times the trained length KERPLE predicts characters better than T5", "R, section 6, table 3", "text",
          ((far(32, position="kerple_log"), far(32, position="t5")),), ("text_lengths",), "small", less=True),
    Claim("RegularGPT of chunk 16, trained at 128 characters, is worse at 512 than at 256 = 16², where no level is new",
          "R, section 6, table 3", "text", (tuple(far(n, attention="regular_gpt", chunk=16) for n in (2, 4)),),
          ("text_lengths",), "small", less=True),
)


def value(runs, side: Side, claim: Claim) -> dict:
    """{seed: number} of a side."""
    mine = [run for run in runs if matches(run, claim.task, side.fields) and side.split in run["metrics"]]
    homogeneous(mine, f"{claim.words}: {side.words}")
    return {run["fields"]["seed"]: run["metrics"][side.split][side.metric] for run in mine}


def differences(runs, claim: Claim, pairs=None) -> dict:
    """{seed: mean over the pairs of better minus worse}, of the seeds that every side has; positive is as claimed."""
    sides = [[value(runs, side, claim) for side in pair] for pair in pairs or claim.pairs]
    seeds = set.intersection(*(set(side) for pair in sides for side in pair))
    sign = -1 if claim.less else 1
    return {seed: sign * sum(better[seed] - worse[seed] for better, worse in sides) / len(sides)
            for seed in sorted(seeds)}


@dataclass(frozen=True)
class Claims:
    """All claims as one table."""
    name: str = "claims"
    title: str = "Claims of the papers as paired differences over seeds"
    source: str = ""                   # as named in each row; figures are ours alone
    claims: tuple = CLAIMS
    default_scale: str | None = None   # each claim has its own

    def recorded(self) -> list[dict]:
        """All recorded runs that a claim is made of."""
        known = records.names()
        wanted = dict.fromkeys(name for claim in self.claims for name in claim.records if name in known)
        return [{**run, "record": name} for name in wanted for run in records.load(name)["runs"]]

    def chosen(self, only=()):
        """The claims whose words contain one of `only`; all without any."""
        return chosen({claim.words: claim for claim in self.claims}, only).values()

    def recipes(self, scale: str | None, seeds, only=(), **changes) -> dict:
        """{directory below OUT: recipe} of all runs; each claim has a scale of its own unless one is given."""
        jobs = {}
        for claim in self.chosen(only):
            for side in (side for pair in claim.pairs for side in pair):
                for seed in seeds:
                    one = recipe(claim.task, scale or claim.scale, **{**side.fields, **changes}, seed=seed)
                    jobs[Path(claim.task, one.name)] = one
        return jobs

    def after(self, outcomes) -> list[dict]:
        """Finished fresh runs, and beside those whose codes a claim is about what their codes say."""
        about = [(claim.task, side.fields) for claim in self.claims if claim.records[0].endswith("_codes")
                 for pair in claim.pairs for side in pair]
        return outcomes + [{**run, "metrics": read_codes(run["path"])} for run in outcomes
                           if any(matches(run, *one) for one in about)]

    def sheet(self, runs, only=()) -> Sheet:
        """One row for each claim, and below it one for each of its pairs where it has several."""
        rows, data, used, notes = [], [], {}, []
        for claim in self.chosen(only):
            mine = [run for run in runs if run.get("record", claim.records[0]) in claim.records]
            for words, pairs in self.lines(claim):
                found = differences(mine, claim, pairs)
                sides = [side for pair in pairs for side in pair]
                of = [run for run in mine if run["fields"]["seed"] in found
                      and any(matches(run, claim.task, side.fields) for side in sides)]
                used.update({(run["name"], run["task"]): run for run in of})
                text, row = self.line(words, claim, found, of)
                rows.append(text)
                data.append(row)
            notes += self.settings(claim, mine)
        headings = ["", "source", "effect", "95 % interval", "clear of zero", "seeds", "seconds a run"]
        return Sheet(self.name, self.title, self.source, headings, rows, data,
                     ["Effect: mean difference over seeds, paired by seed, positive as claimed; interval: Student's t; "
                      "seconds: wall clock of one thread, on a machine as busy as it was.",
                      *([f"Made of {made_of(used.values())}."] if used else []), *dict.fromkeys(notes)], len(used))

    @staticmethod
    def lines(claim):
        """(words, pairs) of the claim, then of each pair."""
        yield claim.words, claim.pairs
        for pair in claim.pairs if len(claim.pairs) > 1 else ():
            yield f"… {pair[0].words} − {pair[1].words}", (pair,)

    @staticmethod
    def line(words, claim, found, runs):
        """Texts and data of one row."""
        effect = mean(found.values())
        span = interval(effect)
        clear = span is not None and (span[0] > 0 or span[1] < 0)
        seconds = sum(run["seconds"] for run in runs) / len(runs) if runs else None
        verdict = NEVER if not found else "one seed" if span is None else (
            ("yes" if span[0] > 0 else "yes, against the claim") if clear else "no")
        text = [words, "" if words.startswith("…") else claim.source, f"{effect.mean:+.3f}" if found else NEVER,
                "–" if span is None else f"{span[0]:+.3f} to {span[1]:+.3f}", verdict, str(effect.n),
                f"{seconds:,.0f}" if runs else "–"]
        return text, {"words": words, "source": claim.source, "effect": effect.mean, "interval_95": span,
                      "clear_of_zero": clear, "differences": {str(seed): x for seed, x in found.items()},
                      "seconds_a_run": seconds}

    @staticmethod
    def settings(claim, runs) -> list[str]:
        """The setting of a claim's runs, once for each task."""
        mine = [run for run in runs if run["task"] == claim.task]
        if not mine:
            return []
        fields, scale = mine[0]["fields"], asdict(recipe(claim.task, claim.scale))
        as_scale = all(fields[name] == scale[name] for name in ("steps", "batch", "rate", "width"))
        of = f" (scale {claim.scale})" if as_scale else ""
        return [f"{claim.task}{of}: {fields['steps']:,} steps of {fields['batch']} samples, rate {fields['rate']:g}, "
                f"width {fields['width']}."]
