"""What every refusal of a setting promises: a ValueError of one line that says what was given and what is allowed."""

import pytest


def refused(message: str, make, *arguments, **settings) -> None:
    """make(*arguments, **settings) raises ValueError, in one line that has the message."""
    with pytest.raises(ValueError) as error:
        make(*arguments, **settings)
    assert message in str(error.value) and "\n" not in str(error.value)
