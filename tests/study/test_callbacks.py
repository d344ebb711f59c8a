"""Callbacks are told what is recorded, and change nothing."""

import pandas as pd
import pytest
from refusals import expect_error
from scripted import run as run_study
from study_support import small_spec

from autorl import Callback, InputError, SeedPlan, Tuner, tune
from autorl.study import Study
from autorl.study.folder.safety import verify

SPACE = {"hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5}}}
STUDY = {
    "runs": 16,
    "steps": 8,
    "seeds": SeedPlan(2, 1),
    "optimizer": "random",
    "stop": "median",
    "rungs": 4,
    "name": "hills",
}


def climb(trial):
    for step in range(1, trial.until + 1):
        trial.report(step, {"value": trial.config["x"] * step, "seen": trial.seed})
        if trial.should_stop():
            return


class Log(Callback):
    def __init__(self):
        self.calls = []

    def on_proposal(self, study, proposal):
        self.calls.append(("proposal", study, proposal))

    def on_report(self, study, run, step, metrics):
        self.calls.append(("report", study, run, step, metrics))

    def on_outcome(self, study, run, outcome):
        self.calls.append(("outcome", study, run, outcome))

    def on_result(self, study, result):
        self.calls.append(("result", study, result))

    def of(self, kind):
        return [call[2:] for call in self.calls if call[0] == kind]


def test_everything_is_told_that_a_tracker_needs(tmp_path):
    log = Log()
    result = tune(climb, SPACE, out=tmp_path / "s", callbacks=[log], **STUDY)
    studies = {call[1] for call in log.calls}
    (study,) = studies
    assert (study.name, study.folder, study.steps) == ("hills", tmp_path / "s", 8)
    assert study.trainers == (f"python:{__name__}:climb",)
    assert [dict(item) for item in study.objectives] == [
        {"metric": "value", "reduce": "last", "direction": "maximize"}
    ]
    rows = result.trials()
    proposals = [proposal for (proposal,) in log.of("proposal")]
    assert [item.number for item in proposals] == list(range(len(proposals)))
    assert (proposals[0].origin, dict(proposals[0].config)) == ("default", {"x": 0.5})
    assert {item.until for item in proposals} == {2, 4, 6, 8}
    # A run has one number, however many segments it was trained in.
    points = {}
    for run, step, metrics in log.of("report"):
        assert dict(metrics) == {"value": run.config["x"] * step, "seen": run.seed}
        points.setdefault((run.run, run.role, run.seed), []).append(step)
    assert set(points) == set(zip(rows["run"], rows["role"], rows["seed"], strict=True))
    for row in rows.itertuples():
        assert points[row.run, row.role, row.seed] == list(range(1, row.steps + 1))
    outcomes = log.of("outcome")
    assert {outcome.status for _, outcome in outcomes} == {"done"}
    assert sum(len(outcome.reports) for _, outcome in outcomes) == len(log.of("report"))
    assert log.calls[-1][0] == "result"
    assert log.of("result") == [(result,)]
    with pytest.raises((TypeError, AttributeError)):
        outcomes[0][1].cost["wall_seconds"] = 0.0


def test_callbacks_change_no_table(capsys):
    class Breaks(Callback):
        told = 0

        def on_outcome(self, study, run, outcome):
            type(self).told += 1
            raise ZeroDivisionError("mine")

    log = Log()
    alone = tune(climb, SPACE, **STUDY)
    told = tune(climb, SPACE, callbacks=[Breaks(), log], workers=2, **STUDY)
    pd.testing.assert_frame_equal(
        told.trials().drop(columns=["wall_seconds", "peak_memory_mb"]),
        alone.trials().drop(columns=["wall_seconds", "peak_memory_mb"]),
    )
    assert Breaks.told == 1
    assert len(log.of("result")) == 1, "the others are told to the end"
    said = capsys.readouterr().err
    assert "ZeroDivisionError: mine" in said
    assert "callback Breaks raised ZeroDivisionError: mine; it is told nothing more" in said


def test_a_tuner_tells_callbacks_too():
    log = Log()
    tuner = Tuner(SPACE, "random", seeds=SeedPlan(1, 0), fidelity=10, callbacks=[log])
    trial = tuner.ask()
    tuner.report(trial, 5, 1.0)
    tuner.tell(trial, 2.0)
    result = tuner.result()
    assert [call[0] for call in log.calls] == ["proposal", "report", "report", "outcome", "result"]
    assert [(step, dict(metrics)) for _, step, metrics in log.of("report")] == [
        (5, {"value": 1.0}),
        (10, {"value": 2.0}),
    ]
    assert log.of("result") == [(result,)]


class Scores(Callback):
    """Everything that follows from the log alone."""

    def __init__(self):
        self.calls = []

    def on_proposal(self, study, proposal):
        self.calls.append(("proposal", proposal))

    def on_outcome(self, study, run, outcome):
        self.calls.append(("outcome", run, outcome.status, outcome.reports))

    def on_score(self, study, score):
        self.calls.append(("score", score))

    def on_search_end(self, study):
        self.calls.append(("end",))

    def of(self, kind):
        return [call[1] for call in self.calls if call[0] == kind]


class Mirror(Scores):
    from_the_start = True


def test_scores_are_told_and_the_end_of_the_search(tmp_path):
    log = Scores()
    result = tune(climb, SPACE, out=tmp_path / "s", callbacks=[log], **STUDY)
    scores = {score.proposal: score for score in log.of("score")}
    assert scores[result.incumbent.proposal].values == (result.tuning,)
    assert {score.seeds for score in scores.values()} == {(0, 1)}
    assert all(score.final and score.failure is None for score in scores.values())
    proposals = {proposal.number: proposal for proposal in log.of("proposal")}
    assert set(scores) == set(proposals)
    for proposal in proposals.values():
        goes_on = proposal.parent is not None
        assert proposal.run == (proposals[proposal.parent].run if goes_on else proposal.number)
    kinds = [call[0] for call in log.calls]
    assert kinds.count("end") == 1
    assert {call[0] for call in log.calls[kinds.index("end") :]} == {"end", "outcome"}


def test_a_failure_is_told_as_the_score(tmp_path):
    log = Scores()
    with Tuner(SPACE, "random", seeds=SeedPlan(1, 0), callbacks=[log]) as tuner:
        tuner.tell(tuner.ask(), 2.0)
        tuner.fail(tuner.ask(), "diverged", "NaN")
        tuner.result()
    told, failed = log.of("score")
    assert (told.values, told.failure) == ((2.0,), None)
    assert (failed.proposal, failed.failure, failed.message) == (1, "diverged", "NaN")


def test_a_mirror_is_told_everything_from_the_start(tmp_path):
    class Killed(BaseException):
        pass

    class Kills(Callback):
        told = 0

        def on_outcome(self, study, run, outcome):
            self.told += 1
            if self.told == 20:
                raise Killed

    whole = Scores()
    tune(climb, SPACE, callbacks=[whole], **STUDY)
    with pytest.raises(Killed):
        tune(climb, SPACE, out=tmp_path / "s", callbacks=[Kills()], **STUDY)
    mirror = Mirror()
    others = Scores()
    tune(climb, SPACE, out=tmp_path / "s", callbacks=[mirror, others], **STUDY)
    assert mirror.calls == whole.calls
    assert 0 < len(others.calls) < len(mirror.calls)
    assert mirror.calls[-len(others.calls) :] == others.calls


def test_the_identity_of_a_study_is_its_own(tmp_path):
    class Identities(Callback):
        def __init__(self):
            self.seen = set()

        def on_proposal(self, study, proposal):
            self.seen.add(study.id)

        from_the_start = True

    log = Identities()
    tune(climb, SPACE, out=tmp_path / "s", callbacks=[log], **STUDY)
    tune(climb, SPACE, out=tmp_path / "s", callbacks=[log], **STUDY)
    assert len(log.seen) == 1
    tune(climb, SPACE, out=tmp_path / "t", callbacks=[log], **STUDY)
    tune(climb, SPACE, callbacks=[log], **STUDY)
    assert len(log.seen) == 3


def test_what_is_no_callback_is_refused(tmp_path):
    with pytest.raises(InputError, match="callbacks: expected an object, got the class Log"):
        tune(climb, SPACE, callbacks=[Log], **STUDY)
    with pytest.raises(InputError, match=r"callbacks\[0\]: expected .*Callback.*got <function"):
        Tuner(SPACE, path=tmp_path / "s", callbacks=[climb])
    Tuner(SPACE, path=tmp_path / "s").close()  # nobody has kept the folder


MODULE = """
import autorl

class Lines(autorl.Callback):
    def __init__(self, file, every=1):
        self.file = file
        self.every = every

    def on_report(self, study, run, step, metrics):
        if step % self.every == 0:
            with open(self.file, "a") as lines:
                lines.write(f"{run.run} {step}\\n")

class Even(autorl.Callback):
    @classmethod
    def check(cls, every=2):
        if every % 2:
            raise autorl.InputError("every: expected an even number", key="callbacks")

    def __init__(self, every=2):
        raise RuntimeError("made before the study began")

class NotOne:
    pass
"""


def study_with(tmp_path, *callbacks):
    (tmp_path / "my_lines.py").write_text(MODULE)
    return {
        "trainer": {"name": "synthetic"},
        "space": SPACE,
        "fidelity": {"steps": 10, "evaluations": 5, "episodes": 1},
        "budget": {"runs": 4},
        "optimizer": "random",
        "seeds": {"tuning": 1, "test": 1},
        "executor": {"name": "in_process"},
        "path": str(tmp_path),
        "callbacks": list(callbacks),
    }


def test_a_study_file_names_callbacks(tmp_path):
    file = tmp_path / "lines"
    study = study_with(tmp_path, {"my_lines:Lines": {"file": str(file), "every": 4}})
    log = Log()
    result = tune(study, out=tmp_path / "s", callbacks=[log])
    steps = [int(line.split()[1]) for line in file.read_text().splitlines()]
    assert set(steps) == {4, 8}
    assert len(steps) == 2 * len(result.trials())
    assert log.of("result") == [(result,)], "those that are given are told as well"
    without = tune(study | {"callbacks": []}, out=tmp_path / "s")
    assert without == result, "they are no part of the study"


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ("my_lines:NotOne", "is no callback: expected a subclass of autorl.Callback"),
        ("my_lines:Lines", "Lines: missing a required argument: 'file'"),
        ({"my_lines:Lines": {"path": 1}}, "Lines: "),
        ("nowhere:Lines", "cannot be imported"),
        ("lines", 'expected "module:Class"'),
        ("tensorbord", "mlflow, wandb, optuna; got 'tensorbord'; did you mean 'tensorb"),
        ({"tensorboard": {"folder": "x"}}, "'folder'; arguments: directory"),
        ({"tensorboard": {"directory": 3}}, "callbacks.tensorboard.directory: expected a"),
        ({"my_lines:Even": {"every": 3}}, "callbacks: every: expected an even number"),
        (3, 'expected "module:Class"'),
    ],
)
def test_a_wrong_callback_of_a_study_file_is_refused_before_it_begins(tmp_path, callback, message):
    expect_error(message, tune, study_with(tmp_path, callback), out=tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_trackers_have_short_names(tmp_path):
    pytest.importorskip("tensorboard", reason="needs tensorboard")
    study = study_with(tmp_path, "tensorboard", {"tensorboard": {"directory": str(tmp_path / "t")}})
    tune(study, out=tmp_path / "s")
    default = tmp_path / "s" / "logs" / "trackers" / "tensorboard"
    (label,) = (tmp_path / "t").iterdir()
    runs = {path.parent.relative_to(label) for path in label.glob("*/*/*.tfevents*")}
    assert runs
    assert {path.parent.relative_to(default) for path in default.glob("*/*/*.tfevents*")} == runs
    verdict = verify(tmp_path / "s")
    assert (verdict.problems, verdict.notes) == ([], [])
    expect_error("tensorboard needs a directory: a study in memory", tune, study)


def test_a_callback_may_refuse_a_study_and_is_told_of_it_once():
    told = []

    class Refuses(Callback):
        def on_study(self, study):
            told.append(study.id)
            raise InputError("expected another study", key="callbacks")

    class Breaks(Callback):
        def on_study(self, study):
            raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(InputError, match="callbacks: expected another study"):
            tune(climb, SPACE, callbacks=[Breaks(), Refuses()], **STUDY)
        expect_error("expected another study", Tuner, SPACE, "random", callbacks=[Refuses()])
    assert len(set(told)) == len(told) == 4, "each has an id of its own"


def test_runs_of_test_seeds_that_were_added_are_told_too():
    log = Log()
    study = Study.in_memory(small_spec())
    study.listen([log])
    have = set(run_study(study).test.seeds)
    study.add_test_seeds(len(have) + 2)
    more = set(run_study(study).test.seeds) - have
    assert len(more) == 2
    told = [info for info, _ in log.of("outcome") if info.role == "test"]
    assert {info.seed for info in told} == have | more
    assert len({info.run for info in told}) == len(told)
