"""The text of `autorl test --schedule`.

It has the schedule step by step, and its held-out score beside the population's best.
"""

from __future__ import annotations

from collections.abc import Sequence

from autorl.core.plain_text import counted, number
from autorl.core.plain_values import plain
from autorl.core.types import Config
from autorl.report.table import columns, one_line
from autorl.report.text import failed_text, interval_text, seeds_text
from autorl.study import Estimate, Result


def schedule_text(result: Result, best: float) -> str:
    """Write the incumbent's schedule, and its score when trained again.

    It is trained from step 0 again, and shown as changes.

    `best` is the highest tuning score of any agent of the incumbent's length, also of those that
    copied others.
    """
    seeds = f"tuning, {counted(result.tuning_seeds, 'seed')}; optimistic"
    rows = [("population's best", number(best), "", f"{seeds}, it is the highest of all")]
    # The highest agent may have copied others: its schedule is trained again before one is chosen.
    if best != result.tuning:
        chosen = number(result.tuning)
        rows.append(("schedule, chosen", chosen, "", f"{seeds}, it was chosen by this"))
    untested = ("-", "", result.problem or "the study has no test seeds")
    rows.append(("schedule, retrained", *(_cells(result.test) if result.test else untested)))
    if (default := result.default) is not None:
        failed = ("-", "", failed_text(default.failures))
        score, span, note = _cells(default.test) if default.test else failed
        rows.append(("default, unchanged", score, span, f"{note}, until step {default.until}"))
    title = f"schedule of proposal {result.incumbent.proposal} until step {result.incumbent.until}"
    scores = columns([result.objective, result.aggregate, "interval", ""], rows)
    return "\n".join([title, *_lines(result.incumbent.schedule), "", scores])


def _cells(test: Estimate) -> tuple[str, str, str]:
    return number(test.value), interval_text(test.interval), seeds_text(test)


def _lines(schedule: Sequence[tuple[int, Config]]) -> list[str]:
    """Write one line per change.

    The first is the whole configuration.
    """
    lines = []
    before = Config()
    for step, config in schedule:
        changed = [
            f"{name} {plain(value)!r}"
            for name, value in config.items()
            # Not None, which is a value that a hyperparameter may have.
            if before.get(name, ...) != value
        ]
        # A condition has made it inactive.
        gone = [f"{name} gone" for name in before if name not in config]
        lines.append(one_line(f"  from step {step}: {', '.join([*changed, *gone])}"))
        before = config
    return lines
