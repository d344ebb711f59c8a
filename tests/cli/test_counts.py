"""Counts and budgets that make no sense are one line, before a folder is made and before an event is written."""

import pytest
from cli_support import autorl, finished_study, query, study_file
from refusals import expect_error

from autorl.study.lineage import Lineage
from autorl.study.spec import load_spec
from autorl.study.tuner import Tuner

SPACE = {"x": {"type": "float", "lower": 0.0, "upper": 1.0}}
MINIMAL = {
    "trainer": "synthetic",
    "space": SPACE,
    "fidelity": {"steps": 100},
    "budget": {"runs": 16},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return finished_study(tmp_path_factory.mktemp("counts"))


@pytest.mark.parametrize("runs", ["nan", "inf", "-inf", "1e300", "0", "-4", "+1e10"])
def test_an_extension_that_is_no_count_is_refused_and_not_recorded(folder, runs):
    events = query(folder, "SELECT COUNT(*) FROM event")
    said = autorl("resume", folder, f"--runs={runs}", "--quiet", code=2).stderr
    assert said.startswith("autorl: --runs: expected more runs, a number up to 1,000,000,000, got")
    assert query(folder, "SELECT COUNT(*) FROM event") == events


def test_steps_may_have_an_exponent(tmp_path):
    plan = ("tune", study_file(tmp_path), "--dry-run", "--json")
    assert autorl(*plan, "--steps", "1e2").stdout == autorl(*plan, "--steps", "100").stdout
    said = autorl(*plan, "--steps", "1.5", code=2).stderr
    assert "fidelity.steps" in said
    assert "1.5" in said


TOO_MANY = [
    ("fidelity.steps", 1e30),
    ("fidelity.steps", 10**19),
    ("fidelity.steps", 10**400),
    ("fidelity.evaluations", 10**8),
    ("fidelity.episodes", 10**9),
    ("seeds.tuning", 10**9),
    ("seeds.test", 10**9),
    ("seeds.tuning", list(range(5001))),
    ("budget.runs", 1e300),
    ("budget.configurations", 10**10),
    ("budget.environment_steps", 10**19),
    ("budget.hours", 1e300),
    ("parallelism", 10**9),
    ("executor.workers", 10**9),
    ("failures.retries", 10**9),
    ("limits.memory_gb", 1e300),
    ("test.top", 10**9),
    ("seed", 10**30),
    ("environment.n_envs", 10**9),
    ("warm_start.top", 10**9),
]


@pytest.mark.parametrize(("key", "value"), TOO_MANY)
def test_a_count_that_nobody_means_is_refused(key, value):
    section, _, name = key.partition(".")
    study = {**MINIMAL, "seeds": {"tuning": 2, "test": 2}}
    if section == "budget":
        study["budget"] = {}
    more = {"warm_start.study": "x"} if section == "warm_start" else {}
    refused = expect_error("", load_spec, study, {key: value} | more)
    assert (name or section) in str(refused)
    assert len(str(refused)) < 250


NO_COUNTS = {"fidelity.steps": "100", "budget.runs": "16", "seeds.tuning": "3", "seed": "0"}


@pytest.mark.parametrize(("key", "value"), [*NO_COUNTS.items(), ("fidelity.steps", True)])
def test_text_and_truth_values_are_no_counts(key, value):
    expect_error(key, load_spec, MINIMAL, {key: value})


def test_an_objective_that_is_listed_twice_is_refused():
    twice = [{"metric": "eval_return"}, {"metric": "eval_return", "direction": "minimize"}]
    expect_error("lists last eval_return twice", load_spec, {**MINIMAL, "objective": twice})
    reduced = [{"metric": "eval_return"}, {"metric": "eval_return", "reduce": "best"}]
    load_spec({**MINIMAL, "objective": reduced})


def test_the_most_seeds_of_both_roles_have_runs_of_their_own():
    seeds = {"tuning": 5000, "test": list(range(5000, 10_000))}
    lineage = Lineage(load_spec({**MINIMAL, "seeds": seeds, "budget": {"runs": 5000}}).plan)
    ends = (("tuning", 0), ("tuning", 4999), ("test", 5000), ("test", 9999))
    numbers = [lineage.run_id(root, role, seed) for root in (0, 1) for role, seed in ends]
    assert len(set(numbers)) == 8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"command": "echo 'x"}, "command: cannot be split into words (No closing quotation)"),
        ({"metrics": 5}, "metrics: expected a mapping of keys, got 5"),
        ({"reduce_last": "x"}, "reduce_last: expected a whole number above 0, got 'x'"),
        ({"environment_variables": []}, "environment_variables: expected names with values"),
    ],
)
def test_options_of_command_are_checked(tmp_path, options, said):
    kwargs = {"command": "echo {seed} {until}"} | options
    file = study_file(tmp_path, trainer={"name": "command", "kwargs": kwargs})
    outcome = autorl("tune", file, "--out", tmp_path / "out", "--quiet", code=2).stderr
    assert f"trainer.kwargs.{said}" in outcome
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [True, "0.5", b"1", None, {"value": "0.5"}, {"value": False}])
def test_a_tuner_is_told_numbers(value):
    tuner = Tuner(SPACE, "random", seeds=None)
    trial = tuner.ask()
    expect_error("is not a number", tuner.tell, trial, value)
    tuner.tell(trial, 1)
