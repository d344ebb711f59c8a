"""The order of observation: by predicted ends, whatever the real durations are, and blind asks that do not wait."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import tables
from small_studies import OF_MIXED
from study_support import RACING, StoppedError, small_spec, stop_after, table
from test_kill import ADAPTIVE, ASHA

from autorl import trainers
from autorl.core.types import InputError, Status, StudyError
from autorl.executors.worker import run_segment
from autorl.study import Study
from autorl.study.open_proposals import Order, predicted_cost
from autorl.study.spec import load_spec
from autorl.testing import VirtualWorkers
from autorl.trainers import Trainer, TrainerInfo

# -- the order itself --------------------------------------------------------------------------------------------------


def observed(costs, parallelism):
    """The proposals in the order of observation, each before the ask that stands beside it."""
    order = Order(parallelism)
    seen = []
    for number, cost in enumerate(costs):
        while (due := order.next(demanded=False)) is not None:
            seen.append((due, number))
            order.observed(due)
        order.begin(number, cost)
    while (due := order.next(demanded=True)) is not None:
        seen.append((due, len(costs)))
        order.observed(due)
    return seen


def test_outcomes_are_observed_in_the_order_of_predicted_ends():
    """Two virtual workers: 0 ends at 5, 1 at 1, 2 (from 1) at 3, 3 (from 3) at 4, then 0."""
    assert observed([5.0, 1.0, 2.0, 1.0, 9.0], 2) == [(1, 2), (2, 3), (3, 4), (0, 5), (4, 5)]


@settings(max_examples=50)
@given(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=12), st.integers(1, 4), st.data())
def test_asks_ahead_change_nothing_but_when_outcomes_are_observed(costs, parallelism, data):
    """The order is the same if any outcome that is due stays due for as long as it likes."""
    order = Order(parallelism)
    seen = []
    for number, cost in enumerate(costs):
        for _ in range(data.draw(st.integers(0, 3))):
            if (due := order.next(demanded=False)) is not None:
                seen.append(due)
                order.observed(due)
        order.begin(number, cost)
    while (due := order.next(demanded=True)) is not None:
        seen.append(due)
        order.observed(due)
    assert seen == [number for number, _ in observed(costs, parallelism)]


def test_an_outcome_that_was_not_waited_for_is_observed_from_the_front_alone():
    """As a resumed study reads it in the log, before it has asked what is next."""
    order = Order(2)
    order.begin(0, 2.0)
    order.begin(1, 1.0)
    with pytest.raises(ValueError, match="proposal 0 is observed out of its turn"):
        order.observed(0)
    assert (order.observed(1), order.now) == (2, 1.0)
    assert order.observed(0) == 2
    with pytest.raises(ValueError, match="out of its turn"):
        order.observed(0)


# -- the table does not depend on durations ----------------------------------------------------------------------------


class LengthyInfo(TrainerInfo):
    """Predicts what a configuration's `rate` says."""

    def relative_cost(self, trainer, environment, config, start, until):
        return (until - start) * config["rate"]


def durations(kind):
    """Durations that a clock of predicted costs does not expect."""
    rng = np.random.default_rng(1)
    drawn = [float(length) for length in rng.lognormal(size=999)]

    @functools.cache
    def duration(segment):
        place = int(segment.split(".")[0])
        return {
            "slowest first": 1.0 / (1 + place),
            "fastest first": 1.0 + place,
            "random": drawn[place],
            "straggler": 1000.0 if segment == "1.0" else 1.0 + drawn[place],
        }[kind]

    return lambda segment: duration(str(segment.id))


def run_virtually(study, kind, workers=3):
    load = study.load
    train = functools.partial(run_segment, load, report=lambda report: None)
    executor = VirtualWorkers(train, workers, durations(kind))
    study.run(executor=executor)
    return executor


STUDIES = {
    "random": {"budget": {"runs": 24}},
    "tpe": {"optimizer": {"name": "tpe", "startup": 4}, "budget": {"runs": 24}},
    "asha": {"optimizer": {"name": "asha", "rungs": 3}, "budget": {"runs": 9}},
    "pbt": {"optimizer": {"name": "pbt", "generations": 3, "population": 4}, "budget": {"runs": 8}},
    "racing": {**RACING, "budget": {"runs": 16}},
    "failing": {"trainer": {"crash": 0.3}, "budget": {"runs": 24}},
    "stop": {"optimizer": {"name": "random", "stop": "median", "rungs": 3}},
    "pb2": {"optimizer": {"name": "pb2", "generations": 3, "population": 4}, "budget": {"runs": 8}},
    "adaptive": ADAPTIVE,
    "adaptive asha": {**ADAPTIVE, **ASHA},
}


@pytest.mark.parametrize("name", STUDIES)
def test_the_table_is_the_same_whatever_the_durations_are(monkeypatch, name):
    monkeypatch.setattr(trainers.families.SyntheticInfo, "relative_cost", LengthyInfo.relative_cost)
    recorded = []
    ends = []
    for kind, workers in (
        ("slowest first", 3),
        ("fastest first", 3),
        ("random", 2),
        ("straggler", 7),
    ):
        study = Study.in_memory(small_spec(**STUDIES[name]))
        ends.append(tuple(run_virtually(study, kind, workers).order))
        recorded.append(tables(study))
        study.close()
    assert len(set(ends)) > 1, "every order of ends was the same"
    assert all(record == recorded[0] for record in recorded)
    assert len(recorded[0]["proposals"]) >= 5


# -- blind asks --------------------------------------------------------------------------------------------------------


def test_a_straggler_keeps_no_worker_idle_where_no_ask_reads_an_outcome():
    study = Study.in_memory(small_spec(budget={"runs": 60}, parallelism=3))
    executor = run_virtually(study, "straggler", workers=6)
    tuning = [segment for segment in executor.order if segment.seed < 100]
    assert tuning[-1] == "1.0", "all other proposals were trained meanwhile"
    assert executor.spans[59][0] < 1000


def test_a_search_that_fails_from_the_start_ends_with_the_same_table():
    """The third failure ends it, however many proposals could have been made blindly meanwhile."""
    recorded = []
    for kind in ("slowest first", "straggler"):
        study = Study.in_memory(small_spec(trainer={"crash": 1.0}, budget={"runs": 60}))
        with pytest.raises(StudyError, match="first 3 proposals failed"):
            run_virtually(study, kind, workers=6)
        recorded.append(tables(study)["proposals"])
        study.close()
    assert recorded[0] == recorded[1]
    assert len(recorded[0]) == 5, "3 in flight, and one more for each of the first two failures"


@pytest.mark.parametrize("events", [9, 25, 44, 60])
def test_a_kill_among_blind_asks_changes_nothing(tmp_path, events):
    changes = {"optimizer": {"name": "tpe", "startup": 8}, "budget": {"runs": 32}}
    whole = Study.create(small_spec(**changes), tmp_path / "whole")
    run_virtually(whole, "random", workers=8)
    whole.close()
    killed = Study.create(small_spec(**changes), tmp_path / "killed")
    stop_after(killed, events)
    with pytest.raises(StoppedError):
        run_virtually(killed, "straggler", workers=8)
    killed.close()
    again = Study.open(tmp_path / "killed")
    run_virtually(again, "fastest first", workers=2)
    again.close()
    assert table(tmp_path / "killed") == table(tmp_path / "whole")


# -- backup copies -----------------------------------------------------------------------------------------------------


def test_a_backup_copy_ends_a_straggler_early_and_changes_nothing(tmp_path):
    """The first attempt at segment 1.0 takes 1000 s, a second one 1 s."""

    def duration(segment):
        return 1000.0 if segment.id == "1.0" and segment.fence.attempt == 0 else 1.0

    ended = []
    for copies in (False, True):
        folder = tmp_path / str(copies)
        study = Study.create(small_spec(budget={"runs": 24}), folder)
        train = functools.partial(run_segment, study.load, report=lambda report: None)
        executor = VirtualWorkers(train, 3, duration, copies=copies)
        study.run(executor=executor)
        study.close()
        ended.append(executor.now)
        assert not list(folder.rglob(".tmp-*")), "what the loser wrote is gone"
    assert ended[0] > 1000
    assert ended[1] < 100
    assert table(tmp_path / "True") == table(tmp_path / "False")


# -- predicted costs ---------------------------------------------------------------------------------------------------


class Negative(TrainerInfo):
    def relative_cost(self, trainer, environment, config, start, until):
        return -1.0


class Bad(Trainer):
    """Predicts nonsense."""

    info = Negative()

    def train(self, segment, report):
        raise AssertionError(Status.CRASH)


def test_a_cost_that_is_no_positive_number_is_refused_before_the_study():
    with pytest.raises(InputError, match=r"relative_cost of trainer .*Bad' is -1.0"):
        Study.in_memory(load_spec({**OF_MIXED, "trainer": f"{__name__}:Bad"}))


def cost(trainer, space, **values):
    spec = load_spec(
        {
            "trainer": trainer,
            "environment": "CartPole-v1",
            "space": space,
            "fidelity": {"steps": 100_000},
            "budget": {"runs": 8},
        }
    )
    config = spec.search_space.config(values)
    return predicted_cost(spec, config, 0, 100_000)


@pytest.mark.parametrize(
    ("trainer", "cheap", "dear"),
    [
        ("population/ppo", {"n_epochs": 1}, {"n_epochs": 10}),
        ("population/ppo", {"net_width": 32}, {"net_width": 256}),
        ("population/dqn", {"train_freq": 64}, {"train_freq": 1}),
        ("sb3/ppo", {"net_arch": [64]}, {"net_arch": [256, 256]}),
        ("sb3/ppo", {"batch_size": 512}, {"batch_size": 16}),
        ("sb3/dqn", {"train_freq": 256}, {"train_freq": 1}),
    ],
)
def test_what_trains_more_is_predicted_to_cost_more(trainer, cheap, dear):
    assert 1.5 * cost(trainer, trainer, **cheap) < cost(trainer, trainer, **dear)
