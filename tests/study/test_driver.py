"""The order in which an optimizer is asked and told: DESIGN, contract 2."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, Shuffled, Toy, chain, full, listed, run, study_with, toy_spec

from autorl.core import seeds
from autorl.core.types import Proposed, Scored, Status, StudyError, Wait


def expected_order(n, lag):
    """Outcome i - lag immediately before ask i, the rest in proposal order after the last ask."""
    order = []
    for number in range(n):
        if number >= lag:
            order.append(("told", number - lag))
        order += [("ask", number), ("propose", number)]
    return order + [("told", number) for number in range(max(0, n - lag), n)]


@settings(max_examples=20)
@given(
    n=st.integers(1, 9),
    lag=st.integers(1, 10),
    order=st.integers(0, 10**6),
    kind=st.sampled_from(Status),
)
def test_outcome_i_minus_p_is_observed_immediately_before_ask_i(n, lag, order, kind):
    def before(segment):
        failing = segment.id == "1.0" and kind is not Status.LOST
        return kind if failing else None

    with pytest.MonkeyPatch.context() as patch:
        optimizer = Scripted(lambda number, seen: full(number / 10))
        spec = toy_spec(parallelism=lag, budget={"runs": n})
        study = study_with(patch, spec, optimizer, Toy(before=before))
        study.run(executor=Shuffled(study.load, np.random.default_rng(order)))
    assert optimizer.order == expected_order(n, lag)


def test_the_generator_depends_on_study_seed_and_proposal_number_alone(monkeypatch):
    optimizer = Scripted(lambda number, seen: full(0.1 * number))
    run(study_with(monkeypatch, toy_spec(seed=7), optimizer))
    draws = {
        number: draw for _, number, draw in [call for call in optimizer.calls if call[0] == "ask"]
    }
    assert draws == {number: seeds.generator(7, "ask", number).random() for number in range(8)}


def test_wait_observes_in_proposal_order_and_repeats_the_generator(monkeypatch):
    def generations(number, seen):
        """A generation of four is told entirely before the next begins."""
        told = sum(isinstance(event, Scored) for event in seen)
        return Wait() if told < number // 4 * 4 else full(number / 10)

    optimizer = Scripted(generations)
    study = study_with(monkeypatch, toy_spec(parallelism=4), optimizer)
    study.run(executor=Shuffled(study.load, np.random.default_rng(3)))
    first = [(what, number) for number in range(4) for what in ("ask", "propose")]
    waits = [
        ("told", 0),
        ("ask", 4),
        ("told", 1),
        ("ask", 4),
        ("told", 2),
        ("ask", 4),
        ("told", 3),
        ("ask", 4),
    ]
    assert optimizer.order[: len(first) + len(waits)] == first + waits
    repeated = {
        draw for what, number, *draw in map(list, optimizer.calls) for draw in draw if number == 4
    }
    assert repeated == {seeds.generator(0, "ask", 4).random()}
    assert sorted(optimizer.told) == list(range(8))


def test_wait_with_nothing_pending_is_an_error(monkeypatch):
    study = study_with(monkeypatch, toy_spec(), Scripted(lambda number, seen: Wait()))
    with pytest.raises(StudyError, match="waits although nothing is running"):
        run(study)


def test_asynchronous_mode_observes_outcomes_as_they_come(monkeypatch):
    optimizer = Scripted(lambda number, seen: full(number / 10))
    study = study_with(monkeypatch, toy_spec(asynchronous=True, parallelism=4), optimizer)
    executor = Shuffled(study.load, np.random.default_rng(5))
    result = study.run(executor=executor)
    arrived = [int(name.split(".")[0]) for name in executor.handed_out]
    assert arrived != sorted(arrived), "the shuffle shuffled nothing"
    assert [number for what, number in optimizer.order if what == "told"] == arrived
    asked_before_any_outcome = optimizer.order[: optimizer.order.index(("told", arrived[0]))]
    assert [number for what, number in asked_before_any_outcome if what == "propose"] == [
        0,
        1,
        2,
        3,
    ]
    assert "asynchronous: true" in "; ".join(result.caveats)


def test_a_proposal_waits_for_all_of_its_seeds(monkeypatch):
    optimizer = Scripted(lambda number, seen: full(number / 10))
    trainer = Toy(curve=lambda config, seed, step: config["x"] + seed)
    study = study_with(
        monkeypatch,
        toy_spec(seeds={"tuning": [3, 5], "test": 0}, budget={"runs": 6}),
        optimizer,
        trainer,
    )
    study.run(executor=Shuffled(study.load, np.random.default_rng(1)))
    assert [optimizer.told[number].n_seeds for number in range(3)] == [2, 2, 2]
    assert optimizer.told[2].values == pytest.approx((0.2 + 4,))
    assert optimizer.told[2].spread == pytest.approx((np.std([3, 5], ddof=1),))
    assert {segment.seed for segment in trainer.segments} == {3, 5}


def test_a_cut_run_has_the_curve_of_an_uncut_one(monkeypatch):
    """Rungs that are no evaluation points are evaluated to decide there, and are no part of the curve."""
    objective = {"reduce": "auc"}
    whole = study_with(
        monkeypatch, toy_spec(objective=objective), Scripted(listed(full(0.8))), Toy()
    )
    whole.run()
    optimizer = Scripted(listed(chain(0.8, 30), chain(0.8, 70, 0), chain(0.8, 100, 1)))
    cut = study_with(monkeypatch, toy_spec(objective=objective, parallelism=1), optimizer, Toy())
    cut.run()
    assert cut.store.query("SELECT step FROM reports ORDER BY step") == [
        (30,),
        (50,),
        (70,),
        (100,),
    ]
    assert cut.driver.ranking[2].values == whole.driver.ranking[0].values


def test_proposals_are_durable_before_the_optimizer_sees_them_and_before_work_starts(monkeypatch):
    stored = []

    def before(segment):
        assert int(segment.id.split(".")[0]) in [
            row[0] for row in study.store.query("SELECT proposal FROM proposals")
        ]

    class Checking(Scripted):
        def observe(self, event):
            if isinstance(event, Proposed):
                stored.append(
                    study.store.query("SELECT COUNT(*) FROM proposals")[0][0] == event.id + 1
                )
            super().observe(event)

    study = study_with(
        monkeypatch, toy_spec(), Checking(lambda number, seen: full(0.5)), Toy(before=before)
    )
    run(study)
    assert stored == [True] * 8
