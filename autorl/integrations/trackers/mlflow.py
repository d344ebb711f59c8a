"""MLflow: a study on a server, or in a database."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autorl.core.plain_text import shortened
from autorl.core.types import Outcome
from autorl.integrations.trackers.contract import (
    Tracker,
    check_place,
    check_text,
    ended_runs,
    environment,
    facts_of_run,
    facts_of_study,
    folder_of,
    hyperparameters,
    need,
    run_label,
    state_of,
    summarise,
)
from autorl.study.callbacks import RunInfo, StudyInfo
from autorl.study.results.result import Result

_STUDY = -1  # in place of a run's number: the run of the study itself
_STATUS = {"complete": "FINISHED", "stopped": "KILLED"}  # whatever else is a failure
_PER_REQUEST = 100  # parameters or tags that a server takes at once
_LONGEST = 1000  # characters of a message
# MLflow counts its users unless told not to. It asks a server that does not answer for minutes, and
# the study waits: it asks three times here, about 10 seconds, unless the user says otherwise.
_ALWAYS = {"MLFLOW_DISABLE_TELEMETRY": "true"}
_UNLESS_SET = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


@dataclass
class _Run:
    """A run in MLflow.

    Attributes:
        id: its name there.
        proposal: that its tag names.
        ended: whether it has a status that is final.
        steps: of its metrics; None where an earlier session has written them.
    """

    id: str
    proposal: str
    ended: bool = False
    steps: set[int] | None = None


class MLflowTracker(Tracker):
    """Writes a study for MLflow.

    An experiment has a run for the study, with the summary, and below it one for each run: metrics
    at their steps, hyperparameters as parameters, the rest as tags `autorl.*`. The status is
    FINISHED at full length, KILLED where the study has stopped the run, FAILED. A step that is
    trained again keeps the value it had first.

    Args:
        tracking_uri: of a server (`http://...`) or a database (`sqlite:///FILE`); by default the
            variable `MLFLOW_TRACKING_URI`, else `logs/trackers/mlflow.db` in the study's folder.
        experiment: its name, by default that of the study.

    Raises:
        InputError: MLflow is not installed, or an argument is no text.
    """

    def __init__(self, tracking_uri: str | None = None, experiment: str | None = None) -> None:
        check_text(tracking_uri, "mlflow.tracking_uri")
        check_text(experiment, "mlflow.experiment")
        need("mlflow", "mlflow")
        self._given_uri = tracking_uri
        self._experiment = experiment
        self._connected: tuple[Any, str] | None = None
        self._runs: dict[int, _Run] = {}

    def on_study(self, study: StudyInfo) -> None:
        """Check that there is a place to write to, and begin anew."""
        check_place(study, self._uri(), "mlflow", "tracking_uri")
        self._connected = None
        self._runs.clear()

    def on_report(
        self, study: StudyInfo, run: RunInfo, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Write metrics at their step, once."""
        if not metrics:
            return
        with environment(_ALWAYS, _UNLESS_SET):
            client, _ = self._connect(study)
            known_run = self._run(study, run)
            if known_run.steps is None:
                history = client.get_metric_history(known_run.id, _name(next(iter(metrics))))
                known_run.steps = {point.step for point in history}
            if step in known_run.steps:
                return
            known_run.steps.add(step)
            client.log_batch(known_run.id, metrics=_metrics(metrics, step))

    def on_outcome(self, study: StudyInfo, run: RunInfo, outcome: Outcome) -> None:
        """Write the end of a run that is complete or has failed."""
        state = state_of(study, run, outcome)
        with environment(_ALWAYS, _UNLESS_SET):
            known_run = self._run(study, run)
            if outcome.message:
                message = shortened(outcome.message, _LONGEST)
                self._connect(study)[0].set_tag(known_run.id, "autorl.message", message)
            if state != "open":
                self._end(study, known_run, state)

    def on_result(self, study: StudyInfo, result: Result) -> None:
        """Write the ends of stopped runs, and the summary."""
        ended = ended_runs(result)
        summary = summarise(result)
        incumbent = {f"incumbent.{name}": value for name, value in summary.config.items()}
        with environment(_ALWAYS, _UNLESS_SET):
            client, _ = self._connect(study)
            of_study = self._study_run(study)
            for number, known_run in self._runs.items():
                if number in ended and not known_run.ended:
                    self._end(study, known_run, ended[number]["state"])
            client.log_batch(of_study.id, metrics=_metrics(summary.numbers, 0))
            _log(client, of_study.id, "tags", _tags({**summary.facts, **incumbent}))
            client.set_tag(of_study.id, "mlflow.note.content", summary.text)
            self._end(study, of_study, "complete")

    def _uri(self) -> str | None:
        return self._given_uri or os.environ.get("MLFLOW_TRACKING_URI")

    def _connect(self, study: StudyInfo) -> tuple[Any, str]:
        """Return the client and the experiment's id.

        The entries of earlier sessions are read the first time.
        """
        if self._connected is not None:
            return self._connected
        from mlflow.tracking import MlflowClient

        logging.getLogger("mlflow").setLevel(logging.WARNING)  # its import has set another
        uri = self._uri()
        artifacts = None
        if uri is None:
            folder = folder_of(study).resolve()
            uri = f"sqlite:///{folder / 'mlflow.db'}"
            artifacts = (folder / "mlflow-artifacts").as_uri()  # else below the working directory
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        name = self._experiment or study.name
        experiment = client.get_experiment_by_name(name)
        number = experiment and experiment.experiment_id
        if number is None:
            number = client.create_experiment(name, artifact_location=artifacts)
        token: str | None = ""
        while token is not None:
            of_study = f"tags.`autorl.study_id` = '{study.id}'"
            page = client.search_runs([number], of_study, page_token=token or None)
            for run in page:
                tags = run.data.tags
                self._runs[int(tags.get("autorl.run", _STUDY))] = _Run(
                    run.info.run_id,
                    tags.get("autorl.proposal", ""),
                    ended=run.info.status != "RUNNING",
                )
            token = page.token or None
        self._connected = (client, number)
        return self._connected

    def _study_run(self, study: StudyInfo) -> _Run:
        client, experiment = self._connect(study)
        if _STUDY not in self._runs:
            made = client.create_run(
                experiment, tags=_tags(facts_of_study(study)), run_name=study.name
            )
            self._runs[_STUDY] = _Run(made.info.run_id, "")
        return self._going_on(client, self._runs[_STUDY])

    def _run(self, study: StudyInfo, run: RunInfo) -> _Run:
        """Return the run in MLflow, made if it is missing."""
        client, experiment = self._connect(study)
        of_study = self._study_run(study)
        known_run = self._runs.get(run.run)
        if known_run is None:
            tags = _tags(facts_of_run(study, run)) | {"mlflow.parentRunId": of_study.id}
            if run.parent_run in self._runs:
                tags["autorl.parent_run_id"] = self._runs[run.parent_run].id
            made = client.create_run(experiment, tags=tags, run_name=run_label(run))
            known_run = _Run(made.info.run_id, str(run.proposal), steps=set())
            self._runs[run.run] = known_run
            _log(client, known_run.id, "params", hyperparameters(run.config))
        elif known_run.proposal != str(run.proposal):
            client.set_tag(known_run.id, "autorl.proposal", str(run.proposal))
            known_run.proposal = str(run.proposal)
        return self._going_on(client, known_run)

    def _going_on(self, client: Any, known_run: _Run) -> _Run:
        """Take back the end of a run that goes on."""
        if known_run.ended:
            client.update_run(known_run.id, status="RUNNING")
            known_run.ended = False
        return known_run

    def _end(self, study: StudyInfo, known_run: _Run, state: str) -> None:
        client, _ = self._connect(study)
        client.set_tag(known_run.id, "autorl.state", state)
        client.set_terminated(known_run.id, status=_STATUS.get(state, "FAILED"))
        known_run.ended = True


def _metrics(values: Mapping[str, float], step: int) -> list[Any]:
    from mlflow.entities import Metric

    now = int(time.time() * 1000)
    return [Metric(_name(name), float(value), now, step) for name, value in values.items()]


def _log(client: Any, run: str, kind: str, values: Mapping[str, object]) -> None:
    """Write parameters or tags, as many at once as a server takes."""
    from mlflow.entities import Param, RunTag

    make = Param if kind == "params" else RunTag
    entries = [make(_name(name), str(value)) for name, value in values.items()]
    for begin in range(0, len(entries), _PER_REQUEST):
        client.log_batch(run, **{kind: entries[begin : begin + _PER_REQUEST]})


def _tags(facts: Mapping[str, object]) -> dict[str, str]:
    return {_name(f"autorl.{name}"): str(value) for name, value in facts.items()}


def _name(name: str) -> str:
    """Return a name with the characters that MLflow allows."""
    return re.sub(r"[^\w\-. :/]", "_", name)
