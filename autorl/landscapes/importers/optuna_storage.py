"""Studies in Optuna's storages as landscapes.

A storage is SQLite or a journal file. A trial is a run, its reports are evaluations.

The user attribute `seed` of a trial is its seed; without it, repetitions of a configuration are
numbered. Complete trials are done, pruned ones stopped, failed ones crashed; waiting and running
ones are left out.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.landscapes.importers.common import (
    Options,
    Run,
    Source,
    metric_column,
    whole_step,
    write_source,
)
from autorl.landscapes.importers.inference import clean_name, infer_conditions
from autorl.landscapes.manifest import Manifest, Objective
from autorl.space import Space
from autorl.space.foreign import from_optuna

if TYPE_CHECKING:
    import optuna

_MAGIC = b"SQLite format 3\0"
_STATUS = {"COMPLETE": "done", "PRUNED": "stopped", "FAIL": "crash"}
_ID = re.compile(r"[^/\s]+/[^/\s]+/\S+\Z")


def recognises(path: Path) -> bool:
    """Tell whether a file is an Optuna storage."""
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        head = stream.read(4096)
    if head.startswith(_MAGIC):
        return b"trial_intermediate_values" in path.read_bytes()
    return b'"op_code"' in head.split(b"\n")[0]


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import one study.

    `options.study` says which if there are several.

    Raises:
        InputError: not a storage of this Optuna, no such study, several objectives and none chosen,
            or distributions that do not fit together.
    """
    with _opened(path) as storage:
        study = _study(storage, options.study)
        return [write_source(_read(study, path, options), options)]


def _read(study: optuna.Study, path: Path, options: Options) -> Source:
    place, objective = _objective(study, options)
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in _STATUS]
    left_out = len(study.get_trials(deepcopy=False)) - len(trials)
    configs = {
        trial.number: {clean_name(name): value for name, value in trial.params.items()}
        for trial in trials
    }
    space = _space(trials, list(configs.values()))
    # A landscape has no evaluation before training: steps that count from 0 are moved by one.
    shift = int(any(0 in trial.intermediate_values for trial in trials))
    runs = [_run(trial, place, objective.metric, shift, options) for trial in trials]
    differing = sum(_differs(trial, place) for trial in trials)
    stated_id = study.study_name if _ID.match(study.study_name) else None
    notes = [
        f"{counted(left_out, 'trial')} that had not ended: left out." if left_out else "",
        "Steps count from 0 in the source, here from 1." if shift else "",
        f"In {counted(differing, 'trial')} the value differs from the last report; it is recorded "
        "at that step, the report in `reported`."
        if differing
        else "",
    ]
    return Source(
        path=path,
        files=[path],
        id=options.named(path, stated_id),
        format=f"the Optuna study {study.study_name!r}",
        configs=configs,
        runs=runs,
        objective=objective,
        space=space,
        origin="optuna",
        sampler={"name": "optuna"},
        notes=tuple(note for note in notes if note),
    )


def _objective(study: optuna.Study, options: Options) -> tuple[int, Objective]:
    names = study.metric_names or [f"value_{place}" for place in range(len(study.directions))]
    # As Optuna itself calls the one value of a trial.
    names = names if len(names) > 1 or study.metric_names else ["value"]
    if len(names) == 1:
        place = 0
    elif options.metric in names:
        place = names.index(str(options.metric))
    else:
        raise InputError(f"the study has several objectives: --metric one of {', '.join(names)}")
    metric = options.metric or names[place]
    direction = options.direction or study.directions[place].name.lower()
    return place, Objective(metric_column(metric), direction)  # type: ignore[arg-type]


def _run(
    trial: optuna.trial.FrozenTrial, place: int, metric: str, shift: int, options: Options
) -> Run:
    """Turn a trial's reports into a curve that ends with its value."""
    reports = {
        whole_step(step + shift, options.unit, f"trial {trial.number}"): value
        for step, value in sorted(trial.intermediate_values.items())
    }
    steps = list(reports)
    curve = list(reports.values())
    metrics: dict[str, Sequence[float]] = {metric: curve}
    # The value of a pruned trial is its last report: nothing to add.
    final = (
        trial.values[place] if trial.values is not None and trial.state.name == "COMPLETE" else None
    )
    # Many objectives return the best of their reports: the value Optuna ranked by is the score.
    if final is not None and _differs(trial, place):
        metrics = {metric: [*curve[:-1], final], "reported": curve}
    elif final is not None and not steps:
        steps = [whole_step(1, options.unit, f"trial {trial.number}")]
        metrics = {metric: [final]}
    seed = trial.user_attrs.get("seed")
    # To Python True is an integer.
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise InputError(
            f"the attribute seed must be an integer, got {seed!r}", key=f"trial {trial.number}"
        )
    wall_seconds = trial.duration.total_seconds() if trial.duration else None
    return Run(
        trial.number, seed, steps, metrics, _STATUS[trial.state.name], wall_seconds=wall_seconds
    )


def _differs(trial: optuna.trial.FrozenTrial, place: int) -> bool:
    if trial.state.name != "COMPLETE" or not trial.intermediate_values or trial.values is None:
        return False
    return bool(trial.intermediate_values[max(trial.intermediate_values)] != trial.values[place])


def _space(
    trials: Sequence[optuna.trial.FrozenTrial], configs: Sequence[Mapping[str, object]]
) -> Space:
    """Unite the trials' distributions.

    Conditions are inferred from who has which.
    """
    seen: dict[str, list[Any]] = {}
    for trial in trials:
        for name, distribution in trial.distributions.items():
            # A dynamic search may draw one parameter from several ranges.
            distributions = seen.setdefault(clean_name(name), [])
            if distribution not in distributions:
                distributions.append(distribution)
    if not seen:
        raise InputError("its trials have no parameters")
    united = {name: _united(name, distributions) for name, distributions in seen.items()}
    return from_optuna(united, infer_conditions(list(seen), configs))


def _united(name: str, distributions: Sequence[Any]) -> Any:
    """Unite the distributions of a parameter, steps left out."""
    from optuna.distributions import CategoricalDistribution

    kinds = {type(distribution) for distribution in distributions}
    if (
        len(kinds) > 1
        or len({getattr(distribution, "log", False) for distribution in distributions}) > 1
    ):
        raise InputError(
            f"its trials drew from distributions that do not fit together: {distributions[:3]}",
            key=name,
        )
    (kind,) = kinds
    if kind is CategoricalDistribution:
        listed = (choice for distribution in distributions for choice in distribution.choices)
        return kind(list(dict.fromkeys(listed)))
    lower = min(distribution.low for distribution in distributions)
    upper = max(distribution.high for distribution in distributions)
    return kind(lower, upper, log=distributions[0].log)


def _study(storage: optuna.storages.BaseStorage, name: str | None) -> optuna.Study:
    import optuna

    names = optuna.get_all_study_names(storage)
    if name not in names and (name is not None or len(names) != 1):
        raise InputError(
            f"--study must be one of: {', '.join(names) or 'none is in it'}", key="study"
        )
    return optuna.load_study(study_name=name or names[0], storage=storage)


@contextmanager
def _opened(path: Path) -> Iterator[optuna.storages.BaseStorage]:
    """Open the storage of a copy of the file.

    Optuna writes to what it opens.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from sqlalchemy.exc import SQLAlchemyError

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "storage"
        try:
            # A journal is text, and is copied as it is.
            if path.open("rb").read(len(_MAGIC)) != _MAGIC:
                shutil.copyfile(path, copy)
                yield optuna.storages.JournalStorage(JournalFileBackend(str(copy)))
                return
            # Read alone: the file is not ours to change.
            uri = f"file:{path.resolve().as_posix()}?mode=ro"
            with (
                closing(sqlite3.connect(uri, uri=True)) as source,
                closing(sqlite3.connect(copy)) as target,
            ):
                # Not a file copy, which a study that writes meanwhile could tear.
                source.backup(target)
            storage = optuna.storages.RDBStorage(f"sqlite:///{copy}")
        except (RuntimeError, SQLAlchemyError, sqlite3.Error, ValueError, KeyError) as error:
            version = optuna.__version__
            message = f"this Optuna ({version}) cannot read it: {str(error).splitlines()[0]}"
            raise InputError(message) from None
        try:
            yield storage
        finally:
            # SQLAlchemy keeps connections open, and the folder below them is about to be removed.
            storage.remove_session()
            storage.engine.dispose()
