"""TensorBoard: event files that `tensorboard --logdir` shows while the study runs."""

from __future__ import annotations

import functools
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
        events = _events()
        written = []
        before = self._steps.get(run.run)
        if before is None:
            written += [events.hyperparameters(run), events.text("run", facts_of_run(study, run))]
        # An earlier session, or an attempt whose worker was lost, may have come further.
        if before is None or step <= before:
            written.append(events.restart(step))
        self._steps[run.run] = step
        written.append(events.scalars(metrics, step))
        self._file(folder).add(written)

    def on_outcome(self, study: StudyInfo, run: RunInfo, outcome: Outcome) -> None:
        """Write the end of a run that is complete or has failed."""
        state = state_of(study, run, outcome)
        if state == "open":
            return
        folder = self._folder(study) / _place(run.role, run.run, run.seed)
        if run.run not in self._steps:  # it failed before its first evaluation
            events = _events()
            facts = facts_of_run(study, run)
            self._file(folder).add([events.hyperparameters(run), events.text("run", facts)])
        self._end(run.run, folder, state)

    def on_result(self, study: StudyInfo, result: Result) -> None:
        """Write the ends of stopped runs, and the summary."""
        for number, run in ended_runs(result).items():
            folder = self._folder(study) / _place(run.role, number, run.seed)
            if folder.is_dir():
                self._end(number, folder, run.state)
        summary = summarise(result)
        events = _events()
        scores = {f"result/{name}": value for name, value in summary.numbers.items()}
        self._file(self._folder(study) / "result").add(
            [
                events.restart(0),
                events.scalars(scores, 0),
                events.text("result", summary.text),
                events.text("study", facts_of_study(study)),
            ]
        )

    def _end(self, run: int, folder: Path, state: str) -> None:
        self._steps.pop(run, None)
        # TensorBoard takes the first end that it reads.
        if not any(folder.glob(f"{_PREFIX}*{_END}")):
            succeeded = state in ("complete", "stopped")
            _EventFile(folder, _END).add([_events().end(succeeded=succeeded)])
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
            events = [_events().version(), *events]
            self._is_new = False
        now = time.time()
        with self._path.open("ab") as file:
            writer = RecordWriter(file)
            for event in events:
                event.wall_time = now
                writer.write(event.SerializeToString())


class _Events:
    """Makes the events that are written, as TensorBoard's own writers do."""

    def __init__(self) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2, tensor_pb2, tensor_shape_pb2
        from tensorboard.compat.proto.types_pb2 import DT_STRING
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2

        self._event = event_pb2
        self._summary = summary_pb2
        self._tensor = tensor_pb2.TensorProto
        self._shape = tensor_shape_pb2.TensorShapeProto
        self._text_type = DT_STRING
        self._api = api_pb2
        self._hparams = summary_v2
        self._hparams_metadata = metadata
        self._plugin_data = plugin_data_pb2

    def version(self) -> Any:
        """Begin a file."""
        return self._event.Event(file_version="brain.Event:2")

    def restart(self, step: int) -> Any:
        """Make void what was written of `step` and later ones."""
        log = self._event.SessionLog(status=self._event.SessionLog.START)
        return self._event.Event(step=step, session_log=log)

    def scalars(self, metrics: Mapping[str, float], step: int) -> Any:
        """Write numbers at a step."""
        value = self._summary.Summary.Value
        values = [value(tag=name, simple_value=number) for name, number in metrics.items()]
        return self._event.Event(step=step, summary=self._summary.Summary(value=values))

    def text(self, tag: str, content: str | Mapping[str, object]) -> Any:
        """Write a text in Markdown, or a table."""
        markdown = content if isinstance(content, str) else table(content, tag)
        tensor = self._tensor(
            dtype=self._text_type, string_val=[markdown.encode()], tensor_shape=self._shape()
        )
        plugin = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        metadata = self._summary.SummaryMetadata(plugin_data=plugin)
        value = self._summary.Summary.Value(tag=tag, metadata=metadata, tensor=tensor)
        return self._event.Event(summary=self._summary.Summary(value=[value]))

    def hyperparameters(self, run: RunInfo) -> Any:
        """Write a run's hyperparameters.

        Runs that share all of them are a group.
        """
        values = {**hyperparameters(run.config), "seed_role": run.role}
        pb = self._hparams.hparams_pb(values, start_time_secs=time.time())
        return self._event.Event(summary=pb)

    def end(self, *, succeeded: bool) -> Any:
        """Write the end of a run, for the page HPARAMS."""
        status = self._api.STATUS_SUCCESS if succeeded else self._api.STATUS_FAILURE
        info = self._plugin_data.SessionEndInfo(status=status, end_time_secs=time.time())
        data = self._plugin_data.HParamsPluginData(session_end_info=info)
        names = self._hparams_metadata
        value = self._summary.Summary.Value(
            tag=names.SESSION_END_INFO_TAG,
            metadata=names.create_summary_metadata(data),
            tensor=names.NULL_TENSOR,
        )
        return self._event.Event(summary=self._summary.Summary(value=[value]))


@functools.cache
def _events() -> _Events:
    return _Events()
