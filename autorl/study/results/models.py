"""Trained models: the kept checkpoints of a proposal, and their models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from autorl.core.plain_values import plain
from autorl.core.types import Checkpoint, Config, InputError, ProposalId, SegmentId, StudyError
from autorl.store.cache import CheckpointCache, DamagedError
from autorl.store.checkpoints import damage
from autorl.store.remote import RemoteFolder, is_url
from autorl.store.rows import SUCCEEDED
from autorl.store.store import located
from autorl.study.results.record import StudyRecord, open_record
from autorl.study.setup import trainer_loader
from autorl.study.spec import Spec
from autorl.study.spec.sections import TrainerSection
from autorl.trainers.agents import start_files
from autorl.trainers.contract import Trainer


def kept_checkpoints(
    record: StudyRecord, folder: Path, proposal: ProposalId
) -> dict[int, Checkpoint]:
    """List the checkpoints of a proposal that are still there, by seed.

    They are of the step that it is scored at, if there is one.
    """
    end = record.candidate_steps(proposal).end
    link = record.link_at(proposal, end)
    cut = end if end is not None and end < record.until(link) else None
    checkpoints: dict[int, Checkpoint] = {}
    scored: set[int] = set()
    for seed, segment, path in record.tables.checkpoints(link, proposal):
        of_score = end is not None and segment == SegmentId(link, seed, cut)
        place = located(path, folder, record.spec.storage)
        # Whether one in a storage is there shows when it is fetched.
        exists = is_url(place) or Path(place).is_dir()
        # The model that the score is of goes before one that the search left.
        if not exists or seed in scored:
            continue
        if of_score or segment.proposal == proposal:
            checkpoints[seed] = Checkpoint(segment, place)
        if of_score:
            scored.add(seed)
    return checkpoints


@contextmanager
def whole(record: StudyRecord, checkpoint: Checkpoint) -> Iterator[Checkpoint]:
    """Give a checkpoint on this machine that is what was saved.

    It is there while the block runs. A model of it is used only then. One in a storage comes from
    the read cache.

    Raises:
        InputError: a file of it is missing or differs.
        StorageError: its storage does not answer.
    """
    files = record.tables.saved_files(checkpoint.segment)
    with ExitStack() as held:
        if not is_url(checkpoint.path):
            problem = damage(Path(checkpoint.path), files)
            folder = Path(checkpoint.path)
        else:
            problem = None
            source = RemoteFolder(checkpoint.path)
            try:
                folder = held.enter_context(CheckpointCache().reading(files, source))
            except DamagedError as error:
                problem = str(error)
        if problem is not None:
            raise InputError(
                f"is damaged ({problem}): choose the model of another seed", file=checkpoint.path
            )
        yield replace(checkpoint, path=str(folder))


@dataclass(frozen=True)
class Steps:
    """The steps a proposal's score and its kept model are of.

    None: no such step, or no model.
    """

    score: int | None
    model: int | None
    horizon: int

    def __str__(self) -> str:
        if self.model is None:
            if self.score is None:
                return ""
            return f"the score is of step {self.score} of {self.horizon}"
        if self.model == self.score:
            return f"model and score are of step {self.model} of {self.horizon}"
        score = "" if self.score is None else f", the score of step {self.score}"
        return f"the model is of step {self.model} of {self.horizon}{score}"


NO_STEPS = Steps(None, None, 0)


def steps_of(record: StudyRecord, proposal: ProposalId, model: Checkpoint | None) -> Steps:
    """Find the steps that score and kept model of a proposal have.

    They are given as far as they are known.
    """
    spec = record.spec
    step = record.candidate_steps(proposal).step
    if step is None and spec.objectives()[0].reduce == "last":
        step = record.until(proposal)
    end = None
    if model is not None:
        cut = model.segment.end
        end = record.until(model.segment.proposal) if cut is None else cut
    return Steps(step, end, spec.fidelity.steps)


def seed_of_model(record: StudyRecord, proposal: ProposalId, kept: Mapping[int, Checkpoint]) -> int:
    """Choose the kept seed with the median test score.

    If there was no test, it is the first one kept.
    """
    sign = record.spec.objectives()[0].sign
    scores = {
        row.seed: sign * row.value
        for row in record.tables.tests()
        if row.proposal == proposal
        and row.seed in kept
        and row.status in SUCCEEDED
        and row.value is not None
    }
    # Ties go by seed, whatever order the rows come in.
    ranked = sorted(scores, key=lambda seed: (scores[seed], seed))
    return ranked[(len(ranked) - 1) // 2] if ranked else min(kept)


class KeptModel(NamedTuple):
    """A model that a study kept.

    Attributes:
        trainer: of its run, which can load and export it.
        seed: of its run.
        name: what it is, for people.
    """

    trainer: Trainer
    checkpoint: Checkpoint
    seed: int
    name: str


def kept_model(
    record: StudyRecord, folder: Path, proposal: ProposalId, config: Config, seed: int | None
) -> KeptModel:
    """Find the model of a proposal trained with a seed.

    Default: the median by test score.

    Raises:
        InputError: its trainer has no models, or none was kept for this seed.
        StudyError: no model of the proposal was kept.
    """
    spec, _ = record.spec.trainer_for(config)
    trainer = trainer_loader(record.spec)(spec)
    if not trainer.model_name:
        raise InputError(f"trainer {spec.name!r} has no models to export", key="trainer")
    checkpoints = kept_checkpoints(record, folder, proposal)
    if not checkpoints:
        raise StudyError(
            f"{folder}: no model of proposal {proposal} was kept "
            f"(keep.checkpoints: {record.spec.keep.checkpoints}); "
            f"`autorl test {folder}` trains the incumbent on test seeds"
        )
    chosen = seed_of_model(record, proposal, checkpoints) if seed is None else seed
    if chosen not in checkpoints:
        have = ", ".join(map(str, sorted(checkpoints)))
        raise InputError(
            f"no model of proposal {proposal} with seed {chosen} was kept; there is seed {have}",
            key="seed",
        )
    tested = {row.seed for row in record.tables.tests() if row.proposal == proposal}
    run = record.spec.plan.pair_text(chosen)
    name = f"proposal {proposal}, {'test' if chosen in tested else 'tuning'} {run}"
    count = len(tested & checkpoints.keys())
    if seed is None and count > 1:
        name += f", the median of {count} by test score (`--seed` chooses another)"
    return KeptModel(trainer, checkpoints[chosen], chosen, name)


def with_start(spec: Spec) -> Spec:
    """Look up the policy that runs begin from, and hash its files.

    Raises:
        InputError: a file, the study or its model is not there.
    """
    section = spec.start
    if section is None or section.files is not None:
        return spec
    try:
        if section.study is not None:
            section = section.model_copy(update=_incumbents_model(Path(section.study)))
        files = start_files(section.resolve())
    except (InputError, StudyError) as error:
        raise spec.located(InputError(str(error), key="start")) from None
    return spec.changed(start=section.model_copy(update={"files": files}))


def _incumbents_model(folder: Path) -> dict[str, object]:
    """Find the checkpoint of a study's incumbent, and what trained it."""
    with open_record(folder) as record:
        incumbent = record.incumbent()
        model = kept_model(record, folder, incumbent.proposal, incumbent.config, None)
        if is_url(model.checkpoint.path):
            raise StudyError("its model is in a storage: `autorl export` it, and name the file")
        with whole(record, model.checkpoint):
            trainer, _ = record.spec.trainer_for(incumbent.config)
    section = TrainerSection(name=trainer.name, kwargs=plain(trainer.kwargs))
    return {"model": str(Path(model.checkpoint.path).resolve()), "trainer": section}


def load_model(folder: Path, proposal: ProposalId, config: Config, seed: int | None) -> Any:
    """Load the model of a proposal as `kept_model` finds it.

    See `Result.load_model`.

    Raises:
        InputError: there is none, or it is damaged.
        StudyError: no model of the proposal was kept.
    """
    with open_record(folder) as record:
        model = kept_model(record, folder, proposal, config, seed)
        with whole(record, model.checkpoint) as checkpoint:
            return model.trainer.load_model(checkpoint)
