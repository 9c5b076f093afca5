"""The house stays small: ceilings for its rooms, and how many files a training step goes through."""

import doctest

from refattn.attention import VARIANTS
from refattn.recipes import recipe
from tests import size


def test_rooms_stay_below_their_ceilings():
    assert doctest.testmod(size).failed == 0
    rooms = size.rooms()
    found = {"refattn": rooms.total(), "numerics": sum(rooms[name] for name in size.NUMERICS)}
    for name, lines in found.items():
        ceiling = size.CEILINGS[name] + (len(VARIANTS) - 12) * size.NEW_PAGE[name]
        assert lines <= ceiling, f"{name} has {lines:,} lines of code, allowed are {ceiling:,}: leave out, " \
                                 "or raise CEILINGS in tests/size.py by what the change is worth"


def test_a_step_goes_through_few_files():
    tiny = recipe("fuzzy_logic", steps=3, batch=4, length=8, width=8, heads=2, hidden=8, evaluation=8, probe=8,
                  log_every=1, evaluate_every=3)
    files = size.step_files(tiny)
    assert 15 < len(files) <= 32, sorted(files)
