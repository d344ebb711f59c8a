"""The rule `stop: learned`: what it stops, what it states, and which learning curves it begins with."""

import sys
from pathlib import Path

import numpy as np
import pytest
from driving import generation, tell
from scipy.stats import norm

from autorl.core.types import Config, InputError
from autorl.optimizers import learned_stop, make
from autorl.optimizers._beat_probability import BeatProbability, Reference, Standing
from autorl.optimizers.base import Surroundings
from autorl.optimizers.priors.sources import Gathered
from autorl.optimizers.priors.study_curves import SourceCurves, StudyCurves, reference_curves
from autorl.optimizers.priors.table import (
    FEWEST,
    Curves,
    Prior,
    TaskTable,
    load_prior,
    prior_of,
    save_prior,
)
from autorl.optimizers.registry import find_stopping
from autorl.space.canonical import sha256
from autorl.statistics import parse_reduction
from autorl.testing.optimizers import OptimizerConformance, space_of
from autorl.testing.simulation import simulate

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import learned_stopping

SPACE = space_of("continuous")
RUNGS = 4
NOISE = 0.4
ARLBENCH = Path(__file__).parents[3] / "shared/data/arlbench"


def drawn_curves(rng, count, low=0.0, scale=1.0):
    """Curves that rise to a normal level in a straight line, with noise that shrinks to nothing."""
    level = rng.normal(size=(count, 1))
    part = np.arange(1, RUNGS + 1) / RUNGS
    noise = NOISE * np.sqrt(1 - part) * rng.normal(size=(count, RUNGS))
    return low + scale * (3 + part * level + noise)


def true_chance(score, rung, best):
    """The probability that the level of such a curve is above `best`, given its score at a rung."""
    part = (rung + 1) / RUNGS
    variance = NOISE**2 * (1 - part)
    mean = part * (score - 3) / (part**2 + variance)
    return float(norm.sf((best - 3 - mean) / np.sqrt(variance / (part**2 + variance))))


def references(count=6, size=96, seed=0):
    rng = np.random.default_rng(seed)
    return [
        Reference(drawn_curves(rng, size, low=7 * task, scale=task + 1), weight=1 / count)
        for task in range(count)
    ]


def table(values, source="tests/kit/task", environment="Task-v0"):
    """A task with curves of shape (configurations, seeds, points), at equal distances."""
    points = values.shape[-1]
    curves = Curves(tuple((place + 1) / points for place in range(points)), values)
    configs = tuple(Config({"x": row / FEWEST}) for row in range(FEWEST))
    scores = np.linspace(0, 1, FEWEST)
    return TaskTable(source, "kit", environment, configs, scores, curves=curves)


def study_curves(*tables, n_seeds=1, reduction="last", environment=None, named=True):
    return reference_curves(
        Gathered([[entry] for entry in tables]),
        environment,
        n_seeds=n_seeds,
        reduction=parse_reduction(reduction),
        named=named,
    )


def unit_curves(count=48, seed=0, points=RUNGS):
    """Single-seed curves between 0 and 1 that hardly cross."""
    rng = np.random.default_rng(seed)
    level = rng.random((count, 1, 1))
    part = np.arange(1, points + 1) / points
    return np.clip(level * part + 0.02 * rng.random((count, 1, points)), 0, 1)


DATA = study_curves(table(unit_curves())).to_dict()
OPTIONS = {"stop": "learned", "rungs": RUNGS, "grace": 0, "peers": 2, "curve_data": DATA}


class TestLearnedStop(OptimizerConformance):
    optimizer = "random"
    options = {**OPTIONS, "rungs": 3, "threshold": 0.3, "check": 3}  # noqa: RUF012


class TestLearnedStopWithoutCurves(OptimizerConformance):
    optimizer = "random"
    options = {"stop": "learned", "rungs": 3, "curves": "none", "references": 6, "threshold": 0.5}  # noqa: RUF012


# -- what is stated ----------------------------------------------------------------------------


@pytest.mark.parametrize("rung", [1, 2])
def test_probabilities_of_curves_with_a_known_truth_are_calibrated(rung):
    """In bins of what is stated, the mean truth is within half the bin's width.

    A nearly sure win is understated: such a run is never stopped.
    """
    model = BeatProbability(references())
    rng = np.random.default_rng(1)
    stated, true = [], []
    for _ in range(300):
        curves = drawn_curves(rng, 24)
        peers, run = curves[:-1], curves[-1]
        standing = Standing.of(peers[:, 0], float(peers[:, -1].max()), float(peers.max()))
        own = np.empty((0, RUNGS))
        stated.append(model(run[: rung + 1], standing, len(peers), own))
        true.append(true_chance(run[rung], rung, standing.best))
    stated, true = np.array(stated), np.array(true)
    for low, high in [(0, 0.02), (0.02, 0.1), (0.1, 0.3)]:
        inside = (stated >= low) & (stated < high)
        assert inside.sum() >= 10
        assert stated[inside].mean() == pytest.approx(true[inside].mean(), abs=(high - low) / 2)
    assert stated.mean() == pytest.approx(true.mean(), abs=0.02)
    assert true[stated >= 0.3].mean() > 0.5
    low = stated < 0.05
    assert true[low].mean() < 0.05
    assert np.corrcoef(stated, true)[0, 1] > 0.8


# -- what is stopped ---------------------------------------------------------------------------


def played(scores, **options):
    """Runs of constant growth, `scores` their final ones: the rungs each was trained to."""
    optimizer = make("random", SPACE, horizon=100, budget=64, **{**OPTIONS, **options})
    roots = []
    while len(roots) < len(scores) or optimizer._ready:
        number = len(optimizer.history)
        (answer,) = generation(optimizer, 1)
        roots += [number] * (answer.resume_from is None)
        final = scores[roots.index(answer.meta.get("root", number))]
        tell(optimizer, number, final * answer.until / 100)
    return [len(optimizer._runs[root].scores) for root in roots], optimizer


@pytest.mark.parametrize(
    ("last", "options", "rungs"),
    [
        (1.2, {"check": 0}, [4, 4, *[1] * 10, 4]),  # at first fewer than two have ended
        (0.2, {"check": 3}, [4, 4, *[1, 1, 4] * 3, 1, 1]),  # every third goes on to its end
        (0.2, {"threshold": 0.0}, [4] * 13),
        (0.2, {"check": 1}, [4] * 13),
        (0.2, {"peers": 13}, [4] * 13),
        (0.2, {"grace": 4}, [4] * 13),
        (0.2, {"references": 1000}, [4] * 13),
    ],
)
def test_runs_far_behind_are_stopped_and_a_better_one_is_not(last, options, rungs):
    assert played([1.0, 0.9, *[0.2] * 10, last], **options)[0] == rungs


def test_without_curves_nothing_is_stopped_before_the_study_has_them_itself():
    alone = {"curves": "none", "curve_data": None, "references": 8, "check": 0}
    scores = [1.0, 0.8, 0.6, 0.9, 0.7, 0.5, 0.3, 0.4] + [0.01] * 24
    trained, optimizer = played(scores, **alone)
    assert trained[:8] == [4] * 8
    assert 1 in trained[8:]
    (caution,) = optimizer.cautions()
    assert caution.endswith("so no run is stopped before 8 of the study are complete")
    assert "no reference curves: curves is none" in optimizer.outline()
    (never,) = make("random", SPACE, horizon=100, budget=4, **{**OPTIONS, **alone}).cautions()
    assert "no run will be stopped" in never
    assert make("random", SPACE, horizon=100, budget=4, **OPTIONS).cautions() == ()


def test_of_those_stopped_no_more_would_have_been_the_best_than_is_stated():
    """Random curves; 0.05 is allowed, and 3 standard errors of what was stopped."""
    rng = np.random.default_rng(3)
    values = np.clip(drawn_curves(rng, 256, scale=1 / 6), 0, 1)[:, None]
    data = study_curves(table(values), table(values[::-1] ** 2, "tests/kit/other")).to_dict()
    beaten = []
    for repeat in range(4):
        curves = drawn_curves(np.random.default_rng([4, repeat]), 40)

        def objective(number, proposal, curves=curves):
            root = proposal.meta.get("root", number)
            return curves[root % 40, proposal.meta["rung"]]

        options = {**OPTIONS, "curve_data": data, "check": 0, "grace": 1}
        made = simulate(lambda: make("random", SPACE, horizon=100, **options), objective, 100)  # noqa: B023
        proposals = made.proposals
        continued = {proposal.resume_from for proposal in proposals}
        best = -np.inf
        for scored in made.scored:
            proposal = proposals[scored.proposal]
            root = proposal.meta.get("root", scored.proposal)
            if proposal.until == 100:
                best = max(best, scored.values[0])
            elif scored.proposal not in continued and scored.proposal < len(proposals) - 1:
                beaten.append(curves[root % 40, -1] > best)
    assert len(beaten) >= 40
    assert np.mean(beaten) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / len(beaten))


@pytest.mark.slow
@pytest.mark.skipif(not ARLBENCH.is_dir(), reason="needs the ARLBench files beside the checkout")
def test_on_recorded_runs_few_are_wrongly_stopped_and_much_is_saved():
    """PPO of ARLBench, each task judged by the curves of the others."""
    tasks = learned_stopping.read(ARLBENCH, "ppo")
    tally = learned_stopping.Tally()
    for task in tasks[:4]:
        rules = learned_stopping.rules([other for other in tasks if other is not task])
        for repeat in range(2):
            learned_stopping.play(task, 32, repeat, rules["learned 0.05"], tally)
    assert len(tally.stated) >= 60
    assert np.mean(tally.stated) < 0.05
    allowed = 3 * np.sqrt(0.05 * 0.95 / len(tally.stated))
    assert np.mean(tally.beaten) <= 0.05 + allowed
    assert np.mean(tally.steps) < 0.85


# -- which curves ------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_seeds", "rows"), [(1, 27), (2, 9), (3, 9), (5, 9)])
def test_scores_are_made_of_as_many_seeds_as_those_of_the_study(n_seeds, rows):
    values = np.random.default_rng(0).random((9, 3, 4))
    mean, best = (
        study_curves(table(values), n_seeds=n_seeds, reduction=reduction).sources[0].scores
        for reduction in ("last", "best")
    )
    assert len(mean) == len(best) == rows
    if n_seeds > 2:
        assert mean == pytest.approx(values.mean(axis=1))
        assert best == pytest.approx(np.maximum.accumulate(values, axis=-1).mean(axis=1))


def test_a_rung_has_the_last_evaluation_by_then():
    source = SourceCurves("a", "b", (0.3, 0.6, 1.0), np.array([[1.0, 2.0, 3.0]]))
    scores, first = source.at([0.2, 0.4, 0.6, 0.8, 1.0])
    assert scores.tolist() == [[1.0, 1.0, 2.0, 2.0, 3.0]]
    assert first == 1


def test_tasks_of_the_family_weigh_most():
    own, other = (table(unit_curves(), name, name) for name in ("CartPole-v1", "ALE/Pong-v5"))
    made = study_curves(own, other, environment="Acrobot-v1")
    assert [source.weight for source in made.sources] == pytest.approx([10 / 11, 1 / 11], abs=1e-5)
    assert made.line().startswith("96 reference curves of 2 tasks, hash ")


def test_a_prior_file_has_curves_and_one_without_is_skipped_or_refused(tmp_path):
    with_curves, without = table(unit_curves()), table(unit_curves(), "tests/kit/bare")
    object.__setattr__(without, "curves", None)
    prior = Prior("kit", (with_curves, without))
    save_prior(prior, tmp_path / "kit.json")
    loaded = load_prior(tmp_path / "kit.json")
    assert loaded.sha256 == prior.sha256
    assert loaded.tasks[0].curves.values == pytest.approx(with_curves.curves.values, abs=1e-5)
    made = study_curves(*loaded.tasks, named=False)
    assert made.skipped == ("tests/kit/bare: it has no complete learning curves",)
    with pytest.raises(InputError, match="no complete learning curves") as caught:
        study_curves(*loaded.tasks)
    assert caught.value.key == "optimizer.curves"


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [1, 2]},
        {"fractions": [0.5, 0.4, 0.7, 1.0]},
        {"fractions": [0.5, 1.0]},
        {"values": "AAAA"},
    ],
)
def test_curves_that_are_none_are_refused(change):
    content = Prior("kit", (table(unit_curves()),)).to_dict()
    assert prior_of(content).tasks[0].curves.values.shape == (48, 1, 4)
    content["tasks"][0]["curves"] |= change
    del content["sha256"]
    with pytest.raises(InputError, match=r"no prior: |no learning curves: "):
        prior_of(content | {"sha256": sha256(content)})


@pytest.mark.parametrize(
    ("options", "key", "message"),
    [
        ({"curves": "all"}, "optimizer.curves", "expected auto, none or a list"),
        ({"curves": []}, "optimizer.curves", "got none"),
        ({"curves": [3]}, "optimizer.curves", "got 3"),
        ({"curves": ["no/such/landscape"]}, "optimizer.curves", "no landscape, study or prior"),
        ({"threshold": 0.6}, "optimizer.threshold", r"in \[0.0, 0.5\], got 0.6"),
        ({"peers": 0}, "optimizer.peers", "int >= 1, got 0"),
        ({"curve_data": {**DATA, "version": 2}}, "optimizer.curve_data.version", "version 2"),
        ({"curve_data": {**DATA, "skipped": ["x"]}}, "optimizer.curve_data.sha256", "was changed"),
        ({"against": "scores"}, "optimizer.against", "unknown option"),
    ],
)
def test_wrong_options_are_explained(options, key, message):
    given = {"stop": "learned", **options}
    with pytest.raises(InputError, match=message) as caught:
        make("random", SPACE, horizon=100, **given)
    assert caught.value.key == key


# -- what is said of it ------------------------------------------------------------------------------


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
    twenty = study_curves(table(np.random.default_rng(0).random((20, 1, 4)))).to_dict()
    options = {**OPTIONS, "curve_data": twenty, "references": references}
    cautions = make("random", SPACE, horizon=100, budget=budget, **options).cautions()
    start = "stop: learned has 20 learning curves to begin with, so "
    assert cautions == (() if consequence is None else (start + consequence,))


# -- which sources are read ---------------------------------------------------------------------------


AROUND = Surroundings(SPACE, ("ppo",), "Task-v0", "a/landscape", Path("here"), 3, "best")


@pytest.mark.parametrize(
    ("options", "value", "named"),
    [
        ({}, "auto", False),
        ({"prior": "auto"}, "auto", False),
        ({"prior": "studies"}, "studies", False),
        ({"prior": ["a", 3, "b"]}, ["a", "b"], False),
        ({"prior": "else"}, "auto", False),
        ({"curves": ["c"], "prior": ["a"]}, ["c"], True),
        ({"curves": ["c"], "prior": "none"}, ["c"], True),
    ],
)
def test_which_sources_are_read_and_how_scores_are_made_of_them(monkeypatch, options, value, named):
    seen = []

    def made(gathered, environment, **how):
        seen.append((gathered, environment, how))
        return StudyCurves()

    monkeypatch.setattr(learned_stop, "gather", lambda *asked: seen.append(asked) or Gathered())
    monkeypatch.setattr(learned_stop, "reference_curves", made)
    resolved = find_stopping("learned").resolved_options(options, AROUND)
    how = {"n_seeds": 3, "reduction": parse_reduction("best"), "named": named}
    assert seen == [(value, AROUND, "optimizer.curves"), (Gathered(), "Task-v0", how)]
    assert resolved == {**options, "curve_data": StudyCurves().to_dict()}


def test_named_curves_that_were_not_looked_up_are_refused():
    inner = make("random", SPACE, horizon=100)
    rule = find_stopping("learned")
    with pytest.raises(InputError, match="looked up when a study file is read") as caught:
        rule(inner.problem, rule.Options(curves=["a"]), inner)
    assert caught.value.key == "optimizer.curve_data"
