"""Rows for tasks: what a batch must satisfy, how often things occur, and the best answers, each against loops.

Samples are of fixed seeds, large enough that a wrong distribution lies far outside and the right one does not.
"""

import numpy as np

from ...tasks import esbn, scan
from ...tasks.sraven import METRICS, RULES, SPLITS, Sraven, truth
from ...tasks.sraven_ambiguity import differing
from ...tasks.sraven_bayes import best_answers
from ..naive import esbn as naive_esbn
from ..naive import scan as naive_scan
from ..naive import sraven as naive
from .routines import table


def task_and_batch(count, split="train", features=3, symbols=5, **options):
    """A task and a batch of it."""
    task = Sraven(features, symbols)
    return task, task.sample(np.random.default_rng(0), count, split, **options)


def faults():
    """Faults that the loops find, targets that the tokens do not give, and the sizes of splits."""
    task, batch = task_and_batch(60)
    found = sum(naive.faults(batch, task.symbols, task.combinations("train")).values())
    wrong = (truth(batch.tokens, batch.rules, batch.permutation) != batch.target).sum()
    return np.array([found, wrong, *(len(task.combinations(split)) for split in SPLITS)])


def unlikely(drawn, cells) -> bool:
    """Whether chi-square says that these, numbers or rows, are not of so many equally likely cells (5 deviations)."""
    counts = np.unique(drawn, axis=0, return_counts=True)[1]
    counts = np.pad(counts, (0, max(0, cells - len(counts))))
    expected = counts.sum() / cells
    return len(counts) > cells or ((counts - expected) ** 2).sum() / expected > cells + 5 * np.sqrt(2 * cells)


def frequencies():
    """Of rule combinations, of permutations of the columns together, and of the grids of each rule at K = 3."""
    task, batch = task_and_batch(10_000)
    codes = (batch.permutation[..., 0] * 3 + batch.permutation[..., 1]) @ np.array([81, 9, 1])
    found = [unlikely(batch.rules, len(task.combinations("train"))), unlikely(codes, 216)]
    _, batch = task_and_batch(24_000, "all", 1, 3, shuffled=False)
    for rule in range(len(RULES)):
        grids = batch.panels[batch.rules[:, 0] == rule].reshape(-1, 9)
        found.append(unlikely(grids, 27 if rule < 5 else 729 if rule < 7 else 216))
    return np.array(found, dtype=int)


def accuracies():
    """Every metric of one column of the panels taken for the prediction."""
    _, batch = task_and_batch(50, features=2, symbols=3)
    return np.array([accuracy(batch.panels[:, 2, 1], batch.target) for accuracy in METRICS.values()])


def accuracies_by_loops():
    """The same, sample by sample."""
    _, batch = task_and_batch(50, features=2, symbols=3)
    hits = [[int(a == b) for a, b in zip(*pair, strict=True)] for pair in zip(
        batch.panels[:, 2, 1].tolist(), batch.target.tolist(), strict=True)]
    return np.array([sum(map(min, hits)) / 50, sum(map(sum, hits)) / 100])


def answers():
    """Probabilities of the best answers, and what explanations can miss, of 60 instances, M = 2, K = 3."""
    task, batch = task_and_batch(60, features=2, symbols=3)
    best = best_answers(batch.panels, 3, task.combinations("train"))
    return best.probability, differing(batch.panels, 3).astype(int), differing(batch.panels, 3, strict=True).astype(int)


def answers_by_loops():
    """The same, from every hypothesis of every instance."""
    task, batch = task_and_batch(60, features=2, symbols=3)
    panels, combinations = batch.panels.tolist(), task.combinations("train").tolist()
    misses = [np.array([[int(n in naive.differing(one, 3, strict)) for n in range(3)] for one in panels])
              for strict in (False, True)]
    return np.array([max(naive.posterior(one, 3, combinations).values()) for one in panels]), *misses


COMMANDS = slice(None, None, 97)


def commands():
    """Some commands' actions in the task's arrays, the sizes of its splits, and which of three answers are right."""
    some = scan.examples().target[COMMANDS]
    sizes = [[scan.Scan(cutoff).size(split) for split in scan.SPLITS] for cutoff in (22, 26)]
    longest = [scan.Scan(26).take(split, np.arange(9)).target.shape[1] for split in scan.SPLITS]
    said = scan.correct([[1, 2, 6, 1], [1, 6, 2, 6], [1, 2, 2, 2]], [[1, 2, 6]] * 3)
    return some, np.array(sizes), np.array(longest), said.astype(int)


def commands_by_words():
    """The same, word by word."""
    words = [[scan.WORDS[w] for w in row[1:row.tolist().index(scan.STOP)]] for row in scan.examples().source[COMMANDS]]
    actions = [[scan.ACTIONS.index(x) for x in naive_scan.interpret(row)] for row in words]
    found = np.array([row + [scan.END] * (49 - len(row)) for row in actions])
    lengths = [len(naive_scan.interpret(command.split())) for command in scan.grammar()]
    pools = [sum(n <= cutoff for n in lengths) for cutoff in (22, 26)]
    sizes = [[n - int(n * (1 - 0.9)), int(n * (1 - 0.9)), len(lengths) - n] for n in pools]
    return found, np.array(sizes), np.array([27, 27, 49]), np.array([1, 0, 0])


HELD_OUT = 0, 85, 95


def all_trials():
    """Trials of five objects unfolded from their numbers, as many as there are; and the sizes and shares of sets."""
    found = [np.unique(np.concatenate([np.column_stack(kind.unfold(np.arange(kind.count(5)), 5, np.random.default_rng(
        0))) for kind in row.kinds]), axis=0) for name, row in esbn.TASKS.items() if name != "distribution_of_three"]
    sets = [esbn.Esbn(name, m).trials("train") for name in esbn.TASKS for m in HELD_OUT]
    sizes = [len(each.target) for each in sets]
    wrong = [abs((each.kind == 0).mean() - share) > 0.02 for each, share in zip(sets, SHARES, strict=True)]
    row = np.array(list(map(naive_esbn.renamed, sets[7].pictures[:, :5].tolist())))
    choices = np.sort(sets[7].pictures[:, 5:], axis=1)
    answer = np.take_along_axis(sets[7].pictures[:, 5:], sets[7].target[:, None], axis=1)[:, 0]
    missing = [answer[i] not in sets[7].pictures[i, 3:5] and answer[i] in sets[7].pictures[i, :3] for i in range(99)]
    return *found, np.array([*sizes, *wrong, row.max(), (np.diff(choices) == 0).sum(), sum(missing)], dtype=int)


SHARES = 0.5, 0.5, 0.5, 0.5, 65_520 / 786_240, 0.5, 1, 1, 1, 1 / 3, 1 / 3, 1 / 3       # of the first kind


def all_trials_by_loops():
    """The same, trial by trial."""
    found = [np.unique([(*x, y) for x, y in f(range(5))], axis=0) for name, f in naive_esbn.TASKS.items()
             if name != "distribution_of_three"]
    sizes = 18_810, 420, 40, 10_000, 10_000, 480, 10_000, 10_000, 360, 10_000, 10_000, 8_640
    return *found, np.array([*sizes, *[0] * 12, 2, 0, 99])


def routines():
    """All rows of this file."""
    yield table("tasks/esbn", "tasks/esbn.py", all_trials, all_trials_by_loops, "C, appendix C.5; Webb et al. 2021")
    yield table("tasks/scan", "tasks/scan.py", commands, commands_by_words, "C, section 4.6; Lake & Baroni 2018")
    source = "H, section 4, appendix B, and the released code"
    yield table("tasks/sraven samples", "tasks/sraven.py", faults,
                lambda: np.array([0, 0, 120, 90, 30]), source)      # 120 = 10! / (3! 7!) combinations, 30 held out
    yield table("tasks/sraven frequencies", "tasks/sraven.py", frequencies, lambda: np.zeros(10, dtype=int), source)
    yield table("tasks/sraven accuracies", "tasks/sraven.py", accuracies, accuracies_by_loops, source)
    yield table("tasks/sraven answers", "tasks/sraven_bayes.py", answers, answers_by_loops, source)
