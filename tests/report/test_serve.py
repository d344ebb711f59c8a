"""The live page: what it answers, whom it refuses, and that it writes nothing."""

import http.client
import json
import re
import shutil
import threading
from contextlib import contextmanager
from html.parser import HTMLParser

import pytest
from folder_contents import written
from report_support import run_study

from autorl.core.plain_text import number
from autorl.core.seeds import SeedPlan
from autorl.core.types import InputError
from autorl.report.html import study_sections
from autorl.report.reading import open_view
from autorl.report.web.server import StudyServer
from autorl.report.web.site import StudySite
from autorl.study.tuner import Tuner

HOSTILE = "<script>alert(1)<script>"  # a name has no slash
ATTRIBUTE = '"><img src=x onerror=alert(2)>'
TOKEN = "0123456789abcdef0123"


@contextmanager
def served(*folders, host="127.0.0.1", token=""):
    server = StudyServer(StudySite(folders), host, 0, token)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(server, path, *, method="GET", headers=(), body=None):
    """Status, headers and text of an answer; the path goes out as it is, `..` and all."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=600)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"localhost:{server.server_port}", **dict(headers)}.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def as_json(server, path):
    status, _, text = ask(server, path)
    assert status == 200, text
    return json.loads(text)


def only_study(server):
    """The address of the one study that is served."""
    status, headers, _ = ask(server, "/")
    assert status == 303
    return headers["Location"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A finished study with pruned and crashed runs, whose names and values are hostile."""
    kwargs = {"optimum": {"x": 0.5}, "noise": 0.1, "crash": {"above": {"x": 0.6}}}
    return run_study(
        tmp_path_factory.mktemp("serve") / f"study-{HOSTILE}",
        name=f"small {HOSTILE}{ATTRIBUTE}",
        trainer={"name": "synthetic", "kwargs": kwargs},
        space={
            "x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True},
            "kind": {"type": "categorical", "choices": [HOSTILE, ATTRIBUTE]},
        },
        optimizer={"name": "random", "stop": "median", "peers": 2},
        parallelism=1,
    )


@pytest.fixture(scope="module")
def server(study):
    with served(study) as running:
        yield running


class Tags(HTMLParser):
    """Collects tags with their attributes, and text."""

    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    parser = Tags()
    parser.feed(html)
    return parser


def shown(server, address):
    """The parts of a page by their places."""
    return {place: html for place, _, _, html in as_json(server, f"{address}/state")["parts"]}


def test_the_page_is_the_report_with_the_result_first(server, study):
    base = only_study(server)
    status, headers, html = ask(server, base)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    parts = shown(server, base)
    assert re.findall(r'<section id="([\w-]+)"', html) == [*parts]
    assert [*parts][:4] == ["parts", "result", "progress", "incumbent"]
    assert all(part in html for part in parts.values())
    view = open_view(study)
    result = view.result()
    reported = {section.place for section in study_sections(view, view.trace) if section.blocks}
    view.close()
    assert {*parts} == {*reported, "parts", "progress"} - {"study-file"}
    text = " ".join(parsed(parts["result"]).text)
    assert number(result.test.iqm) in text
    assert text.index("Test score (IQM)") < text.index("Caution:")
    assert "pruned" in parts["progress"]
    assert "crash" in parts["failures"]


def test_hostile_names_and_values_are_text(server, study):
    base = only_study(server)
    shell = ask(server, base)[2]
    parts = shown(server, base)
    with served(study.parent) as of_folder:
        listed = shown(of_folder, "")["studies"]
    htmls = [shell, *parts.values(), listed]
    scripts = [parsed(html).tags.count("script") for html in htmls]
    assert scripts == [2] + [0] * (len(htmls) - 1)
    for html in htmls:
        tags = parsed(html)
        assert "img" not in tags.tags
        assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert HOSTILE in "".join(parsed(parts["proposals"]).text)
    assert HOSTILE in "".join(parsed(listed).text)


def test_what_has_not_changed_is_not_sent_again(tmp_path):
    tuner = Tuner({"x": "uniform(0, 1)"}, "random", seeds=SeedPlan(1, 2), path=tmp_path / "study")
    trial = tuner.ask()
    with served(tmp_path / "study") as server:
        base = only_study(server)
        for path in (f"{base}/state", "/page.js", "/vega.js"):
            status, headers, _ = ask(server, path)
            assert status == 200
            etag = headers["ETag"]
            status, _, text = ask(server, path, headers={"If-None-Match": etag})
            assert (status, text) == (304, "")
        assert "No proposal has been scored" in shown(server, base)["result"]
        tuner.tell(trial, 0.25)
        trial = tuner.ask()
        status, headers, text = ask(server, f"{base}/state", headers={"If-None-Match": etag})
        assert status == 200
        assert headers["ETag"] != etag
        assert "0.25" in text
        # The curve goes on from the events it has seen.
        first = shown(server, base)["learning"]
        tuner.tell(trial, 0.75)
        tuner.ask()
        assert shown(server, base)["learning"] != first
    tuner.close()


def test_serving_writes_nothing(study, tmp_path):
    """The study has ended, or was killed with its log open."""
    tuner = Tuner({"x": "uniform(0, 1)"}, "random", seeds=SeedPlan(1, 2), path=tmp_path / "killed")
    tuner.tell(tuner.ask(), 0.25)
    tuner.ask()
    folder = tmp_path / "studies"
    shutil.copytree(tmp_path / "killed", folder / "killed")
    shutil.copytree(study, folder / "ended")
    tuner.close()
    before = written(folder)
    assert any(name.endswith("-wal") for name in before)
    with served(folder) as server:
        while (state := as_json(server, "/state"))["unread"]:
            pass
        addresses = re.findall(r'href="(/study/\w+)"', state["parts"][1][3])
        assert len(addresses) == 2
        for base in addresses:
            for part in ("", "/state"):
                assert ask(server, base + part)[0] == 200
    assert written(folder) == before


def test_studies_that_begin_later_are_listed_and_unreadable_ones_say_so(tmp_path, study):
    with served(tmp_path) as server:
        assert "No study here yet" in shown(server, "")["studies"]
        shutil.copytree(study, tmp_path / "compare" / "random" / "0")
        broken = shutil.copytree(study, tmp_path / "broken")
        (broken / "study.sqlite").write_bytes(b"")
        while (state := as_json(server, "/state"))["unread"]:
            pass
        tags = parsed(state["parts"][1][3])
        assert tags.tags.count("a") == 2
        assert "is empty (0 bytes)" in " ".join(tags.text)
        assert "finished" in tags.text
        assert "script" not in tags.tags


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"])
def test_other_methods_are_refused(server, method):
    status, headers, _ = ask(server, "/", method=method)
    assert (status, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    ("status", "paths"),
    [
        (
            400,
            "/../study.yaml /study/../../etc/passwd /%2e%2e/study.yaml /study/%2e%2e%2fstudy.yaml",
        ),
        (400, "/..%2f..%2fetc/passwd /study\\..\\x http://localhost/ /study/%00 *"),
        (404, "/study.yaml //etc/passwd /study/ /study/nothing /study/nothing/state /x/y"),
        (404, "{}/study.yaml {}/study.sqlite {}/logs {}/state/study.yaml"),
    ],
    ids=["places above", "no paths", "unknown", "files of the study"],
)
def test_other_paths_are_refused(server, status, paths):
    addresses = paths.replace("{}", only_study(server)).split()
    assert [ask(server, path)[0] for path in addresses] == [status] * len(addresses)


FOREIGN = "evil.example 127.0.0.1.evil.example localhost.evil.example:80 192.0.2.7 x@127.0.0.1"


def test_names_of_this_machine_alone_are_answered(server):
    for host in (*FOREIGN.split(), "127.0.0.1/x", "", "[", None):
        status, _, text = ask(server, "/", headers={"Host": host})
        assert (status, "Host" in text) == (403, True), host
    for host in ("localhost", "127.0.0.1:1234", "[::1]:9000", "LOCALHOST:9000"):
        assert ask(server, "/", headers={"Host": host})[0] == 303, host


def test_every_answer_keeps_scripts_and_frames_of_others_out(server):
    for path in ("/", "/page.js", "/vega.js", "/page.css", "/nothing", "/%2e%2e"):
        _, headers, _ = ask(server, path)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Access-Control-Allow-Origin" not in headers


def test_nothing_of_the_page_leads_outside(server):
    base = only_study(server)
    texts = [ask(server, path)[2] for path in (base, "/page.js", "/page.css")]
    # A specification names its schema, which nobody loads.
    texts = [text.replace("https://vega.github.io/schema/", "") for text in texts]
    assert not [text for text in texts if re.search(r"https?:|//\w+\.|@import|url\(", text)]


def test_a_token_is_needed_where_there_is_one(study):
    with served(study, token=TOKEN) as server:
        assert ask(server, "/page.css")[0] == 401
        assert ask(server, "/?token=0123456789abcdef9999")[0] == 401
        assert ask(server, "/", headers={"Authorization": "Bearer nothing"})[0] == 401
        # Programs bring it each time.
        assert ask(server, f"/page.css?token={TOKEN}")[0] == 200
        assert ask(server, "/page.css", headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
        # A browser gets a cookie for it, and an address without it.
        status, headers, _ = ask(server, f"/?token={TOKEN}", headers={"Accept": "text/html"})
        assert (status, headers["Location"]) == (303, "/")
        cookie, *attributes = headers["Set-Cookie"].split("; ")
        assert {"HttpOnly", "SameSite=Strict"} <= {*attributes}
        assert ask(server, "/page.css", headers={"Cookie": cookie})[0] == 200
        other = f"autorl-{server.server_port + 1}={TOKEN}"
        assert ask(server, "/page.css", headers={"Cookie": other})[0] == 401
        assert server.url().endswith(f"/?token={TOKEN}")


def test_who_listens_for_others_needs_a_token_and_answers_addresses(study):
    with pytest.raises(InputError, match="a token is needed"):
        StudyServer(StudySite([study]), "0.0.0.0", 0)
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with served(study, host="0.0.0.0", token=TOKEN) as server:
        assert ask(server, "/page.css", headers={**bearer, "Host": "192.0.2.7"})[0] == 200
        assert ask(server, "/page.css", headers={**bearer, "Host": "evil.example"})[0] == 403
        assert ask(server, "/page.css", headers={"Host": "192.0.2.7"})[0] == 401


def test_a_port_that_is_taken_is_said_in_a_line(server, study):
    with pytest.raises(InputError, match=f"cannot listen at 127.0.0.1 port {server.server_port}"):
        StudyServer(StudySite([study]), "127.0.0.1", server.server_port)
