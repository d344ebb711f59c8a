"""Segments of one study as the files of its queue hold them.

A file of the queue names no code: trainer and environment are those of the study file. Paths lie in
the study's folder, wherever that is mounted, or in its storage (`storage:checkpoints/NAME`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autorl.executors.wire import (
    outcome_from_json,
    outcome_to_json,
    segment_from_json,
    segment_to_json,
    to_json,
)
from autorl.plain_text import shown
from autorl.types import Config, EnvironmentSpec, InputError, Outcome, Segment, TrainerSpec

_STORED = "storage:"  # before the path of a checkpoint in the study's storage
# What a segment in the queue leaves out, as keys of its JSON form.
_STAND_INS = {"trainer": to_json(TrainerSpec("")), "environment": to_json(EnvironmentSpec())}


class SegmentForm:
    """Writes segments of one study into its queue, and reads them.

    Args:
        folder: the study's folder on this machine.
        trainers: of the study, by algorithm.
        environment: of the study.
        check: raises `InputError` for a configuration that the study cannot have.
        storage: URL of the study's storage; None: checkpoints lie in its folder.
    """

    def __init__(
        self,
        folder: Path,
        trainers: Mapping[str, TrainerSpec],
        environment: EnvironmentSpec,
        check: Callable[[TrainerSpec, Config], None] | None = None,
        storage: str | None = None,
    ) -> None:
        self.folder = Path(os.path.abspath(folder))
        self._trainers = dict(trainers)
        self._environment = environment
        self._check = check
        self._storage = storage

    def to_json(self, segment: Segment) -> dict[str, Any]:
        """Write a segment as a file of the queue holds it.

        Raises:
            ValueError: it is of another study.
        """
        algorithms = [name for name, spec in self._trainers.items() if spec == segment.trainer]
        if not algorithms or segment.environment != self._environment:
            raise ValueError(f"segment {segment.id} has a trainer or environment of another study")
        # The options of a trainer stay out: they may hold secrets.
        bare = replace(segment, trainer=TrainerSpec(""), environment=EnvironmentSpec())
        data = {"algorithm": algorithms[0], **segment_to_json(bare)}
        for name in _STAND_INS:
            del data[name]
        for name in ("folder", "log", "scratch", "storage"):
            data[name] = self._relative(data[name])
        if segment.parent is not None:
            data["parent"]["path"] = self._relative(segment.parent.path)
        return data

    def from_json(self, data: Mapping[str, object], file: str) -> Segment:
        """Read a segment of this study, with paths of this machine.

        Raises:
            InputError: it is none of this study.
        """
        entries = dict(data)
        algorithm = entries.pop("algorithm", None)
        if not isinstance(algorithm, str) or algorithm not in self._trainers:
            raise InputError(
                f"expected an algorithm of the study, got {shown(algorithm)}",
                file=file,
                key="algorithm",
            )
        for name in _STAND_INS:
            if name in entries:
                raise InputError("is said by the study file alone", file=file, key=name)
        segment = segment_from_json(entries | _STAND_INS, file)
        trainer = self._trainers[algorithm]
        try:
            if self._check is not None:
                self._check(trainer, segment.config)
        except InputError as error:
            raise InputError(error.message, file=file, key=f"config.{error.key}") from None
        parent = segment.parent
        if parent is not None:
            path = self._checkpoint(parent.path, file, "parent.path")
            parent = replace(parent, path=path)
        log = segment.log
        if log is not None:
            log = self._absolute(log, "logs", file, "log")
        return replace(
            segment,
            trainer=trainer,
            environment=self._environment,
            parent=parent,
            folder=self._absolute(segment.folder, "checkpoints", file, "folder"),
            scratch=self._absolute(segment.scratch, "checkpoints", file, "scratch"),
            storage=self._stored(segment.storage, file, "storage") if segment.storage else "",
            log=log,
        )

    def outcome_to_json(self, outcome: Outcome) -> dict[str, Any]:
        """Write an outcome as a file of the queue holds it.

        Raises:
            TypeError: a trainer put something into it that JSON has no form for.
        """
        data = outcome_to_json(outcome)
        if outcome.checkpoint is not None:
            data["checkpoint"]["path"] = self._relative(outcome.checkpoint.path)
        return data

    def outcome_from_json(self, data: object, file: str) -> Outcome:
        """Read an outcome, with paths of this machine.

        Raises:
            InputError: it is none, or names a checkpoint outside the study.
        """
        outcome = outcome_from_json(data, file)
        saved = outcome.checkpoint
        if saved is None:
            return outcome
        path = self._checkpoint(saved.path, file, "checkpoint.path")
        return replace(outcome, checkpoint=replace(saved, path=path))

    def _relative(self, path: str | None) -> str | None:
        if not path:
            return path
        if self._storage is not None and path.startswith(f"{self._storage}/"):
            return f"{_STORED}{path.removeprefix(f'{self._storage}/')}"
        try:
            return Path(os.path.abspath(path)).relative_to(self.folder).as_posix()
        except ValueError:
            raise ValueError(f"{path} is not in the study's folder {self.folder}") from None

    def _checkpoint(self, path: str, file: str, key: str) -> str:
        """Return the path or the URL of a checkpoint of the queue."""
        if path.startswith(_STORED):
            return self._stored(path, file, key)
        return self._absolute(path, "checkpoints", file, key)

    def _stored(self, path: str, file: str, key: str) -> str:
        """Return the URL of a checkpoint in the storage."""
        name = path.removeprefix(f"{_STORED}checkpoints/")
        if self._storage is None or name == path or not _is_name(name):
            expected = f"{_STORED}checkpoints/NAME, and a study with a storage"
            raise InputError(f"expected {expected}, got {shown(path)}", file=file, key=key)
        return f"{self._storage}/checkpoints/{name}"

    def _absolute(self, path: str, room: str, file: str, key: str) -> str:
        """Return a path of the queue on this machine.

        It stays "" where there is none.
        """
        if not path:
            return path
        name = path.removeprefix(f"{room}/")
        if name == path or not _is_name(name):
            raise InputError(f"expected {room}/NAME, got {shown(path)}", file=file, key=key)
        return str(self.folder / room / name)


def _is_name(text: str) -> bool:
    """Say whether a text names something that lies directly in a folder."""
    return bool(text) and text not in (".", "..") and not set(text) & set("/\\\0")
