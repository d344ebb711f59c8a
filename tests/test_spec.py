"""The study file: every key, the frozen copy, overrides, and one line for every mistake."""

import re

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from property_tests import examples
from refusals import expect_error

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, Start, TrainerSpec
from autorl.statistics.evaluation import Fixed, Racing
from autorl.study.spec import Spec, load_spec, parse_override, thaw
from autorl.study.spec.study_file import read_study

BASE = """\
trainer: synthetic
space:
  hyperparameters:
    x: {type: float, lower: 0.0, upper: 1.0}
fidelity: {steps: 100}
budget: {runs: 8}
"""
EVERY_KEY = """\
note: a first try
name: everything
seed: 3
trainer: {name: synthetic, kwargs: {noise: 1e-3, log: ["1e-3", "09", "on"], bounds: {x: [0, 1]}}}
environment: {id: "module:Env-v0", kwargs: {size: 5}, wrappers: ["m:A", {"m:B": {k: 1}}], n_envs: 2, normalize: true,
              vec_env: subproc}
space:
  hyperparameters:
    x: {type: float, lower: 1e-5, upper: 1, scale: log, default: 1e-3, changeable: true, schedule: [constant, linear]}
    k: {type: categorical, choices: ["1e-3", "yes", "null", "07"]}
    n: {type: int, lower: 1, upper: 9}
  conditions: {n: "k == 'yes'"}
objective: [{metric: a, reduce: mean_last(3), direction: minimize}, {metric: b, reduce: best}]
allow_proxy_selection: true
constraints: [{metric: wall_seconds, max: 60}, {metric: kl, min: -1e-3}]
fidelity: {steps: 1e5, evaluations: 7, episodes: 3}
optimizer: {name: nsga2, population: 12}
budget: {environment_steps: 2e6}
seeds: {tuning: [5, 3], test: 4}
evaluation: {seeds: racing, min: 1, max: 2, rule: t, aggregate: cvar(0.5)}
parallelism: 5
asynchronous: true
executor: {name: processes, workers: 3, devices: ["0", 1]}
resources: {cpu: 4, gpu: 0.25, memory_gb: 1.5, nodes: 2, custom: {licence: 0.5}}
failures: {penalty: -1e3, retries: 2}
limits: {segment_seconds: 10, memory_gb: 1.5, disk_gb: null}
warm_start: [{x: 0.5, k: "07"}, {x: 0.1, k: "yes", n: 3}]
start: {study: other, memory: steps.pkl}
test: {top: 5}
keep: {checkpoints: top}
landscape: {id: me/synthetic/Quadratic, bounds: [0, 500], licence: MIT}
storage: s3://bucket/everything
callbacks: ["m:C", {"m:D": {every: 10}}]
"""


def loaded(tmp_path, text, overrides=None):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    return load_spec(path, overrides)


@pytest.mark.parametrize("name", ["population/ppo", "population/ppo-small", "synthetic"])
def test_the_file_that_a_study_keeps_begins_it_again(tmp_path, name):
    # With n_envs searched, fixed by the space, and of the environment.
    spec = load_spec(yaml.safe_load(BASE)) if name == "synthetic" else read_study(name)
    assert loaded(tmp_path, spec.freeze()).freeze() == spec.freeze()


def test_every_key_is_read_as_what_it_says(tmp_path):
    spec = loaded(tmp_path, EVERY_KEY)
    assert set(yaml.safe_load(EVERY_KEY)) == set(Spec.model_fields) - {
        "algorithms",
        "path",
        "tasks",
        "baselines",  # none beside a landscape
    }, "no key is left out"
    assert spec.landscape is not None
    assert (spec.landscape.id, spec.landscape.bounds, spec.landscape.licence) == (
        "me/synthetic/Quadratic",
        (0, 500),
        "MIT",
    )
    assert spec.trainers == {
        "": TrainerSpec(
            "synthetic",
            FrozenMap(noise=1e-3, log=("1e-3", "09", "on"), bounds={"x": (0, 1)}),
            Start("", memory=str(tmp_path / "steps.pkl")),
        )
    }
    assert spec.start is not None
    assert spec.start.study == str(tmp_path / "other")
    assert spec.environment.resolve() == EnvironmentSpec(
        "module:Env-v0",
        FrozenMap(size=5),
        ("m:A", FrozenMap({"m:B": {"k": 1}})),
        2,
        True,
        "subproc",
    )
    assert [(o.metric, o.reduce, o.sign) for o in spec.objectives()] == [
        ("a", "mean_last(3)", -1),
        ("b", "best", 1),
    ]
    assert spec.allow_proxy_selection
    assert (spec.fidelity.steps, spec.evaluation_steps) == (
        100_000,
        tuple(100_000 * k // 7 for k in range(1, 8)),
    )
    assert spec.optimizer.options == {"population": 12}
    assert spec.plan.tuning == (5, 3)
    assert spec.policy() == Racing((5, 3), 1, 2, "t")
    assert spec.full_runs == 20
    assert spec.failures.penalty == -1000.0
    assert spec.limits.disk_gb is None
    assert spec.search_space.hyperparameters["k"].choices == ("1e-3", "yes", "null", "07")
    assert spec.path == str(tmp_path)
    for reason in (
        "asynchronous: true",
        "segment_seconds",
        "memory_gb",
        "resources.gpu",
        "the metric wall_seconds",
    ):
        assert reason in spec.indeterminate


def test_defaults_are_those_of_the_design(tmp_path):
    spec = loaded(tmp_path, BASE)
    assert (spec.name, spec.seed, spec.asynchronous) == ("study", 0, False)
    assert (spec.plan.tuning, spec.plan.test) == ((0, 1, 2), tuple(range(100, 110)))
    assert [(o.metric, o.reduce, o.direction) for o in spec.objectives()] == [
        ("eval_return", "last", "maximize")
    ]
    assert (spec.fidelity.evaluations, spec.fidelity.episodes) == (10, 32)
    assert (spec.optimizer.name, spec.optimizer.stop, spec.optimizer.options) == ("tpe", None, {})
    assert spec.policy() == Fixed((0, 1, 2))
    assert (spec.failures.penalty, spec.failures.retries, spec.limits.disk_gb) == ("worst", 3, 20)
    assert (spec.test.top, spec.keep.checkpoints) == (3, "incumbent")
    assert spec.indeterminate is None


@pytest.mark.parametrize("text", [BASE, EVERY_KEY], ids=["base", "everything"])
def test_the_frozen_copy_is_the_same_study(tmp_path, text):
    spec = loaded(tmp_path, text)
    frozen = spec.freeze()
    again = thaw(frozen, "study.yaml")
    assert again.freeze() == frozen
    assert again.search_space == spec.search_space
    assert again.plan == spec.plan
    for key in set(Spec.model_fields) - {"space", "seeds", "optimizer"}:
        assert getattr(again, key) == getattr(spec, key), key
    assert spec.same_study(again)
    options = {"rungs": spec.optimizer.rungs, **spec.optimizer.options}
    # With every default besides.
    assert options.items() <= {"rungs": None, **again.optimizer.model_dump()}.items()


@pytest.mark.parametrize(
    ("optimizer", "configurations", "parallelism"),
    [
        ("tpe", 6, 1),
        ("tpe", 16, 2),
        ("tpe", 32, 4),
        ("tpe", 64, 8),
        ("tpe", 500, 8),
        ("random", 16, 8),
        ("pbt", 16, 8),
    ],
)
def test_proposals_in_flight_follow_from_the_budget(optimizer, configurations, parallelism):
    study = {"trainer": "t", "space": "population/ppo-small", "fidelity": {"steps": 10}}
    for budget, expected in (
        ({"configurations": configurations}, parallelism),
        ({"runs": 3 * configurations}, parallelism),
        ({"hours": 1}, 8),
    ):
        spec = load_spec(study | {"optimizer": optimizer, "budget": budget})
        assert spec.parallelism == expected
    explicit = load_spec(study | {"budget": {"configurations": configurations}, "parallelism": 3})
    assert explicit.parallelism == 3
    assert thaw(explicit.freeze(), "x").parallelism == 3


def test_a_stored_study_is_the_same_with_the_defaults_it_was_stored_with():
    study = {
        "trainer": "t",
        "space": "population/ppo-small",
        "fidelity": {"steps": 10},
        "budget": {"runs": 48},
    }
    spec = load_spec(study)
    stored = thaw(spec.freeze(), "study.yaml")
    assert spec.same_study(stored)
    for changed in ({"parallelism": 3}, {"optimizer": {"name": "tpe", "startup": 4}}, {"seed": 1}):
        assert not load_spec(study | changed).same_study(stored)
    assert not spec.same_study(load_spec(study | {"parallelism": 3}))


def test_the_frozen_copy_of_an_algorithm_choice_is_self_contained(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "hyperparameters: {lr: {type: float, lower: 0, upper: 1}}\n"
    )
    text = """\
algorithms:
  one: {trainer: {name: a, kwargs: {k: 1}}, space: mine.yaml}
  two: {trainer: b, space: {hyperparameters: {lr: {type: float, lower: 0, upper: 1}}}}
fidelity: {steps: 10}
budget: {configurations: 4}
"""
    spec = loaded(tmp_path, text)
    space = spec.search_space
    frozen = spec.freeze()
    (tmp_path / "mine.yaml").unlink()
    again = thaw(frozen, "x")
    assert again.search_space == space
    assert again.trainer_for(Config({"algorithm": "one", "one.lr": 0.5})) == (
        TrainerSpec("a", FrozenMap(k=1)),
        Config(lr=0.5),
    )
    assert again.trainer_for(Config({"algorithm": "two", "two.lr": 0.25})) == (
        TrainerSpec("b"),
        Config(lr=0.25),
    )


LOOKS_LIKE_ANOTHER_TYPE = re.findall(
    r"\S+",
    "1e-3 09 1e5 -1E9 0x1f 1_000 on yes null ~ .5 1. +1 12:30 2020-01-01 true True .inf 1e+3 - # "
    "0o7 1__2",
)
scalars = (
    st.text(max_size=8)
    | st.sampled_from([*LOOKS_LIKE_ANOTHER_TYPE, "- a", "a: b"])
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.none()
)


@settings(max_examples=examples(300))
@given(
    st.dictionaries(
        st.sampled_from(["a", "1e-3", "yes", "09"]),
        scalars | st.lists(scalars, max_size=3),
        max_size=3,
    )
)
def test_a_trainers_options_survive_freezing_to_the_type(kwargs):
    spec = load_spec(yaml.safe_load(BASE) | {"trainer": {"name": "t", "kwargs": kwargs}})
    again = thaw(spec.freeze(), "x").trainer.kwargs
    assert again == kwargs
    assert repr(sorted(again.items(), key=repr)) == repr(sorted(kwargs.items(), key=repr)), (
        "types included"
    )


def test_rungs_belong_to_the_stopping_rule_or_to_the_optimizer():
    from autorl.study.setup import make_optimizer

    def optimizer_of(section):
        spec = load_spec(yaml.safe_load(BASE) | {"optimizer": section})
        return make_optimizer(thaw(spec.freeze(), "x"), lambda trainer: _Changeless())

    assert optimizer_of({"name": "asha", "rungs": 2}).steps == (50, 100)
    assert len(optimizer_of({"name": "asha"}).steps) == 3
    assert optimizer_of({"name": "random", "stop": "median", "rungs": 2}).steps == (50, 100)
    assert len(optimizer_of({"name": "random", "stop": "median"}).steps) == 5
    expect_error("unknown option", optimizer_of, {"name": "random", "rungs": 3})


class _Changeless:
    changes = ()


# -- overrides ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("fidelity.steps=5e4", ("fidelity.steps", 50000.0)),
        ("name=1e-3", ("name", 0.001)),
        ("seeds.tuning=[1, 2]", ("seeds.tuning", [1, 2])),
        ("a.b={c: 1}", ("a.b", {"c": 1})),
        ("x=", ("x", None)),
        ("x=a=b", ("x", "a=b")),
        (" x = yes", ("x", "yes")),
        ('x="3"', ("x", "3")),
    ],
)
def test_overrides_are_read_as_yaml(text, parsed):
    assert parse_override(text) == parsed


@pytest.mark.parametrize("text", ["fidelity.steps", "=3", " =3", ""])
def test_an_override_without_a_key_or_value_is_an_input_error(text):
    expect_error("--set: expected key=value", parse_override, text)


def test_overrides_reach_into_sections_and_short_forms(tmp_path):
    changes = [
        "fidelity.steps=1e3",
        "trainer.kwargs.noise=0.5",
        "optimizer.name=random",
        "environment.id=A-v0",
        "seeds.test=0",
    ]
    spec = loaded(tmp_path, BASE + "environment: B-v0\n", dict(map(parse_override, changes)))
    assert spec.fidelity.steps == 1000
    assert spec.trainer.name == "synthetic"
    assert spec.trainer.kwargs == {"noise": 0.5}
    assert (spec.optimizer.name, spec.environment.id, spec.plan.test) == ("random", "A-v0", ())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("fidelity.stps", 3, "unknown key 'stps'; did you mean 'steps'"),
        ("budget.hours", 3, "needs exactly one of"),
        ("budget.runs.x", 3, "budget.runs is not a mapping"),
        ("parallelism", 0, "greater than or equal to 1"),
        ("objective.metric.x.y", 3, "objective.metric"),
    ],
)
def test_a_bad_override_is_an_input_error(tmp_path, key, value, message):
    expect_error(message, loaded, tmp_path, BASE + "objective: {metric: a}\n", {key: value})


def test_a_function_has_one_step_and_one_value():
    study = {"trainer": "python:m:f", "space": yaml.safe_load(BASE)["space"], "budget": {"runs": 3}}
    spec = load_spec(study)
    assert (spec.fidelity.steps, spec.objective[0].metric) == (1, "value")
    assert load_spec(study, {"objective.direction": "minimize"}).objective[0].metric == "value"
    assert load_spec(study | {"objective": {"metric": "acc"}}).objective[0].metric == "acc"


# -- budgets that train nothing --------------------------------------------------------------------------------------

MEDIAN = {"name": "random", "stop": "median", "rungs": 4}
HYPERBAND = {"name": "hyperband", "eta": 3, "rungs": 3}
RACING = {"seeds": "racing", "min": 2}
TOO_SMALL = [
    ({"runs": 2}, {}, "budget.runs: 2 is less than one proposal (3 seeds = 3 runs)"),
    ({"runs": 0.5}, {"seeds": {"tuning": 1}}, "0.5 is less than one proposal (1 seed = 1 run)"),
    ({"environment_steps": 299}, {}, "299 is less than one proposal (3 seeds of 100 steps = 300"),
    ({"runs": 0.5}, {"optimizer": MEDIAN}, "(3 seeds to step 25 of 100 = 0.75 runs)"),
    ({"environment_steps": 11}, {"optimizer": HYPERBAND}, "to step 12 of 100 = 36 steps)"),
    ({"runs": 1.5}, {"evaluation": RACING}, "1.5 is less than one proposal (2 seeds = 2 runs)"),
]
ENOUGH = [
    {"budget": {"runs": 3}},
    {"budget": {"environment_steps": 300}},
    {"budget": {"runs": 1}, "evaluation": {"seeds": "racing"}},
    {"budget": {"runs": 0.75}, "optimizer": MEDIAN},
    {"budget": {"configurations": 1}},
    {"budget": {"hours": 1e-6}},
]


@pytest.mark.parametrize(("budget", "changes", "message"), TOO_SMALL)
def test_a_budget_below_one_proposal_is_refused(budget, changes, message):
    expect_error(re.escape(message), load_spec, yaml.safe_load(BASE) | {"budget": budget} | changes)


@pytest.mark.parametrize("changes", ENOUGH)
def test_a_budget_that_pays_for_one_proposal_is_enough(changes):
    spec = load_spec(yaml.safe_load(BASE) | changes)
    assert thaw(spec.freeze(), "study.yaml").budget == spec.budget


# -- mistakes ----------------------------------------------------------------------------------------------------------

ADDED = [
    ("optimiser: tpe", "optimiser", "did you mean 'optimizer'"),
    ("seeds: {tunning: 3}", "seeds.tunning", "did you mean 'tuning'"),
    ("evaluation: {agregate: mean}", "evaluation.agregate", "did you mean 'aggregate'"),
    ("executor: {workes: 3}", "executor.workes", "did you mean 'workers'"),
    ("objective: [{metric: a}, {metrc: b}]", "objective[1].metrc", "did you mean 'metric'"),
    ("seeds: {tuning: [1, 2], test: [2, 3]}", "seeds", "in both tuning and test"),
    ("objective: {reduce: mean_last(50)}", "objective.reduce", "a run with 10 evaluations"),
    (
        "objective: [{reduce: auc}, {reduce: mean_last(11)}]",
        "objective[1].reduce",
        "a run with 10 evaluations",
    ),
    ("path: /nonexistent", "path", "no such folder"),
    ("name: ''", "name", "expected a name"),
    ("optimizer: {name: tpe, stop: median, rungs: 101}", "optimizer.rungs", "101 rungs in 100"),
    ("evaluation: {seeds: racing, min: 3, max: 2}", "evaluation.max", "2 is below evaluation.min"),
    ("seeds: {tuning: 0}", "seeds.tuning", "greater than or equal to 1"),
    ("seeds: {tuning: [-1]}", "seeds.tuning", "got -1"),
    ("seeds: {test: [1, 1]}", "seeds.test", "listed twice"),
    ("objective: {reduce: median}", "objective.reduce", "allowed: last, best, auc, mean_last"),
    ("objective: {reduce: mean_last(0)}", "objective.reduce", ">= 1"),
    ("objective: {direction: up}", "objective[0].direction", "'maximize' or 'minimize', got 'up'"),
    ("evaluation: {aggregate: meen}", "evaluation.aggregate", "did you mean 'mean'"),
    ("evaluation: {aggregate: cvar(2)}", "evaluation.aggregate", "got 2.0"),
    ("evaluation: {seeds: racing, max: 9}", "evaluation", "more seeds than the 3"),
    ("evaluation: {seeds: race}", "evaluation.seeds", "'racing' or 'adaptive', got 'race'"),
    ("constraints: [{metric: a}]", "constraints[0]", "exactly one of max, min"),
    ("constraints: [{metric: a, max: 1, min: 0}]", "constraints[0]", "exactly one of"),
    ("constraints: [{max: 1}]", "constraints[0].metric", "is missing"),
    ("parallelism: 0", "parallelism", "greater than or equal to 1, got 0"),
    ("parallelism: true", "parallelism", "whole number"),
    ("executor: {name: dask}", "executor.name", "'processes', 'ray' or 'slurm', got 'dask'"),
    ("failures: {penalty: bad}", "failures.penalty", "got 'bad'"),
    ("failures: {retries: -1}", "failures.retries", "greater than or equal to 0"),
    ("limits: {segment_seconds: 0}", "limits.segment_seconds", "greater than 0"),
    ("limits: {disk_gb: lots}", "limits.disk_gb", "expected a number"),
    ("warm_start: [{x: 0.5}, {x: 3.0}]", "warm_start[1].x", "3.0 is outside [0.0, 1.0]"),
    ("warm_start: [{z: 0.3}]", "warm_start[0].z", "unknown hyperparameter; known: x"),
    ("keep: {checkpoints: all}", "keep.checkpoints", "'top', 'lineage' or 'none', got 'all'"),
    ("test: {top: -1}", "test.top", "greater than or equal to 0"),
    (
        "environment: {id: A, vec_env: thread}",
        "environment.vec_env",
        "'envpool' or 'gymnasium', got 'thread'",
    ),
    ("environment: {id: A, n_envs: 1.5}", "environment.n_envs", "1.5"),
    (
        "optimizer: {name: tpe, stop: mean}",
        "optimizer.stop",
        "'median', 'learned' or 'overoptimizing', got 'mean'",
    ),
    ("optimizer: {name: tpe, stop: median, rungs: 0}", "optimizer.rungs", "got 0"),
    ("seed: -1", "seed", "got -1"),
    ("asynchronous: maybe", "asynchronous", "got 'maybe'"),
    ("asynchronous: yes", "asynchronous", "got 'yes'"),
    ("allow_proxy_selection: yes", "allow_proxy_selection", "got 'yes'"),
    ("environment: {id: CartPole-v1, normalize: yes}", "environment.normalize", "got 'yes'"),
    ("test: {baseline: no}", "test.baseline", "got 'no'"),
    ("executor: {name: ray, autoscaler: 1}", "executor.autoscaler", "got 1"),
    ("limits:", "limits", "got None"),
    ("budget: {runs: 3}", None, "given twice, first in line 6"),
    ("\tseeds: 3", None, "not valid YAML"),
    ("seeds: [1", None, "not valid YAML"),
]


@pytest.mark.parametrize(("line", "key", "message"), ADDED, ids=[line for line, *_ in ADDED])
def test_a_mistake_is_one_line_with_file_line_key_and_what_is_allowed(tmp_path, line, key, message):
    error = expect_error("", loaded, tmp_path, f"{BASE}{line}\n")
    assert error.file == str(tmp_path / "study.yaml")
    assert error.line in ((7, 8) if key is None else (7,))
    assert error.key == key
    assert message in error.message
    assert "\n" not in str(error)
    assert str(error).startswith(f"{tmp_path / 'study.yaml'}:{error.line}: ")


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "message"),
    [
        ("steps: 100", "steps: 0", 5, "fidelity.steps", "got 0"),
        ("steps: 100", "steps: 1.5", 5, "fidelity.steps", "got 1.5"),
        ("steps: 100", "steps: many", 5, "fidelity.steps", "got 'many'"),
        ("{steps: 100}", "{steps: 3, evaluations: 5}", 5, "fidelity.evaluations", "5 evaluations"),
        ("{runs: 8}", "{runs: 2}", 6, "budget.runs", "less than one proposal (3 seeds = 3 runs)"),
        ("{runs: 8}", "{runs: -8}", 6, "budget.runs", "got -8"),
        ("{runs: 8}", "{runs: .inf}", 6, "budget.runs", "got inf"),
        ("{runs: 8}", "{runs: 8, hours: 2}", 6, "budget", "got runs, hours"),
        ("{runs: 8}", "{}", 6, "budget", "got none"),
        ("{runs: 8}", "{steps: 8}", 6, "budget.steps", "environment_steps, gpu_hours"),
        ("upper: 1.0", "upper: -1.0", 4, "space.hyperparameters.x.upper", "must be greater"),
        ("type: float", "type: flaot", 4, "space.hyperparameters.x.type", "got 'flaot'"),
        ("upper: 1.0", "uper: 1.0", 4, "space.hyperparameters.x.uper", "upper"),
        ("fidelity: {steps: 100}\n", "", None, "fidelity", "is missing"),
        ("budget: {runs: 8}\n", "", None, "budget", "is missing"),
        # What is missing may be there under another name.
        ("{steps: 100}", "{total_timesteps: 9}", 5, "fidelity.total_timesteps", "unknown key"),
        ("budget: {runs: 8}", "budget: 8", 6, "budget", "got 8; its keys: runs, configurations"),
        (
            "budget:",
            "executor: {name: in_process, workers: 4}\nbudget:",
            6,
            "executor.workers",
            "`in_process` runs one at a time, not 4: choose `threads` or `processes`",
        ),
        ("trainer: synthetic\n", "", None, None, "needs exactly one of trainer, algorithms"),
        (BASE, "", None, None, "expected a mapping of keys"),
        (BASE, "- 1\n", None, None, "expected a mapping of keys"),
    ],
)
def test_a_mistake_in_what_is_needed(tmp_path, old, new, line, key, message):
    caught = expect_error("", loaded, tmp_path, BASE.replace(old, new))
    assert (caught.line, caught.key) == (line, key)
    assert message in str(caught)


def test_a_study_file_that_cannot_be_read(tmp_path):
    expect_error("file not found", load_spec, tmp_path / "no.yaml")
    expect_error("expected a file, this is a folder", load_spec, tmp_path)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    expect_error("not a text file in UTF-8", load_spec, tmp_path / "bytes.yaml")


def test_warm_starts_may_leave_out_what_has_a_default(tmp_path):
    spec = loaded(tmp_path, EVERY_KEY)
    config = spec.search_space.config(spec.warm_start[0])
    assert config["x.shape"] == "constant"
    assert "n" not in config
