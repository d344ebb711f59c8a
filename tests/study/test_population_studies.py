"""Whole studies of populations: failures in a generation, donors' checkpoints, kills, workers in any order."""

import numpy as np
import pytest
from scripted import Shuffled
from study_support import run_small, segment_of, small_spec, table
from test_kill import EIGHTH, killed_at_every_event

from autorl.executors import InProcess
from autorl.report.schedule import schedule_text
from autorl.study import Study
from autorl.types import Status

PBT = {"name": "pbt", "population": 4, "generations": 4, "quantile": 0.5}
SIZE = {"budget": {"runs": 8}, "test": {"top": 1}}  # 4 members x 2 seeds


def sized(name="pbt", **options):
    return {**SIZE, "optimizer": {**PBT, "name": name, **options}}


def finished(spec, executor=None):
    study = Study.in_memory(spec)
    study.run(executor=executor(study) if executor else None)
    return study


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_a_failure_in_a_synchronous_generation_does_not_hold_the_others_up(name):
    """Ray waits for a trial that has died ("paused trials, no pending"); ours goes on with a clone of a survivor."""
    trainer = {
        "crash": {"above": {"x": 0.75}},
        "nan": {"below": {"rate": 3e-3}, "seeds": [1]},
        "fails_at": 0.3,
    }
    study = finished(
        small_spec(trainer, **(sized(name, population=8, quantile=0.25) | {"budget": {"runs": 16}}))
    )
    lineage, ranking = study.driver.lineage, study.driver.ranking
    generations = [proposal.meta["generation"] for proposal in lineage.proposals.values()]
    assert [generations.count(number) for number in range(4)] == [8] * 4
    rows = dict(study.store.query("SELECT proposal, status FROM proposals"))
    broken = {
        row[0] for row in study.store.query("SELECT proposal FROM segments WHERE status != 'done'")
    }
    assert "crash" in rows.values()
    assert any(rows[number] == "scored" for number in broken), (
        "one seed of two failed: scored with the penalty"
    )
    heirs = [
        proposal for proposal in lineage.proposals.values() if proposal.resume_from is not None
    ]
    assert not broken & {proposal.resume_from for proposal in heirs}
    replaced = [proposal for proposal in heirs if str(proposal.origin).startswith("exploit")]
    assert len(replaced) >= len(broken & {number for number in lineage.proposals if number < 24})
    assert ranking.best() not in broken


@pytest.mark.parametrize(
    "options",
    [{}, {"selection": "tournament"}, {"synchronous": False}, {"frequencies": 2}, {"name": "pb2"}],
    ids=["pbt", "tournament", "asynchronous", "frequencies", "pb2"],
)
def test_a_donors_checkpoint_is_there_when_it_is_copied_and_the_disk_stays_small(tmp_path, options):
    """Ray deletes donors' checkpoints (num_to_keep) or keeps every one of them."""
    study = Study.create(small_spec(**sized(**options)), tmp_path)
    most = 0

    def count(progress):
        nonlocal most
        tuned = [
            one.name
            for one in (tmp_path / "checkpoints").iterdir()
            if segment_of(one).endswith((".0", ".1"))
        ]
        most = max(most, len(tuned))

    study.run(count)
    copies = [
        one
        for one in study.driver.lineage.proposals.values()
        if one.origin.startswith(("exploit", "migrate"))
    ]
    assert copies
    notes = study.store.query("SELECT notes FROM segments WHERE notes != ''")
    assert notes == [], "nobody was trained from step 0 again"
    assert all(status == "done" for (status,) in study.store.query("SELECT status FROM segments"))
    generations = 2 if options.get("synchronous", True) else 4
    assert 4 * 2 < most <= 4 * 2 * generations + 2, (
        "two generations of 4 members x 2 seeds, and the incumbent"
    )
    study.close()


AGAIN = {"retrain": 2}, {"budget": {"runs": 12}}  # two schedules more


@pytest.mark.parametrize(
    ("options", "more"),
    [({}, {}), pytest.param({"name": "pb2"}, {}, marks=pytest.mark.slow), AGAIN],
    ids=["pbt", "pb2", "trained again"],
)
def test_killed_every_few_events_gives_the_same_table(tmp_path, options, more):
    run_small(tmp_path / "whole", **(sized(**options) | more))
    killed_at_every_event(tmp_path / "killed", sized(**options) | more, EIGHTH)
    assert table(tmp_path / "killed") == table(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"synchronous": False}, {"frequencies": 2}, {"name": "pb2"}]
)
def test_killed_at_every_event_gives_the_same_table(tmp_path, options):
    run_small(tmp_path / "whole", **sized(**options))
    killed_at_every_event(tmp_path / "killed", sized(**options))
    assert table(tmp_path / "killed") == table(tmp_path / "whole")


@pytest.mark.parametrize(
    "options", [{}, {"synchronous": False}, {"name": "pb2"}], ids=["pbt", "asynchronous", "pb2"]
)
def test_the_order_in_which_workers_finish_changes_nothing(options):
    def proposals(study):
        return [
            (number, one.config, one.resume_from)
            for number, one in study.driver.lineage.proposals.items()
        ]

    spec = small_spec(**sized(**options))
    quiet = finished(spec, lambda study: InProcess(study.load))
    mixed = finished(spec, lambda study: Shuffled(study.load, np.random.default_rng(5)))
    assert proposals(quiet) == proposals(mixed)
    assert quiet.result().tuning == mixed.result().tuning


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_a_population_is_judged_by_schedules_that_were_trained_again(name):
    """The winner's score is that of its schedule from step 0, and the study stays within its budget."""
    options, more = AGAIN
    study = finished(small_spec({"noise": 0.3}, **(sized(name, **options) | more)))
    lineage, ranking = study.driver.lineage, study.driver.ranking
    again = [number for number, one in lineage.proposals.items() if "retrains" in one.meta]
    assert len({lineage[number].meta["retrains"] for number in again}) == 2
    assert study.driver.charged_steps == 12 * 100
    best = ranking.best()
    chains = {
        number: lineage.chain(number)
        for number in lineage.proposals
        if lineage[number].until == 100
    }
    honest = [
        number
        for number, chain in chains.items()
        if len({lineage[link].member for link in chain}) == 1
    ]
    assert best == max(honest, key=lambda number: (ranking[number].values[0], -number))
    assert {number for number in chains if lineage[number].provisional} == chains.keys() - set(
        honest
    )
    assert any(lineage[number].provisional for number in chains)
    assert study.driver.best_score(100) == max(ranking[number].values[0] for number in chains)
    lines = schedule_text(study.result(), 99.0).splitlines()
    assert any(line.split()[:3] == ["population's", "best", "99"] for line in lines)
    assert any(
        line.split()[:3] == ["schedule,", "chosen", f"{study.result().tuning:.6g}"]
        for line in lines
    )
    ends = [number for number in again if lineage[number].until == 100]
    assert all(
        lineage.schedule(end) == lineage.schedule(lineage[end].meta["retrains"]) for end in ends
    )


def test_asynchronous_members_in_an_asynchronous_study():
    study = finished(
        small_spec(**sized(synchronous=False), asynchronous=True),
        lambda study: Shuffled(study.load, np.random.default_rng(1)),
    )
    untils = [proposal.until for proposal in study.driver.lineage.proposals.values()]
    assert untils.count(100) == 4
    assert study.driver.ranking[study.driver.ranking.best()].reached == 100


def test_lineage_is_append_only_and_reads_back_as_it_was_written(tmp_path):
    """Published: schedules were stitched from member 0's configuration and the winner's own last entries."""
    study = Study.create(small_spec(**sized() | {"test": {"baseline": False}}), tmp_path)
    study.run()
    schedules = {
        number: study.driver.lineage.schedule(number) for number in study.driver.lineage.proposals
    }
    study.close()
    again = Study.open(tmp_path)
    assert {
        number: again.driver.lineage.schedule(number) for number in again.driver.lineage.proposals
    } == schedules
    for number, schedule in schedules.items():
        chain = again.driver.lineage.chain(number)
        assert schedule[0] == (0, again.driver.lineage[chain[0]].config)
        assert schedule[-1][1] == again.driver.lineage[number].config
        assert [step for step, _ in schedule] == sorted({step for step, _ in schedule})
        assert [again.driver.lineage[link].meta["generation"] for link in chain] == list(
            range(len(chain))
        )
    assert max(len(schedule) for schedule in schedules.values()) > 2
    assert {Status(status) for (status,) in again.store.query("SELECT status FROM segments")} == {
        Status.DONE
    }
    again.close()
