"""SCAN: the grammar against word-by-word interpretation and the published file, splits, batches, what is refused."""

import gzip
import os
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from refattn.tasks import scan
from refattn.tasks.scan import ACTIONS, END, SPLITS, STOP, WORDS, Scan, correct, grammar, spoken
from refattn.verification.naive.scan import interpret
from tests.refusals import refused


def published():
    """The pairs of the published file, in its order; skipped where it is not at hand."""
    file = Path(os.environ.get("REFATTN_DATA", "/nowhere"), "scan_tasks.txt.gz")
    if not file.exists():
        pytest.skip("REFATTN_DATA has no scan_tasks.txt.gz")
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    return [tuple(line.removeprefix("IN: ").split(" OUT: ")) for line in lines]


def words_of(batch):
    """The commands and the actions of a batch as texts, read off its integers."""
    commands = [" ".join(WORDS[w] for w in row[1:n - 1]) for row, n in zip(batch.source, batch.source_length,
                                                                           strict=True)]
    return list(zip(commands, map(spoken, batch.target.tolist()), strict=True))


def test_every_command_means_what_its_words_say():
    assert len(grammar()) == 102 + 2 * 102**2 == 20_910
    for command, actions in grammar().items():
        assert list(actions) == interpret(command.split())
    lengths = {len(actions) for actions in grammar().values()}
    assert set(range(1, 49)) - lengths == {23, 29, 31, 34, 35, *range(37, 40), *range(41, 48)}
    assert {word for command in grammar() for word in command.split()} == set(WORDS)
    assert {action for actions in grammar().values() for action in actions} == set(ACTIONS)


def test_the_published_file_in_its_order():
    assert words_of(scan.examples()) == published()


@pytest.mark.parametrize("cutoff", [22, 26, 30])
def test_splits(cutoff):
    task = Scan(cutoff)
    n = sum(len(actions) <= cutoff for actions in grammar().values())
    assert [task.size(split) for split in SPLITS] == [n - int(n * (1 - 0.9)), int(n * (1 - 0.9)), 20_910 - n]
    everything = [words_of(task.take(split, np.arange(task.size(split)))) for split in SPLITS]
    assert dict(sum(everything, [])).keys() == grammar().keys() and sum(map(len, everything)) == 20_910
    assert all((len(actions.split()) <= cutoff) == (i < 2) for i, part in enumerate(everything) for _, actions in part)
    assert all(" ".join(grammar()[command]) == actions for part in everything for command, actions in part)


def test_a_pool_of_a_multiple_of_ten_holds_out_one_less():
    """1 - 0.9 is a bit below a tenth: the authors' rounding, which decides the sizes of their splits."""
    sizes = {cutoff: sum(map(Scan(cutoff).size, SPLITS[:2])) for cutoff in range(2, 48)}
    tens = [cutoff for cutoff, size in sizes.items() if size % 10 == 0]
    assert tens and all(Scan(cutoff).size("held_out") == sizes[cutoff] // 10 - 1 for cutoff in tens)


def test_the_cut_offs_28_and_29_are_one_split():
    for split in SPLITS:
        np.testing.assert_array_equal(scan.indices(28)[split], scan.indices(29)[split])
        assert not np.array_equal(scan.indices(27)[split], scan.indices(28)[split])


def test_batches():
    task = Scan(26)
    batch = task.sample(np.random.default_rng(0), 500)
    assert batch.target.shape == (500, 27) and task.take("longer", np.arange(3)).target.shape == (3, 49)
    for source, n, target, length in zip(*batch, strict=True):
        assert source[n - 1] == STOP and not source[n:].any() and (target[length:] == END).all()
        assert length <= 26 and (target[:length] < END).all()
    seen = np.unique(task.sample(np.random.default_rng(1), 40_000).source, axis=0)
    assert abs(len(seen) / task.size("train") - (1 - np.exp(-40_000 / task.size("train")))) < 0.01      # replacement


def test_correct_is_the_published_measure():
    asked = [[1, 2, END, END]]
    for said, right in ([1, 2, END], True), ([1, 2, END, 5, 5], True), ([1, 2], False), ([1, END, 2, END], False), (
            [1, 3, END], False), ([1, 2, 2, END], False), ([END], False):
        assert correct([said], asked).tolist() == [right], said


def test_a_batch_takes_less_than_a_millisecond():
    task, rng = Scan(26), np.random.default_rng(0)
    task.sample(rng, 256)
    began = perf_counter()
    for _ in range(20):
        task.sample(rng, 256)
    assert (perf_counter() - began) / 20 < 5e-3                 # measured 0.1 ms; room for a busy machine


@pytest.mark.parametrize("cutoff", [1, 48, 26.0, True])
def test_cut_offs_that_leave_nothing_are_refused(cutoff):
    refused(f"cutoff is {cutoff}; allowed: whole numbers from 2 to 47", Scan, cutoff)


def test_other_refusals():
    refused("split is 'test'; allowed: train, held_out, longer", Scan().size, "test")
    refused("the command has the word 'jmp', did you mean jump? allowed: after, and, around, jump, left, "
            "look, opposite, right, run, thrice, turn, twice, walk", scan.tokens, "jmp left")
    refused("the command has 0 words; allowed: 1 to 9", scan.tokens, "")
    refused("the command has 10 words; allowed: 1 to 9", scan.tokens, "walk " * 10)
    assert len(scan.tokens("walk " * 9)) == 11
    refused("chosen has -1 to 3; allowed: 0 to 16457", Scan(26).take, "train", [3, -1])
    refused("chosen has 16458 to 16458; allowed: 0 to 16457", Scan(26).take, "train", [16_458])
    refused("batch is 0; allowed: whole numbers of at least 1", Scan().sample, np.random.default_rng(0), 0)


def test_a_target_without_an_end_is_ended_by_its_width():
    assert correct([[0, 0, 0], [0, 1, 2]], [[0, 1, 2], [0, 1, 2]]).tolist() == [False, False]
    assert correct([[0, 1, 2, END]], [[0, 1, 2]]).tolist() == [True] and correct([[5, 4]], [[5, 0]]).tolist() == [False]
