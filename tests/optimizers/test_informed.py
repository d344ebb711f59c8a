"""`Proposal.informed` against an oracle: the same searches with scores told as they are and with their sign turned.

Whatever differs between the two was decided by scores, and says so; what says that it was not is the same in both.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any

import pytest

from autorl.core.types import Proposal
from autorl.optimizers import find, make, names
from autorl.optimizers.model_share import model_share
from autorl.space import load_space
from autorl.study.spec import load_spec
from autorl.testing.optimizers import SPACES
from autorl.testing.simulation import simulate

RUNS = 16
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "rising_bandits": {"window": 1.0, "inner": "random"},
    "phases": {"configurations": 4},
    "grid": {"levels": 3},
}
NEEDS = {"smac": "smac"}
STRICT = (
    "tpe",
    "gp",
    "smac",
    "cmaes",
    "nsga2",
    "random",
    "sobol",
    "grid",
    "schedule",
)  # full runs, one after another
MODELS = (
    "tpe",
    "gp",
    "smac",
    "cmaes",
    "nsga2",
    "de",
    "dehb",
    "bohb",
    "cost_aware",
    "pbt",
    "pb2",
    "rising_bandits",
)


def default_lag(name: str, runs: int) -> int:
    """The proposals in flight of a study of so many runs that says nothing about them."""
    study = {
        "trainer": "ask-tell",
        "space": SPACES["continuous"],
        "optimizer": name,
        "fidelity": {"steps": 100},
    }
    return load_spec(study | {"budget": {"configurations": runs}}).parallelism


def search(
    name: str, sign: float, space_name: str = "continuous", options: Mapping[str, Any] = {}
) -> list[Proposal]:
    """The proposals of a search that `RUNS` full runs pay for; scores rise or fall with the proposal's number."""
    space, lag = load_space(SPACES[space_name]), default_lag(name, RUNS)
    changeable = frozenset(space.names) if find(name).partial else frozenset()

    def factory() -> Any:
        return make(name, space, horizon=100, budget=RUNS, changeable=changeable, **options)

    def score(number: int, proposal: Proposal) -> float:
        return sign * number

    most = 12 * RUNS if find(name).partial or "stop" in options else RUNS
    made = simulate(factory, score, most, lag=lag).proposals
    spent, within = 0, []
    for proposal in made:
        start = 0 if proposal.resume_from is None else made[proposal.resume_from].until
        spent += proposal.until - start
        if spent > RUNS * 100:
            break
        within.append(proposal)
    return within


def essence(proposal: Proposal) -> tuple[Any, ...]:
    return proposal.config, proposal.until, proposal.resume_from


def check(one: list[Proposal], other: list[Proposal], *, strict: bool) -> int:
    """Assert that every difference is owned up to; how many there are."""
    differ = [
        (mine, theirs)
        for mine, theirs in zip(one, other, strict=False)
        if essence(mine) != essence(theirs)
    ]
    for mine, theirs in differ:
        owned = (mine.informed, theirs.informed)
        assert all(owned) if strict else any(owned), (mine, theirs)
    return len(differ)


COSTLY = ("smac", "cost_aware")  # 4 to 8 CPU-seconds a search


def installed(name: str, slow: tuple[str, ...]) -> Any:
    """Name an optimizer, skipped where its package is missing."""
    missing = name in NEEDS and importlib.util.find_spec(NEEDS[name]) is None
    marks = [pytest.mark.skip(reason=f"{NEEDS[name]} is not installed")] if missing else []
    return pytest.param(name, marks=[*marks, *[pytest.mark.slow] * (name in slow)])


@pytest.mark.parametrize("space", ["continuous", "conditional"])
@pytest.mark.parametrize("name", [installed(name, COSTLY) for name in names()])
def test_what_scores_changed_says_so(name: str, space: str) -> None:
    options = OPTIONS.get(name, {})
    one, other = (search(name, sign, space, options) for sign in (1.0, -1.0))
    differ = check(one, other, strict=name in STRICT)
    informed = max(sum(proposal.informed for proposal in made) for made in (one, other))
    assert (differ > 0) == (informed > 0)
    if name in ("tpe", "gp") and space == "continuous":
        assert differ == informed  # and no proposal says so that did not depend on scores


@pytest.mark.parametrize("name", ["tpe", "random"])
def test_a_run_goes_on_by_scores_where_it_was_compared(name: str) -> None:
    options = {"stop": "median", "peers": 2, "rungs": 4}
    one, other = (search(name, sign, options=options) for sign in (1.0, -1.0))
    assert check(one, other, strict=False) > 0
    going_on = [proposal for proposal in one if proposal.resume_from is not None]
    assert {proposal.informed for proposal in going_on} == {
        True,
        False,
    }  # some before there were peers


def test_the_arms_of_rising_bandits_have_a_start_up_each() -> None:
    made = search("rising_bandits", 1.0, "conditional")
    for kind in "ab":
        own = [proposal for proposal in made if proposal.config["kind"] == kind]
        assert not any(proposal.informed for proposal in own[:2])
        assert any(proposal.informed for proposal in own)


@pytest.mark.parametrize("name", [installed(name, ("smac",)) for name in MODELS])
def test_half_of_a_small_study_is_the_models(name: str) -> None:
    """At 16 configurations and the defaults; 12 of `tpe` were 0 with 8 in flight and a start-up of 10 scores."""
    share = model_share(search(name, 1.0))
    assert share.share >= 0.5, share


def test_promotions_are_no_new_configurations() -> None:
    share = model_share(search("hyperband", 1.0))
    assert share.modelled == 0
    assert share.continued > 0


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_members_that_go_on_unchanged_are_not_informed_before_anybody_copied(name: str) -> None:
    made = search(name, 1.0)
    early = [proposal for proposal in made if proposal.until <= 50]
    assert len(early) > 16
    assert not any(proposal.informed for proposal in early)
    copies = [proposal for proposal in made if proposal.provisional]
    assert copies
    assert all(proposal.informed for proposal in copies)
