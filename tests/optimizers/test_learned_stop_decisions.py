"""`stop: learned` decision by decision: what is known, what is asked, who is stopped and who is checked."""

from pathlib import Path

import numpy as np
import pytest

from autorl.core.types import Config, Failed, InputError, Proposed, Scored, Status
from autorl.optimizers import find, learned_stop, make
from autorl.optimizers.base import Surroundings
from autorl.optimizers.priors.curves import Curves
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_curves import StudyCurves, reference_curves
from autorl.optimizers.priors.table import FEWEST, TaskTable
from autorl.optimizers.registry import find_stopping
from autorl.statistics import parse_reduction
from autorl.testing.optimizers import space_of

SPACE = space_of("continuous")
RULE = find_stopping("learned")
ENDS = (25, 50, 75, 100)


def table(count, source="tests/kit", environment="Task-v0"):
    values = np.random.default_rng(0).random((count, 1, 4))
    configs = tuple(Config({"x": row / FEWEST}) for row in range(FEWEST))
    curves = Curves((0.25, 0.5, 0.75, 1.0), values)
    scores = np.linspace(0, 1, FEWEST)
    return TaskTable(source, "kit", environment, configs, scores, curves=curves)


def data(count):
    made = reference_curves(
        Gathered([[table(count)]]), None, n_seeds=1, reduction=parse_reduction("last"), named=True
    )
    return made.to_dict()


DATA = data(20)


def rule(**options):
    chosen = {"rungs": 4, "grace": 0, "peers": 1, "curve_data": DATA, "check": 0, **options}
    return make(
        "random", SPACE, horizon=100, budget=chosen.pop("budget", 50), stop="learned", **chosen
    )


def run(optimizer, *scores, fail=False, reached=None):
    """Train a new run to as many rungs as there are scores, and say its first number."""
    root = len(optimizer.history)
    for place, value in enumerate(scores):
        number = len(optimizer.history)
        proposal = optimizer.ask(np.random.default_rng(number))
        if place:
            assert proposal.meta["root"] == root, "stopped"
        optimizer.observe(Proposed(number, proposal))
        last = place == len(scores) - 1
        if fail and last:
            optimizer.observe(Failed(number, Status.CRASH, ()))
        else:
            at = reached if last and reached is not None else proposal.until
            optimizer.observe(Scored(number, (value,), reached=at))
    return root


def stopped(optimizer, root):
    return optimizer._runs[root].ended


class Asked:
    """Probabilities that are given, one after another; the last one stays."""

    def __init__(self, optimizer, *chances):
        self.calls = []
        self._chances = list(chances)
        optimizer._probability = self

    def __call__(self, scores, standing, ended, own):
        self.calls.append((scores.tolist(), standing, ended, own.tolist()))
        return self._chances.pop(0) if len(self._chances) > 1 else self._chances[0]


# -- when something is stopped ---------------------------------------------------------------------


@pytest.mark.parametrize(("chance", "stops"), [(0.049, True), (0.05, False), (0.5, False)])
def test_a_run_stops_below_the_threshold(chance, stops):
    optimizer = rule(threshold=0.05)
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    Asked(optimizer, chance)
    root = run(optimizer, 0.5)
    assert stopped(optimizer, root) is stops
    assert optimizer._runs[root].compared


def test_a_rung_of_grace_is_not_asked_of():
    optimizer = rule(grace=2)
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    asked = Asked(optimizer, 0.0)
    root = run(optimizer, 0.1, 0.2, 0.3)
    assert [scores for scores, *_ in asked.calls] == [[0.1, 0.2, 0.3]]
    assert stopped(optimizer, root)
    assert [record.proposal.informed for record in optimizer.history][-2:] == [False, False]


def test_so_many_runs_must_have_ended_and_one_with_a_final_score():
    optimizer = rule(peers=3)
    asked = Asked(optimizer, 0.5)
    run(optimizer, 0.0, fail=True)
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    assert asked.calls == []
    run(optimizer, 0.0, fail=True)  # the third that ended
    run(optimizer, 0.3, 0.3, 0.3, 0.3)
    assert [ended for _, _, ended, _ in asked.calls] == [3, 3, 3]
    failed = rule(peers=1)
    asked = Asked(failed, 0.5)
    for _ in range(4):
        run(failed, 0.5, 0.5, fail=True)
    assert asked.calls == [], "nobody has a final score that could be beaten"


@pytest.mark.parametrize(("references", "calls"), [(21, 3), (22, 0), (20, 3)])
def test_curves_of_sources_and_the_study_are_counted_together(references, calls):
    """Twenty of the sources, one of the study."""
    optimizer = rule(references=references)
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    asked = Asked(optimizer, 0.5)
    root = run(optimizer, 0.5, 0.5, 0.5, 0.5)
    assert len(asked.calls) == calls
    assert optimizer._runs[root].compared is (calls > 0)
    assert (root in optimizer._chances) is (calls > 0)


def test_where_no_curve_says_anything_a_run_goes_on_uncompared():
    optimizer = rule()
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    Asked(optimizer, 0.9, None)
    root = run(optimizer, 0.5, 0.5)
    assert not optimizer._runs[root].compared
    proposal = optimizer.ask(np.random.default_rng(0))
    assert proposal.origin == "continue to rung 2"
    assert root not in optimizer._chances
    assert proposal.informed, "it went on by scores before"


def test_why_a_run_goes_on_is_said():
    optimizer = rule(check=1)
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    Asked(optimizer, 0.256, 0.01)
    run(optimizer, 0.5, 0.5)
    origin = "continue to rung 1: beats the incumbent with probability 0.26"
    assert optimizer.history[5].proposal.origin == origin
    proposal = optimizer.ask(np.random.default_rng(0))
    assert proposal.origin == (
        "continue to rung 2: beats the incumbent with probability 0.01, a check of the rule"
    )


# -- checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "ended"),
    [
        (0, [True] * 6),
        (1, [False] * 6),
        (2, [True, False] * 3),
        (3, [True, True, False] * 2),
        (6, [True] * 5 + [False]),
        (7, [True] * 6),
    ],
)
def test_every_so_many_th_that_would_be_stopped_is_checked(check, ended):
    optimizer = rule(check=check)
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    asked = Asked(optimizer, 0.0)
    found = []
    for _ in range(6):
        root = run(optimizer, 0.1)
        found.append(stopped(optimizer, root))
        if not found[-1]:
            before = len(asked.calls)
            for rung in (1, 2, 3):
                number = len(optimizer.history)
                optimizer.observe(Proposed(number, optimizer.ask(np.random.default_rng(number))))
                optimizer.observe(Scored(number, (0.1,), reached=ENDS[rung]))
            assert len(asked.calls) == before, "one that is checked is not asked of again"
    assert found == ended


def test_who_would_not_be_stopped_is_not_counted_for_a_check():
    optimizer = rule(check=2)
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    Asked(optimizer, 0.0, 0.9, 0.9, 0.9, 0.0)
    assert stopped(optimizer, run(optimizer, 0.1))
    run(optimizer, 0.9, 0.9, 0.9, 0.9)
    root = run(optimizer, 0.1)
    assert not stopped(optimizer, root)
    assert optimizer._checked == {root}


# -- what the probability is asked with --------------------------------------------------------------


def test_a_run_is_judged_by_what_ended_runs_had():
    optimizer = rule()
    Asked(optimizer, 0.5)
    run(optimizer, 0.25, 0.75, 2.5, 1.0)  # the largest score of all, no final one
    run(optimizer, 0.5, 1.5, 1.0, 1.25)
    run(optimizer, 0.0, 9.0, fail=True)  # ended, with the score of one rung
    asked = Asked(optimizer, 0.5)
    run(optimizer, 0.125, 0.5)
    (scores, standing, ended, own), (later, *_) = asked.calls
    assert (scores, later, ended) == ([0.125], [0.125, 0.5], 3)
    assert standing.low == pytest.approx(np.quantile([0.25, 0.5, 0.0], 0.1))
    assert (standing.best, standing.high) == (1.25, 2.5)
    assert own == [], "a model of own runs needs six"


def test_the_largest_score_is_no_less_than_the_best(monkeypatch):
    """The incumbent is none of the latest 256: here of the latest two."""
    monkeypatch.setattr(learned_stop, "MOST_RUNS", 2)
    optimizer = rule()
    Asked(optimizer, 0.5)
    for value in (8.0, 1.0, 2.0):
        run(optimizer, value, value, value, value)
    asked = Asked(optimizer, 0.5)
    run(optimizer, 0.5)
    standing = asked.calls[0][1]
    assert (standing.best, standing.high) == (8.0, 8.0)
    assert standing.low == pytest.approx(1.1)


def test_scores_are_scaled_by_the_latest_256_that_have_any():
    optimizer = rule()
    Asked(optimizer, 0.5)
    root = run(optimizer, -99.0, -99.0, -99.0, 1.0)
    ended = optimizer._ended[root]
    for number in range(256):
        other = type(ended)(1000 + number, 1000 + number, scores={0: float(number)}, ended=True)
        optimizer._ended[other.root] = other
        empty = type(ended)(5000 + number, 5000 + number, ended=True)
        optimizer._ended[empty.root] = empty
    asked = Asked(optimizer, 0.5)
    run(optimizer, 0.5)
    _, standing, count, _ = asked.calls[0]
    assert (standing.low, standing.high) == (25.5, 255.0), "without the first one"
    assert count == 513


def test_own_complete_runs_are_curves_and_one_that_stopped_itself_keeps_its_last_score():
    optimizer = rule(check=1)
    Asked(optimizer, 0.5)
    for number in range(4):
        run(optimizer, *(number + 0.25 * rung for rung in range(4)))
    run(optimizer, 7.0, 8.0, reached=49)
    run(optimizer, 0.0, 0.0, fail=True)
    asked = Asked(optimizer, 0.5)
    run(optimizer, 0.5, 0.5, 0.5, 0.5)
    assert asked.calls[0][3] == []
    run(optimizer, 0.5)
    own = asked.calls[-1][3]
    assert own == [
        *([number + 0.25 * rung for rung in range(4)] for number in range(4)),
        [7.0, 8.0, 8.0, 8.0],
        [0.5] * 4,
    ]
    assert asked.calls[-1][1].best == 8.0


def test_stopped_runs_have_no_curve():
    optimizer = rule()
    run(optimizer, 1.0, 1.0, 1.0, 1.0)
    Asked(optimizer, 0.0)
    root = run(optimizer, 0.5)
    assert list(optimizer._ended) == [0, root]
    assert list(optimizer._complete) == [0]


def test_references_are_read_at_the_rungs_of_the_study():
    optimizer = rule()
    (reference,) = optimizer._probability.references
    (source,) = optimizer.curves.sources
    assert reference.scores == pytest.approx(source.scores)
    assert (reference.first, reference.weight) == (0, 1.0)
    finer = make(
        "random", SPACE, horizon=100, stop="learned", rungs=10, curve_data=DATA
    )._probability.references[0]
    assert finer.first == 2, "nothing is known before a quarter of a run"
    assert finer.scores[:, 2] == pytest.approx(source.scores[:, 0])
    assert finer.scores[:, 9] == pytest.approx(source.scores[:, 3])


# -- what is said of it ------------------------------------------------------------------------------


def test_the_outline_says_when_a_run_stops():
    optimizer = rule(threshold=0.1, peers=7, references=30)
    lines = optimizer.outline()
    assert lines[0] == (
        "a run stops if it beats the incumbent with a probability below 0.1, after 7 ended runs "
        "and 30 learning curves"
    )
    assert lines[1:] == optimizer.curves.lines()[:1]
    without = rule(curves="none", curve_data=None).outline()
    assert without[1:] == ("no reference curves: curves is none",)
    nothing_found = rule(curve_data=None).outline()
    assert nothing_found[1:] == StudyCurves().lines()


@pytest.mark.parametrize(
    ("references", "budget", "consequence"),
    [
        (20, 50, None),
        (21, 50, "no run is stopped before 1 of the study are complete"),
        (30, 11, "no run is stopped before 10 of the study are complete"),
        (30, 10, "no run will be stopped: 10 of the study had to be complete first"),
    ],
)
def test_that_curves_are_missing_is_said(references, budget, consequence):
    cautions = rule(references=references, budget=budget).cautions()
    start = "stop: learned has 20 learning curves to begin with, so "
    assert cautions == (() if consequence is None else (start + consequence,))


# -- which sources are read ---------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch):
    """Record each look-up and its key; every look-up brings one table."""
    calls = []

    def automatic(folder, algorithms, replays, *, studies):
        calls.append(("studies" if studies else "automatic", folder, algorithms, replays))
        return Gathered([[table(6)]])

    def named(names, folder, algorithms):
        calls.append((names, folder, algorithms))
        return Gathered([[table(6)]])

    monkeypatch.setattr(learned_stop, "automatic_tables", automatic)
    monkeypatch.setattr(learned_stop, "named_tables", named)
    return calls


AROUND = Surroundings(SPACE, ("ppo",), "Task-v0", "a/landscape", Path("here"))


@pytest.mark.parametrize(
    "options",
    [
        {"curves": "none"},
        {"curve_data": DATA},
        {"curves": ["a"], "curve_data": DATA},
        {"prior": "none"},
        {"curves": "auto", "prior": "none"},
    ],
)
def test_what_needs_no_look_up_stays_as_it_is(read, options):
    assert RULE.resolved_options(options, AROUND) is options
    assert read == []


@pytest.mark.parametrize(
    ("options", "calls"),
    [
        ({}, [("automatic", Path("here"), ("ppo",), "a/landscape")]),
        ({"prior": "auto"}, [("automatic", Path("here"), ("ppo",), "a/landscape")]),
        ({"prior": "studies"}, [("studies", Path("here"), ("ppo",), "a/landscape")]),
        ({"prior": ["a", 3, "b"]}, [(["a", "b"], Path("here"), ("ppo",))]),
        ({"prior": "else"}, [("automatic", Path("here"), ("ppo",), "a/landscape")]),
        ({"curves": ["c"], "prior": ["a"]}, [(["c"], Path("here"), ("ppo",))]),
        ({"curves": ["c"], "prior": "none"}, [(["c"], Path("here"), ("ppo",))]),
    ],
)
def test_which_sources_are_read(read, options, calls):
    resolved = RULE.resolved_options(options, AROUND)
    assert read == calls
    assert {name: resolved[name] for name in options} == options
    assert resolved["curve_data"]["sources"][0]["rows"] == 6


@pytest.mark.parametrize(
    ("options", "refused"), [({"curves": ["c"]}, True), ({"prior": ["c"]}, False)]
)
def test_a_source_without_curves_is_refused_where_curves_name_it(monkeypatch, options, refused):
    bare = table(6)
    object.__setattr__(bare, "curves", None)
    monkeypatch.setattr(learned_stop, "named_tables", lambda *arguments: Gathered([[bare]]))
    if refused:
        with pytest.raises(InputError, match="no complete learning curves") as caught:
            RULE.resolved_options(options, AROUND)
        assert caught.value.key == "optimizer.curves"
    else:
        skipped = RULE.resolved_options(options, AROUND)["curve_data"]["skipped"]
        assert skipped == ["tests/kit: it has no complete learning curves"]


def test_curves_are_of_as_many_seeds_and_reduced_as_scores_of_the_study(monkeypatch):
    seen = {}

    def made(gathered, environment, **how):
        seen.update(how, environment=environment)
        return StudyCurves()

    monkeypatch.setattr(learned_stop, "automatic_tables", lambda *arguments, **options: Gathered())
    monkeypatch.setattr(learned_stop, "reference_curves", made)
    around = Surroundings(SPACE, environment="Task-v0", n_seeds=3, reduction="best")
    RULE.resolved_options({}, around)
    assert seen == {
        "environment": "Task-v0",
        "n_seeds": 3,
        "reduction": parse_reduction("best"),
        "named": False,
    }


def test_a_source_that_cannot_be_read_is_an_error_of_the_option(tmp_path):
    file = tmp_path / "prior.json"
    file.write_text("[1")
    with pytest.raises(InputError, match="not JSON") as caught:
        RULE.resolved_options({"curves": [str(file)]}, Surroundings(SPACE))
    assert (caught.value.key, caught.value.file) == ("optimizer.curves", str(file))


def test_named_curves_that_were_not_looked_up_are_refused():
    inner = make("random", SPACE, horizon=100)
    with pytest.raises(InputError, match="looked up when a study file is read") as caught:
        RULE(inner.problem, RULE.Options(curves=["a"]), inner)
    assert caught.value.key == "optimizer.curve_data"


def test_the_rule_is_cut_as_it_says():
    assert RULE.cuts(10, RULE.Options(rungs=3)) == (4, 7, 10)
    assert RULE.resolved == ("curve_data",)
    assert find("random").resolved == ()
