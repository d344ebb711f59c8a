"""Sampling, perturbing and repairing keep bounds, scale and type, and always move."""

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from autorl.core.types import InputError
from autorl.space import canonical_json, read_space, to_yaml

FALSE_ALARM = 1e-6

MAY = {"changeable": True}
LOG, INT = {"type": "float", "scale": "log"}, {"type": "int"}
MIXED = {
    "hyperparameters": {
        "learning_rate": {**LOG, "lower": 1e-5, "upper": 1e-2, **MAY},
        "gamma": {**LOG, "lower": 0.9, "upper": 0.9999, "scale": "flipped_log", **MAY},
        "clip": {"type": "float", "lower": 0, "upper": 0.5, **MAY},
        "epochs": {**INT, "lower": 1, "upper": 20, "default": 10, **MAY},
        "n_steps": {**INT, "lower": 16, "upper": 4096, "scale": "log", "default": 1024, **MAY},
        "batch_size": {"type": "ordinal", "choices": [32, 64, 128, 256], "default": 64, **MAY},
        "optimizer": {"choices": ["adam", "sgd"], "changeable": True},
        "momentum": {"type": "float", "lower": 0, "upper": 0.99, "changeable": True},
        "net": {"type": "categorical", "choices": [[64], [64, 64]]},
    },
    "conditions": {"momentum": "optimizer == sgd"},
    "forbidden": [{"optimizer": "sgd", "epochs": [19, 20]}],
    "constraints": ["batch_size <= n_steps"],
}
SCRIPT = """
import sys, numpy as np
from autorl.space import Space, canonical_json, load_space
space = load_space(sys.argv[1])
rng = np.random.default_rng(7)
config = space.sample(rng)
for _ in range(30):
    config = space.perturb(config, rng)
    print(canonical_json(config))
    print(canonical_json(space.decode(rng.random(len(space.names)), rng)))
print(space.hash, space.config_hash(config))
"""


@pytest.fixture(scope="module")
def mixed():
    return read_space(MIXED)


def space_of(*constraints, **hyperparameters):
    return read_space({"hyperparameters": hyperparameters, "constraints": list(constraints)})


def whole(upper, default, **more):
    return {**INT, "lower": 0, "upper": upper, "default": default, **more}


def perturb_many(space, n):
    rng = np.random.default_rng(0)
    config = space.default()
    for step in range(n):
        new = space.perturb(config, rng)
        problem = None if space.is_valid(new) else new
        assert problem is None
        assert new != config
        assert new["net"] == config["net"]
        for name in ("epochs", "n_steps", "batch_size"):
            assert type(new[name]) is int
        config = new if step % 50 else space.sample(rng)


def test_perturbations_never_leave_the_space(mixed):
    perturb_many(mixed, 3_000)


@pytest.mark.slow
def test_hundred_thousand_perturbations_never_leave_the_space(mixed):
    perturb_many(mixed, 100_000)


@pytest.mark.parametrize("start", [1, 2, 3])
def test_an_integer_always_moves(start):
    """Multiplying by 0.8 or 1.2 and truncating leaves 1 for ever."""
    space = space_of(x={**INT, "lower": 1, "upper": 3, **MAY})
    rng = np.random.default_rng(0)
    moved = {space.perturb({"x": start}, rng, step=0.01, resample=0)["x"] for _ in range(50)}
    assert moved == {max(1, start - 1), min(3, start + 1)} - {start}


def test_perturbation_is_symmetric_on_the_scale_of_the_hyperparameter():
    """On the log scale of 1e-6..1e-1, 0.2 is a factor of 10."""
    space = space_of(x={**LOG, "lower": 1e-6, "upper": 0.1, **MAY})
    rng = np.random.default_rng(0)
    for start, ends in ((1e-3, {1e-2, 1e-4}), (5e-2, {0.1, 5e-3}), (0.1, {1e-2})):
        found = {space.perturb({"x": start}, rng, step=0.2, resample=0)["x"] for _ in range(50)}
        assert found == ends


def test_choices_of_words_are_resampled_and_ordinals_step():
    sizes = {"type": "ordinal", "choices": ["s", "m", "l", "xl"], **MAY}
    space = space_of(a={"choices": ["x", "y", "z"], **MAY}, b=sizes)
    rng = np.random.default_rng(0)
    start = {"a": "x", "b": "m"}
    moved = [space.perturb(start, rng, resample=0.25) for _ in range(4000)]
    counts = [sum(config["a"] == value for config in moved) for value in "xyz"]
    assert stats.chisquare(counts, [3000, 500, 500]).pvalue > FALSE_ALARM
    assert {space.perturb(start, rng, resample=0)["b"] for _ in range(50)} == {"s", "l"}
    only = [space.perturb({"a": "x", "b": "m"}, rng, names=["a"], resample=0.0) for _ in range(20)]
    assert {config["a"] for config in only} == {"y", "z"}
    assert {config["b"] for config in only} == {"m"}


def test_what_may_not_change_neither_appears_nor_disappears():
    """A hyperparameter that is fixed at the start of a run cannot change later."""
    unit = {"type": "float", "lower": 0.0, "upper": 1.0, **MAY}
    choices = {"kind": {"choices": ["a", "b", "c"], **MAY}, "mode": {"choices": ["u", "v"], **MAY}}
    others = {"x": unit, "fixed": "uniform(0, 1)", "either": "int(1, 9)", "free": unit}
    active = {"fixed": "kind == 'b'", "either": "kind == 'a' or mode == 'u'", "free": "kind == 'c'"}
    space = read_space({"hyperparameters": {**choices, **others}, "conditions": active})
    rng = np.random.default_rng(0)
    kinds = set()
    free = 0
    for _ in range(500):
        start = space.sample(rng)
        moved = space.perturb(start, rng, resample=0.9)
        assert space.is_valid(moved)
        assert moved != start
        for name in ("fixed", "either"):
            assert moved.get(name) == start.get(name)
        kinds.add((start["kind"], moved["kind"]))
        free += "free" in moved and "free" not in start
    assert {("a", "c"), ("c", "a"), ("b", "b")} <= kinds, "moves that change nothing fixed are made"
    assert not {pair for pair in kinds if "b" in pair} - {("b", "b")}
    assert free > 20, "a changeable child is drawn"


def test_placing_values_keeps_the_rest_and_the_rules(mixed):
    rng = np.random.default_rng(0)
    start = mixed.default()
    placed = mixed.place(start, {"clip": 0.125, "optimizer": "sgd"}, rng, mixed.changeable)
    assert mixed.is_valid(placed)
    assert 0 <= placed["momentum"] <= 0.99, "what becomes active is drawn"
    assert changes(start, placed) == {"clip": 0.125, "optimizer": "sgd"}
    # What is not active is dropped, batch_size is at most n_steps, momentum may not appear.
    assert mixed.place(start, {"momentum": 0.5}, rng, mixed.changeable) == start
    assert mixed.place(start, {"n_steps": 16}, rng, mixed.changeable) is None
    assert mixed.place(start, {"optimizer": "sgd"}, rng, ["optimizer"]) == start


def test_nothing_changeable_means_no_move():
    space = space_of(x="uniform(0, 1)")
    assert space.perturb({"x": 0.3}, np.random.default_rng(0)) == {"x": 0.3}
    with pytest.raises(InputError, match="unknown hyperparameter"):
        space.perturb({"x": 0.3}, np.random.default_rng(0), names=["y"])


def test_tight_constraint_still_moves():
    """Only 1 pair in 1000 is valid: joint moves fail, single ones do not."""
    on = {"choices": [True, False], **MAY}
    space = space_of("x == y", x=whole(999, 0, **MAY), y=whole(999, 0), on=on)
    moved = space.perturb({"x": 5, "y": 5, "on": True}, np.random.default_rng(0), resample=0)
    assert moved == {"x": 5, "y": 5, "on": False}


def test_repair_moves_as_little_as_possible(mixed):
    rng = np.random.default_rng(0)
    wanted = dict(mixed.default()) | {"batch_size": 256, "n_steps": 100}
    assert changes(wanted, mixed.repair(wanted, rng)) in ({"n_steps": 256}, {"batch_size": 64})
    assert changes(wanted, mixed.repair(wanted, rng, keep=["n_steps"])) == {"batch_size": 64}
    assert changes(wanted, mixed.repair(wanted, rng, keep=["batch_size"])) == {"n_steps": 256}
    wanted |= {"n_steps": 20}
    # No batch of 20 exists.
    assert changes(wanted, mixed.repair(wanted, rng, keep=["n_steps"])) == {"n_steps": 256}


def test_repair_of_two_rules_moves_what_is_to_be_kept_last():
    space = space_of("a <= b", "c <= d", **dict.fromkeys("abcd", whole(9, 4)))
    wanted = {"a": 8, "b": 2, "c": 7, "d": 1}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert space.repair(wanted, rng, keep=["b", "d"]) == {"a": 2, "b": 2, "c": 1, "d": 1}
        assert space.repair(wanted, rng, keep=["a", "d"]) == {"a": 8, "b": 8, "c": 1, "d": 1}


def repairs(space, wanted, keep):
    """The different repairs of `wanted` by six generators."""
    repaired = [space.repair(wanted, np.random.default_rng(seed), keep=keep) for seed in range(6)]
    return {tuple(config.values()) for config in repaired}


def test_where_no_single_move_helps_what_is_to_be_kept_is_restored_first():
    """Only one of three can have its value of 9; the default configuration leaves room for any."""
    space = space_of("a + b + c <= 9", **dict.fromkeys("abc", whole(9, 0)))
    wanted = dict.fromkeys("abc", 9)
    assert repairs(space, wanted, ["b"]) == {(0, 9, 0)}
    assert repairs(space, wanted, ["c"]) == {(0, 0, 9)}


def test_where_no_single_move_helps_a_repair_that_keeps_is_taken_before_one_that_does_not():
    """Two move either way; the default configuration leads to the one that loses `a`."""
    none, all_of_it = ({"type": "ordinal", "choices": [0, 9], "default": it} for it in (0, 9))
    space = space_of("a + b + c <= 9", a=none, b=all_of_it, c=none)
    wanted = dict.fromkeys("abc", 9)
    assert repairs(space, wanted, ["a"]) == {(9, 0, 0)}
    assert (0, 9, 0) in repairs(space, wanted, [])


def test_repair_of_foreign_values(mixed):
    rng = np.random.default_rng(0)
    wanted = {"learning_rate": 5.0, "clip": -1, "epochs": 7.6, "batch_size": 100}
    repaired = mixed.repair({**wanted, "optimizer": "lion", "momentum": 3}, rng)
    assert mixed.is_valid(repaired)
    assert [repaired[name] for name in wanted] == [0.01, 0, 8, 128]
    with pytest.raises(InputError, match="unknown hyperparameter"):
        mixed.repair({"lr": 1}, rng)


def test_samples_are_uniform_among_the_valid():
    """With x + y <= 1 on an 11 x 11 grid, all 66 pairs are equally frequent."""
    space = space_of("x + y <= 10", **dict.fromkeys("xy", whole(10, 0)))
    rng = np.random.default_rng(0)
    counts = {(x, y): 0 for x in range(11) for y in range(11 - x)}
    for _ in range(6600):
        config = space.sample(rng)
        counts[config["x"], config["y"]] += 1
    assert stats.chisquare(list(counts.values())).pvalue > FALSE_ALARM


def test_a_space_that_looks_empty_says_so():
    space = space_of("x == y", x="uniform(0, 1)", y="uniform(0, 1)")
    with pytest.raises(InputError, match=r"looks empty.*constraint 'x == y'"):
        space.sample(np.random.default_rng(0))
    decoded = space.decode([0.2, 0.7], np.random.default_rng(0))
    assert space.is_valid(decoded)


@pytest.mark.parametrize("hash_seed", ["0", "1234"])
def test_same_generator_same_result_in_another_process(mixed, tmp_path, hash_seed):
    path = tmp_path / "space.yaml"
    path.write_text(to_yaml(mixed))
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", SCRIPT, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rng = np.random.default_rng(7)
    config = mixed.sample(rng)
    expected = []
    for _ in range(30):
        config = mixed.perturb(config, rng)
        decoded = mixed.decode(rng.random(len(mixed.names)), rng)
        expected += [canonical_json(config), canonical_json(decoded)]
    assert done.stdout.split("\n")[:-1] == [*expected, f"{mixed.hash} {mixed.config_hash(config)}"]


def changes(before, after):
    return {name: after[name] for name in before if after[name] != before[name]}


def test_a_factor_multiplies_the_value_on_its_own_scale():
    """1.2 and 0.8 as in the paper, on a discount's distance from 1."""
    space = space_of(
        rate={**LOG, "lower": 1e-5, "upper": 1e-1, **MAY},
        gamma={**LOG, "lower": 0.8, "upper": 0.9999, "scale": "flipped_log", **MAY},
        clip={"type": "float", "lower": 0.05, "upper": 0.5, **MAY},
        epochs={**INT, "lower": 1, "upper": 20, **MAY},
    )
    rng = np.random.default_rng(0)
    start = {"rate": 1e-3, "gamma": 0.99, "clip": 0.45, "epochs": 2}
    moved = [space.perturb(start, rng, resample=0.0, factor=1.2) for _ in range(200)]
    assert {round(config["rate"], 9) for config in moved} == {1.2e-3, 8e-4}
    assert {round(1 - config["gamma"], 9) for config in moved} == {0.012, 0.008}
    assert {round(config["clip"], 9) for config in moved} == {0.5, 0.36}
    # 2.4 and 1.6 are rounded: a step of one.
    assert {config["epochs"] for config in moved} == {1, 3}
