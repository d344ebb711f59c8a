"""Whole studies of populations: failures in a generation, donors' checkpoints, kills, workers in any order."""

import pytest
from study_support import segment_of, small_spec

from autorl.report.text import schedule_text
from autorl.study import Study

PBT = {"name": "pbt", "population": 4, "generations": 4, "quantile": 0.5}
SIZE = {"budget": {"runs": 8}, "test": {"top": 1}}  # 4 members x 2 seeds


MF = {"name": "mf_pbt", "population": 8, "frequencies": [1, 2]}


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
    [{}, {"selection": "tournament"}, {"synchronous": False}, {"name": "pb2"}, MF],
    ids=["pbt", "tournament", "asynchronous", "pb2", "mf_pbt"],
)
def test_a_donors_checkpoint_is_there_when_it_is_copied_and_the_disk_stays_small(tmp_path, options):
    """Ray deletes donors' checkpoints (num_to_keep) or keeps every one of them."""
    members = options.get("population", 4)
    study = Study.create(
        small_spec(**(sized(**options) | {"budget": {"runs": 2 * members}})), tmp_path
    )
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
    assert members * 2 < most <= members * 2 * generations + 2, (
        "two generations of all members x 2 seeds, and the incumbent"
    )


@pytest.mark.parametrize(
    "options", [{}, {"name": "pb2"}, MF], ids=lambda options: options.get("name", "pbt")
)
def test_a_population_is_judged_by_schedules_that_were_trained_again(options):
    """The winner's score is that of its schedule from step 0, and the study stays within its budget."""
    runs = 2 * (options.get("population", 4) + 2)  # two schedules more
    study = finished(
        small_spec({"noise": 0.3}, **(sized(**options, retrain=2) | {"budget": {"runs": runs}}))
    )
    lineage, ranking = study.driver.lineage, study.driver.ranking
    again = [number for number, one in lineage.proposals.items() if "retrains" in one.meta]
    assert len({lineage[number].meta["retrains"] for number in again}) == 2
    assert study.driver.charges.steps == runs * 100
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
        line.split()[:3] == ["schedule,", "chosen", f"{study.result().tuning:.4g}"]
        for line in lines
    )
    ends = [number for number in again if lineage[number].until == 100]
    assert all(
        lineage.schedule(end) == lineage.schedule(lineage[end].meta["retrains"]) for end in ends
    )
