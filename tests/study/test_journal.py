"""A running study and one that is resumed change by the same calls: after every event both are equal."""

import pytest
from scripted import Toy
from study_support import RACING, small_spec
from test_kill import ADAPTIVE, ASHA

from autorl.core.types import Status, StudyError
from autorl.executors import InProcess
from autorl.store.events import BudgetExtended
from autorl.study import Study
from autorl.study.driver import Driver
from autorl.study.journal import Journal
from autorl.study.setup import make_optimizer
from autorl.study.test_phase import KeptModels, TestPhase

PBT = {
    "optimizer": {"name": "pbt", "population": 3, "generations": 3, "ready": 0.0, "retrain": 1},
    "budget": {"runs": 8},
    "seeds": {"tuning": 1, "test": 1},
}
MODELS = {
    "objective": {"reduce": "best"},
    "fidelity": {"steps": 100, "evaluations": 4},
    "seeds": {"tuning": 1, "test": 0},
    "budget": {"runs": 3},
}
FAILING = {"trainer": {"crash": 0.3}, "budget": {"runs": 10}}


def parts(spec, store, load):
    """A journal and all that follows it, as a study makes them."""
    journal = Journal(store)
    driver = Driver(spec, journal, make_optimizer(spec, load), lambda: 0.0)
    return journal, driver, TestPhase(spec, journal, driver), KeptModels(spec, journal, driver)


def resumed(study):
    """The parts of a study as its log leaves them."""
    journal, *state = parts(study.spec, study.store, study.load)
    for recorded in study.store.events():
        journal.apply(recorded.event)
    return state


def state_of(driver, tests, models):
    """Everything that follows from events; which seeds a race adds is decided anew."""
    work = driver.work
    return {
        "proposals": dict(driver.lineage.proposals),
        "runs": {number: driver.lineage.run(number) for number in driver.lineage.proposals},
        "ranking": [(number, driver.ranking[number]) for number in driver.ranking.ordered()],
        "queue": [(item.proposal, item.upgrade) for item in driver.queue],
        "order": upcoming(driver),
        "trace": driver.steps_at_outcome,
        "seeds": driver._seeds_of,
        "confirmed": confirmed(driver),
        "charged": vars(driver.charges) | {"_lineage": None},
        "crashed": driver.refunds._crashed,
        "asked": (
            driver._next.number,
            driver.budget.begun,
            driver._failures,
            driver.budget.extra_runs,
        ),
        "outcomes": work._outcomes,
        "saved": (work.saved, work._sizes.total()),
        "lost": work.attempts._losses,
        "tested": (tests.named, tests.latest, tests._tested),
        "models": models.candidates,
        "optimizer": list(driver._optimizer.history),
    }


def confirmed(driver):
    """Whom an adaptive study has confirmed."""
    if driver.budget.confirmation is None:
        return None
    state = vars(driver.budget.confirmation)
    return [state[name] for name in ("under_way", "_begun", "_confirmed", "_last")]


def upcoming(driver):
    """The open proposals as they will be observed, if nothing more is asked.

    An outcome that is due already is a decision that is made anew.
    """
    order = driver._order
    due = [number for number, _ in order._due if not driver.lineage[number].baseline]
    return due + [entry.proposal for entry in sorted(order._open)]


def compared(study, seen):
    """Compare a study with its log from now on, after every event that is applied."""

    def compare(event):
        seen.append(event.kind)
        if study.driver.ended and study.driver.budget.confirmation is not None:
            return  # the baseline of an adaptive study is begun anew
        live = state_of(study.driver, study.tests, study.models)
        again = state_of(*resumed(study))
        # The baseline of the driver is in the queue by a decision that is made anew.
        baselines = [item.proposal for item in study.driver.queue if item.baseline]
        live["queue"] = [entry for entry in live["queue"] if entry[0] not in baselines]
        assert live == again, f"after event {len(seen)}, {event.kind}"

    study.journal.subscribe(compare)


@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        (
            {**RACING, "budget": {"runs": 9}},
            {"proposed", "outcome", "scored", "frozen", "tested", "collected"},
        ),
        (PBT, {"proposed", "scored", "collected"}),
        (FAILING, {"failed"}),
        (ADAPTIVE, {"confirm"}),
        ({**ADAPTIVE, **ASHA}, {"confirm"}),
    ],
    ids=["racing", "pbt", "failing", "adaptive", "adaptive asha"],
)
def test_live_state_is_resumed_state_after_every_event(tmp_path, changes, kinds):
    study = Study.create(small_spec(**changes), tmp_path / "study")
    seen = []
    compared(study, seen)
    study.run()
    if changes is not PBT:
        study.extend(8)
        study.run()
        kinds = kinds | {"budget"}
    study.close()
    assert kinds | {"session", "finished"} <= set(seen)


def test_named_models_leave_a_study_as_its_log_does(tmp_path):
    toy = Toy(curve=lambda config, seed, step: config["x"] - abs(step - 50) / 100)
    study = Study.create(small_spec(**MODELS), tmp_path / "study", lambda spec: toy)
    seen = []
    compared(study, seen)
    study.run(executor=InProcess(study.load))
    study.extend(1)
    study.run(executor=InProcess(study.load))
    study.close()
    assert {"models", "budget"} <= set(seen)


def test_added_test_seeds_leave_a_study_as_its_log_does(tmp_path):
    study = Study.create(small_spec(), tmp_path / "study")
    study.run()
    study.add_test_seeds(5)
    seen = []
    compared(study, seen)
    study.run()
    assert "tested" in seen


def test_a_lost_worker_and_a_hopeless_search_leave_a_study_as_its_log_does(tmp_path):
    seen = []
    lost = iter([Status.LOST])
    toy = Toy(before=lambda segment: next(lost, Status.CRASH))
    study = Study.create(
        small_spec(failures={"retries": 1}, budget={"runs": 12}, parallelism=1),
        tmp_path / "study",
        lambda spec: toy,
    )
    compared(study, seen)
    with pytest.raises(StudyError, match="the first 3 proposals failed"):
        study.run(executor=InProcess(study.load))
    study.journal.record(BudgetExtended(0.0, (0, 2)))  # as with other code
    assert {"attempt", "failed", "gave_up", "budget"} <= set(seen)
    assert study.driver.budget.begun == 1
