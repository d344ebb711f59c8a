"""The arrays cut out of landscapes: direction, completeness, pairing by configuration; the rank correlation."""

import pandas as pd
import pytest
from analysis_samples import SPACE, STEPS, write_sample
from refusals import expect_error

from autorl.core.types import InputError
from autorl.landscapes import Landscape, Tables, analysis, write_landscape
from autorl.landscapes.analysis.tables import (
    final_scores,
    learning_curves,
    phase_scores,
    task_table,
)


def level(config):
    return 10.0 * SPACE.hyperparameters["learning_rate"].to_unit(config["learning_rate"])


def test_incomplete_configurations_are_left_out_where_they_are_incomplete(tmp_path):
    data = write_sample(tmp_path / "a", level, configs=6)
    assert learning_curves(data).config_ids.tolist() == [1, 2, 3, 4, 5]
    assert learning_curves(data).values.shape == (5, 5, 3)
    assert learning_curves(data, "test").config_ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert final_scores(data, "tuning").config_ids.tolist() == [1, 2, 3, 4, 5]
    early = final_scores(data, "tuning", step=200)
    assert early.config_ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert early.steps.tolist() == [200]
    stored = data.sql(
        "SELECT value FROM scores WHERE config_id = 4 AND step = 200 AND seed_role = 'tuning' ORDER BY seed"
    )
    assert early.final[4] == pytest.approx([row[0] for row in stored.fetchall()])
    expect_error("250 is not in this data set", final_scores, data, step=250)


def test_what_is_minimised_changes_its_sign(tmp_path):
    up, down = (
        write_sample(tmp_path / each, level, configs=5, direction=each)
        for each in ("maximize", "minimize")
    )
    assert final_scores(up).values == pytest.approx(-final_scores(down).values)


def test_the_rows_of_a_task_table_are_the_configurations_in_common(tmp_path):
    one = write_sample(tmp_path / "a", level, configs=6)
    two = write_sample(
        tmp_path / "b", lambda config: -level(config), environment="Other-v0", configs=4
    )
    table = task_table([one, two], seeds="test")
    assert table.environments == ["Sample-v0", "Other-v0"]
    assert table.config_ids.tolist() == [0, 1, 2, 3]
    assert table.values[:, 0] == pytest.approx(final_scores(one, "test").means[:4])
    assert table.values[:, 1] == pytest.approx(final_scores(two, "test").means)
    assert task_table([one, two], first=3).config_ids.tolist() == [1, 2]
    assert task_table([one, one]).environments == ["sample/dqn/Sample-v0"] * 2
    expect_error("at least two landscapes", task_table, [one])
    with pytest.raises(InputError, match="fewer than two complete configurations in common"):
        task_table([one, two], first=2)


def test_rows_are_paired_by_id_wherever_they_stand(tmp_path):
    one = write_sample(tmp_path / "a", level, configs=8)
    two = write_sample(tmp_path / "b", level, environment="Other-v0", configs=8, first=4, noise=0.0)
    table = task_table([one, two])
    assert table.config_ids.tolist() == [5, 6, 7]
    assert table.values[:, 1] == pytest.approx([level(one.config(number)) for number in (5, 6, 7)])
    assert table.values[:, 0] == pytest.approx(final_scores(one).means[-3:])


def test_scores_are_clipped_before_the_mean_over_seeds(tmp_path):
    one = write_sample(tmp_path / "a", level, configs=6, noise=3.0)
    two = write_sample(
        tmp_path / "b", level, environment="Other-v0", configs=6, direction="minimize", noise=3.0
    )
    table = task_table([one, two], clip={"Sample-v0": 4.0, "Other-v0": 5.0})
    for column, (data, low, sign) in enumerate(((one, 4.0, 1), (two, 5.0, -1))):
        rows = data.sql(
            "SELECT config_id, value FROM scores WHERE step = 300 AND config_id > 0"
        ).df()
        expected = (
            sign * rows.assign(value=rows.value.clip(lower=low)).groupby("config_id").value.mean()
        )
        assert table.values[:, column] == pytest.approx(expected.to_numpy())
    expect_error("did you mean 'Other-v0'", task_table, [one, two], clip={"Other-v1": 0.0})


def test_ids_that_stand_for_other_configurations_are_not_paired(tmp_path):
    one = write_sample(tmp_path / "a", level, configs=6)
    two = write_sample(tmp_path / "b", level, environment="Other-v0", configs=6, sampler=1)
    expect_error("stand for other configurations", task_table, [one, two])


def with_second_phase(folder, first):
    """The landscape `first` with a phase from step 300 to 500 in which scores have the other sign."""
    parts = {
        name: first.sql(f"SELECT * FROM {name}").df()
        for name in ("configs", "runs", "evals", "segments")
    }
    ends = parts["evals"][parts["evals"].step == STEPS[-1]].set_index("run_id").eval_return
    shift = 1000
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
    first = write_sample(
        tmp_path / "one", lambda config: float(config["width"]), configs=8, direction="minimize"
    )
    expect_error("no phases", phase_scores, first)
    data = with_second_phase(tmp_path / "two", first)
    scores, config_ids, starts, ends = phase_scores(data)
    assert scores.shape == (2, 7, 5)  # run 0 of configuration 0 has no last score
    assert config_ids == list(range(1, 8))
    assert (starts, ends) == ([0, 300], [300, 500])
    assert scores[1] == pytest.approx(-scores[0])
    stored = data.sql(
        "SELECT value FROM scores WHERE config_id = 3 AND step = 300 ORDER BY seed"
    ).fetchall()
    assert scores[0, 2] == pytest.approx([-row[0] for row in stored])
    found = analysis.analyse(data, "phases")
    assert found.table.regret.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert found.about["schedule_gain"] > 0
    assert phase_scores(data, "test")[0].shape == (2, 8, 2)
    assert learning_curves(data).steps.tolist() == [100, 200, 300]  # of the runs from scratch
    expect_error(
        "runs from scratch end at step 300: ask for it, or compare phases", final_scores, data
    )
