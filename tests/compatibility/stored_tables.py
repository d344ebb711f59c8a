"""What a study's tables hold, for comparison with those another version of the package left."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

_COLUMNS = {
    "configs": "config_id, config_hash, origin, config",
    "proposals": (
        "proposal, config_id, until, resume_from, member, origin, meta, status, score, spread, "
        "n_seeds, reached, constraints, resumable, message"
    ),
    "runs": (
        "run_id, config_id, seed, seed_role, algorithm, environment, parent_run, start_step, "
        "member, status, environment_steps"
    ),
    "evals": "run_id, step, metric, value",
    "segments": (
        "segment, proposal, run_id, seed, parent, member, from_step, to_step, config_id, status, "
        "applied, notes, message, checkpoint"
    ),
    "scores": "run_id, metric, until, last, best, best_step, mean_last, auc",
    "tests": "proposal, label, objective, seed, value, status",
}
_KEYS = {"scores": 3, "evals": 3, "tests": 4}  # columns that identify a row; elsewhere the first
_JSON = {
    "configs": ("config",),
    "proposals": ("meta", "score", "spread", "constraints"),
    "segments": ("applied",),
}

QUERY = (
    "SELECT runs.config_id, runs.seed, runs.seed_role, start_step, status, scores.step, value "
    "FROM scores JOIN runs USING (run_id) ORDER BY ALL"
)
"""What is asked of landscapes, and of studies as landscapes."""

Tables = dict[str, dict[str, list[Any]]]


def tables(study: Path) -> Tables:
    """Every table of a study but seconds: rows by table and key, JSON texts as what they say."""
    with closing(sqlite3.connect(study / "study.sqlite")) as connection:
        return {name: _rows(connection, name) for name in _COLUMNS}


def _rows(connection: sqlite3.Connection, table: str) -> dict[str, list[Any]]:
    columns = _COLUMNS[table].split(", ")
    texts = [columns.index(name) for name in _JSON.get(table, ())]
    rows = {}
    for values in connection.execute(f"SELECT {_COLUMNS[table]} FROM {table}"):
        row = list(values)
        if table == "segments" and row[-1] is not None:
            # Since sessions and attempts have names of their own: both differ after a resume.
            row[-1] = re.sub(r"-\d+-\d+$", "", row[-1])
        for place in texts:
            row[place] = None if row[place] is None else json.loads(row[place])
        key = " ".join(str(value) for value in row[: _KEYS.get(table, 1)])
        rows[key] = row
    return rows


def without_session(result: dict[str, Any]) -> dict[str, Any]:
    """A result as printed with `--json`, without what it says of folder and sessions.

    Why the search is over stood in no result at first, and one proposal was said as several are.
    """
    result = {name: value for name, value in result.items() if name != "search_end"}
    caveats = [text for text in result["caveats"] if not text.startswith("sessions computed with")]
    several = "1 proposals continue runs that left no checkpoint: they were"
    single = "1 proposal continues a run that left no checkpoint: it was"
    caveats = [text.replace(several, single) for text in caveats]
    return {**result, "folder": None, "caveats": caveats}
