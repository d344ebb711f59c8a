"""The browser of the tests in this folder: one for each process that runs tests."""

import pytest
from chromium import NAMES, PROGRAM, Browser, installed

pytest.register_assert_rewrite("looks")


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = installed()
    if program is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is installed, ${PROGRAM} names none")
    with Browser(tmp_path_factory.mktemp("chromium"), program) as running:
        yield running


@pytest.fixture
def page(browser):
    """A page of 1280 x 800 in light colours, which ends without complaints."""
    with browser.page() as opened:
        yield opened
        assert opened.problems == []
