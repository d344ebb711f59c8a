"""Weights & Biases: a study as a group of runs, mostly offline."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autorl.core.plain_text import shown
from autorl.core.types import InputError, Outcome
from autorl.integrations.trackers.contract import (
    Tracker,
    check_directory,
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
    study_label,
    summarise,
)
from autorl.study.callbacks import RunInfo, StudyInfo
from autorl.study.results.result import Result

_RESUME: Mapping[str, Any] = {"offline": None, "online": "allow"}  # offline W&B resumes nothing
_LONGEST_TAG = 64  # characters
_LONGEST_PROJECT = 128
_ID = 12  # characters of a study's id in those of its runs
# It sends reports of its own errors unless told not to.
_ALWAYS = {"WANDB_ERROR_REPORTING": "false"}

_MARK = "autorl"  # file in the folder of a run, beside W&B's: how much was written there

_Points = dict[int, Mapping[str, float]]
"""Metrics by step."""


class WandbTracker(Tracker):
    """Writes a study for Weights & Biases.

    A group of the study's name has a run for each run, of job type `tuning` or `test`, and one of
    job type `study` with the summary. Ids follow from the study, so that a run that goes on in a
    later session is the same one.

    Online, evaluations are sent as they come. Offline, a run is written when a segment of it ends,
    with all its evaluations, in place of what was written before: of two folders with one id,
    `wandb sync` would keep one. A later session is told of every segment again, and writes what
    kills have kept earlier ones from writing.

    Args:
        project: by default the study's name.
        entity: by default the user's.
        mode: `offline`, or `online`, which sends everything to the server that `wandb login` knows.
        directory: where its folder `wandb` lies; by default `logs/trackers` in the study's folder.

    Raises:
        InputError: W&B is not installed, or an argument is wrong.
    """

    def __init__(
        self,
        project: str | None = None,
        entity: str | None = None,
        mode: str = "offline",
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        check_text(project, "wandb.project")
        check_text(entity, "wandb.entity")
        if mode not in _RESUME:
            message = f"expected {' or '.join(_RESUME)}, got {shown(mode)}"
            raise InputError(message, key="callbacks.wandb.mode")
        self._directory = check_directory(directory, "wandb.directory")
        need("wandb", "wandb")
        self._project = project
        self._entity = entity
        self._mode = mode
        self.from_the_start = mode == "offline"  # type: ignore[misc]
        self._open: dict[int, tuple[RunInfo, _Points]] = {}  # runs that may go on, offline
        self._sending: dict[int, Any] = {}  # runs that are open online

    def on_study(self, study: StudyInfo) -> None:
        """Check that there is a place to write to, and begin anew."""
        check_place(study, self._directory, "wandb", "directory")
        self._open.clear()
        self._sending.clear()

    def on_report(
        self, study: StudyInfo, run: RunInfo, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Send metrics, where that was asked for."""
        if self._mode == "online":
            # If a step comes again, W&B keeps the values it has.
            self._online(study, run).log(dict(metrics), step=step)

    def on_outcome(self, study: StudyInfo, run: RunInfo, outcome: Outcome) -> None:
        """Write a run with all its evaluations, or end a sent one."""
        state = state_of(study, run, outcome)
        # This is written anew if an open run is continued.
        said = {"state": "stopped" if state == "open" else state, "message": outcome.message}
        if self._mode == "online":
            sent = self._online(study, run)
            del self._sending[run.run]
            _finish(sent, said)
            return
        _, points = self._open.get(run.run, (run, {}))
        points |= {report.step: report.metrics for report in (*outcome.reports, *outcome.updates)}
        self._write(study, run, points, said)
        # A failed or complete run gets no more.
        self._open.pop(run.run, None)
        if state == "open":
            self._open[run.run] = (run, points)

    def on_result(self, study: StudyInfo, result: Result) -> None:
        """Write the summary, and runs whose end only the study knows."""
        ended = ended_runs(result)
        for number, (run, points) in self._open.items():
            self._write(study, run, points, {"state": ended[number]["state"]})
        _remove((self._place(study) / "wandb").glob(f"replaced-*-{_id(study, '*')}"))
        summary = summarise(result)
        before = self._set_aside(study, "study")
        config = {"autorl": facts_of_study(study), "incumbent": dict(summary.config)}
        sent = self._begin(study, "study", name=study.name, job_type="study", config=config)
        sent.summary.update({**summary.numbers, **summary.facts})
        sent.finish(exit_code=0)
        _remove(before)

    def _write(
        self, study: StudyInfo, run: RunInfo, points: _Points, said: Mapping[str, str]
    ) -> None:
        """Write a run offline, unless as much of it was written before."""
        mark = f"{len(points)} {said['state']}"
        files = [folder / _MARK for folder in self._folders(study, str(run.run))]
        if len(files) == 1 and files[0].exists():
            steps, state = files[0].read_text().split()
            # An earlier segment is told again, or may be followed by the one that was written.
            if int(steps) > len(points) or (
                int(steps) == len(points) and said["state"] in ("stopped", state)
            ):
                return
        before = self._set_aside(study, str(run.run))
        sent = self._begin_run(study, run)
        for step, metrics in sorted(points.items()):
            sent.log(dict(metrics), step=step)
        _finish(sent, said)
        (Path(sent.dir).parent / _MARK).write_text(mark)
        _remove(before)

    def _folders(self, study: StudyInfo, name_in_id: str) -> list[Path]:
        """List the folders written of a run."""
        name = f"offline-run-*-{_id(study, name_in_id)}"
        return list((self._place(study) / "wandb").glob(name))

    def _online(self, study: StudyInfo, run: RunInfo) -> Any:
        if run.run not in self._sending:
            self._sending[run.run] = self._begin_run(study, run)
        return self._sending[run.run]

    def _begin_run(self, study: StudyInfo, run: RunInfo) -> Any:
        config = {**hyperparameters(run.config), "autorl": facts_of_run(study, run)}
        label = run_label(run)
        return self._begin(study, str(run.run), name=label, job_type=run.role, config=config)

    def _begin(
        self, study: StudyInfo, name_in_id: str, *, name: str, job_type: str, config: dict[str, Any]
    ) -> Any:
        """Begin or continue a run in W&B."""
        with environment(_ALWAYS):
            import wandb

            settings = wandb.Settings(
                mode=self._mode,
                console="off",
                silent=True,
                # It would record code and machine of the driver, not of the trainer.
                save_code=False,
                disable_git=True,
                x_disable_stats=True,
                x_disable_meta=True,
                x_save_requirements=False,
            )
            return wandb.init(
                project=_project(self._project or study.name),
                entity=self._entity,
                dir=str(self._place(study)),
                id=_id(study, name_in_id),
                name=name,
                group=study_label(study),
                job_type=job_type,
                tags=[study.name[:_LONGEST_TAG]],
                config=config,
                resume=_RESUME[self._mode],
                reinit="create_new",
                settings=settings,
            )

    def _place(self, study: StudyInfo) -> Path:
        if self._directory is None:
            return folder_of(study)
        # W&B takes a temporary folder in place of one that is missing.
        self._directory.mkdir(parents=True, exist_ok=True)
        return self._directory

    def _set_aside(self, study: StudyInfo, name_in_id: str) -> list[Path]:
        """Rename the folders of a run that were written offline.

        No sync takes them then, and they go once the new one is whole. W&B names folders by the
        second: a new one could be the old one.
        """
        return [
            path.rename(path.with_name(f"replaced-{path.name}"))
            for path in self._folders(study, name_in_id)
        ]


def _finish(sent: Any, said: Mapping[str, str]) -> None:
    sent.summary.update({name: text for name, text in said.items() if text})
    sent.finish(exit_code=int(said["state"] not in ("complete", "stopped")))


def _id(study: StudyInfo, name: str) -> str:
    return f"{study.id[:_ID]}-{name}"


def _project(name: str) -> str:
    """Return a name with the characters that W&B allows."""
    return re.sub(r"[/\\#?%:]", "-", name)[:_LONGEST_PROJECT]


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
