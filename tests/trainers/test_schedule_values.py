"""Schedules as search values: each shape on both engines, the same at a cut, and open to population-based training."""

import pytest
from segments import segment, train

from autorl.optimizers import make
from autorl.space import load_space, resolve_schedules
from autorl.space.schedules import SHAPES
from autorl.study.setup import changeable, trainer_loader
from autorl.study.spec import load_spec
from autorl.testing.simulation import simulate

ON_POLICY = {"n_steps": 32, "batch_size": 32, "n_epochs": 1}
OFF_POLICY = {"learning_starts": 16, "batch_size": 16, "buffer_size": 500, "train_freq": 4}
SMALL = {
    "population/ppo": {**ON_POLICY, "net_width": 8},
    "population/dqn": {**OFF_POLICY, "net_width": 8},
    "sb3/ppo": {**ON_POLICY, "net_arch": [8]},
    "sb3/dqn": {**OFF_POLICY, "net_arch": [8]},
}
LOG = {"type": "float", "scale": "log"}
VALUE = {
    **LOG,
    **{"lower": 1e-5, "upper": 1e-1, "default": 1e-2, "changeable": True},
    "schedule": ["constant", "linear", "cosine"],
}
HORIZON = 256


@pytest.fixture(params=sorted(SMALL))
def name(request):
    if request.param.startswith("sb3"):
        pytest.importorskip("stable_baselines3", reason="the extra `sb3` is not installed")
    return request.param


def trained(folder, name, config, after=None):
    of_run = {"seed": 0, "after": after, "horizon": HORIZON, "evaluate_at": ()}
    until = HORIZON // 2 if after is None else HORIZON
    place = folder / str(until)
    return train(segment(name, "CartPole-v1", config, until, place, SMALL[name], **of_run))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_has_its_value_at_the_start_and_at_a_cut(tmp_path, name, shape):
    """An inert learning rate after a restore, where the optimizer's state brings the old one back, would be 1e-2."""
    config = {"learning_rate": 1e-2, "learning_rate.shape": shape}
    config |= {} if shape == "constant" else {"learning_rate.end": 1e-4}
    first = trained(tmp_path, name, config)
    assert first.applied["learning_rate"] == pytest.approx(1e-4 if shape == "warmup" else 1e-2)
    second = trained(tmp_path, name, config, first)
    expected = resolve_schedules(config, HORIZON // 2, HORIZON)["learning_rate"]
    assert second.applied["learning_rate"] == pytest.approx(expected)
    halfway = {"constant": 1e-2, "exponential": 1e-3, "step": 1e-4, "warmup": 5.6e-3}
    assert expected == pytest.approx(halfway.get(shape, 5.05e-3))


def test_what_a_schedule_ends_at_may_change_in_training(tmp_path, name):
    config = {"learning_rate": 1e-2, "learning_rate.shape": "linear", "learning_rate.end": 1e-4}
    first = trained(tmp_path, name, config)
    second = trained(tmp_path, name, config | {"learning_rate.end": 1e-2}, first)
    assert second.applied["learning_rate"] == pytest.approx(1e-2)


def test_population_based_training_explores_the_end_of_a_schedule(name):
    searched = {"hyperparameters": {"learning_rate": VALUE}}
    document = {"trainer": name, "environment": {"id": "CartPole-v1"}, "space": searched}
    document |= {"fidelity": {"steps": 100}, "budget": {"runs": 8}, "optimizer": "pbt"}
    spec = load_spec({**document, "seeds": {"tuning": 1, "test": 0}})
    names = changeable(spec, trainer_loader(spec))
    assert names == {"learning_rate", "learning_rate.end"}
    space = load_space(searched)
    options = {"population": 8, "generations": 6, "quantile": 0.5, "ready": 0}

    def factory():
        return make("pbt", space, horizon=100, changeable=names, **options)

    proposals = simulate(factory, lambda number, proposal: float(number % 5), 48).proposals
    copies = [(proposals[one.resume_from].config, one.config) for one in proposals if one.changes]
    for before, after in copies:
        assert before["learning_rate.shape"] == after["learning_rate.shape"]
    ends = [
        (before["learning_rate.end"], after["learning_rate.end"])
        for before, after in copies
        if "learning_rate.end" in before
    ]
    assert any(before != after for before, after in ends)
