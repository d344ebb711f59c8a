"""The harness: tests of pages fail where a browser complains, and drive a page as people do."""

import re

import pytest
from chromium import BrowserError
from looks import charts, faint, sticking_out

HEAD = '<!doctype html><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'


def shown(page, folder, body):
    place = folder / "page.html"
    place.write_text(f"{HEAD}<title>first</title>{body}")
    page.open(place)
    return page


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("<script>console.error('bad', 7)</script>", "console: bad 7"),
        ("<script>console.assert(1 > 2, 'odd')</script>", "console: odd"),
        ("<script>throw new Error('thrown')</script>", "exception: Error: thrown"),
        ("<script>Promise.reject(new Error('late'))</script>", "exception: Error: late"),
        ("<script src='none.js'></script>", "request: net::ERR_FILE_NOT_FOUND of file:"),
        ("<img src='http://192.0.2.7/x.png'>", "request: net::ERR_"),
        ("<img src='https://host.example/x.png'>", "request: net::ERR_NAME_NOT_RESOLVED"),
        (
            "<meta http-equiv='Content-Security-Policy' content=\"script-src 'none'\">"
            "<script>1</script>",
            "log: Executing inline script violates",
        ),
    ],
)
def test_what_a_browser_complains_of_is_a_problem(browser, tmp_path, body, complaint):
    with browser.page() as page:
        shown(page, tmp_path, body)
        page.wait_for("document.readyState === 'complete'")
        browser.wait(lambda: page.problems, "a page that is wrong")
        assert len(page.problems) == 1
        assert page.problems[0].startswith(complaint)
        assert len(page.outside()) == ("src='http" in body)


def test_mouse_and_keyboard_are_used_as_people_do(page, tmp_path):
    body = """<button id="next" onclick="document.title = 'Ab c'">go</button>
    <div style="height: 3000px"></div><button id="far" onclick="this.textContent = 'was'">far</button>"""
    shown(page, tmp_path, body)
    page.press("Tab")
    page.wait_for("document.activeElement.id === 'next'")
    page.press("Enter")
    page.wait_for("document.title === 'Ab c'")
    page.click("#far")
    page.wait_for("document.querySelector('#far').innerText === 'was'")
    page.wait_for("(window.count = (window.count || 0) + 1) > 3")
    with pytest.raises(BrowserError, match="nothing is #none"):
        page.click("#none")
    with pytest.raises(BrowserError, match="ReferenceError"):
        page.evaluate("nothing_of_this_name")


def test_looks_are_seen(page, tmp_path):
    body = """<style>:root { color-scheme: light dark }</style>
    <svg width="100" height="50"><line x2="9"/><text x="80" y="20" fill="currentColor">cut off</text></svg>
    <svg style="display: none"><line x2="9"/></svg>
    <canvas id="c" width="10" height="10"></canvas>
    <script>c.getContext("2d").fillRect(2, 2, 4, 4)</script>
    <div style="overflow-x: auto"><div style="width: 3000px">in a box</div></div>
    <p style="color: #999">grey</p><p style="color: #333">dark grey</p>"""
    shown(page, tmp_path, body)
    drawn, canvas = charts(page)
    assert (drawn["kind"], drawn["marks"], drawn["cut"]) == ("svg", 2, ["cut off"])
    assert (canvas["kind"], canvas["marks"]) == ("canvas", 2)
    assert sticking_out(page) == []
    assert [re.sub("^[0-9.]+ ", "", text) for text in faint(page)] == ["grey"]
    page.emulate("dark")
    assert [re.sub("^[0-9.]+ ", "", text) for text in faint(page)] == ["dark grey"]
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<pre>' + 'x'.repeat(999))")
    assert sticking_out(page)[0].startswith("pre xxx")
