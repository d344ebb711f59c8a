"""A study as a page, which is a file or served live."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

import yaml

from autorl.core.masking import shareable, without_folders
from autorl.core.plain_text import counted, number
from autorl.optimizers.model_share import prior_text, share_text
from autorl.report.checklist import checklist
from autorl.report.configurations import configuration_rows, counts_text
from autorl.report.exploring import chosen, front_chart, parallel, slices
from autorl.report.formats import candidates, trained_with
from autorl.report.importance import importance_blocks, noise_blocks
from autorl.report.learning import (
    curves_chart,
    incumbent_chart,
    lengths_of,
    proxy_blocks,
    seeds_chart,
    training_blocks,
)
from autorl.report.live import watched
from autorl.report.pages.document import (
    Bar,
    Block,
    Code,
    Figure,
    Headline,
    Row,
    Section,
    Table,
    Text,
    page,
)
from autorl.report.population import population_blocks
from autorl.report.reading import StudyView, TracePoint
from autorl.report.status import state, warnings
from autorl.report.text import (
    beyond_text,
    candidate_table,
    front_table,
    score_rows,
    side_by_side,
    task_table,
    value_cells,
    volumes_text,
)
from autorl.store.rows import ProposalRow
from autorl.study import Result
from autorl.study.spec.options import resolved_in_short

_MOST_ROWS = 1000
_MOST_FAILURES = 500


def report_html(view: StudyView) -> str:
    """Write the whole report of a study, finished or not."""
    # Replays the events: what was the incumbent when is in no table.
    return page(view.spec.name, about(view), study_sections(view, view.trace))


def about(view: StudyView) -> str:
    """Name trainer, task, optimizer and state of a study, and its note."""
    spec = view.spec
    task = spec.task_names or "its own task"
    line = f"{spec.trainer_names} on {task}, {spec.optimizer.name}, {state(view)}"
    return f"{line}\n{spec.note}" if spec.note else line


def study_sections(
    view: StudyView, trace: Sequence[TracePoint], *, live: bool = False
) -> list[Section]:
    """Make the parts of a study's page.

    Args:
        view: the study.
        trace: the incumbent after each score.
        live: it is looked at while it runs: with its progress, and before the search is over
            without analyses that fit a model.
    """
    # A report of a study that has scored nothing yet has proposals and failures.
    result = view.found
    sections = [
        Section("result", "Result", result_blocks(view, result), half=live or result is not None)
    ]
    if result is not None:
        best = result.incumbent.proposal
        fits = view.record.search_end is not None or not live
        sections += [
            Section("incumbent", "Incumbent", _incumbent(view), half=True),
            Section("learning", "Learning", _learning(view, result, trace)),
            Section("seeds", "Seeds", _seeds(view, result)),
            Section("population", "Population", population_blocks(view.record, best)),
            Section("proxy", "Proxy and gold", proxy_blocks(view.record, result)),
            Section("updates", "Training of the incumbent", training_blocks(view.record, result)),
            Section("front", "Front", _front(view, result)),
            Section("hyperparameters", "Hyperparameters", _hyperparameters(view, result, fits)),
        ]
    sections += [
        Section("proposals", "Proposals", _proposals(view, result)),
        Section("cost", "Cost", _cost(view), half=True),
        Section("failures", "Failures", _failures(view), half=not live),
        Section("provenance", "Provenance", _provenance(view)),
        Section("checklist", "Checklist", _checklist(view)),
    ]
    if not live:
        # Readers of a page need not see the study file (`docs/security.md`).
        return [*sections, Section("study-file", "Study file", _study_file(view))]
    sections.insert(1, Section("progress", "Progress", _progress(view), half=True))
    return sections


def study_blocks(view: StudyView) -> list[Block]:
    """Make what a notebook shows of a study."""
    result = view.found
    blocks = [Text(about(view)), Bar(watched(view).budget_used), *result_blocks(view, result)]
    return blocks if result is None else [*blocks, *_learning(view, result, view.trace)]


def result_blocks(view: StudyView, result: Result | None) -> list[Block]:
    """Write the result of a study and its cautions."""
    if result is None:
        return [Headline("No proposal has been scored yet.")]
    return [*result_scores(result), *(Text(text, "caution") for text in warnings(view))]


def result_scores(result: Result) -> list[Block]:
    """Write the scores as `autorl tune` prints them.

    The number to report is in large letters.
    """
    first, *scores = score_rows(result)
    blocks: list[Block] = [Headline(f"{first.note[:1].upper()}{first.note[1:]}.")]
    if result.test is not None:
        about = f"interval {first.interval}, {first.note}"
        blocks = [Headline(first.value, "Test score (IQM)", about)]
        if result.loss:
            blocks.append(Text(f"{result.loss}.", "loss"))
    facts = {
        "steps": str(result.steps),
        "beyond the budget": beyond_text(result),
        "search ended": result.search_end_text,
    }
    rows = [
        (name, value, f"interval {interval}, {note}" if interval else note)
        for name, value, interval, note in scores
    ]
    rows += [(name, "", text) for name, text in facts.items() if text]
    return [*blocks, Text(result.objective, "note"), Table((), rows)]


def _progress(view: StudyView) -> list[Block]:
    """Write the used budget, the runs and what workers do."""
    study = watched(view)
    said = ("study", "state", "search ended", "test score", "gap", "test seeds")
    rows = [row for row in study.facts if row[0] not in said]
    if study.last is not None:
        when = datetime.fromtimestamp(study.last.time, UTC)
        rows.append(("last event", f"{study.last.kind}, {when:%Y-%m-%d %H:%M:%S} UTC"))
    return [Bar(study.budget_used), Table((), rows)]


def _incumbent(view: StudyView) -> list[Block]:
    """Write the incumbent's configuration and the default beside it.

    The incumbent has a column for each part of its schedule.
    """
    (candidate,) = candidates(view, 1)
    several = len(candidate.schedule) > 1
    named = [
        (f"from step {step}" if several else "incumbent", config)
        for step, config in candidate.schedule
    ]
    named.append(("default", trained_with(view, view.spec.search_space.default())))
    return [Table(*side_by_side(named)), Text("Every digit: autorl best.", "note")]


def _seeds(view: StudyView, result: Result) -> list[Block]:
    """Write the seeds, and the score of what was tested on each."""
    spec = view.spec
    blocks: list[Block] = [
        Text(f"tuning: {spec.plan.text('tuning')} · test: {spec.plan.text('test')}", "note")
    ]
    chart = seeds_chart(result)
    if chart is not None:
        blocks.append(Figure(chart, "seeds"))
    if result.tasks is not None:
        blocks.append(Table(*task_table(result)))
    if result.entries:
        header, rows = candidate_table(result)
        judged = [seed for seed in spec.plan.test if spec.plan.judges(seed)]
        header += [spec.plan.pair_text(seed) for seed in judged]
        for entry, row in zip(result.entries, rows, strict=True):
            scores = {} if entry.test is None else entry.test.seeds
            # How a run failed stands in the place of its score.
            row += [entry.failures.get(seed) or number(scores.get(seed)) for seed in judged]
        blocks.append(Table(header, rows))
    return blocks


def _learning(view: StudyView, result: Result, trace: Sequence[TracePoint]) -> list[Block]:
    """Draw the incumbent over the budget, and learning curves beside it."""
    incumbent = incumbent_chart(trace, result, lengths_of(view.record, trace))
    curves = curves_chart(view.record, result)
    drawn = [Figure(incumbent, "incumbent")]
    return [Row([*drawn, Figure(curves, "curves")] if curves is not None else drawn)]


def _front(view: StudyView, result: Result) -> list[Block]:
    """Write what no other proposal dominates.

    Nothing with one objective.
    """
    chart = front_chart(view.record, result)
    if chart is None:
        return []
    note = Text(f"Not dominated by any other on tuning seeds; {volumes_text(result)}.", "note")
    return [Figure(chart, "front"), note, Table(*front_table(result))]


def _hyperparameters(view: StudyView, result: Result, fits: bool) -> list[Block]:
    """Draw what the scores say of hyperparameters."""
    space = view.spec.search_space
    rows = configuration_rows(view.record)
    trials = chosen(rows, maximize=result.direction == "maximize")
    label = f"tuning score ({result.aggregate})"
    blocks: list[Block] = []
    if fits:
        blocks = [*importance_blocks(space, rows, label), *noise_blocks(view.record, rows)]
    return [*blocks, *parallel(space, trials, label), *slices(space, trials, label)]


def _proposals(view: StudyView, result: Result | None) -> list[Block]:
    names = view.spec.search_space.names
    tables = view.record.tables
    sign = view.spec.objectives()[0].sign

    def place(row: ProposalRow) -> float:
        # NaN: the score of what failed before any score was known.
        scored = row.score and not math.isnan(row.score[0])
        return -sign * row.score[0] if scored else math.inf

    def written(row: ProposalRow) -> list[object]:
        score = number(next(iter(row.score), None))
        facts = (row.proposal, row.first, row.origin, row.status, score, row.n_seeds or "")
        return [*facts, row.until, *value_cells(row.values, names)]

    cells = [written(row) for row in sorted(tables.proposals(), key=place)[:_MOST_ROWS]]
    header = ("proposal", "configuration", "origin", "status", "tuning score", "seeds")
    blocks: list[Block] = [Text(share_text(view.record.share, learns=view.record.optimizer_learns))]
    if view.record.prior_use is not None:
        blocks.append(Text(prior_text(view.record.prior_use)))
    best = None if result is None else str(result.incumbent.proposal)
    note = "A configuration has the number of the proposal that introduced it."
    left_out = sum(tables.count_proposals().values()) - len(cells)
    if left_out:
        note += f" {left_out} more are in study.sqlite."
    table = Table((*header, "until step", *names), cells, sortable=True, best=best)
    return [*blocks, Text(note, "note"), table]


def _failures(view: StudyView) -> list[Block]:
    """Write the latest failed segments."""
    every = view.record.tables.failures()
    if not every:
        return [Text("None.", "note")]
    rows = [
        # A report is passed on: where somebody's files lie is no part of it.
        (row.proposal, row.seed, row.kind, without_folders(row.message), f"logs/{row.segment}.log")
        for row in every[-_MOST_FAILURES:]
    ]
    header = ("proposal", "seed", "kind", "message", "log")
    blocks: list[Block] = [Table(header, rows, sortable=True)]
    if len(every) > len(rows):
        earlier = counted(len(every) - len(rows), "earlier one", "are")
        blocks.append(Text(f"{earlier} in study.sqlite.", "note"))
    return blocks


def _cost(view: StudyView) -> list[Block]:
    """Write what the study has cost, by role and by algorithm."""
    tables = view.record.tables
    runs = tables.runs()
    rows = []
    for column in ("seed_role", "algorithm"):
        for name, taken in tables.training_by(column).items():
            count = sum(getattr(run, column) == name for run in runs)
            steps = f"{taken.environment_steps:,.0f}"
            rows.append((name, count, steps, f"{taken.wall_seconds:,.1f}"))
    spent = view.record.spent
    text = (
        f"{spent.budget_used(view.spec):.0%} of the budget used: "
        f"{counted(spent.charged_steps, 'tuning step', form=',')} charged. "
        f"{counts_text(configuration_rows(view.record))}. "
        f"{counted(view.record.hours, 'hour', form='.3g')} of driver time."
    )
    header = ("of", "runs", "steps trained", "seconds of training")
    return [Text(text), Table(header, rows)]


def _provenance(view: StudyView) -> list[Block]:
    """Write code, packages and machine of every session."""
    rows = [
        (
            place,
            *(session.get(key, "") for key in ("version", "python", "platform", "cpu")),
            ", ".join(f"{name} {version}" for name, version in session.get("packages", {}).items()),
            # A hash is known by its beginning; study.sqlite has all of it.
            ", ".join(f"{name} {str(sha)[:12]}" for name, sha in session.get("source", {}).items()),
        )
        for place, session in enumerate(view.sessions(), start=1)
    ]
    header = ("session", "autorl", "Python", "platform", "CPU", "packages", "source")
    space = f"Search space: sha256 {view.spec.search_space.hash[:16]}."
    return [Text(space), Table(header, rows[-20:])]


def _checklist(view: StudyView) -> list[Block]:
    words = {"yes": "yes", "no": "no", "author": "for you to say"}
    rows = [(item.question, words[item.answer], item.evidence) for item in checklist(view)]
    source = "Checklist of Eimer, Lindauer and Raileanu (ICML 2023), filled in from the record."
    return [Text(source, "note"), Table(("question", "answer", "evidence"), rows)]


def _study_file(view: StudyView) -> list[Block]:
    stored = yaml.safe_load((view.folder / "study.yaml").read_text(encoding="utf-8"))
    options = stored.get("optimizer")
    if isinstance(options, dict):
        # Data that a study has resolved would fill pages: its hash stands for it.
        stored["optimizer"] = options | resolved_in_short(view.spec.optimizer, view.spec.path)
    # Secrets and folders of the machine are left out.
    return [Code(str(yaml.safe_dump(shareable(stored), sort_keys=False, width=110)))]
