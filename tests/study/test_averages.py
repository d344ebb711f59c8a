"""Members that go on from the mean of two agents: what they begin with, and a second checkpoint that is gone."""

import shutil

import pytest
from scripted import Scripted, Toy, chain, run, study_with, toy_spec
from study_support import checkpoint_of, small_spec
from test_damaged_checkpoints import flip
from test_lineage import waiting_for

from autorl.core.types import Exploit, Status
from autorl.executors.worker import run_segment
from autorl.study import Study
from autorl.study.results.replay import retrain, same
from autorl.trainers import saved_state

PBT = {"name": "pbt", "population": 4, "generations": 4, "quantile": 0.5, "ready": 0.0}


def test_a_member_goes_on_from_the_mean_and_does_so_again_bitwise(tmp_path):
    changes = {"optimizer": {**PBT, "exploit": "average"}, "budget": {"runs": 8}}
    spec = small_spec(**changes, keep={"checkpoints": "lineage"})
    study = Study.create(spec, tmp_path / "study")
    study.run()
    lineage, work = study.driver.lineage, study.driver.work

    def skill(proposal):
        return saved_state.load(work.saved[work.model(proposal, 1, None)], "synthetic")["skill"]

    means = [number for number, made in lineage.proposals.items() if len(made.sources) == 2]
    assert means
    for number in means:
        donor, own = lineage[number].sources
        assert lineage[own].member == lineage[number].member != lineage[donor].member
        assert lineage[number].origin == f"average with member {lineage[donor].member}"
        trainer = study.load(study.spec.trainer.resolve())
        config = lineage[number].config
        learned = trainer._skill(config, lineage[own].until, lineage[number].until, 100)
        assert skill(number) == (skill(donor) + skill(own)) // 2 + learned
    assert any(row.origin.startswith("average with") for row in study.tables.configs())
    again = retrain(spec, lineage, study.load, means[-1], (0, 1))
    assert all(same(again[seed], work.curve(means[-1], seed)) for seed in (0, 1))
    study.close()


MEAN = Exploit(0, "b", second=1, mean="slerp")
SCRIPT = [chain(0.5, 50), chain(0.4, 50), chain(0.6, 100, MEAN)]


@pytest.mark.parametrize("gone", ["0.0", "1.0"])
@pytest.mark.parametrize("damage", [flip, shutil.rmtree])
def test_only_the_checkpoint_that_is_gone_is_trained_again(monkeypatch, tmp_path, gone, damage):
    spec = toy_spec(parallelism=1, seeds={"tuning": 1, "test": 1}, test={"top": 1})
    optimizer = Scripted(waiting_for(SCRIPT), keeps=lambda seen: range(3))
    fails = {} if gone == "1.0" else {"1.100": Status.DIVERGED}
    trainer = Toy(before=lambda segment: fails.get(segment.id))
    trainer.check_mean = lambda hyperparameters: None
    study = study_with(monkeypatch, spec, optimizer, trainer, tmp_path / "study")
    for _ in range(2):
        (segment,) = study.advance()
        study.record(run_segment(study.load, segment, lambda report: None))
    damage(checkpoint_of(tmp_path / "study", gone))
    run(study)
    *_, last = tuned = [segment for segment in trainer.segments if segment.role == "tuning"]
    assert [segment.id for segment in tuned] == ["0.0", "1.0", gone, "2.0"]
    assert ([source.segment for source in last.sources], last.mean) == (["0.0", "1.0"], "slerp")
    tests = trainer.segments[len(tuned) :]
    began = [(segment.id, len(segment.sources)) for segment in tests]
    both = 2 if gone == "1.0" else 1  # what fails on the test seed is left out
    assert began == [("0.100", 0), ("1.100", 0), ("2.100", both)]
    study.close()


def test_a_trainer_that_averages_nothing_refuses_every_mean(monkeypatch):
    study = study_with(monkeypatch, toy_spec(), Scripted(waiting_for(SCRIPT)), Toy())
    run(study)
    (why,) = study.store.query("SELECT message FROM segments WHERE status = 'crash'")
    assert why == ("optimizer.exploit: this trainer makes no mean of two agents: expected copy",)
