"""A study in MLflow, read back by MLflow's client."""

import http.server
import importlib.util
import math
import socket
import threading

import pytest
from tracker_studies import SPACE, STUDY, climb, curve_of, rows_of, run_info, sessions, study_info

from autorl import InputError, tune
from autorl.core.types import Outcome, SegmentId, Status
from autorl.integrations.trackers import MLflowTracker

# Not imported here: it takes seconds, and would count its users before the variable below is set.
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mlflow", "cryptography")),
    reason="needs mlflow-skinny (or mlflow), and cryptography for its database",
)


@pytest.fixture(scope="session", autouse=True)
def no_reports():
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        yield


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(scope="session")
def database(tmp_path_factory):
    """An empty database, for tests to copy: making its tables takes a second."""
    from mlflow.tracking import MlflowClient

    path = tmp_path_factory.mktemp("mlflow") / "empty.db"
    MlflowClient(f"sqlite:///{path}", registry_uri=f"sqlite:///{path}")
    return path


@pytest.fixture
def uri(database, tmp_path):
    (tmp_path / "mine.db").write_bytes(database.read_bytes())
    return f"sqlite:///{tmp_path / 'mine.db'}"


def client_of(uri):
    from mlflow.tracking import MlflowClient

    return MlflowClient(uri, registry_uri=uri)


def runs_of(client, experiment="hills"):
    found = client.search_runs([client.get_experiment_by_name(experiment).experiment_id])
    return {run.data.tags.get("autorl.run", "study"): run for run in found}


def curve(client, run, metric="value"):
    points = [
        (point.step, point.value) for point in client.get_metric_history(run.info.run_id, metric)
    ]
    assert len(dict(points)) == len(points), "no step stands there twice"
    return dict(points)


def test_a_study_of_two_sessions_has_every_run_once(tmp_path):
    """In the study's own folder, where nothing is told of a server."""
    result = sessions(tmp_path / "s", lambda: [MLflowTracker()])
    client = client_of(f"sqlite:///{tmp_path / 's' / 'logs' / 'trackers' / 'mlflow.db'}")
    runs = runs_of(client)
    of_study = runs.pop("study")
    rows = rows_of(result)
    assert {int(number) for number in runs} == set(rows)
    for number, row in rows.items():
        run = runs[str(number)]
        assert curve(client, run) == curve_of(row)
        assert {name: float(value) for name, value in run.data.params.items()} == {
            "x": row["params_x"]
        }
        tags = run.data.tags
        assert (tags["autorl.role"], tags["autorl.seed"]) == (row["role"], str(row["seed"]))
        assert (tags["autorl.proposal"], tags["autorl.study"]) == (str(row["proposal"]), "hills")
        assert tags["mlflow.parentRunId"] == of_study.info.run_id
        assert tags["autorl.state"] == row["state"]
        status = {"complete": "FINISHED", "stopped": "KILLED", "crash": "FAILED"}[row["state"]]
        assert run.info.status == status
        assert ("too steep" in tags.get("autorl.message", "")) == (row["state"] == "crash")
    assert of_study.info.status == "FINISHED"
    numbers = of_study.data.metrics
    assert numbers["test_score"] == result.test.value
    assert numbers["test_iqm_high"] == result.test.iqm_interval.high
    assert (numbers["tuning_score"], numbers["gap"]) == (result.tuning, result.gap)
    tags = of_study.data.tags
    assert float(tags["autorl.incumbent.x"]) == result.best_params["x"]
    assert tags["autorl.incumbent_proposal"] == str(result.incumbent.proposal)
    assert "| test_score |" in tags["mlflow.note.content"]
    assert not (tmp_path / "mlruns").exists()


@pytest.fixture
def server(uri, tmp_path, monkeypatch):
    """MLflow's own server on this database, in a thread."""
    pytest.importorskip("flask", reason="MLflow's server needs flask")
    from mlflow.server import constants

    monkeypatch.setenv(constants.BACKEND_STORE_URI_ENV_VAR, uri)
    monkeypatch.setenv(constants.ARTIFACT_ROOT_ENV_VAR, str(tmp_path / "artifacts"))
    from mlflow.server import app
    from werkzeug.serving import make_server

    serving = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{serving.server_port}"
    serving.shutdown()
    thread.join()


def test_a_server_gets_the_same(server, uri, tmp_path):
    result = sessions(tmp_path / "s", lambda: [MLflowTracker(server, "served")])
    client = client_of(uri)
    runs = runs_of(client, "served")
    assert runs.pop("study").data.metrics["test_score"] == result.test.value
    rows = rows_of(result)
    assert {int(number): curve(client, run) for number, run in runs.items()} == {
        number: curve_of(row) for number, row in rows.items()
    }
    assert {run.info.status for run in runs.values()} == {"FINISHED", "KILLED", "FAILED"}
    assert not (tmp_path / "s" / "logs" / "trackers").exists()


def test_a_step_that_comes_again_is_written_once(uri, tmp_path):
    study = study_info(tmp_path)

    def tracker():
        made = MLflowTracker(uri, "mine")
        made.on_study(study)
        return made

    first = tracker()
    for step in (10, 20, 10, 20):
        first.on_report(study, run_info(), step, {"value": float(step)})
    later = tracker()
    for step in (20, 30):
        later.on_report(study, run_info(start=10), step, {"value": float(step)})
    client = client_of(uri)
    run = runs_of(client, "mine")["7"]
    assert curve(client, run) == {10: 10.0, 20: 20.0, 30: 30.0}
    assert run.info.status == "RUNNING"
    assert run.data.params == {"x": "0.25", "units": "[64, 64]", "kind": "relu", "norm": "True"}


def test_a_member_that_copied_another_names_its_run(uri, tmp_path):
    study = study_info(tmp_path)
    tracker = MLflowTracker(uri)
    tracker.on_study(study)
    tracker.on_report(study, run_info(7), 10, {"value": 1.0})
    tracker.on_report(study, run_info(8, start=10, parent_run=7), 20, {"value": 2.0})
    done = Outcome(SegmentId(3, 1), Status.DONE, reached=40)
    tracker.on_outcome(study, run_info(8, start=10, parent_run=7), done)
    runs = runs_of(client_of(uri))
    assert runs["8"].data.tags["autorl.parent_run"] == "7"
    assert runs["8"].data.tags["autorl.parent_run_id"] == runs["7"].info.run_id
    assert (runs["8"].info.status, runs["7"].info.status) == ("FINISHED", "RUNNING")


def test_names_that_mlflow_refuses_are_written_with_underscores(uri, tmp_path):
    study = study_info(tmp_path)
    tracker = MLflowTracker(uri)
    tracker.on_study(study)
    config = {f"net.arch[{index}]": index for index in range(120)}
    metrics = {"gain (%)": 1.0, "loss": float("nan"), "ratio": float("inf")}
    tracker.on_report(study, run_info(config=config), 1, metrics)
    run = runs_of(client_of(uri))["7"]
    assert run.data.metrics.pop("gain ___") == 1.0
    assert math.isnan(run.data.metrics["loss"])
    assert run.data.metrics["ratio"] > 1e300, "the largest number of its database"
    assert run.data.params["net.arch_119_"] == "119"
    assert len(run.data.params) == 120


def test_a_server_that_nobody_runs_does_not_end_the_study(monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        server = f"http://ann:my-password@127.0.0.1:{taken.getsockname()[1]}"
        told = tune(climb, SPACE, callbacks=[{"mlflow": {"tracking_uri": server}}], **STUDY)
    alone = tune(climb, SPACE, **STUDY).trials().drop(columns=["wall_seconds", "peak_memory_mb"])
    assert told.trials().drop(columns=["wall_seconds", "peak_memory_mb"]).equals(alone)
    said = capsys.readouterr().err
    first = said.splitlines()[0]
    assert first.startswith("autorl: callback MLflowTracker raised"), "not a traceback"
    assert "refused" in first
    assert "it is told nothing more" in first
    assert "my-password" not in said


def test_a_server_that_fails_is_asked_three_times(tmp_path, monkeypatch):
    """Its own default is eight times, which takes minutes, and the study waits."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_JITTER", "0")
    asked = []

    class Fails(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fails) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tracker = MLflowTracker(f"http://127.0.0.1:{server.server_port}")
        tracker.on_study(study_info(tmp_path))
        with pytest.raises(Exception, match="503"):
            tracker.on_report(study_info(tmp_path), run_info(), 1, {"value": 1.0})
        server.shutdown()
    assert len(asked) == 3
    assert "/experiments/get-by-name" in asked[0]


def test_a_study_in_memory_needs_a_tracking_uri(uri, monkeypatch):
    with pytest.raises(InputError, match="mlflow needs a tracking_uri: a study in memory"):
        tune(climb, SPACE, callbacks=[MLflowTracker()], **STUDY)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    result = tune(climb, SPACE, callbacks=[MLflowTracker()], **STUDY)
    assert len(runs_of(client_of(uri))) == len(result.trials()) + 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tracking_uri": 3}, r"callbacks\.mlflow\.tracking_uri: expected text, got 3"),
        ({"experiment": ""}, r"callbacks\.mlflow\.experiment: expected text"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        MLflowTracker(**arguments)
