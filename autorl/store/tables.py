"""The tables of a study, read as typed rows.

No other room asks a study's database in SQL. `schema.py` says what the tables hold and writes them.
`StudyRecord` of `autorl.study.results.record` says what the rows mean together with the study
file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from autorl.core.types import ProposalId, SegmentId, StudyError
from autorl.statistics.evaluation import PEAK_MEMORY
from autorl.store.codec import read_event
from autorl.store.events import StudyEvent
from autorl.store.log import EventLog
from autorl.store.rows import (
    SUCCEEDED,
    ChargedRow,
    ConfigRow,
    EvaluationRow,
    Failure,
    Link,
    ProposalCounts,
    ProposalRow,
    RunRow,
    RunValue,
    ScoreRow,
    SegmentRow,
    TestRow,
    Training,
)

# The order of `Ranking`: highest fidelity, most seeds, score; ties by mean, spread, earliest.
_BEST_FIRST = "infeasible, -reached, provisional, -n_seeds, -value, -mean, spread, proposal"
_SEARCHED = "proposals JOIN standing USING (proposal) WHERE NOT baseline"

T = TypeVar("T")


class StudyTables(EventLog):
    """Reads the database of one study, its log and its tables."""

    def event_of(self, subject: str) -> StudyEvent | None:
        """Return the event that made proposal `12` or ended segment `12.3`.

        The result is None if there is none. A checkpoint has its path as it is stored.
        """
        rows = self._query(
            "SELECT kind, body FROM event JOIN places USING (seq) WHERE subject = ?", (subject,)
        )
        return read_event(rows[0][0], json.loads(rows[0][1])) if rows else None

    def _rows(
        self, kind: Callable[..., T], sql: str, parameters: tuple[object, ...] = ()
    ) -> list[T]:
        return [kind(*row) for row in self._query(sql, parameters)]

    # -- proposals ---------------------------------------------------------------------------------

    def proposals(self, most: int | None = None) -> list[ProposalRow]:
        """List the first proposals, in order.

        With `most` None, all of them.
        """
        rows = self._query(
            "SELECT proposal, config_id, proposals.origin, status, score, n_seeds, until, config "
            "FROM proposals JOIN configurations USING (config_id) ORDER BY proposal LIMIT ?",
            (_limit(most),),
        )
        return [
            ProposalRow(number, first, origin, status, _scores(score), n, until, json.loads(config))
            for number, first, origin, status, score, n, until, config in rows
        ]

    def count_proposals(self) -> dict[str, int]:
        """Count the proposals of each status.

        It is `pending`, `scored`, or the kind of failure.
        """
        return dict(
            self._query("SELECT status, COUNT(*) FROM proposals GROUP BY status ORDER BY status")
        )

    def has_success(self) -> bool:
        """Say whether a segment has ended well."""
        return bool(
            self._query("SELECT 1 FROM segments WHERE status IN ('done', 'stopped') LIMIT 1")
        )

    def pending(self) -> list[ProposalId]:
        """List the proposals without a score, in order."""
        return self._rows(int, "SELECT proposal FROM proposals WHERE status = 'pending' ORDER BY 1")

    def link(self, proposal: ProposalId) -> Link:
        """Return a proposal as a link of its chain.

        Raises:
            StudyError: there is no such proposal.
        """
        rows = self._query(
            "SELECT config, until, resume_from FROM proposals "
            "JOIN configurations USING (config_id) WHERE proposal = ?",
            (proposal,),
        )
        if not rows:
            raise StudyError(f"proposal {proposal} is not in this study")
        config, until, parent = rows[0]
        return Link(json.loads(config), until, parent)

    def score(self, proposal: ProposalId) -> tuple[float, ...]:
        """Return a proposal's values by each objective.

        Empty if it failed before any score was known.
        """
        return _scores(self._one("SELECT score FROM proposals WHERE proposal = ?", (proposal,)))

    def violations(self, proposal: ProposalId) -> list[float]:
        """Return by how much a proposal breaks each constraint on tuning seeds.

        A constraint holds where the value is 0 or less.
        """
        text = self._one("SELECT constraints FROM proposals WHERE proposal = ?", (proposal,))
        values: list[float] = json.loads(text or "[]")
        return values

    def introduced(self, proposal: ProposalId) -> ProposalId:
        """Return the first proposal with the configuration of this one.

        It is the configuration's number.
        """
        return int(self._one("SELECT config_id FROM proposals WHERE proposal = ?", (proposal,)))

    def configs(self) -> list[ConfigRow]:
        """List every configuration, in the order of the proposals that introduced them."""
        rows = self._query(
            "SELECT config_id, origin, config FROM configurations ORDER BY config_id"
        )
        return [ConfigRow(first, origin, json.loads(config)) for first, origin, config in rows]

    # -- where proposals stand ---------------------------------------------------------------------

    def ranked(self, count: int | None = None) -> list[ProposalId]:
        """List the best `count` scored proposals, best first.

        With `count` None, all of them.
        """
        return self._rows(
            int,
            f"SELECT proposal FROM standing WHERE value IS NOT NULL ORDER BY {_BEST_FIRST} LIMIT ?",
            (_limit(count),),
        )

    def feasible(self) -> dict[ProposalId, tuple[float, ...]]:
        """Return the objectives of the feasible proposals of the highest fidelity.

        Larger is better.
        """
        scored = "value IS NOT NULL AND infeasible = 0"
        rows = self._query(
            f"SELECT proposal, objectives FROM standing WHERE {scored} AND reached = "
            f"(SELECT max(reached) FROM standing WHERE {scored})"
        )
        return {number: tuple(json.loads(values)) for number, values in rows}

    def comparable(self) -> list[ScoreRow]:
        """List the feasible proposals of the highest fidelity, in order.

        Baselines and those whose agents were picked on the way are left out.
        """
        eligible = "value IS NOT NULL AND infeasible = 0 AND NOT provisional AND NOT baseline"
        return self._rows(
            ScoreRow,
            f"SELECT proposal, value, spread, n_seeds FROM standing WHERE {eligible} AND reached = "
            f"(SELECT max(reached) FROM standing WHERE {eligible}) ORDER BY proposal",
        )

    def ranked_seeds(self, proposal: ProposalId) -> int:
        """Count the tuning seeds a proposal was ranked with."""
        return int(self._one("SELECT n_seeds FROM standing WHERE proposal = ?", (proposal,)))

    def ranked_value(self, proposal: ProposalId) -> float:
        """Return the first objective of a proposal, larger is better."""
        return float(self._one("SELECT value FROM standing WHERE proposal = ?", (proposal,)))

    def tuning_seeds(self, proposal: ProposalId) -> list[int]:
        """List the tuning seeds of a proposal's latest score or failure."""
        seeds: list[int] = json.loads(
            self._one("SELECT seeds FROM standing WHERE proposal = ?", (proposal,))
        )
        return seeds

    def count_begun(self) -> int:
        """Count the configurations of the search that started from step 0."""
        return int(self._one(f"SELECT count(*) FROM {_SEARCHED} AND resume_from IS NULL"))

    def charged(self) -> list[ChargedRow]:
        """List the cost of each proposal, the latest first."""
        return self._rows(
            ChargedRow,
            "SELECT proposal, until, coalesce((SELECT until FROM proposals AS parent WHERE "
            "parent.proposal = proposals.resume_from), 0), resume_from, baseline, anew, charged "
            "FROM proposals JOIN standing USING (proposal) ORDER BY proposal DESC",
        )

    def steps_beyond(self) -> int:
        """Add up the steps that were trained beyond the budget."""
        return int(self._one("SELECT coalesce(sum(beyond), 0) FROM standing"))

    def counts_of_search(self) -> ProposalCounts:
        """Count how many proposals are a model's."""
        total = self._one(f"SELECT count(*) FROM {_SEARCHED}")
        ((new, modelled),) = self._query(
            "SELECT count(*), coalesce(sum(informed), 0) FROM standing WHERE proposal IN "
            f"(SELECT min(proposal) FROM {_SEARCHED} GROUP BY config_id)"
        )
        return ProposalCounts(total, new, modelled)

    def count_new_of(self, origin: str) -> tuple[int, int]:
        """Count the configurations of the search, and those of an origin.

        Args:
            origin: how the origin of their first proposal begins.
        """
        ((new, of_origin),) = self._query(
            "SELECT count(*), coalesce(sum(substr(origin, 1, ?) = ?), 0) FROM proposals "
            f"WHERE proposal IN (SELECT min(proposal) FROM {_SEARCHED} GROUP BY config_id)",
            (len(origin), origin),
        )
        return new, of_origin

    def count_trained_anew(self, note: str) -> tuple[int, int]:
        """Count proposals with a note on a tuning segment.

        Returns:
            Their number, and how many of them were charged anew.
        """
        # The notes of a segment are one text.
        noted = (
            "SELECT proposal FROM segments JOIN runs USING (run_id) "
            "WHERE seed_role = 'tuning' AND notes LIKE ?"
        )
        ((count, charged),) = self._query(
            f"SELECT COUNT(*), SUM(anew) FROM standing WHERE proposal IN ({noted})", (f"%{note}%",)
        )
        return count, charged or 0

    # -- runs --------------------------------------------------------------------------------------

    def runs(self) -> list[RunRow]:
        """List every run, by its number."""
        return self._rows(RunRow, f"SELECT {', '.join(RunRow._fields)} FROM runs ORDER BY run_id")

    def costs(self, metric: str) -> dict[int, float | None]:
        """Return a cost of every run by its number.

        It is None where it was not measured.

        Args:
            metric: of `COST_METRICS`.
        """
        if metric == PEAK_MEMORY:  # no column of a run, but in its events
            sql = (
                f"SELECT run_id, MAX(json_extract(body, '$.outcome.cost.{metric}')) FROM segments "
                "JOIN places ON subject = segment JOIN event USING (seq) GROUP BY run_id"
            )
        else:
            of_run = {"steps_per_second": "environment_steps / NULLIF(wall_seconds, 0)"}
            sql = f"SELECT run_id, {of_run.get(metric, metric)} FROM runs"
        return dict(self._query(sql))

    def segments(self) -> list[SegmentRow]:
        """List every segment, in the order they ended."""
        return self._rows(
            SegmentRow, f"SELECT {', '.join(SegmentRow._fields)} FROM segments ORDER BY rowid"
        )

    def evaluations(self) -> list[EvaluationRow]:
        """List every metric of every evaluation, by run and step."""
        # A table WITHOUT ROWID is read in the order of its primary key.
        rows = self._query("SELECT run_id, step, metric, value FROM reports")
        return list(map(EvaluationRow._make, rows))

    def noted(self, beginning: str) -> list[tuple[str, int, float]]:
        """List notes that begin so, with their runs and steps."""
        rows = self._query(
            "SELECT SUBSTR(notes, INSTR(notes, ?)) AS note, COUNT(*), SUM(environment_steps) "
            "FROM segments JOIN runs USING (run_id) WHERE INSTR(notes, ?) GROUP BY 1 ORDER BY 1",
            (beginning, beginning),
        )
        return list(rows)

    def metrics_of_training(self) -> list[str]:
        """List the metrics of updates (`train_*`), sorted."""
        rows = self._query("SELECT DISTINCT metric FROM reports WHERE metric GLOB 'train_*'")
        return sorted(name for (name,) in rows)

    def training_by(self, column: str) -> dict[str, Training]:
        """Add up what runs took, by their `seed_role` or `algorithm`.

        They are in descending order of the name.
        """
        assert column in RunRow._fields  # the name of a column cannot be a parameter
        rows = self._query(
            f"SELECT {column}, SUM(environment_steps), SUM(wall_seconds) FROM runs "
            f"GROUP BY {column} ORDER BY 1 DESC"
        )
        return {name: Training(steps, seconds) for name, steps, seconds in rows}

    def values(self, metric: str, proposals: tuple[ProposalId, ...]) -> list[RunValue]:
        """List the values of a metric, by run and step.

        The runs are those that segments of some proposals belong to.
        """
        marks = ", ".join("?" for _ in proposals)
        return self._rows(
            RunValue,
            "SELECT seed_role, run_id, step, value FROM reports JOIN runs USING (run_id) "
            "WHERE metric = ? AND value IS NOT NULL AND run_id IN "
            f"(SELECT run_id FROM segments WHERE proposal IN ({marks})) ORDER BY run_id, step",
            (metric, *proposals),
        )

    def tested_runs(self, proposal: ProposalId) -> list[RunRow]:
        """List the successful runs on test seeds of a proposal.

        A run is the proposal's if a segment of the proposal belongs to it.
        """
        return self._rows(
            RunRow,
            f"SELECT {', '.join(RunRow._fields)} FROM runs WHERE seed_role = 'test' "
            "AND status IN (?, ?) AND run_id IN (SELECT run_id FROM segments WHERE proposal = ?)",
            (*SUCCEEDED, proposal),
        )

    def ends(self) -> list[tuple[ProposalId, int, int]]:
        """List where proposals that were trained end.

        Each has its nominal end and the furthest step really trained to.
        """
        rows: list[Any] = self._query(
            "SELECT proposal, until, MAX(to_step) FROM segments JOIN proposals USING (proposal) "
            "WHERE segments.status = 'done' GROUP BY proposal"
        )
        return rows

    def checkpoints(
        self, link: ProposalId, proposal: ProposalId
    ) -> list[tuple[int, SegmentId, str]]:
        """List seed, segment and path of two proposals' checkpoints, by step."""
        rows = self._query(
            "SELECT seed, segment, checkpoint FROM segments WHERE proposal IN (?, ?) "
            "AND checkpoint IS NOT NULL ORDER BY to_step",
            (link, proposal),
        )
        return [(seed, SegmentId.parse(text), path) for seed, text, path in rows]

    def failures(self) -> list[Failure]:
        """List every failed segment, the latest last."""
        return self._rows(
            Failure,
            "SELECT segment, proposal, seed, status, message FROM segments "
            "WHERE status NOT IN (?, ?) ORDER BY rowid",
            SUCCEEDED,
        )

    def notes(self) -> list[str]:
        """List what trainers noted about segments, each once."""
        return self._rows(str, "SELECT note FROM noted ORDER BY note")

    def tests(self, objective: int = 0) -> list[TestRow]:
        """List the test runs by one objective, by proposal and seed."""
        return self._rows(
            TestRow,
            "SELECT proposal, label, seed, value, status FROM tests WHERE objective = ? "
            "ORDER BY proposal, seed",
            (objective,),
        )


def _limit(count: int | None) -> int:
    return -1 if count is None else count  # SQLite returns all rows for a negative one


def _scores(text: str | None) -> tuple[float, ...]:
    return tuple(json.loads(text)) if text else ()
