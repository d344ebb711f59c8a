"""The test phase and the result: held-out seeds, frozen candidates, intervals, gaps. DESIGN, contract 8."""

import re
from dataclasses import replace

import numpy as np
import pytest
from scripted import Scripted, Shuffled, Toy, chain, full, listed, run, study_with, toy_spec
from study_support import small_spec
from test_lineage import waiting_for

from autorl.core.types import Exploit, InputError, Proposed, Status
from autorl.report.text import result_text
from autorl.study import Study

NOISE = {100: 0.3, 101: -0.2, 102: 0.05, 103: 0.0, 104: -0.1, 105: 0.2}


def noisy(config, seed, step):
    return config["x"] + NOISE.get(seed, 0.0)


def held_out(monkeypatch, xs, trainer=None, n_test=3, **changes):
    optimizer = Scripted(listed(*map(full, xs)))
    changes = {
        "seeds": {"tuning": 1, "test": n_test},
        "test": {"top": 3},
        "parallelism": 1,
    } | changes
    study = study_with(monkeypatch, toy_spec(**changes), optimizer, trainer or Toy(curve=noisy))
    return run(study), study, optimizer


def candidates_of(result):
    """List the tested, in order."""
    return ", ".join(f"{entry.label} {entry.proposal}" for entry in result.entries)


def test_no_test_segment_starts_before_the_search_is_settled(monkeypatch):
    events = []

    class Watching(Scripted):
        def observe(self, event):
            super().observe(event)
            events.append("told" if not isinstance(event, Proposed) else "proposed")

    trainer = Toy(curve=noisy, before=lambda segment: events.append(segment.role))
    optimizer = Watching(lambda number, seen: full(number / 20))
    spec = toy_spec(seeds={"tuning": 1, "test": 3})
    study = study_with(monkeypatch, spec, optimizer, trainer)
    study.run(executor=Shuffled(study.load, np.random.default_rng(0)))
    first = events.index("test")
    assert set(events[first:]) == {"test"}
    assert events[:first].count("told") == 8


def test_optimizers_never_see_a_test_outcome_nor_a_test_seed(monkeypatch):
    trainer = Toy(curve=lambda config, seed, step: config["x"] if seed < 100 else 1e6)
    result, _, optimizer = held_out(monkeypatch, [0.2, 0.9, 0.4], trainer)
    assert len(optimizer.seen) == 6
    assert all(event.values[0] < 1 and event.n_seeds == 1 for event in optimizer.told.values())
    assert result.test.value == 1e6


def test_test_scores_never_re_rank(monkeypatch):
    """The second and third are far better on test seeds; the incumbent stays."""
    trainer = Toy(
        curve=lambda config, seed, step: config["x"] if seed < 100 else 10 - 10 * config["x"]
    )
    result, study, _ = held_out(monkeypatch, [0.2, 0.9, 0.4], trainer)
    assert candidates_of(result) == "incumbent 1, rank 2 2, rank 3 0"
    assert result.incumbent.proposal == 1
    values = [entry.test.value for entry in result.entries[:3]]
    assert values[0] < values[1] < values[2]
    reopened = study.result()
    assert reopened.incumbent.proposal == 1


def test_the_default_configuration_is_tested_beside_the_incumbent(monkeypatch):
    result, _, _ = held_out(monkeypatch, [0.5, 0.9, 0.4], n_test=6)
    assert [(entry.label, entry.proposal) for entry in result.entries][:2] == [
        ("incumbent", 1),
        ("default", 0),
    ]
    assert result.default.config == {"x": 0.5, "y": 0.5}
    paired = [result.test.seeds[seed] - result.default.test.seeds[seed] for seed in range(100, 106)]
    assert paired == pytest.approx([0.4] * 6)
    assert (result.difference.low, result.difference.high) == pytest.approx((0.4, 0.4)), (
        "what seeds share cancels"
    )


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_value_interval_and_gap_are_those_of_a_recomputation(monkeypatch, direction):
    result, _, _ = held_out(
        monkeypatch, [0.2, 0.9, 0.4], n_test=6, objective={"direction": direction}
    )
    x = 0.9 if direction == "maximize" else 0.2
    scores = np.array([x + NOISE[seed] for seed in range(100, 106)])
    assert result.tuning == pytest.approx(x)
    assert result.test.seeds == pytest.approx(dict(zip(range(100, 106), scores, strict=True)))
    assert result.test.value == pytest.approx(scores.mean())
    gap = x - scores.mean() if direction == "maximize" else scores.mean() - x
    assert result.gap == pytest.approx(gap)
    # every resample of six, by brute force over 6^6 means and interquartile means
    resamples = np.sort(scores[np.indices((6,) * 6).reshape(6, -1)], axis=0)
    of_means = np.quantile(resamples.mean(axis=0), [0.025, 0.975])
    interval = result.test.interval
    assert (interval.low, interval.high) == pytest.approx(of_means, abs=0.01)
    assert min(scores) <= interval.low < interval.high <= max(scores)
    low, high = np.quantile(resamples[1:5].mean(axis=0), [0.025, 0.975])
    assert result.test.iqm == pytest.approx(np.sort(scores)[1:5].mean())
    assert result.test.iqm_interval.low == pytest.approx(low, abs=0.01)
    assert result.test.iqm_interval.high == pytest.approx(high, abs=0.01)
    assert result.test.interval.low < result.test.value < result.test.interval.high


def test_best_is_read_at_the_step_chosen_on_tuning_seeds(monkeypatch):
    """Tuning peaks at step 50; test seeds peak at 100, where nobody may look."""
    curves = {0: {25: 0.1, 50: 0.9, 75: 0.3, 100: 0.2}, 1: {25: 0.1, 50: 0.7, 75: 0.8, 100: 0.1}}
    test = {25: 0.2, 50: 0.5, 75: 0.6, 100: 9.0}
    trainer = Toy(curve=lambda config, seed, step: curves.get(seed, test)[step])
    changes = {
        "objective": {"reduce": "best"},
        "seeds": {"tuning": 2, "test": 2},
        "fidelity": {"steps": 100, "evaluations": 4},
    }
    result, study, _ = held_out(monkeypatch, [0.2], trainer, **changes)
    assert result.tuning == pytest.approx((0.9 + 0.8) / 2), "best of each seed"
    assert result.test.seeds == {100: 0.5, 101: 0.5}, (
        "aggregate over tuning seeds is best at step 50"
    )
    assert study.store.query("SELECT until, best FROM reductions WHERE run_id = 5000") == [
        (50, 0.5)
    ], "and ends there"


def test_best_of_a_second_objective_is_not_a_maximum_over_test_noise(monkeypatch):
    def curve(config, seed, step):
        speed = {50: 0.9, 100: 0.3}[step] if seed < 100 else {50: 0.4, 100: 7.0}[step]
        return {"eval_return": config["x"], "speed": speed}

    objective = [{"metric": "eval_return"}, {"metric": "speed", "reduce": "best"}]
    _, study, _ = held_out(monkeypatch, [0.2], Toy(curve=curve), objective=objective)
    assert study.store.query("SELECT value FROM tests WHERE objective = 1") == [(0.4,)] * 3


@pytest.mark.parametrize("kind", [Status.CRASH, Status.DIVERGED])
def test_a_tuning_seed_that_failed_does_not_choose_the_step(monkeypatch, kind):
    trainer = Toy(
        curve=lambda config, seed, step: (
            {50: 0.9, 100: 0.2}[step] if seed < 100 else {50: 0.4, 100: 0.8}[step]
        ),
        before=lambda segment: kind if segment.seed == 1 else None,
    )
    result, _, _ = held_out(
        monkeypatch, [0.2], trainer, objective={"reduce": "best"}, seeds={"tuning": 2, "test": 2}
    )
    assert result.test.value == 0.4


def test_a_failed_test_seed_is_in_no_number_and_is_counted(monkeypatch):
    trainer = Toy(
        curve=noisy,
        before=lambda segment: Status.CRASH if segment.id in ("1.101", "2.102") else None,
    )
    result, _, _ = held_out(monkeypatch, [0.2, 0.9, 0.4], trainer)
    assert result.test.seeds == pytest.approx({100: 1.2, 102: 0.95})
    assert (result.test.failed, result.test.runs, result.entries[0].failures) == (
        1,
        3,
        {101: "crash"},
    )
    assert result.caveats[-2].startswith(
        "1 of 3 test runs of the incumbent failed: the test score is of the 2 that"
    )
    assert result.caveats[-1] == "1 test run of the other candidates failed"


@pytest.mark.parametrize("penalty", ["worst", -3.0])
def test_without_a_test_run_that_succeeded_there_is_no_test_score(monkeypatch, penalty):
    trainer = Toy(
        curve=noisy, before=lambda segment: Status.DIVERGED if segment.role == "test" else None
    )
    result, _, _ = held_out(monkeypatch, [0.2, 0.9], trainer, failures={"penalty": penalty})
    assert (result.test, result.gap, result.difference) == (None, None, None)
    assert result.problem == "no usable result: all 3 test runs of the incumbent failed (diverged)"
    assert "all 3 test runs of the incumbent failed: there is no test score" in result.caveats


@pytest.mark.parametrize("reduce", ["last", "best"])
def test_a_default_that_failed_at_first_is_tested_all_the_same(monkeypatch, reduce):
    trainer = Toy(
        curve=noisy, before=lambda segment: Status.CRASH if segment.config["x"] == 0.5 else None
    )
    result, _, _ = held_out(monkeypatch, [0.5, 0.9, 0.4], trainer, objective={"reduce": reduce})
    assert [entry.label for entry in result.entries] == ["incumbent", "default", "rank 2"]
    assert np.isnan(result.default.tuning), (
        "it has no tuning score: there was nothing to derive a penalty from"
    )
    assert (result.default.test, len(result.default.failures)) == (None, 3)
    assert result.difference is None


def test_the_difference_to_the_default_is_of_the_statistic_that_is_printed(monkeypatch):
    """One broken test seed in eight moves both means and neither interquartile mean."""
    trainer = Toy(curve=lambda config, seed, step: -1000.0 if seed == 103 else config["x"])
    result, _, _ = held_out(monkeypatch, [0.5, 0.9], trainer, n_test=8)
    assert (result.test.iqm, result.default.test.iqm) == pytest.approx((0.9, 0.5))
    gain = result.test.iqm - result.default.test.iqm
    assert result.difference.low <= gain <= result.difference.high
    text = result_text(result)
    assert re.search(r"difference \(IQM\) +0\.4 ", text)
    assert re.search(r"test score \(IQM\) +0\.9 +93 % \[", text)
    assert re.search(r"test score \(mean\) .* 83 % \[", text)
    assert re.search(r"difference \(IQM\) +0\.4 +88 % \[", text)
    assert "95 %" not in text
    assert text.index("test score (IQM)") < text.index("test score (mean)")
    assert result.gap == pytest.approx(result.tuning - np.mean(list(result.test.seeds.values())))


@pytest.mark.parametrize(("top", "labels"), [(0, 2), (1, 2), (2, 3), (4, 4), (5, 5), (99, 8)])
def test_top_counts_the_incumbent(monkeypatch, top, labels):
    """The default is tested besides; top: 1 is the incumbent alone."""
    xs = [0.5, 0.9, 0.4, 0.3, 0.8, 0.7, 0.1, 0.2]
    result, _, _ = held_out(monkeypatch, xs, test={"top": top}, seeds={"tuning": 1, "test": 1})
    assert len(result.entries) == labels


# -- adding to a finished study ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("reopen", [False, True])
def test_added_test_seeds_keep_the_old_ones(tmp_path, reopen):
    study = Study.create(small_spec(), tmp_path / "study")
    before = run(study)
    study.add_test_seeds(6)
    if reopen:
        study.close()
        study = Study.open(tmp_path / "study")
    after = run(study)
    assert set(after.test.seeds) == set(range(100, 106))
    assert {seed: after.test.seeds[seed] for seed in before.test.seeds} == dict(before.test.seeds)
    assert [(e.label, e.proposal) for e in after.entries] == [
        (e.label, e.proposal) for e in before.entries
    ]
    assert after.incumbent == before.incumbent
    study.add_test_seeds(7)
    assert len(run(study).test.seeds) == 7
    study.close()
    study = Study.open(tmp_path / "study")
    assert len(run(study).test.seeds) == 7
    with pytest.raises(InputError, match="has 7 test seeds already"):
        study.add_test_seeds(7)


def test_added_test_seeds_avoid_the_tuning_seeds():
    study = Study.in_memory(small_spec(seeds={"tuning": [0, 103], "test": [101, 102]}))
    run(study)
    study.add_test_seeds(4)
    assert study.spec.plan.test == (101, 102, 104, 105)
    assert len(run(study).test.seeds) == 4


def test_the_result_of_an_extended_study_is_that_of_its_new_incumbent(monkeypatch, tmp_path):
    """The old incumbent was tested too; its score must not stand for the new one's."""
    xs = [0.5, 0.6, 0.55, 0.9]
    optimizer = lambda: Scripted(lambda number, seen: full(xs[number]))  # noqa: E731
    spec = toy_spec(
        seeds={"tuning": 1, "test": 3}, test={"top": 2}, budget={"runs": 3}, parallelism=1
    )
    study = study_with(monkeypatch, spec, optimizer, Toy(curve=noisy), tmp_path / "study")
    before = run(study)
    assert candidates_of(before) == "incumbent 1, default 0, rank 2 2"
    study.extend(1)
    middle = study.result()
    assert middle.incumbent.proposal == 1
    assert middle.test == before.test
    after = run(study)
    assert after.incumbent.proposal == 3
    assert candidates_of(after) == "incumbent 3, default 0, rank 2 1"
    assert after.test.value == pytest.approx(0.9 + np.mean([0.3, -0.2, 0.05]))
    assert after.gap == pytest.approx(-0.05)
    assert study.store.query("SELECT COUNT(*) FROM runs WHERE seed_role = 'test'") == [(12,)], (
        "nothing trained twice"
    )
    study.close()
    study = study_with(monkeypatch, spec, optimizer, Toy(curve=noisy), tmp_path / "study")
    assert study.result() == after


def test_candidates_that_share_a_lineage_share_its_test_segments(monkeypatch):
    script = [
        chain(0.9, 50, member="a"),
        chain(0.9, 100, 0, "a"),
        chain(0.9, 100, Exploit(0, "b"), "b", y=0.4),
    ]
    trainer = Toy(curve=lambda config, seed, step: config["x"] - config["y"])
    optimizer = Scripted(waiting_for(script), keeps=lambda seen: range(3))
    spec = toy_spec(seeds={"tuning": 1, "test": 1}, test={"top": 3})
    result = run(study_with(monkeypatch, spec, optimizer, trainer))
    ids = [segment.id for segment in trainer.segments if segment.role == "test"]
    assert sorted(ids) == ["0.100", "1.100", "2.100"]
    assert candidates_of(result) == "incumbent 2, rank 2 1"


def test_while_an_extended_search_has_an_untested_incumbent_there_is_no_test_score(monkeypatch):
    xs = [0.5, 0.9]
    optimizer = Scripted(lambda number, seen: full(xs[number]))
    spec = toy_spec(seeds={"tuning": 1, "test": 3}, budget={"runs": 1}, parallelism=1)
    trainer = Toy(curve=noisy)
    study = study_with(monkeypatch, spec, optimizer, trainer)
    run(study)
    study.extend(1)
    (segment,) = study.driver.advance()
    outcome = trainer.train(segment, lambda report: None)
    study.record(replace(outcome, fence=segment.fence))
    study.driver.settle()
    result = study.result()
    assert result.incumbent.proposal == 1
    assert (result.test, result.gap) == (None, None)
