"""`autorl test --schedule`: the schedule beside the population's best, its own seeds to the bit, its file."""

import json
import sqlite3

import pytest
import yaml
from cli_support import as_json, autorl, finished_study

from autorl.core.plain_text import number
from autorl.store.integrity import event_hash

PBT = {
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.2, "rate": 0.2}, "drift": 0.6}},
    "optimizer": {"name": "pbt", "population": 4, "generations": 5, "quantile": 0.5},
    "budget": {"runs": 8},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return finished_study(tmp_path_factory.mktemp("replay"), **PBT)


def test_the_schedule_stands_beside_the_populations_best(folder):
    text = autorl("test", folder, "--schedule", "--quiet").stdout
    found = as_json("test", folder, "--quiet")
    schedule = found["incumbent"]["schedule"]
    assert len(schedule) > 1, "the case is chosen so that the winner has a schedule"
    assert [line.split(":")[0].strip() for line in text.splitlines()[1 : 1 + len(schedule)]] == [
        f"from step {part['from_step']}" for part in schedule
    ]
    best, retrained = (
        next(line for line in text.splitlines() if name in line) for name in ("best", "retrained")
    )
    assert number(found["tuning"]["value"]) in best
    assert number(found["test"]["value"]) in retrained
    assert "6 held-out seeds" in retrained


def test_a_schedule_on_a_seed_counts_as_one_test_run(folder):
    found = as_json("watch", folder)["test_runs"]
    assert found["done"] == found["planned"] > 0


def test_own_seeds_are_reproduced_to_the_bit_and_a_changed_record_is_noticed(folder, tmp_path):
    assert as_json("test", folder, "--own-seeds", "--quiet")["own_seeds"] == {"reproduced": True}
    assert "reproduced to the last bit" in autorl("test", folder, "--own-seeds", "--quiet").stdout
    with sqlite3.connect(folder / "study.sqlite") as connection:
        best = as_json("test", folder, "--quiet")["incumbent"]["proposal"]
        rows = connection.execute("SELECT seq, body FROM event WHERE kind = 'outcome'").fetchall()
        seq, body = next(
            (seq, body) for seq, body in rows if f'"segment":"{best}.1"' in body.replace(" ", "")
        )
        connection.execute("UPDATE event SET body = ? WHERE seq = ?", (_nudged(body), seq))
        shift = (
            "UPDATE reports SET value = ? WHERE run_id = ? AND step = ? AND metric = 'eval_return'"
        )
        at = f"{best}.1", body
        connection.execute(shift, _last_score(connection, at[0], _nudged(body)))
        _chain(connection)  # else tables and hashes would notice it first
        try:
            error = autorl("test", folder, "--own-seeds", "--quiet", code=1).stderr
            assert "seeds 1 give other curves than those recorded" in error
        finally:
            connection.execute("UPDATE event SET body = ? WHERE seq = ?", (body, seq))
            connection.execute(shift, _last_score(connection, *at))
            _chain(connection)


def _last_score(connection, segment, body):
    """Read the last score of an outcome, its run and its step."""
    ((run,),) = connection.execute("SELECT run_id FROM segments WHERE segment = ?", (segment,))
    last = json.loads(body)["outcome"]["reports"][-1]
    return last["metrics"]["eval_return"], run, last["step"]


def _chain(connection):
    """Write the hashes anew."""
    link = ""
    rows = connection.execute("SELECT seq, kind, body, time FROM event ORDER BY seq").fetchall()
    for seq, kind, body, time in rows:
        link = event_hash(link, seq, kind.encode(), body.encode(), time)
        connection.execute("UPDATE event SET hash = ? WHERE seq = ?", (link, seq))
    connection.commit()


def _nudged(body):
    """The outcome with the last score off by one unit in the last place."""
    import math

    event = json.loads(body)
    metrics = event["outcome"]["reports"][-1]["metrics"]
    metrics["eval_return"] = math.nextafter(metrics["eval_return"], 9.0)
    return json.dumps(event)


def test_the_exported_schedule_is_a_study_file_that_trains_it(folder, tmp_path):
    file = tmp_path / "schedule.yaml"
    autorl("test", folder, "--write", file, "--quiet")
    document = yaml.safe_load(file.read_text())
    assert document["optimizer"]["name"] == "schedule"
    assert document["seeds"] == {"tuning": [0, 1], "test": list(range(100, 106))}
    again = as_json("tune", file, "--out", tmp_path / "again", "--quiet")
    found = as_json("test", folder, "--quiet")
    assert again["incumbent"]["schedule"] == found["incumbent"]["schedule"]
    assert again["tuning"]["value"] == pytest.approx(found["tuning"]["value"], abs=1e-12)
    assert again["test"]["value"] == pytest.approx(found["test"]["value"], abs=1e-12)


def test_a_file_that_cannot_be_written_is_one_line(folder, tmp_path):
    plain = tmp_path / "plain.yaml"
    plain.write_text("mine")
    error = autorl("test", folder, "--write", plain, "--quiet", code=2).stderr
    assert "plain.yaml: is there already" in error
    assert plain.read_text() == "mine"
    error = autorl("test", folder, "--write", plain / "file.yaml", "--quiet", code=2).stderr
    assert "cannot be written" in error
