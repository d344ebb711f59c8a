"""Studies mirrored into Optuna's storages say there what the studies say."""

import json
import math
import sqlite3
from contextlib import closing
from wsgiref.util import setup_testing_defaults

import optuna
import pytest
from optuna.trial import TrialState

from autorl import Callback, InputError, SeedPlan, Tuner, tune
from autorl.integrations.optuna_storage import OptunaStorage
from autorl.report.configurations import configuration_rows
from autorl.store import Store
from autorl.store.tables import StudyTables
from autorl.study import Study
from autorl.study.results.record import StudyRecord, open_copy

SPACE = {
    "hyperparameters": {
        "lr": {"type": "float", "lower": 1e-5, "upper": 1e-1, "scale": "log"},
        "layers": {"type": "int", "lower": 1, "upper": 4},
        "net": {"type": "categorical", "choices": [[32], [64, 64]]},
        "act": {"type": "categorical", "choices": ["tanh", "relu"]},
        "slope": {"type": "float", "lower": 0.0, "upper": 1.0},
        "fixed": {"type": "constant", "value": 8},
    },
    "conditions": {"slope": "act == relu"},
}
OPTIONS = {
    "runs": 24,
    "steps": 8,
    "seeds": SeedPlan(2, 2),
    "optimizer": "random",
    "stop": "median",
    "rungs": 4,
    "name": "hills",
}


def value_at(config, seed, step):
    return -abs(math.log10(config["lr"]) + 3) * step + 0.1 * (seed % 7) + config["layers"]


def climb(trial):
    for step in range(1, trial.until + 1):
        trial.report(step, value_at(trial.config, trial.seed, step))
        if trial.should_stop():
            return


def url(tmp_path, kind="sqlite"):
    return f"sqlite:///{tmp_path}/x.db" if kind == "sqlite" else str(tmp_path / "x.journal")


def load(storage, name="hills"):
    if "://" not in storage:
        from optuna.storages.journal import JournalFileBackend

        storage = optuna.storages.JournalStorage(JournalFileBackend(storage))
    return optuna.load_study(study_name=name, storage=storage)


def rows_of(folder):
    """List the configurations of a study as its report does."""
    spec, connection = open_copy(folder)
    with closing(connection):
        record = StudyRecord(spec, Store(connection, folder, None), folder)
        return configuration_rows(record)


STATES = dict.fromkeys(("pruned", "continued"), TrialState.PRUNED) | {
    "complete": TrialState.COMPLETE
}


def scores_of(folder):
    return [(STATES[row.state], [row.score]) for row in rows_of(folder)]


@pytest.mark.parametrize("kind", ["sqlite", "journal"])
def test_each_configuration_is_a_trial_with_its_score(tmp_path, kind):
    storage = url(tmp_path, kind)
    result = tune(climb, SPACE, out=tmp_path / "s", callbacks=[OptunaStorage(storage)], **OPTIONS)
    study = load(storage)
    trials = study.get_trials()
    rows = rows_of(tmp_path / "s")
    assert len(trials) == len(rows) >= 12
    for trial, row in zip(trials, rows, strict=True):
        assert trial.user_attrs["proposal"] == row.number
        assert trial.user_attrs["proposals"][-1] == row.proposal
        assert trial.values == [row.score]
        assert trial.state == STATES[row.state]
        assert trial.user_attrs["steps"] == row.until
        assert trial.user_attrs["origin"] == row.origin
        assert trial.user_attrs["seeds"] == [0, 1]
        # One curve from the first step, over both seeds, and the score is its end.
        assert sorted(trial.intermediate_values) == list(range(1, row.until + 1))
        assert trial.intermediate_values[row.until] == pytest.approx(trial.value)
        for step, value in trial.intermediate_values.items():
            both = [value_at(row.values, seed, step) for seed in (0, 1)]
            assert value == pytest.approx(sum(both) / 2)
        assert set(trial.params) == set(row.values)
        assert trial.params["lr"] == pytest.approx(row.values["lr"])
        assert json.loads(trial.params["net"]) == list(row.values["net"])
        assert ("slope" in trial.params) == (trial.params["act"] == "relu")
    assert {trial.state for trial in trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    assert study.best_trial.user_attrs["proposals"][-1] == result.incumbent.proposal
    assert study.best_value == result.tuning
    assert study.metric_names == ["value"]
    assert study.user_attrs["incumbent_proposal"] == str(result.incumbent.proposal)
    assert study.user_attrs["test_score"] == result.test.value
    interval = result.test.interval
    bounds = [study.user_attrs[f"test_score_{end}"] for end in ("low", "high")]
    assert bounds == [interval.low, interval.high]
    assert study.user_attrs["test_seeds"] == len(result.test.seeds)
    merged = {name: one for trial in trials for name, one in trial.distributions.items()}
    categorical = optuna.distributions.CategoricalDistribution
    assert merged == {
        "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
        "layers": optuna.distributions.IntDistribution(1, 4),
        "net": categorical(["[32]", "[64,64]"]),
        "act": categorical(["tanh", "relu"]),
        "slope": optuna.distributions.FloatDistribution(0.0, 1.0),
        "fixed": categorical([8]),
    }


class Killed(BaseException):
    pass


class Kills(Callback):
    """Ends the process, as far as the study can tell, after so many outcomes or scores."""

    def __init__(self, after):
        self.after = after

    def count(self, *_):
        self.after -= 1
        if self.after == 0:
            raise Killed

    on_proposal = on_outcome = on_score = count


def content(study):
    names = ("number", "state", "params", "values", "user_attrs", "intermediate_values")
    return [
        [getattr(trial, name) for name in (*names, "distributions")] for trial in study.get_trials()
    ]


@pytest.mark.parametrize("first", [True, False])  # killed before it was written, or after
@pytest.mark.parametrize(("kind", "after"), [("sqlite", 40), ("journal", 1), ("journal", 90)])
def test_a_killed_study_goes_on_in_the_same_optuna_study(tmp_path, kind, after, first):
    (tmp_path / "whole").mkdir()
    whole = url(tmp_path / "whole", kind)
    tune(climb, SPACE, callbacks=[OptunaStorage(whole)], **OPTIONS)
    storage = url(tmp_path, kind)
    folder = tmp_path / "s"
    callbacks = [OptunaStorage(storage), Kills(after)]
    with pytest.raises(Killed):
        tune(climb, SPACE, out=folder, callbacks=callbacks[::-1] if first else callbacks, **OPTIONS)
    result = tune(climb, SPACE, out=folder, callbacks=[OptunaStorage(storage)], **OPTIONS)
    assert content(load(storage)) == content(load(whole))
    assert optuna.get_all_study_names(load(storage)._storage) == ["hills"]
    assert load(storage).best_value == result.tuning


def test_what_was_not_written_before_a_kill_is_written_later(tmp_path):
    """A storage that missed a whole session has it after the next."""
    with pytest.raises(Killed):
        tune(climb, SPACE, out=tmp_path / "s", callbacks=[Kills(60)], **OPTIONS)
    storage = url(tmp_path)
    tune(climb, SPACE, out=tmp_path / "s", callbacks=[OptunaStorage(storage)], **OPTIONS)
    trials = load(storage).get_trials()
    assert [(trial.state, trial.values) for trial in trials] == scores_of(tmp_path / "s")
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        ((count,),) = database.execute("SELECT COUNT(*) FROM trials").fetchall()
    assert count == len(trials)


def tuner(tmp_path, seeds=1, **options):
    callbacks = [OptunaStorage(url(tmp_path))]
    seeds = SeedPlan(seeds, 0)
    return Tuner(SPACE, "random", seeds=seeds, name="hills", callbacks=callbacks, **options)


def test_trials_run_until_their_seeds_are_in(tmp_path):
    def states():
        return [trial.state for trial in load(url(tmp_path)).get_trials()]

    with tuner(tmp_path, seeds=2) as made:
        first = made.ask()
        (trial,) = load(url(tmp_path)).get_trials()
        assert trial.params["lr"] == pytest.approx(first.config["lr"])
        made.tell(first, 1.0)
        assert states() == [TrialState.RUNNING]
        made.tell(made.ask(), 2.0)
        made.ask()
        assert states() == [TrialState.COMPLETE, TrialState.RUNNING]
        assert load(url(tmp_path)).get_trials()[0].value == 1.5


def test_failures_are_failed_trials(tmp_path):
    with tuner(tmp_path) as made:
        made.tell(made.ask(), 3.0)
        made.fail(made.ask(), "diverged", "the loss is NaN")
        made.tell(made.ask(), 4.0)
        made.result()
    study = load(url(tmp_path))
    states = [TrialState.COMPLETE, TrialState.FAIL, TrialState.COMPLETE]
    assert [trial.state for trial in study.get_trials()] == states
    assert study.get_trials()[1].user_attrs["failure"] == "diverged: the loss is NaN"
    assert study.best_trial.number == 2


def test_several_objectives_have_their_directions(tmp_path):
    directions = {"reward": "maximize", "cost": "minimize"}
    objective = [{"metric": name, "direction": to} for name, to in directions.items()]
    values = [[1.0, 5.0], [2.0, 6.0], [1.5, 7.0]]
    with tuner(tmp_path, objective=objective) as made:
        for told in values:
            made.tell(made.ask(), dict(zip(directions, told, strict=True)))
        result = made.result()
    study = load(url(tmp_path))
    assert [direction.name.lower() for direction in study.directions] == [*directions.values()]
    assert study.metric_names == [*directions]
    assert [trial.values for trial in study.get_trials()] == values
    best = {trial.number for trial in study.best_trials}
    assert best == {point.proposal for point in result.front} == {0, 1}


def test_infeasible_proposals_are_infeasible_trials(tmp_path):
    with tuner(tmp_path, constraints=[{"metric": "cost", "max": 5.0}]) as made:
        for value, cost in [(1.0, 4.0), (2.0, 6.0)]:
            made.tell(made.ask(), {"value": value, "cost": cost})
        result = made.result()
    study = load(url(tmp_path))
    assert [trial.constraints for trial in study.get_trials()] == [{"0": -1.0}, {"0": 1.0}]
    assert study.best_trial.number == result.incumbent.proposal == 0


@pytest.mark.parametrize("seeds", ["adaptive", "racing"])
def test_a_score_is_that_of_all_its_seeds(tmp_path, seeds):
    """More seeds change a score until the search is over; no trial ends before."""
    storage = url(tmp_path)
    options = OPTIONS | {"seeds": SeedPlan(4, 2), "runs": 30}
    options |= {"evaluation": {"seeds": seeds, "min": 1}}
    del options["stop"], options["rungs"]
    seen = []

    def watched(trial):
        names = optuna.get_all_study_names(storage)
        seen.extend(trial.state for name in names for trial in load(storage, name).get_trials())
        climb(trial)

    folder = tmp_path / "s"
    with pytest.raises(Killed):
        tune(watched, SPACE, out=folder, callbacks=[OptunaStorage(storage), Kills(40)], **options)
    result = tune(watched, SPACE, out=folder, callbacks=[OptunaStorage(storage)], **options)
    trials = load(storage).get_trials()
    assert [(trial.state, trial.values) for trial in trials] == scores_of(folder)
    assert [trial.number for trial in trials] == [trial.user_attrs["proposal"] for trial in trials]
    assert len({len(trial.user_attrs["seeds"]) for trial in trials}) > 1
    assert TrialState.RUNNING in seen
    assert trials[result.incumbent.proposal].value == result.tuning
    assert "scored_again" not in load(storage).user_attrs


STEPPED = {
    "trainer": {"name": "synthetic"},
    "space": {
        "hyperparameters": {"x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True}}
    },
    "fidelity": {"steps": 9, "evaluations": 9, "episodes": 1},
    "budget": {"runs": 24},
    "seeds": {"tuning": 2, "test": 1},
    "executor": {"name": "in_process"},
    "name": "hills",
}


@pytest.mark.parametrize(
    "optimizer",
    [
        {"name": "asha", "eta": 3, "rungs": 3},
        {"name": "hyperband", "eta": 3},
        {"name": "pbt", "population": 4, "generations": 3},
    ],
    ids=lambda optimizer: optimizer["name"],
)
def test_what_may_go_on_runs_until_the_search_is_over(tmp_path, optimizer):
    """Killed in between: what went on in one session and ended in another is one trial."""
    storage = url(tmp_path, "journal")
    study = STEPPED | {"optimizer": optimizer}
    folder = tmp_path / "s"
    with pytest.raises(Killed):
        tune(study, out=folder, callbacks=[OptunaStorage(storage), Kills(40)])
    states = {trial.state for trial in load(storage).get_trials()}
    assert TrialState.RUNNING in states
    assert TrialState.PRUNED not in states
    result = tune(study, out=folder, callbacks=[OptunaStorage(storage)])
    trials = load(storage).get_trials()
    assert {trial.user_attrs["proposal"] for trial in trials} >= {
        row.number for row in rows_of(folder)
    }
    with closing(open_copy(folder)[1]) as connection:
        proposals = {row.proposal: row for row in StudyTables.of(connection).proposals()}
    numbers = [number for trial in trials for number in trial.user_attrs["proposals"]]
    assert sorted(numbers) == sorted(proposals)
    for trial in trials:
        last = proposals[trial.user_attrs["proposals"][-1]]
        whole = last.until == 9 and "provisional" not in trial.user_attrs
        assert trial.state == (TrialState.COMPLETE if whole else TrialState.PRUNED)
        assert trial.values == list(last.score)
    best = load(storage).best_trial
    assert best.user_attrs["proposals"][-1] == result.incumbent.proposal
    assert "scored_again" not in load(storage).user_attrs


def test_another_study_of_the_same_name_is_left_alone(tmp_path):
    storage = url(tmp_path)
    theirs = optuna.create_study(study_name="hills", storage=storage)
    theirs.add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(InputError, match="the Optuna study 'hills' is of something else"):
        tune(climb, SPACE, callbacks=[OptunaStorage(storage)], **OPTIONS)
    assert len(load(storage).get_trials()) == 1
    tune(climb, SPACE, callbacks=[OptunaStorage(storage, study="mine")], **OPTIONS)
    assert len(load(storage, "mine").get_trials()) >= 12


@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("x.db", "write sqlite:///x.db"),
        (3, "expected a URL such as sqlite:///x.db"),
        ("nothing://x", "Optuna cannot open nothing://x"),
        ("sqlite:////nowhere/at/all/x.db", "Optuna cannot open"),
        ("/nowhere/at/all/x.journal", "there is no folder /nowhere/at/all"),
        ("nothing://me:secret@host/x", r"nothing://\*\*\*@host/x"),
    ],
)
def test_what_is_no_storage_is_refused(storage, message):
    with pytest.raises(InputError, match=message) as error:
        OptunaStorage(storage)
    assert "secret" not in str(error.value)


def test_a_study_file_names_it(tmp_path):
    storage = url(tmp_path)
    study = STEPPED | {
        "name": "file",
        "budget": {"runs": 4},
        "optimizer": "random",
        "seeds": {"tuning": 1, "test": 1},
        "callbacks": [{"autorl.integrations.optuna_storage:OptunaStorage": {"storage": storage}}],
    }
    result = tune(study, out=tmp_path / "s")
    trials = load(storage, "file").get_trials()
    assert len(trials) == 4
    assert trials[result.incumbent.proposal].value == result.tuning
    with closing(Study.open(tmp_path / "s")) as longer:
        longer.extend(3)
        result = longer.run()
    mirrored = load(storage, "file")
    assert mirrored.get_trials()[:4] == trials
    assert len(mirrored.get_trials()) == 7
    best = result.incumbent.proposal
    assert mirrored.best_trial.number == best
    assert mirrored.user_attrs["incumbent_proposal"] == str(best)


def test_the_dashboard_lists_the_trials(tmp_path):
    dashboard = pytest.importorskip("optuna_dashboard", reason="needs optuna-dashboard")
    storage = url(tmp_path)
    tune(climb, SPACE, callbacks=[OptunaStorage(storage)], **OPTIONS)
    served = dashboard.wsgi(storage)

    def asked(path):
        request = {"PATH_INFO": f"/api/studies{path}"}
        setup_testing_defaults(request)
        return json.loads(b"".join(served(request, lambda *_: None)))

    (study,) = asked("")["study_summaries"]
    shown = asked(f"/{study['study_id']}")["trials"]
    trials = load(storage).get_trials()
    states = {"Complete": TrialState.COMPLETE, "Pruned": TrialState.PRUNED}
    assert study["study_name"] == "hills"
    assert [(states[item["state"]], item["values"]) for item in shown] == [
        (trial.state, trial.values) for trial in trials
    ]
    curves = [item["intermediate_values"] for item in shown]
    assert [{point["step"]: point["value"] for point in curve} for curve in curves] == [
        trial.intermediate_values for trial in trials
    ]
