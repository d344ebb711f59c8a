"""`autorl watch --web` as people see it: the command beside a study that goes on, in a browser."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest
from looks import charts, check
from patience import PATIENCE
from pointing import wait_until_drawn

from autorl.core.seeds import SeedPlan
from autorl.study.tuner import Tuner

TOKEN = "0123456789abcdef0123"
HOSTILE = "<script>alert(1)<script>"
SPACE = {
    "x": {"type": "float", "lower": 0.0, "upper": 1.0},
    "rate": {"type": "float", "lower": 1e-5, "upper": 1.0, "scale": "log"},
    "kind": {"type": "categorical", "choices": [HOSTILE, "plain"]},
}
SCORE = "#proposals th:nth-child(5)"  # the column of tuning scores
SORT = f"{SCORE} .sort"
NUMBERS = (
    "Array.from(document.querySelectorAll('#proposals tbody tr'), (row) => row.cells[0].innerText)"
)


def sorted_by_score(order):
    return f"document.querySelector('{SCORE}').getAttribute('aria-sort') === '{order}'"


def opened(page, address):
    """Open the page of a study and wait for its charts."""
    page.open(address)
    wait_until_drawn(page)


@contextmanager
def serving(*arguments, token=""):
    """Run the command, and give its address."""
    environment = {**os.environ, "AUTORL_WEB_TOKEN": token}
    process = subprocess.Popen(
        [sys.executable, "-m", "autorl", "watch", "--web", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process.stdout.readline().partition("  ")[0]
    finally:
        process.terminate()
        process.wait(PATIENCE)
        process.stdout.close()


@contextmanager
def searching(folder, scores=12):
    """Open a study with some scores and an open trial; gives its folder, and what tells a score."""
    with Tuner(SPACE, "random", seeds=SeedPlan(1, 0), path=folder, budget={"runs": 64}) as tuner:
        for number in range(scores):
            tuner.tell(tuner.ask(), 0.1 * (number % 5))
        trials = [tuner.ask()]

        def tell(value):
            tuner.tell(trials.pop(), value)
            trials.append(tuner.ask())

        yield folder, tell


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A study that goes on, and whose log is open."""
    with searching(tmp_path_factory.mktemp("serve") / f"study {HOSTILE}") as (folder, _):
        yield folder


@pytest.fixture(scope="module")
def address(study):
    with serving(study, "--port", 0, "--interval", 0.2) as place:
        yield place


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height", "mobile"), [(1280, 800, False), (390, 844, True)])
def test_the_page_is_painted_whole_at_every_width(browser, address, width, height, mobile, scheme):
    with browser.page(width=width, height=height, mobile=mobile, scheme=scheme) as page:
        opened(page, address)
        assert page.first_paint() > 0
        assert max(chart["width"] for chart in charts(page)) > 0.4 * min(width + 300, 1280)
        check(page)
        assert page.text("#connection") == "live"
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.outside() == []
        assert page.problems == []


@contextmanager
def followed(browser, folder):
    """Open the page of a study that goes on; gives page and what tells a score."""
    with (
        searching(folder / "study") as (place, tell),
        serving(place, "--port", 0, "--interval", 0.2) as address,
        browser.page() as page,
    ):
        opened(page, address)
        yield page, tell


def test_what_is_new_appears_without_a_reload(browser, tmp_path):
    with followed(browser, tmp_path) as (page, tell):
        page.evaluate("window.first = document.body; true")
        spec = "document.querySelector('[data-chart=incumbent] .drawing').dataset.spec"
        line = page.evaluate(spec)
        before = page.evaluate(NUMBERS)
        # What somebody has chosen and where they are stays as it is.
        page.click(SORT)
        page.click(SORT)
        page.wait_for(sorted_by_score("descending"))
        top = f"Math.round(document.querySelector('{SORT}').getBoundingClientRect().top)"
        place = page.evaluate(top)
        tell(0.875)
        page.wait_for("document.querySelector('#result').innerText.includes('0.875')")
        page.wait_for("document.querySelector('#proposals tbody tr').innerText.includes('0.875')")
        page.wait_for(f"{spec} !== {json.dumps(line)}")
        assert page.evaluate(NUMBERS) != before
        assert page.evaluate(sorted_by_score("descending"))
        assert page.evaluate(f"document.activeElement === document.querySelector('{SORT}')")
        page.wait_for(f"Math.abs({top} - {place}) <= 3")
        assert page.evaluate("window.first === document.body")
        documents = [place for place in page.requests if re.search(r"/study/\w+$", place)]
        assert len(documents) == 1
        assert page.problems == []


def test_a_click_counts_while_the_table_changes(browser, tmp_path):
    with followed(browser, tmp_path) as (page, tell):
        with page.pressed(SORT):
            tell(0.875)
            page.wait_for("document.querySelector('#result').innerText.includes('0.875')")
            asked = len(page.requests)
            browser.wait(lambda: len(page.requests) > asked + 2, "a page that asks on")
            assert "0.875" not in page.text("#proposals")
        page.wait_for(sorted_by_score("ascending"))
        # What came during a press is shown after it.
        page.wait_for("document.querySelector('#proposals').innerText.includes('0.875')")
        assert page.evaluate(sorted_by_score("ascending"))


def test_the_table_is_used_by_keyboard_alone(page, address):
    opened(page, address)
    for _ in range(80):
        page.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if page.evaluate(f"document.activeElement === document.querySelector('{SORT}')"):
            break
    for key, order, reverse in (("Enter", "ascending", False), (" ", "descending", True)):
        page.press(key)
        page.wait_for(sorted_by_score(order))
        scores = page.evaluate(
            "Array.from(document.querySelectorAll('#proposals tbody tr'), (row) => row.cells[4].innerText)"
        )
        values = [float(score) for score in scores if score != "-"]
        assert values == sorted(values, reverse=reverse)


def test_hostile_text_is_shown_as_text(page, address, study):
    opened(page, address)
    assert HOSTILE in page.text("#proposals")
    assert page.evaluate("document.querySelectorAll('script').length") == 2
    assert page.evaluate("document.querySelectorAll('img, iframe, object').length") == 0


def test_studies_that_begin_later_come_into_the_list(browser, tmp_path):
    with serving(tmp_path, "--port", 0, "--interval", 0.2) as address, browser.page() as page:
        page.open(address)
        page.wait_for("document.body.innerText.includes('No study here yet')")
        with searching(tmp_path / "later", 3):
            page.wait_for("document.querySelector('#studies a') !== null")
            check(page)
            page.click("#studies a")
            # A click returns before the page has changed.
            page.wait_for("document.querySelector('header a') !== null")
            wait_until_drawn(page)
            page.click("header a")
            page.wait_for("document.querySelector('#studies a') !== null")
            assert page.problems == []


def test_pages_of_others_neither_read_nor_frame_it(browser, address, tmp_path):
    place = tmp_path / "other.html"
    place.write_text(
        f'<!doctype html><title>other</title><iframe src="{address}state"></iframe><script>'
        f"window.read = fetch('{address}state').then(() => 'read', () => 'refused');"
        f"window.sent = fetch('{address}state', {{method: 'POST', mode: 'no-cors'}})"
        ".then((answer) => answer.type, () => 'refused')</script>"
    )
    with browser.page() as page:
        page.open(place)
        assert page.evaluate("read") == "refused"
        # Neither the body nor the status of an answer without CORS is there to read.
        assert page.evaluate("sent") in ("opaque", "refused")
        assert page.evaluate("document.querySelector('iframe').contentDocument") is None


def test_a_token_opens_the_page_once_and_leaves_the_address(browser, study):
    with serving(study, "--port", 0, "--interval", 0.2, token=TOKEN) as address:
        bare = address.partition("?")[0]
        assert address == f"{bare}?token={TOKEN}"
        with browser.page() as page:
            page.open(bare)
            assert "a token is needed" in page.text()
            page.problems.clear()
            opened(page, address)
            assert TOKEN not in page.evaluate("location.href")
            assert page.evaluate("document.cookie") == ""  # scripts have no part in it
            opened(page, bare)
            assert page.problems == []
        with browser.page() as stranger:
            stranger.open(bare)
            assert "a token is needed" in stranger.text()


def test_a_page_whose_server_ends_says_so_and_goes_on_with_the_next(browser, study):
    with browser.page() as page:
        with serving(study, "--port", 0, "--interval", 0.2) as address:
            opened(page, address)
            rows = page.evaluate(NUMBERS)
        page.wait_for("document.querySelector('#connection').innerText.startsWith('not up to')")
        assert page.evaluate(NUMBERS) == rows
        check(page)
        port = address.rstrip("/").rpartition(":")[2]
        with serving(study, "--port", port, "--interval", 0.2) as again:
            assert again == address
            page.wait_for("document.querySelector('#connection').innerText === 'live'")
