"""Exploit, runs and their parents, algorithm choice, constraints and several objectives, through whole studies."""

import numpy as np
from scripted import Scripted, Shuffled, Toy, chain, listed, run, study_with, toy_spec

from autorl.core.seeds import SeedPlan
from autorl.core.types import Exploit, Proposed, Scored, Wait
from autorl.study import Study
from autorl.study.lineage import Lineage


def waiting_for(script):
    """Proposes `script` in order, each only after the one it resumes from was told."""

    def answer(number, seen):
        told = {event.proposal for event in seen if isinstance(event, Scored)}
        if number == len(script):
            return listed()(0, seen)
        parent = script[number].resume_from
        return script[number] if parent is None or parent in told else Wait()

    return answer


# Two members; member b exploits a at step 40 and changes y, then goes on; a goes on unchanged.
PBT = [
    chain(0.9, 40, member="a"),
    chain(0.1, 40, member="b"),
    chain(0.9, 80, 0, "a"),
    chain(0.9, 80, Exploit(0, "b"), "b", y=0.7),
    chain(0.9, 100, 2, "a"),
    chain(0.9, 100, 3, "b", y=0.7),
]


def pbt_study(monkeypatch, trainer=None, **changes):
    optimizer = Scripted(waiting_for(PBT), keeps=lambda seen: range(len(PBT)))
    spec = toy_spec(
        **{"seeds": {"tuning": [4, 6], "test": [200]}, "budget": {"runs": 8}, **changes}
    )
    study = study_with(monkeypatch, spec, optimizer, trainer or Toy())
    study.run(executor=Shuffled(study.load, np.random.default_rng(2)))
    return optimizer, study


def lineage_of(*proposals, plan=None):
    lineage = Lineage(plan or SeedPlan(2, 2))
    for number, proposal in enumerate(proposals):
        lineage.observe(Proposed(number, proposal))
    return lineage


def test_the_numbers_of_runs_are_those_of_every_version():
    """They are stored: 5000 of each role for each run."""
    lineage = lineage_of(plan=SeedPlan([4, 6], [200, 300]))
    assert lineage.run_id(0, "tuning", 4) == 0
    assert lineage.run_id(0, "tuning", 6) == 1
    assert lineage.run_id(0, "test", 300) == 5001
    assert lineage.run_id(3, "tuning", 4) == 30_000
    assert lineage.run_id(3, "test", 200) == 35_000


def test_the_random_streams_of_an_exploit_are_those_of_every_version():
    """Results of stored studies depend on these numbers, and they fit into 63 bits."""
    lineage = lineage_of(chain(0.9, 40), chain(0.9, 80, Exploit(0, "b"), y=0.7), chain(0.9, 80, 0))
    assert lineage.fork(1, 0) == 3312359928704513998
    assert lineage.fork(1, 4) == 3777480187574470499
    assert lineage.fork(2, 0) is None
    assert lineage.fork(0, 0) is None
    other = lineage_of(chain(0.9, 41), chain(0.9, 80, Exploit(0, "b"), y=0.7))
    assert other.fork(1, 4) == 8512558318159117629


def test_a_run_is_one_configuration_that_was_never_copied():
    lineage = lineage_of(
        chain(0.9, 40),
        chain(0.9, 60, 0),
        chain(0.9, 80, 1, y=0.7),
        chain(0.9, 80, Exploit(1, "b")),
        chain(0.9, 100, 3),
    )
    assert [lineage.unchanged(number) for number in range(5)] == [True, True, False, False, False]
    assert [lineage.root(number) for number in range(5)] == [0, 0, 2, 3, 3]
    starts = [(run.parent_root, run.start_step) for run in map(lineage.run, range(5))]
    assert starts == [(None, 0), (None, 0), (0, 60), (0, 60), (0, 60)]
    assert [lineage.start(number) for number in range(5)] == [0, 40, 60, 60, 80]
    assert [lineage.length(number) for number in range(5)] == [40, 20, 20, 20, 20]
    assert lineage.chain(4) == [0, 1, 3, 4]
    assert len(lineage) == 5


def test_exploit_copies_per_seed_and_forks_the_streams(monkeypatch):
    trainer = Toy()
    pbt_study(monkeypatch, trainer)
    forks = {segment.id: segment.fork for segment in trainer.segments if segment.role == "tuning"}
    assert {name for name, fork in forks.items() if fork is not None} == {"3.4", "3.6"}
    assert forks["3.4"] != forks["3.6"], "each seed has streams of its own"
    parents = {
        segment.id: segment.parent.segment
        for segment in trainer.segments
        if segment.parent is not None
    }
    assert parents["3.4"] == "0.4"
    assert parents["3.6"] == "0.6"
    assert all(name.split(".")[1] == parent.split(".")[1] for name, parent in parents.items())


def test_the_test_phase_replays_the_whole_lineage_from_scratch(monkeypatch):
    trainer = Toy(curve=lambda config, seed, step: config["y"] + config["x"] * step / 100)
    _, study = pbt_study(monkeypatch, trainer)
    result = study.result()
    assert result.incumbent.proposal == 5
    assert [step for step, _ in result.incumbent.schedule] == [0, 40]
    tests = [segment for segment in trainer.segments if segment.role == "test"]
    assert [(segment.id, segment.start, segment.until) for segment in tests] == [
        ("0.200", 0, 40),
        ("3.200", 40, 80),
        ("5.200", 80, 100),
    ]
    assert tests[1].fork == study.driver.lineage.fork(3, 200) is not None
    assert [segment.config["y"] for segment in tests] == [0.5, 0.7, 0.7]
    lineage = trainer.lineage(study.driver.work.saved["5.200"])
    assert [name for name, *_ in lineage] == ["0.200", "3.200", "5.200"]
    rows = study.store.query(
        "SELECT run_id, parent_run, start_step FROM runs WHERE seed_role = 'test' ORDER BY run_id"
    )
    assert rows == [(5000, None, 0), (35000, 5000, 40)]


def test_evaluations_lie_at_nominal_steps_and_at_every_cut(monkeypatch):
    trainer = Toy()
    script = [chain(0.9, 30), chain(0.9, 34, 0), chain(0.9, 100, 1)]
    spec = toy_spec(fidelity={"steps": 100, "evaluations": 5})
    run(study_with(monkeypatch, spec, Scripted(waiting_for(script)), trainer))
    assert [segment.evaluate_at for segment in trainer.segments] == [
        (20, 30),
        (34,),
        (40, 60, 80, 100),
    ]
    assert {segment.horizon for segment in trainer.segments} == {100}


class Overshooting(Toy):
    """Trains on to the end of a rollout of 32 steps, each of which takes half a second."""

    def train(self, segment, report):
        import dataclasses

        outcome = super().train(segment, report)
        reached = -(-segment.until // 32) * 32
        cost = {"environment_steps": float(reached - segment.start), "wall_seconds": 0.0}
        cost["wall_seconds"] = cost["environment_steps"] / 64
        return dataclasses.replace(outcome, reached=reached, cost=cost)


def test_a_run_starts_at_the_nominal_step_of_its_change_wherever_its_parent_stopped(monkeypatch):
    """Evaluations have nominal steps: one at 50 would lie before a start at 64."""
    script = [chain(0.9, 40), chain(0.9, 100, 0, y=0.7)]
    spec = toy_spec(fidelity={"steps": 100, "evaluations": 2})
    study = study_with(monkeypatch, spec, Scripted(waiting_for(script)), Overshooting())
    run(study)
    query = study.store.query
    assert query("SELECT start_step FROM runs ORDER BY run_id") == [(0,), (40,)]
    assert query("SELECT from_step, to_step FROM segments ORDER BY segment") == [(0, 64), (64, 128)]
    assert query("SELECT step FROM reports WHERE run_id > 0 ORDER BY step") == [(50,), (100,)]


def test_the_cost_of_a_continued_run_is_that_of_all_its_segments(monkeypatch):
    """Segments of 64 and 32 steps are one run, the third is of another configuration."""
    script = [chain(0.9, 40), chain(0.9, 80, 0), chain(0.9, 100, 1, y=0.7)]
    study = study_with(monkeypatch, toy_spec(), Scripted(waiting_for(script)), Overshooting())
    run(study)
    assert study.store.query(
        "SELECT environment_steps, wall_seconds FROM runs ORDER BY run_id"
    ) == [(96.0, 1.5), (32.0, 0.5)]


# -- algorithm choice --------------------------------------------------------------------------------------------------


def test_each_algorithm_is_trained_by_its_own_trainer_with_its_own_configuration():
    number = {"type": "float", "lower": 0.0, "upper": 1.0}
    spec = cash_spec(number)
    made = {
        "one": Toy(curve=lambda config, seed, step: config["lr"]),
        "two": Toy(curve=lambda c, seed, step: c["eps"]),
    }
    study = Study.in_memory(spec, lambda trainer: made[trainer.name])
    result = run(study)
    assert {tuple(sorted(segment.config)) for segment in made["one"].segments} == {("lr",)}
    assert {tuple(sorted(segment.config)) for segment in made["two"].segments} == {("eps", "lr")}
    assert {segment.trainer.kwargs.get("a") for segment in made["one"].segments} == {1}
    names = {row[0] for row in study.store.query("SELECT DISTINCT algorithm FROM runs")}
    assert names == {"one", "two"}
    assert result.incumbent.config["algorithm"] in ("ppo", "dqn")
    assert all(name == "algorithm" or "." in name for name in result.incumbent.config)


def cash_spec(number):
    from autorl.study.spec import load_spec

    return load_spec(
        {
            "algorithms": {
                "ppo": {
                    "trainer": {"name": "one", "kwargs": {"a": 1}},
                    "space": {"hyperparameters": {"lr": number}},
                },
                "dqn": {
                    "trainer": "two",
                    "space": {"hyperparameters": {"lr": number, "eps": number}},
                },
            },
            "fidelity": {"steps": 10, "evaluations": 1},
            "budget": {"runs": 12},
            "seeds": {"tuning": 1, "test": 1},
            "optimizer": "random",
            "executor": {"name": "in_process"},
        }
    )
