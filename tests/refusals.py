"""Calls that end with one of our errors."""

import pytest

from autorl.core.types import InputError


def expect_error(said, call, *given, kind=InputError, **named):
    """Call it, and return the error it ends with: one line, which `said` matches (a regular expression)."""
    with pytest.raises(kind, match=said or None) as error:
        call(*given, **named)
    assert "\n" not in str(error.value)
    return error.value
