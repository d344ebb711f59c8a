"""The result screen and its JSON, from results made by hand."""

import json
import math

import pytest
from report_support import CONFIG, DEFAULT, entry, interval, result

from autorl.core.types import Incumbent
from autorl.report.table import columns
from autorl.report.text import result_dict, result_text
from autorl.study.results.result import Point, Volumes


def line(text, name):
    (found,) = [row for row in text.splitlines() if row.strip().startswith(name)]
    return found


def test_the_held_out_score_comes_first_with_its_interval_and_seeds():
    rows = [" ".join(row.split()) for row in result_text(result()).splitlines()]
    assert rows[0] == "last eval_return (mean over seeds), maximize"
    assert rows[2] == "test score (IQM) 80 [70, 90] 5 held-out seeds"
    starts = [
        *("test score (mean) 80 [70, 90]", "tuning score (mean) 95 3 tuning", "gap (mean)"),
        *("default's test (IQM) 50 [40, 60]", "difference (IQM) 30 [20, 40]"),
    ]
    assert all(row.startswith(start) for row, start in zip(rows[3:8], starts, strict=True))


def test_the_tuning_score_never_stands_alone():
    text = result_text(result(entries=(), difference=None))
    assert "there is no number to report yet" in line(text, "test score")
    assert "optimistic" in line(text, "tuning score")
    assert text.index("test score") < text.index("tuning score")
    assert "autorl test studies/hand" in text
    assert "autorl export" not in text


def test_commands_for_configuration_and_model_name_the_folder():
    text = result_text(result())
    assert "autorl best studies/hand" in text
    assert "autorl export studies/hand --model model.zip" in text
    assert "result.load_model()" in text
    assert "autorl export studies/hand --model model   (" in result_text(result(), model="model")
    assert "export" not in result_text(result(), model="")
    assert "autorl" not in result_text(result(folder=None))


def test_counts_failures_caveats_and_the_configuration_are_shown():
    broken = entry("incumbent", 7, 95.0, [80.0, 0.0], interval(0.0, 80.0), failed=1)
    text = result_text(result(entries=(broken,), difference=None, caveats=("be careful",)))
    assert line(text, "proposals").strip() == "proposals: 30 scored, 2 crash; 0 new configurations"
    assert "2 of 3 test runs; 1 failed: not in score or interval" in line(text, "test score (IQM)")
    assert "caution: be careful" in text
    assert line(text, "lr").split() == ["lr", "0.0003"]


def test_of_a_long_front_the_first_are_shown():
    points = tuple(Point(number, {}, {"last gold": float(-number)}, None) for number in range(30))
    volumes = Volumes(0.5)
    assert "and 10 more: --json has all" in result_text(result(front=points, volumes=volumes))
    assert len(result_dict(result(front=points))["front"]) == 30


def test_a_front_is_a_table_of_every_objective_on_both_kinds_of_seeds():
    points = (
        Point(7, {}, {"last gold": 0.7, "last kl": 3.0}, {"last gold": 0.65, "last kl": 3.5}),
        Point(2, {}, {"last gold": 0.5, "last kl": 1.0}, None),
    )
    text = result_text(result(front=points, volumes=Volumes(0.75, 0.5, 0.4375)))
    volumes = "2; hypervolume 0.75; of those tested 0.5, on test seeds 0.4375"
    said = f"not dominated by any other on tuning seeds: {volumes}"
    assert line(text, "not dominated").strip() == said
    header, first, second = text[text.index("not dominated") :].splitlines()[1:4]
    assert [name.strip() for name in header.strip().split("  ") if name] == [
        *("proposal", "tuning last gold", "tuning last kl", "test last gold", "test last kl")
    ]
    assert first.split() == ["7", "0.7", "3", "0.65", "3.5"]
    assert second.split() == ["2", "0.5", "1", "-", "-"]
    assert "proposal  tuning" not in result_text(result())
    stored = json.loads(json.dumps(result_dict(result(front=points))))["front"]
    assert stored[1] == {
        "proposal": 2,
        "config": {},
        "tuning": {"last gold": 0.5, "last kl": 1.0},
        "test": None,
    }


def test_a_schedule_shows_every_change():
    schedule = ((0, CONFIG), (400, DEFAULT))
    text = result_text(result(incumbent=Incumbent(schedule, 1000, 7)))
    assert "from step 0" in text
    assert "from step 400" in text


@pytest.mark.parametrize(
    ("low", "high", "said"),
    # A difference below 0 is the line of the loss.
    [(20.0, 40.0, False), (-5.0, 40.0, True), (0.0, 1.0, True), (-40.0, -5.0, False)],
)
def test_a_difference_to_the_default_that_shows_no_gain_is_a_caution(low, high, said):
    text = result_text(result(difference=interval(low, high)))
    assert ("no improvement is shown" in text) == said == ("caution" in text)


def test_the_json_has_the_same_numbers_and_no_nan():
    found = json.loads(json.dumps(result_dict(result(tuning=math.nan)), allow_nan=False))
    assert found["test"]["value"] == 80.0
    assert found["test"]["interval"] == vars(interval(70.0, 90.0))
    assert found["test"]["seeds"]["104"] == 90.0
    assert found["tuning"] == {"value": None, "n_seeds": 3}
    assert found["default"]["value"] == 50.0
    assert found["difference_to_default"]["low"] == 20.0
    assert found["incumbent"]["schedule"][0]["configuration"] == dict(CONFIG, layers=[64, 64])
    assert result_dict(result())["gap"] == 15.0
    assert result_dict(result(direction="minimize"))["gap"] == -15.0


def test_columns_are_as_wide_as_their_widest_cell():
    assert columns(("a", "bb"), [(1, 2), ("long", "")]) == "  a     bb\n  1     2\n  long"
