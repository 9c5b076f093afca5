"""What holds for the page of every variant, and what its row must say."""

import pytest

from refattn.attention import VARIANTS
from tests.pages import check_bad_input, check_tags


@pytest.mark.parametrize("name", VARIANTS)
def test_tags_are_answered_in_reverse(name):
    row = VARIANTS[name]
    check_tags(getattr(row.forward, "func", row.forward), row.backward)


@pytest.mark.parametrize("name", VARIANTS)
def test_bad_input(name):
    check_bad_input(VARIANTS[name])
