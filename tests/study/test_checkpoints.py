"""Which checkpoints are on disk, and when. DESIGN, contract 10."""

from pathlib import Path

import pytest
from scripted import Scripted, Toy, chain, full, listed, run, study_with, toy_spec
from study_support import checkpoint_of, follow, segment_of, small_spec
from test_lineage import waiting_for

from autorl.core.types import Exploit, Scored, Status, StudyError
from autorl.executors import InProcess
from autorl.executors.worker import run_segment
from autorl.store.checkpoints import MODEL_ONLY
from autorl.study import Study


def on_disk(folder):
    return (
        sorted(segment_of(path) for path in (folder / "checkpoints").iterdir())
        if (folder / "checkpoints").exists()
        else []
    )


def stored(study):
    return sorted(
        name
        for (name,) in study.store.query(
            "SELECT segment FROM segments WHERE checkpoint IS NOT NULL"
        )
    )


def test_exploiting_what_was_not_kept_is_an_error(monkeypatch, tmp_path):
    def keeps(seen):
        return [event.proposal for event in seen if isinstance(event, Scored)][-1:]

    script = [
        chain(0.1, 40, member="a"),
        chain(0.9, 40, member="b"),
        chain(0.9, 80, 1, "b"),
        chain(0.1, 80, Exploit(0, "c"), "c"),
    ]
    spec = toy_spec(budget={"runs": 8}, parallelism=1)
    study = study_with(
        monkeypatch, spec, Scripted(waiting_for(script), keeps), Toy(), tmp_path / "study"
    )
    with pytest.raises(StudyError, match=r"segment 3\.0 continues 0\.0, which has no checkpoint"):
        run(study)


@pytest.mark.parametrize(
    "optimizer", ["asha", "hyperband", "pbt", {"name": "random", "stop": "median"}]
)
def test_real_optimizers_never_miss_a_checkpoint(tmp_path, optimizer):
    options = {"name": optimizer} if isinstance(optimizer, str) else optimizer
    options |= {"pbt": {"population": 4, "generations": 4}}.get(options["name"], {"rungs": 3})
    study = Study.create(small_spec(optimizer=options, budget={"runs": 12}), tmp_path / "study")
    run(study)
    notes = {note for (note,) in study.store.query("SELECT DISTINCT notes FROM segments")}
    assert notes == {""}, "nothing had to be trained again"
    resumed = "SELECT COUNT(*) FROM proposals WHERE resume_from IS NOT NULL"
    assert study.store.query(resumed)[0][0] > 2
    assert on_disk(tmp_path / "study") == stored(study)


@pytest.mark.parametrize(
    ("keep", "test", "kept"),
    [
        ("incumbent", 0, {"3.0", "3.1"}),
        ("incumbent", 2, {"3.100", "3.101"}),
        ("top", 0, {"3.0", "3.1", "1.0", "1.1"}),
        ("lineage", 0, {f"{number}.{seed}" for number in range(4) for seed in range(2)}),
        ("none", 0, set()),
        ("none", 2, set()),
        (
            "lineage",
            1,
            {f"{number}.{seed}" for number in range(4) for seed in range(2)} | {"3.100", "1.100"},
        ),
    ],
)
def test_what_outlives_a_study_of_full_runs(monkeypatch, tmp_path, keep, test, kept):
    optimizer = Scripted(listed(full(0.2), full(0.7), full(0.4), full(0.9)))
    spec = toy_spec(keep={"checkpoints": keep}, test={"top": 2}, seeds={"tuning": 2, "test": test})
    study = study_with(monkeypatch, spec, optimizer, folder=tmp_path / "study")
    run(study)
    assert set(on_disk(tmp_path / "study")) == set(stored(study)) == kept


def test_a_disk_budget_ends_the_session_and_can_be_raised(monkeypatch, tmp_path):
    def optimizer():
        keep_all = range(99)
        return Scripted(
            lambda number, seen: full(number / 20, until=50), keeps=lambda seen: keep_all
        )

    class Heavy(Toy):
        def train(self, segment, report):
            outcome = super().train(segment, report)
            if segment.save:
                from pathlib import Path

                (Path(segment.folder) / "weights.bin").write_bytes(b"0" * 2**20)
            return outcome

    limit = 3.5 / 1024  # GiB: three and a half checkpoints
    spec = toy_spec(limits={"disk_gb": limit}, parallelism=1, budget={"runs": 8})
    study = study_with(monkeypatch, spec, optimizer, Heavy(), tmp_path / "study")
    with pytest.raises(
        StudyError,
        match=r"checkpoints and logs take 0.00 GiB, over limits.disk_gb = 0.00341797; what was",
    ):
        run(study)
    assert len(on_disk(tmp_path / "study")) == 4


def test_sweep_removes_what_a_kill_left_and_nothing_else(tmp_path):
    study = Study.create(small_spec(keep={"checkpoints": "lineage"}), tmp_path / "study")
    run(study)
    good = on_disk(tmp_path / "study")
    study.close()
    folder = tmp_path / "study" / "checkpoints"
    (folder / ".tmp-9.0-123").mkdir()
    (folder / ".tmp-9.0-123" / "half").write_text("x")
    (folder / ".tmp-9.0-1-0").symlink_to(tmp_path)
    (folder / ".DS_Store").write_text("a file of somebody else")
    study = Study.open(tmp_path / "study")
    assert on_disk(tmp_path / "study") == sorted([".DS_Store", *good])
    assert (tmp_path / "study" / "study.yaml").is_file()  # where the link led


def test_collection_is_recorded_before_it_happens(monkeypatch, tmp_path):
    """Killed between the event and the deletion, the next session finishes the deletion."""
    script = [chain(0.5, 50, member="a"), chain(0.5, 100, 0, "a"), full(0.9)]

    def at():
        return study_with(
            monkeypatch,
            toy_spec(parallelism=1),
            lambda: Scripted(waiting_for(script)),
            folder=tmp_path / "study",
        )

    study = at()

    def on_append(event):
        if event.kind == "collected":
            raise KeyboardInterrupt

    follow(study, on_append)
    with pytest.raises(KeyboardInterrupt):
        run(study)
    left = set(on_disk(tmp_path / "study")) - set(stored(study))
    assert left, "the event says they are gone, the disk still has them"
    study.close()
    study = at()
    assert not left & set(on_disk(tmp_path / "study"))
    run(study)


def test_a_moved_study_goes_on_from_its_checkpoints(monkeypatch, tmp_path):
    script = [chain(0.5, 50, member="a"), chain(0.5, 100, 0, "a")]

    def at(folder):
        optimizer = lambda: Scripted(waiting_for(script), keeps=lambda seen: range(2))  # noqa: E731
        return study_with(monkeypatch, toy_spec(parallelism=1), optimizer, trainer, folder)

    trainer = Toy()
    study = at(tmp_path / "here")
    (first,) = study.advance()
    study.record(trainer.train(first, lambda report: None))
    study.close()
    (tmp_path / "here").rename(tmp_path / "there")
    study = at(tmp_path / "there")
    result = run(study)
    assert trainer.segments[-1].parent.path == str(checkpoint_of(tmp_path / "there", "0.0"))
    assert result.incumbent.until == 100
    assert not (tmp_path / "here").exists()


def test_a_study_in_memory_saves_aside_and_cleans_up():
    study = Study.in_memory(small_spec(optimizer={"name": "random", "stop": "median", "rungs": 3}))
    result = run(study)
    folder = study.store.checkpoints
    assert result.incumbent.until == 100
    assert result.folder is None
    assert any(folder.iterdir())
    study.close()
    assert not folder.exists()


def test_the_executor_is_closed_when_the_study_fails(monkeypatch):
    closed = []

    class Watched(InProcess):
        def close(self):
            closed.append(True)
            super().close()

    study = study_with(
        monkeypatch,
        toy_spec(),
        Scripted(lambda n, s: full(n / 20)),
        Toy(before=lambda segment: Status.CRASH),
    )
    with pytest.raises(StudyError):
        study.run(executor=Watched(study.load))
    assert closed == [True]


@pytest.mark.parametrize("trust", [False, True])
def test_pickles_of_others_are_trusted_only_if_it_is_said(monkeypatch, tmp_path, trust):
    trainer = Toy()
    spec = toy_spec(budget={"runs": 2}, parallelism=1)
    optimizer = lambda: Scripted(listed(full(0.2), full(0.9)))  # noqa: E731
    study = study_with(monkeypatch, spec, optimizer, trainer, tmp_path / "study")
    for segment in study.advance():
        study.record(run_segment(study.load, segment, lambda report: None))
    study.close()
    study = Study.open(tmp_path / "study", lambda spec: trainer, trust=trust)
    run(study)
    study.close()
    assert [segment.trust for segment in trainer.segments] == [False, trust]
    fresh = study_with(monkeypatch, spec, optimizer, trainer)
    run(fresh)
    assert not any(segment.trust for segment in trainer.segments[2:])


@pytest.mark.parametrize("y", [0.5, 0.4])
def test_a_test_run_goes_on_from_a_model_alone_as_if_it_were_gone(monkeypatch, tmp_path, y):
    """Whole from step 0 if its configuration is the same, else with the first part trained again."""

    class ModelOnly(Toy):
        def train(self, segment, report):
            outcome = super().train(segment, report)
            assert segment.parent is None or not (Path(segment.parent.path) / MODEL_ONLY).exists()
            if segment.model_only and outcome.checkpoint:
                (Path(segment.folder) / MODEL_ONLY).touch()
            return outcome

    how = 0 if y == 0.5 else Exploit(0, "a")
    script = [
        chain(0.9, 50, member="a"),
        chain(0.1, 50, member="b"),
        chain(0.9, 100, how, "a", y=y),
    ]
    spec = toy_spec(
        seeds={"tuning": 1, "test": 1}, budget={"runs": 1}, parallelism=1, test={"top": 1}
    )
    optimizer = lambda: Scripted(waiting_for(script), keeps=lambda seen: range(3))  # noqa: E731
    trainer = ModelOnly()
    study = study_with(monkeypatch, spec, optimizer, trainer, tmp_path / "study")
    run(study)
    study.extend(1)
    assert run(study).test.seeds == {100: 0.9}
    tests = [(segment.id, segment.start) for segment in trainer.segments if segment.role == "test"]
    again = [("2.100", 0)] if y == 0.5 else [("0.100", 0), ("2.100", 50)]
    assert tests == [("0.100", 0), *again]
    study.close()
