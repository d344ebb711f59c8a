"""`autorl serve` as people see it: the command beside a study that goes on, in a browser."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager

import pytest
from chromium import FOREIGN
from folder_contents import written
from looks import charts, check
from patience import PATIENCE

from autorl.seeds import SeedPlan
from autorl.tuner import Tuner

TOKEN = "0123456789abcdef0123"
HOSTILE = "<script>alert(1)<script>"
SPACE = {
    "x": {"type": "float", "lower": 0.0, "upper": 1.0},
    "rate": {"type": "float", "lower": 1e-5, "upper": 1.0, "scale": "log"},
    "kind": {"type": "categorical", "choices": [HOSTILE, "plain"]},
}
SHOWN = "document.querySelector('#runs tbody tr') && document.querySelector('#curve svg') && true"
SORT = "button[data-sort=score]"
ASCENDING = f"document.querySelector('th[aria-sort=ascending] {SORT}') !== null"
NUMBERS = "Array.from(document.querySelectorAll('#runs tbody tr'), (row) => row.cells[0].innerText)"


@contextmanager
def serving(*arguments, token=""):
    """Run the command, and give its address."""
    environment = {**os.environ, "AUTORL_SERVE_TOKEN": token}
    process = subprocess.Popen(
        [sys.executable, "-m", "autorl", "serve", *map(str, arguments)],
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
        page.open(address)
        page.wait_for(SHOWN)
        assert page.first_paint() > 0
        (curve,) = charts(page)
        assert curve["width"] > 0.8 * min(width, 960)
        check(page, marks=10)
        assert page.text("#connection") == "live"
        assert page.evaluate("document.documentElement.lang") == "en"
        assert page.outside() == []
        assert page.problems == []


def test_what_is_new_appears_without_a_reload(browser, tmp_path):
    with (
        searching(tmp_path / "study") as (folder, tell),
        serving(folder, "--port", 0, "--interval", 0.2) as address,
        browser.page() as page,
    ):
        page.open(address)
        page.wait_for(SHOWN)
        page.evaluate("window.first = document.body; true")
        line = page.evaluate("document.querySelector('#curve .line').getAttribute('d')")
        before = page.evaluate(NUMBERS)
        # What somebody has chosen and where they are stays as it is.
        page.click(SORT)
        page.wait_for(ASCENDING)
        page.click(SORT)
        page.wait_for("document.querySelector('th[aria-sort=descending]') !== null")
        page.evaluate("window.scrollTo(0, 200)")
        place = page.evaluate("scrollY")
        tell(0.875)
        page.wait_for("document.querySelector('#headline').innerText.includes('0.875')")
        page.wait_for("document.querySelector('#runs tbody tr').innerText.includes('0.875')")
        page.wait_for(
            f"document.querySelector('#curve .line').getAttribute('d') !== {line!r} && true"
        )
        assert page.evaluate(NUMBERS) != before
        assert page.evaluate("document.querySelector('th[aria-sort=descending]').innerText") == (
            "tuning score ▼"
        )
        assert page.evaluate("document.activeElement.dataset.sort") == "score"
        assert page.evaluate("scrollY") == place
        assert page.evaluate("window.first === document.body")
        documents = [place for place in page.requests if re.search(r"/study/\w+$", place)]
        assert len(documents) == 1
        assert page.problems == []


def test_a_click_counts_while_the_table_changes(browser, tmp_path):
    with (
        searching(tmp_path / "study") as (folder, tell),
        serving(folder, "--port", 0, "--interval", 0.2) as address,
        browser.page() as page,
    ):
        page.open(address)
        page.wait_for(SHOWN)
        with page.pressed(SORT):
            tell(0.875)
            page.wait_for("document.querySelector('#headline').innerText.includes('0.875')")
            asked = len(page.requests)
            browser.wait(lambda: len(page.requests) > asked + 2, "a page that asks on")
            assert "0.875" not in page.text("#runs")
        page.wait_for(ASCENDING)
        assert "0.875" in page.text("#runs")
        # What came during a press is shown also where the press ended elsewhere, as no click.
        with page.pressed(SORT):
            tell(0.9375)
            page.wait_for("document.querySelector('#headline').innerText.includes('0.9375')")
            page.hover("h1")
        page.wait_for("document.querySelector('#runs').innerText.includes('0.9375')")


def test_a_late_answer_to_an_earlier_choice_is_not_shown(page, address):
    page.at_start(
        "const fetched = window.fetch;"
        "window.held = [];"
        "window.fetch = async (address) => {"
        "  const answer = await fetched(address);"
        "  if (address.includes('sort=score') && address.endsWith('state='))"
        "    await new Promise((resolve) => window.held.push(resolve));"
        "  return answer;"
        "}"
    )
    page.open(address)
    page.wait_for(SHOWN)
    page.click(SORT)
    page.wait_for("window.held.length > 0")
    page.click('button[data-state="complete"]')
    chosen = "document.querySelector('button[data-state=complete][aria-pressed=true]') !== null"
    page.wait_for(chosen)
    page.evaluate("window.held.forEach((resolve) => resolve())")
    page.evaluate("new Promise((resolve) => setTimeout(resolve, 200))")
    assert page.evaluate(chosen)


def test_looking_writes_nothing_to_the_study(browser, page, address, study):
    before = written(study)
    assert any(name.endswith("-wal") for name in before)
    page.open(address)
    page.wait_for(SHOWN)
    page.click(SORT)
    page.wait_for(ASCENDING)
    page.click('button[data-state="complete"]')
    page.wait_for("document.querySelector('button[data-state=complete][aria-pressed=true]')&&true")
    asked = len(page.requests)
    browser.wait(lambda: len(page.requests) > asked + 3, "a page that asks on")
    assert written(study) == before


def test_the_table_is_used_by_keyboard_alone(page, address):
    page.open(address)
    page.wait_for(SHOWN)
    labels = []
    focused = "[document.activeElement.localName, document.activeElement.innerText]"
    for _ in range(40):
        page.press("Tab")
        labels.append(page.evaluate(focused))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        if page.evaluate("document.activeElement.dataset.sort") == "score":
            break
    assert labels[0] == ["a", "all studies"]
    assert ["button", "complete"] in labels
    for key, order, reverse in (("Enter", "ascending", False), (" ", "descending", True)):
        page.press(key)
        page.wait_for(f"document.querySelector('th[aria-sort={order}] {SORT}') !== null")
        # The button was replaced; whoever pressed it is still there.
        page.wait_for("document.activeElement.dataset.sort === 'score'")
        scores = page.evaluate(
            "Array.from(document.querySelectorAll('#runs tbody tr'), (row) => row.cells[2].innerText)"
        )
        values = [float(score) for score in scores if score != "-"]
        assert values == sorted(values, reverse=reverse)


def test_hostile_text_is_shown_as_text(page, address, study):
    page.open(address)
    page.wait_for(SHOWN)
    assert HOSTILE in page.text("#runs")
    assert page.evaluate("document.querySelectorAll('script').length") == 1
    assert page.evaluate("document.querySelectorAll('img, iframe, object').length") == 0


def test_studies_that_begin_later_come_into_the_list(browser, tmp_path):
    with serving(tmp_path, "--port", 0, "--interval", 0.2) as address, browser.page() as page:
        page.open(address)
        page.wait_for("document.body.innerText.includes('No study here yet')")
        with searching(tmp_path / "later", 3):
            page.wait_for("document.querySelector('#studies a') !== null")
            check(page)
            page.click("#studies a")
            page.wait_for(SHOWN)
            page.click("p a")
            page.wait_for("document.querySelector('#studies a') !== null")
            assert page.problems == []


def test_a_name_of_somebody_else_that_leads_here_is_refused(browser, address):
    port = address.rstrip("/").rpartition(":")[2]
    with browser.page() as page:
        page.open(f"http://{FOREIGN}:{port}/")
        assert page.text().strip() == "refused: the header Host names another machine"
        # The browser also says that it takes a policy about openers from https alone.
        assert page.problems[0] == f"answer: 403 of http://{FOREIGN}:{port}/"


@pytest.mark.parametrize(
    ("path", "status"),
    [("study/none", 404), ("study.yaml", 404), ("%2e%2e%2fstudy.yaml", 400), ("%00", 400)],
)
def test_paths_of_no_page_are_refused_in_a_line(browser, address, path, status):
    with browser.page() as page:
        page.open(f"{address}{path}")
        assert "\n" not in page.text().strip()
        assert page.problems == [f"answer: {status} of {address}{path}"]


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
            page.open(address)
            page.wait_for(SHOWN)
            assert TOKEN not in page.evaluate("location.href")
            assert page.evaluate("document.cookie") == ""  # scripts have no part in it
            page.open(bare)
            page.wait_for(SHOWN)
            assert page.problems == []
        with browser.page() as stranger:
            stranger.open(bare)
            assert "a token is needed" in stranger.text()


def test_a_page_whose_server_ends_says_so_and_goes_on_with_the_next(browser, study):
    with browser.page() as page:
        with serving(study, "--port", 0, "--interval", 0.2) as address:
            page.open(address)
            page.wait_for(SHOWN)
            rows = page.evaluate(NUMBERS)
        page.wait_for("document.querySelector('#connection').innerText.startsWith('not up to')")
        assert page.evaluate(NUMBERS) == rows
        check(page)
        port = address.rstrip("/").rpartition(":")[2]
        with serving(study, "--port", port, "--interval", 0.2) as again:
            assert again == address
            page.wait_for("document.querySelector('#connection').innerText === 'live'")
