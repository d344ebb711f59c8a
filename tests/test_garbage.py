"""Python's search for garbage is paused where all that is made stays."""

import gc

import pytest

from autorl.core.garbage import collection_paused


@pytest.fixture(params=[True, False], ids=["on", "off"])
def searching(request):
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def test_the_search_is_paused_and_goes_on_as_it_was(searching):
    with collection_paused():
        assert not gc.isenabled()
    assert gc.isenabled() is searching


def test_an_error_ends_the_pause(searching):
    with pytest.raises(ZeroDivisionError), collection_paused():
        raise ZeroDivisionError
    assert gc.isenabled() is searching
