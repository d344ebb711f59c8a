"""Trained models: which checkpoints of a proposal were kept, and the model of one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autorl.spec import Spec, thaw
from autorl.store import codec
from autorl.store.checkpoints import damage
from autorl.store.query import Query
from autorl.study.chosen import chosen, link_at, until
from autorl.study.setup import trainer_loader
from autorl.types import Checkpoint, Config, InputError, SegmentId, StudyError


def kept_checkpoints(query: Query, folder: Path, proposal: int) -> dict[int, Checkpoint]:
    """The checkpoints of a proposal that are still there, by seed: of the step it is scored at where there is one."""
    end = chosen(query, proposal).end
    link = link_at(query, proposal, end)
    rows = query(
        "SELECT seed, segment, checkpoint FROM segments WHERE proposal IN (?, ?) AND checkpoint IS NOT NULL "
        "ORDER BY to_step",
        (link, proposal),
    )
    found: dict[int, Checkpoint] = {}
    scored: set[int] = set()
    for seed, text, path in rows:
        segment = SegmentId.parse(text)
        of_score = False
        if end is not None:
            cut = end if end < until(query, link) else None
            of_score = segment == SegmentId(link, seed, cut)
        of_proposal = segment.proposal == proposal
        is_there = (folder / path).is_dir()
        if is_there and seed not in scored and (of_score or of_proposal):
            found[seed] = Checkpoint(segment, str(folder / path))
            scored.update({seed} if of_score else ())
    return found


def check_whole(query: Query, checkpoint: Checkpoint) -> None:
    """Compare a checkpoint with what was saved, before a model of it is used.

    Raises:
        InputError: a file of it is missing or differs.
    """
    rows = query(
        "SELECT body FROM event WHERE kind IN ('outcome', 'regained') AND instr(body, ?) > 0 ORDER BY seq",
        (f'"segment":{codec.dumps(checkpoint.segment)}',),
    )
    bodies = [codec.loads(text) for (text,) in rows]
    files = [
        body.get("checkpoint_files", {}) for body in bodies if body["segment"] == checkpoint.segment
    ]
    found = damage(Path(checkpoint.path), files[-1] if files else {})
    if found is not None:
        raise InputError(
            f"is damaged ({found}): choose the model of another seed", file=checkpoint.path
        )


@dataclass(frozen=True)
class Steps:
    """The steps a proposal's score and its kept model are of; None: there is no such step, or no model."""

    score: int | None
    model: int | None
    horizon: int

    def __str__(self) -> str:
        if self.model is None:
            return (
                "" if self.score is None else f"the score is of step {self.score} of {self.horizon}"
            )
        if self.model == self.score:
            return f"model and score are of step {self.model} of {self.horizon}"
        score = "" if self.score is None else f", the score of step {self.score}"
        return f"the model is of step {self.model} of {self.horizon}{score}"


NO_STEPS = Steps(None, None, 0)


def steps_of(query: Query, spec: Spec, proposal: int, model: Checkpoint | None) -> Steps:
    """The steps the score and a kept model of a proposal are of, once it is known at which step it is scored."""
    step = chosen(query, proposal).step
    if step is None and spec.objectives()[0].reduce == "last":
        step = until(query, proposal)
    end = None if model is None else end_of(query, model.segment)
    return Steps(step, end, spec.fidelity.steps)


def end_of(query: Query, segment: SegmentId) -> int:
    """The nominal step a segment ends at."""
    return until(query, segment.proposal) if segment.end is None else segment.end


def best_seed(query: Query, sign: float, proposal: int, kept: Mapping[int, Checkpoint]) -> int:
    """The kept seed with the best test score; without a test, the first one kept."""
    rows = query(
        "SELECT seed, value FROM tests WHERE proposal = ? AND objective = 0 AND status IN ('done', 'stopped')",
        (proposal,),
    )
    scores = {seed: sign * value for seed, value in rows if seed in kept}
    return max(scores, key=lambda seed: (scores[seed], -seed)) if scores else min(kept)


def pickled_checkpoints(checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Those that an earlier version wrote with Stable-Baselines3, as pickles."""
    folders = [(checkpoint, Path(checkpoint.path)) for checkpoint in checkpoints]
    return [
        checkpoint
        for checkpoint, folder in folders
        if (folder / "training.pkl").is_file() and not (folder / "state.json").is_file()
    ]


def load_model(folder: Path, proposal: int, config: Config, seed: int | None) -> Any:
    """The model of a proposal, trained with `seed` (default: the best on test seeds): see `Result.load_model`.

    Raises:
        InputError: its trainer has no models, none was kept for this seed, or the one kept is damaged.
        StudyError: no model of the proposal was kept.
    """
    spec = thaw((folder / "study.yaml").read_text(encoding="utf-8"), str(folder / "study.yaml"))
    with closing(
        sqlite3.connect(f"file:{folder / 'study.sqlite'}?mode=ro", uri=True)
    ) as connection:

        def query(sql: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
            return connection.execute(sql, parameters).fetchall()

        kept = kept_checkpoints(query, folder, proposal)
        if not kept:
            raise StudyError(
                f"{folder}: no model of proposal {proposal} was kept (keep.checkpoints)"
            )
        chosen = (
            best_seed(query, spec.objectives()[0].sign, proposal, kept) if seed is None else seed
        )
        if chosen not in kept:
            have = ", ".join(map(str, sorted(kept)))
            raise InputError(
                f"no model with seed {chosen} was kept; there is seed {have}", key="seed"
            )
        check_whole(query, kept[chosen])
    return _read(spec, config, kept[chosen])


def _read(spec: Spec, config: Config, checkpoint: Checkpoint) -> Any:
    trainer, _ = spec.trainer_for(config)
    loaded = trainer_loader(spec)(trainer)
    if not loaded.model_name:
        raise InputError(f"trainer {trainer.name!r} has no models to load", key="trainer")
    return loaded.load_model(checkpoint)
