"""Samplers of Optuna by path: what they are told, what they leave behind, and what is refused."""

import optuna
import pytest
from optuna.samplers import TPESampler
from optuna.trial import TrialState

from autorl.core import seeds
from autorl.core.types import Config, Failed, InputError, Proposal, Proposed, Scored, Status
from autorl.optimizers import make
from autorl.space import load_space
from autorl.study.session import user_files
from autorl.study.spec import load_spec
from autorl.testing.optimizers import score, space_of, two_scores
from autorl.testing.simulation import simulate

LINE = load_space({"x": {"type": "float", "lower": 0.0, "upper": 1.0}})
SEEN = []


class Watching(TPESampler):
    """Keeps the trials that it was shown."""

    def __init__(self, constraints_func=None, **arguments):
        super().__init__(**arguments, n_startup_trials=3, constraints_func=constraints_func)

    def infer_relative_search_space(self, study, trial):
        SEEN[:] = study.get_trials()[:-1]
        return super().infer_relative_search_space(study, trial)


def of(sampler, space=LINE, n_objectives=1, **kwargs):
    options = {"sampler": sampler, "kwargs": kwargs}
    return make("optuna", space, horizon=100, n_objectives=n_objectives, **options)


def test_a_sampler_is_shown_what_was_proposed_and_what_became_of_it():
    asked = of("test_optuna_samplers:Watching")
    for number, x in enumerate((0.5, 0.1, 0.9, 0.4, 0.2)):
        asked.observe(Proposed(number, Proposal(Config(x=x), 100)))
    asked.observe(Scored(3, (2.0,), constraints=(-1.0,)))
    asked.observe(Scored(0, (1.0,), constraints=(-1.0, 0.5)))
    asked.observe(Failed(1, Status.CRASH, (1.0,)))
    asked.observe(Scored(2, (3.0,), constraints=(0.0, 0.0)))
    asked.observe(Scored(3, (2.5,), constraints=(-1.0, -1.0)))
    answer = asked.ask(seeds.generator(0, "ask", 5))
    states = [TrialState.COMPLETE, TrialState.FAIL, *[TrialState.COMPLETE] * 2, TrialState.RUNNING]
    assert [trial.state for trial in SEEN] == states
    assert [trial.params["x"] for trial in SEEN] == [0.5, 0.1, 0.9, 0.4, 0.2]
    assert [trial.values for trial in SEEN] == [[1.0], None, [3.0], [2.5], None]
    assert SEEN[0].constraints == {"0": -1.0, "1": 0.5}
    assert answer.informed
    # The same sampler in a study of Optuna's own says the same.
    study = optuna.create_study(direction="maximize")
    for trial in SEEN:
        study.add_trial(trial)
    seed = int(seeds.generator(0, "ask", 5).integers(2**31))
    study.sampler = TPESampler(seed=seed, n_startup_trials=3, constraints_func=lambda trial: ())
    assert study.ask().suggest_float("x", 0.0, 1.0) == pytest.approx(answer.config["x"], abs=1e-9)


def test_generations_go_on_and_the_default_is_of_the_first():
    space = space_of("types")

    def made():
        sampler = "optuna.samplers:NSGAIIISampler"
        return of(sampler, space, n_objectives=2, population_size=4)

    proposals = simulate(made, two_scores(space), 16).proposals
    generations = [p.meta.get("trial", {}).get("NSGAIIISampler:generation") for p in proposals]
    assert generations == [None, *[0] * 3, *[1] * 4, *[2] * 4, *[3] * 4]
    assert [p.informed for p in proposals] == [False] * 4 + [True] * 12
    parents = [{*p.meta["study"].values()} for p in proposals if "study" in p.meta]
    assert [len(*numbers) for numbers in parents] == [4, 4, 4]


def test_no_state_of_a_sampler_is_kept_as_a_pickle():
    space = space_of("continuous")
    simulation = simulate(lambda: of("optuna.samplers:CmaEsSampler", space), score(space), 14)
    kept = [value for p in simulation.proposals for value in p.meta.get("trial", {}).values()]
    assert kept
    assert {type(value) for value in kept} == {int}


@pytest.mark.parametrize(
    ("sampler", "how", "message"),
    [
        ("TPESampler", {}, "expected module:Class, such as .*, got 'TPESampler'"),
        ("optuna.samplers:TPE", {}, "'optuna.samplers' has no 'TPE'"),
        ("json:JSONEncoder", {}, "is no subclass of optuna.samplers.BaseSampler"),
        ("optuna.samplers:PartialFixedSampler", {}, "takes no `seed`"),
        ("optuna.samplers:TPESampler", {"n_startup": 3}, "TypeError: .*argument 'n_startup'"),
        ("optuna.samplers:CmaEsSampler", {"n_objectives": 2}, "ValueError: .*multi-objective"),
        ("optuna.samplers:BruteForceSampler", {}, "cannot search this: ValueError"),
    ],
)
def test_a_sampler_that_cannot_search_is_refused_in_one_line(sampler, how, message):
    with pytest.raises(InputError, match=message) as error:
        of(sampler, **how)
    assert error.value.key == "optimizer.sampler"
    assert "\n" not in error.value.message


def test_the_module_of_a_sampler_lies_beside_the_study_file_and_is_recorded(tmp_path):
    from autorl.study.setup import make_optimizer, trainer_loader

    code = "from optuna.samplers import RandomSampler\n\nclass Mine(RandomSampler):\n    pass\n"
    (tmp_path / "own_samplers.py").write_text(code)
    file = tmp_path / "study.yaml"
    file.write_text(
        "trainer: synthetic\nspace: {x: uniform(0, 1)}\nfidelity: {steps: 10}\nbudget: {runs: 9}\n"
        "optimizer: {name: optuna, sampler: 'own_samplers:Mine'}\n"
    )
    spec = load_spec(file)
    assert make_optimizer(spec, trainer_loader(spec)).ask(seeds.generator(0, "ask", 0))
    assert list(user_files(spec)) == ["own_samplers.py"]
