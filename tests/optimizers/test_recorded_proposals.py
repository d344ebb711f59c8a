"""Every optimizer proposes what it proposed when `recorded_proposals.json` was written.

A change that is meant is recorded by `python tests/optimizers/test_recorded_proposals.py`. `cmaes` is
missing: eigenvectors of its covariance differ between processors (`test_cmaes.py` compares it with
its library).
"""

import hashlib
import json
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from autorl.core import seeds
from autorl.optimizers import describe
from autorl.optimizers.registry import REGISTRY
from autorl.testing.optimizers import OptimizerConformance, score, some_fail, space_of, two_scores
from autorl.testing.simulation import simulate

FILE = Path(__file__).with_name("recorded_proposals.json")
PACKAGES = ("numpy", "scipy")
SMALL = {"startup": 4, "candidates": 24}
COPYING = {"population": 4, "generations": 5, "ready": 0.0}
CASES = {
    "asha": [{}],
    "bohb": [{"rungs": 2, "startup": 4}],
    "cost_aware": [SMALL],
    "de": [{"population_size": 5}],
    "dehb": [{"rungs": 2}, {}],
    "gp": [{"startup": 4}],
    "grid": [{"levels": 3}],
    "hyperband": [{}],
    "mf_pbt": [{"population": 8, "generations": 5, "frequencies": [1, 2]}],
    "nsga2": [{"population_size": 4}],
    "pb2": [COPYING, COPYING | {"synchronous": False, "window": 8, "refit": 2}],
    "pbt": [
        COPYING,
        COPYING | {"selection": "tournament", "explore": "step"},
        COPYING | {"synchronous": False, "retrain": 2},
    ],
    "phases": [{"phases": 4, "configurations": 6}],
    "random": [
        {},
        {"stop": "median", "rungs": 3, "peers": 2},
        {"stop": "learned", "rungs": 3, "curves": "none", "references": 6, "threshold": 0.5},
    ],
    "rising_bandits": [{"inner": "random", "window": 1.0}, {"inner": "asha", "window": 2.0}],
    "schedule": [{}],
    "sobol": [{"seed": 3}],
    "successive_halving": [{}],
    "tpe": [{"startup": 4}],
    "transfer": [{}],
}
SPACES = ("types", "conditional", "constrained")


def rounded(value):
    """Round floats to six digits: processors differ in the last ones."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


def proposals(name, options, space_name, several=False):
    """Return six letters of a hash for each of 40 proposals, with failures on the way."""
    space = space_of(space_name)
    warm = space.sample(seeds.generator(1, "noise"))
    kit = type("Kit", (OptimizerConformance,), {"optimizer": name, "options": options})()
    factory = kit.factory(space, n_objectives=1 + several, initial=(warm,))
    objective = two_scores(space) if several else score(space)
    history = json.loads(simulate(factory, objective, 40, lag=3, fail=some_fail).fingerprint())
    made = [event["body"] for event in history if event["event"] == "proposed"]
    texts = [json.dumps(rounded(one["proposed"]), sort_keys=True) for one in made]
    return " ".join(hashlib.sha256(text.encode()).hexdigest()[:6] for text in texts)


def options_of(name):
    """By name, of a stopping rule with the rule."""
    return {
        " of ".join([option.name, *re.findall("with stop: ([a-z]+)", option.help)]): [
            option.default,
            option.allowed,
        ]
        for option in describe(name).options
    }


def cases():
    for name, choices in CASES.items():
        for options in choices:
            yield from ((name, options, space, False) for space in SPACES)
        if describe(name).multi_objective:
            yield name, choices[0], "types", True


def key(name, options, space, several):
    return f"{name} {json.dumps(options)} {space}" + " of two objectives" * several


@pytest.fixture(scope="module")
def recorded():
    return json.loads(FILE.read_text())


@pytest.mark.parametrize("case", [*cases()], ids=lambda case: key(*case))
def test_proposals_are_those_recorded(case, recorded):
    if recorded["versions"] != {package: version(package) for package in PACKAGES}:
        pytest.skip(f"recorded with {recorded['versions']}")
    assert proposals(*case) == recorded["proposals"][key(*case)]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_options_and_their_defaults_are_those_recorded(name, recorded):
    """A default that changes gives another table to every study that leaves the option out."""
    assert options_of(name) == recorded["options"][name]


if __name__ == "__main__":
    content = {
        "versions": {package: version(package) for package in PACKAGES},
        "options": {name: options_of(name) for name in sorted(REGISTRY)},
        "proposals": {key(*case): proposals(*case) for case in cases()},
    }
    FILE.write_text(json.dumps(content, indent=1) + "\n")
