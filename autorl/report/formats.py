"""The best configurations as YAML, JSON, keyword arguments, flags or a table."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from autorl.core.masking import masked
from autorl.core.plain_text import counted, number
from autorl.core.plain_values import plain
from autorl.core.types import Config, ProposalId, TrainerSpec
from autorl.report.reading import StudyView
from autorl.report.table import columns, one_line
from autorl.report.text import failed_text, interval_text, seeds_text, value_cells
from autorl.study import Entry
from autorl.trainers import TrainerInfo
from autorl.trainers.info import TrainedRun

FORMATS = ("yaml", "json", "kwargs", "cli", "table", "zoo")


@dataclass(frozen=True)
class Candidate:
    """One of the best proposals, with everything needed to train it again.

    Attributes:
        step: its score is read at; None: by the study's reduction, of the whole run.
        horizon: steps of a full run, over which schedules go.
        trainer: its name and options; `info`: what it is like.
        environment: id and arguments, without what is at its default.
        schedule: full configurations by the step they start at: the trainer's own options under the
            proposal's hyperparameters, no algorithm prefix.
        entry: its test, if it was tested.
        configuration: the number of its configuration, which is that of the proposal that
            introduced it.
    """

    proposal: ProposalId
    label: str
    tuning: float
    n_seeds: int
    until: int
    horizon: int
    trainer: TrainerSpec
    environment: Mapping[str, Any]
    schedule: tuple[tuple[int, Config], ...]
    entry: Entry | None
    step: int | None = None
    configuration: ProposalId | None = None
    info: TrainerInfo = field(default_factory=TrainerInfo)

    @property
    def end(self) -> int:
        """The step to train to for the model that is scored."""
        return self.until if self.step is None else self.step

    @property
    def parts(self) -> tuple[tuple[int, Config], ...]:
        """The part of the schedule that begins before `end`."""
        return tuple(part for part in self.schedule if part[0] < self.end)

    @property
    def title(self) -> str:
        """One line for people."""
        test = "not tested"
        if self.entry is not None and self.entry.test is None:
            test = failed_text(self.entry.failures)
        elif self.entry is not None and self.entry.test is not None:
            span = interval_text(self.entry.test.iqm_interval)
            test = f"test (IQM) {number(self.entry.test.iqm)} {span}"
            test += f" ({seeds_text(self.entry.test)})" if self.entry.failures else ""
        first = self.configuration
        of = f", configuration {first}" if first not in (None, self.proposal) else ""
        tuning = f"tuning {number(self.tuning)} on {counted(self.n_seeds, 'seed')}"
        return f"proposal {self.proposal} ({self.label}{of}): {test}; {tuning}"

    def run(self, config: Config) -> TrainedRun:
        """Describe the run of a part of the schedule."""
        return TrainedRun(self.trainer, config, self.horizon, self.end, self.environment)


def candidates(view: StudyView, top: int) -> list[Candidate]:
    """Collect the `top` best proposals of a study, the incumbent first.

    Raises:
        StudyError: nothing was scored yet.
    """
    tested = {entry.proposal: entry for entry in view.result().entries}
    record = view.record
    best = []
    # By tuning score: test scores never rank anything.
    for rank, proposal in enumerate(record.best_of_runs(top), start=1):
        lineage = record.lineage(proposal)
        trainer, _ = view.spec.trainer_for(lineage[proposal].config)
        schedule = lineage.schedule(proposal)
        best.append(
            Candidate(
                proposal=proposal,
                label="incumbent" if rank == 1 else f"rank {rank}",
                tuning=record.tuning_score(proposal),
                n_seeds=record.tables.ranked_seeds(proposal),
                until=lineage[proposal].until,
                horizon=view.spec.fidelity.steps,
                trainer=trainer,
                # Printed to be pasted elsewhere: secrets stay in the study file.
                environment=masked(
                    view.spec.environment.model_dump(mode="json", exclude_defaults=True)
                ),
                schedule=tuple((step, trained_with(view, config)) for step, config in schedule),
                entry=tested.get(proposal),
                step=record.chosen_step(proposal),
                configuration=record.tables.introduced(proposal),
                info=view.spec.info(trainer),
            )
        )
    return best


def render(best: Sequence[Candidate], style: str) -> str:
    """Write the candidates in one of `FORMATS`."""
    match style:
        case "table":
            return _table(best)
        case "json":
            return json.dumps(list(map(_document, best)), indent=2)
        case "yaml":
            documents = list(map(_document, best))
            return str(yaml.safe_dump(documents, sort_keys=False, width=110)).rstrip()
        case "zoo":
            return "\n---\n".join(map(_zoo, best))
    lines = []
    for candidate in best:
        for step, config in candidate.parts:
            after = f", from step {step}" if len(candidate.parts) > 1 else ""
            # Schedules are functions of step / horizon: training to `end` alone would bend them.
            if candidate.end < candidate.horizon:
                after += f", trained until step {candidate.end} of {candidate.horizon}"
                after += "" if candidate.step is None else ", which its score is of"
                steps = candidate.info.total_steps(candidate.end)
                after += f": {steps}" if steps else ""
            if len(best) > 1 or after:
                lines.append(f"# {candidate.title}{after}")
            lines.append(arguments(candidate.run(config), candidate.info, style))
    return "\n".join(lines)


def _zoo(candidate: Candidate) -> str:
    """Write a candidate as a file of RL Baselines3 Zoo.

    The last part of a schedule of configurations is written.
    """
    lines = [f"# {candidate.title}"]
    if len(candidate.parts) > 1:
        steps = ", ".join(str(step) for step, _ in candidate.parts)
        lines.append(f"# the last of a schedule of configurations, from steps {steps}")
    return "\n".join([*lines, candidate.info.zoo_entry(candidate.run(candidate.parts[-1][1]))])


def arguments(run: TrainedRun, info: TrainerInfo, style: str = "kwargs") -> str:
    """Write the configuration as keyword arguments or, with `cli`, as flags.

    They are the library's own where the trainer has one. Values that are not arguments of the
    library follow as a comment, and so does the course of schedules. `info` describes the trainer.
    """
    of_library = info.arguments(run, as_flags=style == "cli")
    if of_library.code:
        return of_library.code
    write = flags if style == "cli" else keyword_arguments
    comment = "  # " + "; ".join(of_library.notes) if of_library.notes else ""
    return write(of_library.values) + one_line(comment)


def keyword_arguments(config: Mapping[str, object]) -> str:
    """Write `learning_rate=0.0003, n_steps=256`.

    Names that are not Python's (`x.shape`) come as `**{...}`.
    """
    # Plain first: NumPy 2 writes its scalars as np.float64(0.1).
    parts = [f"{name}={plain(value)!r}" for name, value in config.items() if name.isidentifier()]
    unnameable = {name: plain(value) for name, value in config.items() if not name.isidentifier()}
    if unnameable:
        parts.append(f"**{unnameable!r}")
    return ", ".join(parts)


def flags(config: Mapping[str, object]) -> str:
    """Write `--learning-rate 0.0003 --n-steps 256`, quoted for a shell.

    A list is one flag, null is none.
    """
    words: list[str] = []
    for name, value in config.items():
        if value is not None:
            items = value if isinstance(value, tuple | list) else [value]
            words.append("--" + name.replace("_", "-"))
            words += [
                # Python's True rather than JSON's true; numbers with all the digits that read back
                # to them.
                str(item) if isinstance(item, str | bool) else json.dumps(plain(item))
                for item in items
            ]
    # Text may have quotes and blanks.
    return shlex.join(words)


def trained_with(view: StudyView, config: Config) -> Config:
    """Return the hyperparameters the trainer trains with.

    They are the trainer's own values under the configuration's.
    """
    # In the order of the space, whatever order the optimizer has filled them in.
    names = view.spec.search_space.names
    trainer, hyperparameters = view.spec.trainer_for(
        Config({name: config[name] for name in names if name in config})
    )
    return view.spec.info(trainer).full_configuration(trainer, hyperparameters)


def _document(candidate: Candidate) -> dict[str, Any]:
    entry = candidate.entry
    test = entry.test if entry else None
    document: dict[str, Any] = {
        "proposal": candidate.proposal,
        "configuration_number": candidate.configuration,
        "label": candidate.label,
        "test": None,
        "tuning": {"value": _score(candidate.tuning), "n_seeds": candidate.n_seeds},
        "trainer": candidate.trainer.name,
        "environment": dict(candidate.environment),
        "steps": candidate.end,
        "horizon": candidate.horizon,
        "configuration": plain(candidate.parts[-1][1]),
    }
    if entry and entry.failures:
        document["failed_test_runs"] = len(entry.failures)
    if test is not None:
        scores = {"iqm": test.iqm, "value": test.value}
        if span := test.iqm_interval:
            scores |= {"iqm_low": span.low, "iqm_high": span.high}
        rounded = {name: _score(value) for name, value in scores.items()}
        document["test"] = {**rounded, "n_seeds": len(test.seeds)}
    if len(candidate.parts) > 1:
        document["schedule"] = [
            {"from_step": step, "configuration": plain(config)} for step, config in candidate.parts
        ]
    return document


def _score(value: float) -> float:
    """Cut the last digits of a score, made by summing it up.

    448.95500000000004 becomes 448.955.
    """
    return float(f"{value:.12g}")


def _table(best: Sequence[Candidate]) -> str:
    # Conditional hyperparameters are active in some candidates only.
    names = list(dict.fromkeys(name for candidate in best for name in candidate.schedule[-1][1]))
    failing = any(candidate.entry and candidate.entry.failures for candidate in best)
    runs = ["test runs"] if failing else []
    rows = []
    for candidate in best:
        entry = candidate.entry
        test = entry.test if entry else None
        scores = [number(test.iqm), interval_text(test.iqm_interval)] if test else ["-", "-"]
        if failing and entry:
            scores.append(seeds_text(test) if test else failed_text(entry.failures))
        elif failing:
            scores.append("-")
        tuning = (number(candidate.tuning), candidate.n_seeds)
        values = value_cells(candidate.schedule[-1][1], names)
        rows.append([candidate.proposal, *scores, *tuning, *values])
    header = ["proposal", "test (IQM)", "interval", *runs, "tuning", "seeds", *names]
    return columns(header, rows, indent="")
