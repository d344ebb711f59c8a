"""The server for programs, driven by a client of the official SDK."""

import asyncio
import sys
import time

import pytest
from cli_support import STUDY, finished_study

from autorl.cli.mcp import server

sdk = pytest.importorskip("mcp.client.client")
TINY = {**STUDY, "budget": {"runs": 4}, "seeds": {"tuning": 1, "test": 2}, "test": {"top": 1}}
TINY.pop("name")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("studies")
    finished_study(root, "done")
    return root


def talk(made, *calls):
    """What the tools answer, in one session; a refusal is its text."""

    async def session():
        async with sdk.Client(made) as client:
            answers = [sorted(tool.name for tool in (await client.list_tools()).tools)]
            for name, arguments in calls:
                found = await client.call_tool(name, arguments)
                text = found.content[0].text if found.content else ""
                answers.append(text if found.is_error else found.structured_content)
            return answers

    return asyncio.run(session())


def caps(folder, **changes):
    return server(folder, **{"write": True, "max_runs": 10.0, "max_hours": 1.0, **changes})


def test_a_client_reads_a_study_and_nothing_else(folder):
    sql = "SELECT count(*) AS runs FROM runs WHERE seed_role = 'test'"
    tools, studies, state, best, rows, *refused = talk(
        server(folder, write=False, max_runs=0, max_hours=0),
        ("studies", {}),
        ("status", {"study": "done"}),
        ("best", {"study": "done", "top": 2}),
        ("query", {"study": "done", "sql": sql}),
        ("status", {"study": "../done"}),
        ("status", {"study": "none"}),
        ("query", {"study": "done", "sql": "DROP TABLE runs"}),
        ("query", {"study": "done", "sql": sql, "limit": 10**6}),
        ("tune", {"name": "new", "study": TINY}),
    )
    assert tools == ["best", "query", "status", "studies"]
    assert studies["result"] == ["done"]
    assert state["state"] == "finished"
    assert best["result"][0]["proposal"] == state["incumbent"]["proposal"]
    assert rows["result"] == [{"runs": 18}]
    assert all("\n" not in text for text in refused)
    assert f"../done: lies outside {folder}" in refused[0]
    assert "holds no study" in refused[1]
    assert "limit: expected 1 to 1000" in refused[3]
    assert "tune" in refused[4]


def test_a_client_begins_studies_up_to_its_cap(folder):
    made = caps(folder)
    _, begun, *refused = talk(
        made,
        ("tune", {"name": "tiny", "study": TINY}),
        ("tune", {"name": "tiny", "study": TINY}),
        ("tune", {"name": "more", "study": {**TINY, "budget": {"runs": 9}}}),
        ("tune", {"name": "open", "study": {**TINY, "budget": {"hours": 1}}}),
        ("tune", {"name": "a/b", "study": TINY}),
        ("tune", {"name": "wrong", "study": {**TINY, "bugdet": 1}}),
    )
    assert begun["runs_left"] == 10 - begun["runs"]
    assert begun["runs"] == 4 + 2 + 2  # search, test, and the default configuration's test
    words = (
        "tiny: expected the name of a new folder",
        "budget: 13 full runs with the test phase, 2 are left (--max-runs)",
        "budget: expected runs, configurations or environment_steps",
        "a/b: expected the name of a new folder",
        "unknown key 'bugdet'",
    )
    assert all("\n" not in text for text in refused)
    assert all(word in text for word, text in zip(words, refused, strict=True)), refused
    (_, late) = talk(caps(folder, max_hours=0), ("tune", {"name": "late", "study": TINY}))
    assert "hours of this server are up" in late
    for _ in range(600):
        (_, state) = talk(made, ("status", {"study": "tiny"}))
        if isinstance(state, dict) and state["state"] == "finished":
            break
        time.sleep(0.1)
    assert state["test"]["n_seeds"] == 2
    assert {path.name for path in folder.glob("*.*")} == {"small.yaml", "tiny.log", "tiny.yaml"}


def test_a_client_has_an_edit_judged_up_to_its_cap(folder):
    made = caps(folder, max_runs=24)
    asked = {"study": "done", "baseline": {"x": 0.1}, "edit": {"x": 0.7}, "max_runs": 6}
    _, found, again, *refused = talk(
        made,
        ("judge", asked),
        ("judge", asked),
        ("judge", {**asked, "max_runs": 13}),
        ("judge", {**asked, "edit": {"y": 1}}),
        ("judge", {**asked, "study": "/etc"}),
    )
    assert found["verdict"] in ("keep", "discard", "undecided")
    assert found["trained_now"] == len(found["scores"]["tuning"]["edit"]) * 2 <= 12
    assert again == {**found, "trained_now": 0, "number": again["number"]}
    cap = f"max_runs: 26 runs of both sides, {24 - found['trained_now']} are left (--max-runs)"
    words = (cap, "y", "/etc: lies outside")
    assert all(word in text for word, text in zip(words, refused, strict=True)), refused
    assert all("\n" not in text for text in refused)


def test_it_speaks_over_standard_input_and_output(folder):
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = [sys.executable, "-m", "autorl", "mcp", str(folder)]
    made = stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
    tools, studies = talk(made, ("studies", {}))
    assert tools == ["best", "query", "status", "studies"]
    assert "done" in studies["result"]
