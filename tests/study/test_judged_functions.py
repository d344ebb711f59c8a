"""`autorl.judge` and `autorl.repeated`, and the examples that put them beside other tools."""

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

import autorl

EXAMPLES = Path(__file__).parents[2] / "examples" / "verdicts"


def scored(gain):
    return lambda seed: gain + random.Random(seed).gauss(0, 1)


@pytest.mark.parametrize(("direction", "sign"), [("maximize", 1), ("minimize", -1)])
def test_a_gain_is_kept_and_a_loss_discarded_in_either_direction(
    direction, sign, few_verdict_draws
):
    better = scored(4 * sign)
    worse = scored(0)
    answer = autorl.judge(worse, better, direction=direction)
    assert (answer.verdict, answer.exit_code) == ("keep", 0)
    assert answer.difference * sign > answer.at_least > 0
    assert autorl.judge(better, worse, direction=direction).verdict == "discard"
    assert autorl.judge(worse, better, direction=direction, min_effect=9).verdict == "discard"


def test_it_goes_on_where_it_was_interrupted(tmp_path, few_verdict_draws):
    def baseline(seed):
        return random.Random(seed).gauss(0, 1)

    def edit(seed):
        if not marker.exists() and seed >= 2_001:
            raise KeyboardInterrupt
        return 4 + random.Random(seed).gauss(0, 1)

    marker = tmp_path / "marker"
    with pytest.raises(KeyboardInterrupt):
        autorl.judge(baseline, edit, out=tmp_path / "out")
    kept = (tmp_path / "out" / "calls.jsonl").read_text()
    marker.touch()
    whole = autorl.judge(baseline, edit)
    resumed = autorl.judge(baseline, edit, out=tmp_path / "out")
    assert (resumed.scores, resumed.verdict) == (whole.scores, whole.verdict)
    assert (tmp_path / "out" / "calls.jsonl").read_text().startswith(kept)


def test_an_adaptive_objective_gives_the_best_all_seeds_and_stops_who_is_behind():
    objective = autorl.repeated(lambda x, seed: x + seed % 2, seeds="adaptive", most=4)
    assert [objective(0.0), objective(-1.0), objective(2.0), objective(1.0)] == [
        0.5,
        -1.0,
        2.5,
        1.0,
    ]
    assert [len(scores) for scores in objective.scores] == [4, 1, 4, 1]
    assert autorl.repeated(lambda x, seed: x + seed, seeds=3)(1.0) == 2.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: autorl.repeated(max, seeds=0), "expected a number of seeds or 'adaptive'"),
        (lambda: autorl.judge(max, max, direction="up"), "direction"),
        (lambda: autorl.judge(lambda s: "a", lambda s: 0.0), "score"),
    ],
)
def test_a_wrong_argument_is_one_line(call, message):
    with pytest.raises(autorl.InputError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "package", "printed"),
    [
        ("optuna_study.py", "optuna", r"(?s)^(keep|discard|undecided): .*of the edit"),
        ("ray_tune.py", "ray", r"(?m)^(keep|discard|undecided): "),
        ("hydra_sweep.py --multirun +epsilon=0.1,1.0", "hydra", r"(?s)mean=\S+.*mean=\S+"),
        ("rl_zoo.py", "rl_zoo3", r"(?m)^(keep|discard|undecided): "),
    ],
)
def test_ten_lines_beside_another_tool(script, package, printed, tmp_path):
    pytest.importorskip(package)
    file, *arguments = script.split()
    command = [sys.executable, str(EXAMPLES / file), *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert re.search(printed, done.stdout)


def test_the_sweep_of_w_and_b_is_python():
    """It cannot run here: a sweep asks a server, with an account."""
    compile((EXAMPLES / "wandb_sweep.py").read_text(), "wandb_sweep.py", "exec")
