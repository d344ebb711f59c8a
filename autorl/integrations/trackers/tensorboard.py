"""TensorBoard: event files that `tensorboard --logdir` shows while the study runs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autorl.core.types import Outcome
from autorl.integrations.trackers.contract import (
    Tracker,
    check_directory,
    check_place,
    ended_runs,
    facts_of_run,
    facts_of_study,
    folder_of,
    hyperparameters,
    need,
    state_of,
    study_label,
    summarise,
    table,
)
from autorl.study.callbacks import RunInfo, StudyInfo
from autorl.study.results.result import Result

_PREFIX = "events.out.tfevents."  # what TensorBoard looks for
_END = ".end"


class TensorBoardTracker(Tracker):
    """Writes a study for TensorBoard.

    A run is a folder, `tuning/<run>-seed<seed>` or `test/...`, with its metrics as scalars, its
    hyperparameters (page HPARAMS) and a table of where it belongs; the study's summary is `result`.
    A step that is trained again replaces the former one, and what was beyond it.

    Args:
        directory: where the study gets a folder of its name; by default `logs/trackers/tensorboard`
            in the study's folder.

    Raises:
        InputError: TensorBoard is not installed, or `directory` is none.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self._directory = check_directory(directory, "tensorboard.directory")
        need("tensorboard", "integrations")
        self._files: dict[Path, _EventFile] = {}
        self._steps: dict[int, int] = {}  # the last of each run of this session

    def on_study(self, study: StudyInfo) -> None:
        """Check that there is a place to write to, and begin anew."""
        check_place(study, self._directory, "tensorboard", "directory")
        self._files.clear()
        self._steps.clear()

    def on_report(
        self, study: StudyInfo, run: RunInfo, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Write scalars."""
        folder = self._folder(study) / _place(run.role, run.run, run.seed)
        before = self._steps.get(run.run)
        written = _described(study, run) if before is None else []
        # An earlier session, or an attempt whose worker was lost, may have come further.
        if before is None or step <= before:
            written.append(_restart(step))
        self._steps[run.run] = step
        written.append(_scalars(metrics, step))
        self._file(folder).add(written)

    def on_outcome(self, study: StudyInfo, run: RunInfo, outcome: Outcome) -> None:
        """Write the end of a run that is complete or has failed."""
        state = state_of(study, run, outcome)
        if state == "open":
            return
        folder = self._folder(study) / _place(run.role, run.run, run.seed)
        if run.run not in self._steps:  # it failed before its first evaluation
            self._file(folder).add(_described(study, run))
        self._end(run.run, folder, state)

    def on_result(self, study: StudyInfo, result: Result) -> None:
        """Write the ends of stopped runs, and the summary."""
        for number, run in ended_runs(result).items():
            folder = self._folder(study) / _place(run["role"], number, run["seed"])
            if folder.is_dir():
                self._end(number, folder, run["state"])
        summary = summarise(result)
        scores = {f"result/{name}": value for name, value in summary.numbers.items()}
        self._file(self._folder(study) / "result").add(
            [
                _restart(0),
                _scalars(scores, 0),
                _text("result", summary.text),
                _text("study", facts_of_study(study)),
            ]
        )

    def _end(self, run: int, folder: Path, state: str) -> None:
        self._steps.pop(run, None)
        # TensorBoard takes the first end that it reads.
        if not any(folder.glob(f"{_PREFIX}*{_END}")):
            succeeded = state in ("complete", "stopped")
            _EventFile(folder, _END).add([_end(succeeded=succeeded)])
        self._files.pop(folder, None)

    def _folder(self, study: StudyInfo) -> Path:
        if self._directory is not None:
            return self._directory / study_label(study)
        return folder_of(study) / "tensorboard"

    def _file(self, folder: Path) -> _EventFile:
        if folder not in self._files:
            self._files[folder] = _EventFile(folder)
        return self._files[folder]


def _place(role: str, run: int, seed: int) -> Path:
    return Path(role, f"{run}-seed{seed}")


class _EventFile:
    """A file of events, open only while something is added.

    Files of a folder are read in the order of their names. TensorBoard's own writer puts the second
    and the process into a name, in which two files of one second are in no order.
    """

    def __init__(self, folder: Path, suffix: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = sum(1 for _ in folder.glob(f"{_PREFIX}*"))
        self._path = folder / f"{_PREFIX}{number:010d}.autorl{suffix}"
        self._is_new = True

    def add(self, events: list[Any]) -> None:
        """Append events, each with the time of now."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._is_new:
            events = [_event(file_version="brain.Event:2"), *events]
            self._is_new = False
        now = time.time()
        with self._path.open("ab") as file:
            writer = RecordWriter(file)
            for event in events:
                event.wall_time = now
                writer.write(event.SerializeToString())


def _event(**parts: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(**parts)


def _summary(*values: Mapping[str, object], step: int = 0) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    made = [Summary.Value(**value) for value in values]
    return _event(step=step, summary=Summary(value=made))


def _restart(step: int) -> Any:
    """Make void what was written of `step` and later ones."""
    from tensorboard.compat.proto.event_pb2 import SessionLog

    return _event(step=step, session_log=SessionLog(status=SessionLog.START))


def _scalars(metrics: Mapping[str, float], step: int) -> Any:
    """Write numbers at a step."""
    values = ({"tag": name, "simple_value": number} for name, number in metrics.items())
    return _summary(*values, step=step)


def _text(tag: str, content: str | Mapping[str, object]) -> Any:
    """Write a text in Markdown, or a table."""
    from tensorboard.plugins.text.summary_v2 import text_pb

    text = content if isinstance(content, str) else table(content, tag)
    return _event(summary=text_pb(tag, text))


def _described(study: StudyInfo, run: RunInfo) -> list[Any]:
    """Write a run's hyperparameters, and where it belongs.

    Runs that share all hyperparameters are a group.
    """
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    values = {**hyperparameters(run.config), "seed_role": run.role}
    begun = _event(summary=hparams_pb(values, start_time_secs=time.time()))
    return [begun, _text("run", facts_of_run(study, run))]


def _end(*, succeeded: bool) -> Any:
    """Write the end of a run, for the page HPARAMS."""
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    status = api_pb2.STATUS_SUCCESS if succeeded else api_pb2.STATUS_FAILURE
    info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time.time())
    data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
    described = metadata.create_summary_metadata(data)
    tag = metadata.SESSION_END_INFO_TAG
    return _summary({"tag": tag, "metadata": described, "tensor": metadata.NULL_TENSOR})
