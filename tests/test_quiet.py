"""Libraries are silenced for a while, and speak afterwards as before."""

import logging
import warnings

import pytest

from autorl.core.quiet import quieted


def test_what_is_below_the_level_is_dropped_and_what_is_above_is_not(caplog, recwarn):
    logger = logging.getLogger("a library")
    with quieted("a library"):
        logger.warning("an experimental argument")
        logger.error("a defect")
        warnings.warn("slower", stacklevel=1)
    assert caplog.messages == ["a defect"]
    assert len(recwarn) == 0


def test_level_and_warnings_are_as_before_even_after_an_error(recwarn):
    logger = logging.getLogger("a library")
    logger.setLevel(logging.INFO)
    with quieted("a library", logging.CRITICAL):
        assert logger.level == logging.CRITICAL
    with pytest.raises(ValueError, match="anything"), quieted("a library"):
        raise ValueError("anything")
    assert logger.level == logging.INFO
    warnings.warn("again", stacklevel=1)
    assert len(recwarn) == 1
