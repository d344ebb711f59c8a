"""The conformance kit of trainers: what every trainer must pass. Needs pytest.

    class TestMine(TrainerConformance):
        case = Case(TrainerSpec("my_package:MyTrainer"), EnvironmentSpec("CartPole-v1"),
                    configs=(Config(lr=1e-3), Config(lr=1e-2)), horizon=256)

Every trainer that passes can be cut, continued, exploited and replayed by any optimizer: see
contracts 1 to 6 and 9 of docs/design.md.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import math
import pickle
from pathlib import Path

import pytest

from autorl.core.types import Checkpoint, Config, InputError, Report, Status, StorageError
from autorl.store import checkpoints
from autorl.testing.segments import OTHER_SEED, Case, Runner, check_change, check_halves, metrics
from autorl.trainers import load


def fingerprint(folder: str | Path) -> dict[str, str]:
    """Hash every file below a folder."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def needs(condition: object, why: str) -> None:
    """Skip a test of what a case does not have."""
    if not condition:
        pytest.skip(why)


class TrainerConformance:
    """Tests the trainer of the case that a subclass sets."""

    case: Case

    @pytest.fixture(scope="class")
    @classmethod
    def runner(cls, tmp_path_factory: pytest.TempPathFactory) -> Runner:
        return Runner(cls.case, tmp_path_factory.mktemp("conformance"))

    def test_the_trainer_loads_by_reference_and_names_real_modules_to_preload(
        self, runner: Runner
    ) -> None:
        # A worker gets it in this way; its process loads a trainer once.
        assert load(pickle.loads(pickle.dumps(self.case.trainer))) is runner.trainer
        assert all(
            importlib.util.find_spec(module) is not None for module in runner.trainer.preload
        )

    def test_check_accepts_the_case(self, runner: Runner) -> None:
        for config in self.case.configs:
            runner.trainer.check(self.case.environment, frozenset(config))

    def test_align_is_the_nearest_cut_on_its_side(self, runner: Runner) -> None:
        config = self.case.configs[0]
        steps = range(0, self.case.horizon + 1, max(1, self.case.horizon // 16))
        aligned = [runner.trainer.align(config, step) for step in steps]
        beyond = [reached - step for step, reached in zip(steps, aligned, strict=True)]
        assert min(beyond) >= 0 if self.case.passes else max(beyond) <= 0
        assert aligned == sorted(aligned)
        # A cut is its own nearest: a segment that ends there is not moved again.
        assert [runner.trainer.align(config, step) for step in aligned] == aligned

    def test_reports_come_at_the_nominal_steps_while_it_trains(self, runner: Runner) -> None:
        heard: list[Report] = []
        segment = runner.segment("heard", save=False)
        outcome = runner.train(segment, heard.append)
        assert outcome.status is Status.DONE
        assert tuple(report.step for report in outcome.reports) == segment.evaluate_at
        reports = sorted([*outcome.reports, *outcome.updates], key=lambda report: report.step)
        assert [report.step for report in heard] == [report.step for report in reports]
        assert all(report.segment == segment.id and report.metrics for report in outcome.reports)
        assert all(
            math.isfinite(value) for report in outcome.reports for value in report.metrics.values()
        )
        metrics = runner.trainer.reported_metrics(self.case.environment)
        if metrics is not None:
            assert all({*metrics}.issuperset(report.metrics) for report in outcome.reports)

    def test_it_reaches_until_and_charges_its_own_steps(self, runner: Runner) -> None:
        uncut = runner.run("whole")
        assert uncut.reached == runner.trainer.align(self.case.configs[0], self.case.horizon)
        assert uncut.cost["environment_steps"] == uncut.reached
        assert uncut.cost["wall_seconds"] > 0
        if self.case.resumable:
            first = runner.first_half()
            second = runner.second_half()
            assert second.cost["environment_steps"] == second.reached - first.reached

    def test_the_same_segment_gives_the_same_outcome_whatever_ran_between(
        self, runner: Runner
    ) -> None:
        uncut = runner.run("whole")
        runner.run("other-seed", seed=OTHER_SEED, save=False)  # draws from global streams
        again = runner.train(runner.segment("again", save=False))
        assert metrics(again) == metrics(uncut)
        assert (again.status, again.reached, again.applied) == (
            uncut.status,
            uncut.reached,
            uncut.applied,
        )

    def test_another_seed_gives_another_outcome(self, runner: Runner) -> None:
        needs(self.case.stochastic, "the case says its results do not depend on the seed")
        reseeded = runner.run("other-seed", seed=OTHER_SEED, save=False)
        assert metrics(reseeded) != metrics(runner.run("whole"))

    def test_where_a_run_is_cut_changes_nothing(self, runner: Runner) -> None:
        assert metrics(runner.run("whole"))[: len(runner.first_half().reports)] == metrics(
            runner.first_half()
        )

    def test_n_plus_n_steps_equal_2n(self, runner: Runner) -> None:
        needs(self.case.resumable, "the case says it does not continue from checkpoints")
        check_halves(runner)

    def test_when_it_is_evaluated_changes_nothing(self, runner: Runner) -> None:
        sparse = runner.run("sparse", evaluate_at=(self.case.horizon,), save=False)
        assert metrics(sparse) == metrics(runner.run("whole"))[-1:]

    def test_a_change_of_configuration_is_applied_and_read_back(self, runner: Runner) -> None:
        first, second = self.case.configs
        needs(self.case.resumable and first != second, "nothing can change")
        assert metrics(check_change(runner)) != metrics(runner.second_half())

    def test_a_change_of_anything_else_is_refused(self, runner: Runner) -> None:
        if not (self.case.resumable and self.case.fixed):
            pytest.skip("the case names nothing that is fixed")
        name, value = self.case.fixed
        assert name not in runner.trainer.changes
        with pytest.raises(InputError, match=name):
            runner.second_half("refused", config=Config({**self.case.configs[0], name: value}))

    def test_exploit_draws_new_random_streams(self, runner: Runner) -> None:
        needs(self.case.resumable and self.case.stochastic, "nothing to fork")
        forked = runner.second_half("forked", fork=11)
        assert forked.status is Status.DONE
        # The streams are a function of `fork`: the same again.
        assert metrics(runner.second_half("forked-again", fork=11)) == metrics(forked)

    def test_a_checkpoint_is_never_written_again(self, runner: Runner) -> None:
        needs(self.case.resumable, "no checkpoints")
        saved = runner.first_half().checkpoint
        assert saved is not None
        assert saved == Checkpoint(runner.id_of("first-half"), str(runner.folder / "first-half"))
        before = fingerprint(saved.path)
        runner.second_half("reader", save=False)
        assert before  # a checkpoint without files would stay as it is whatever happens
        assert fingerprint(saved.path) == before

    def test_an_interrupted_save_leaves_nothing(
        self, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        needs(self.case.resumable, "no checkpoints")

        def full(folder: Path) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(checkpoints, "sync_tree", full)
        with pytest.raises(StorageError, match="No space left"):
            runner.train(runner.segment("interrupted"))
        assert not [path.name for path in runner.folder.iterdir() if "interrupted" in path.name]

    def test_nothing_is_saved_unless_asked(self, runner: Runner) -> None:
        outcome = runner.run("unsaved", save=False)
        assert outcome.checkpoint is None
        assert not (runner.folder / "unsaved").exists()

    def test_a_segment_cannot_start_late_without_a_checkpoint(self, runner: Runner) -> None:
        half = self.case.horizon // 2
        with pytest.raises(InputError):
            runner.train(runner.segment("late", start=half, evaluate_at=(self.case.horizon,)))

    def test_a_trainer_that_cannot_continue_says_so(self, runner: Runner) -> None:
        needs(not self.case.resumable, "it can")
        half = self.case.horizon // 2
        parent = Checkpoint(runner.id_of("x"), str(runner.folder))
        continued = runner.segment(
            "continued", parent=parent, start=half, evaluate_at=(self.case.horizon,)
        )
        with pytest.raises(InputError, match="cannot continue"):
            runner.train(continued)
