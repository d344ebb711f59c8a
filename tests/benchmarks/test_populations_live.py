"""The live benchmark of populations: studies that differ in the optimizer alone, and what its page says."""

import numpy as np
import populations_live as live
from cells import Cell, Raw

from autorl.study.spec import load_spec


def test_the_study_files_are_valid_and_share_all_but_the_optimizer():
    for task in live.TASKS:
        specs = [load_spec(live.study(Cell("live", task, name, 3))) for name in live.ROWS]
        for part in ("trainer", "environment", "fidelity", "budget", "plan", "test"):
            assert len({repr(getattr(spec, part)) for spec in specs}) == 1
        assert [spec.optimizer.name for spec in specs] == [*live.ROWS]
        assert len(specs[0].plan.test) == 10


def test_the_page_has_the_differences_of_whole_repeats_with_intervals():
    """Gaps of mf_pbt are 1 and 3 returns on each task: mean 2, and half of the interval 12.71 * sqrt(2) / sqrt(2)."""
    raw = Raw(None, "version")
    tests = {"random": [1.0, 2.0], "pbt": [1.0, 2.0], "mf_pbt": [2.0, 5.0]}
    for task in live.TASKS:
        for name, values in tests.items():
            for repeat, value in enumerate(values):
                cell = {"test": [value] * 10, "worst": 0.0, "tuning": 9.0, "changes": 1, "steps": 7}
                raw.keep(Cell("live", task, name, repeat), cell)
    raw.keep(Cell("live", "CartPole-v1", "random", 2), {"test": [0.0]})
    page = live.report(raw, 10)
    assert "2 variants of each environment" in page
    assert "| random | 1.5 | - | - |  | 9 | 2 of 2 | 7 |" in page
    assert "| mf_pbt | 3.5 | +2.00 | [-10.71, +14.71] | not told apart | 9 | 2 of 2 | 7 |" in page
    scores = [(2 - 1) / 2, (5 - 2) / 5]
    assert f"| mf_pbt | {np.mean(scores):+.3f} |" in page
