"""Phases: by hand, and read from a landscape whose later runs continue an agent."""

import numpy as np
import pandas as pd
import pytest
from analysis_samples import SPACE, STEPS, write_sample
from scipy.stats import spearmanr

from autorl.core.types import InputError
from autorl.landscapes import Landscape, Tables, write_landscape
from autorl.landscapes.analysis.phases import compare_phases, phase_scores
from autorl.landscapes.analysis.tables import final_scores, learning_curves


def test_by_hand():
    scores = np.array([[[0.0, 0], [4, 4], [2, 2]], [[10, 10], [5, 5], [0, 0]]])
    found = compare_phases(scores)
    assert found.best.tolist() == [1, 0]
    assert found.regret.tolist() == [[0.0, 0.5], [1.0, 0.0]]
    assert found.correlation[0, 1] == pytest.approx(-0.5)
    assert found.schedule_gain == pytest.approx(0.25)


def test_against_scipy_and_loops():
    scores = np.random.default_rng(0).normal(size=(3, 15, 4))
    found = compare_phases(scores)
    means = scores.mean(axis=2)
    assert found.correlation == pytest.approx(spearmanr(means.T).statistic)
    for source in range(3):
        for target in range(3):
            missed = (means[target].max() - means[target][means[source].argmax()]) / np.ptp(
                means[target]
            )
            assert found.regret[source, target] == pytest.approx(missed)
    fixed = (
        (means.max(axis=1, keepdims=True) - means) / np.ptp(means, axis=1, keepdims=True)
    ).mean(axis=0)
    assert found.schedule_gain == pytest.approx(fixed.min())
    assert compare_phases(np.stack([scores[0]] * 2)).schedule_gain == 0.0


def test_mistakes_are_named():
    with pytest.raises(InputError, match="at least two phases"):
        compare_phases(np.ones((1, 3, 2)))
    with pytest.raises(InputError, match="score the same"):
        compare_phases(np.stack([np.arange(6.0).reshape(3, 2), np.ones((3, 2))]))


def with_second_phase(folder, first):
    """The landscape `first` with a phase from step 300 to 500 in which scores have the other sign."""
    parts = {
        name: first.sql(f"SELECT * FROM {name}").df()
        for name in ("configs", "runs", "evals", "segments")
    }
    ends = parts["evals"][parts["evals"].step == STEPS[-1]].set_index("run_id").eval_return
    shift = len(parts["runs"])
    runs = parts["runs"].assign(
        run_id=lambda frame: frame.run_id + shift, parent_run=1, start_step=STEPS[-1]
    )
    later = [
        {"run_id": run + shift, "step": step, "eval_return": -value * (step == 500)}
        for run, value in ends.items()
        for step in (400, 500)
    ]
    segments = parts["segments"].assign(run_id=runs.run_id, from_step=STEPS[-1], to_step=500)
    segments["segment"] = "later-" + segments["segment"]
    both = {
        "configs": parts["configs"],
        "runs": pd.concat([parts["runs"].astype({"parent_run": object}), runs], ignore_index=True),
        "evals": pd.concat([parts["evals"], pd.DataFrame(later)], ignore_index=True),
        "segments": pd.concat([parts["segments"], segments], ignore_index=True),
    }
    fields = first.manifest.to_dict() | {"steps": [*STEPS, 400, 500], "rows": {}, "files": {}}
    manifest = type(first.manifest).from_dict(fields)
    write_landscape(folder, Tables(**both), manifest, SPACE)
    return Landscape(folder)


def test_phases_of_a_landscape(tmp_path):
    first = write_sample(tmp_path / "one", lambda config: float(config["width"]), configs=8)
    with pytest.raises(InputError, match="no phases"):
        phase_scores(first)
    data = with_second_phase(tmp_path / "two", first)
    phases = phase_scores(data)
    assert phases.scores.shape == (2, 7, 5)  # run 0 of configuration 0 has no last score
    assert phases.config_ids.tolist() == list(range(1, 8))
    assert (phases.starts.tolist(), phases.ends.tolist()) == ([0, 300], [300, 500])
    assert phases.scores[1] == pytest.approx(-phases.scores[0])
    found = compare_phases(phases.scores)
    assert found.correlation[0, 1] == pytest.approx(-1.0)
    assert found.regret.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert phase_scores(data, "test").scores.shape == (2, 8, 2)
    assert learning_curves(data).steps.tolist() == [100, 200, 300]  # of the runs from scratch
    with pytest.raises(InputError, match="at step 500"):
        final_scores(data)


def test_what_is_minimised_changes_its_sign(tmp_path):
    first = write_sample(
        tmp_path / "one", lambda config: float(config["width"]), configs=5, direction="minimize"
    )
    data = with_second_phase(tmp_path / "two", first)
    stored = data.sql(
        "SELECT value FROM scores WHERE config_id = 3 AND step = 300 ORDER BY seed"
    ).fetchall()
    assert phase_scores(data).scores[0, 2] == pytest.approx([-row[0] for row in stored])
