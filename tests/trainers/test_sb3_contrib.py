"""The algorithms of sb3-contrib train, go on and evaluate as those of Stable-Baselines3 do."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib", reason="needs the extra contrib")

import torch
from segments import run_well, segment
from trainer_environments import Masked

from autorl.core.plain_values import plain
from autorl.core.types import Config, EnvironmentSpec, FrozenMap, InputError, TrainerSpec
from autorl.space import load_space
from autorl.testing.trainers import Case, TrainerConformance
from autorl.trainers import load
from autorl.trainers.sb3.algorithms import ALGORITHMS, CONTRIB, hyperparameter_names

torch.set_num_threads(1)  # as the executors do
NAMES = sorted(name for name, algorithm in ALGORITHMS.items() if algorithm.library == CONTRIB)
_ON_POLICY = {"n_steps": 32, "batch_size": 32, "net_arch": (16,)}
_OFF_POLICY = {"learning_starts": 32, "batch_size": 16, "buffer_size": 500, "net_arch": (16,)}
MASKED = EnvironmentSpec("trainer_environments:MaskedTest-v0")
LSTM = {"n_epochs": 2, "lstm_hidden_size": 8}


class TestTQC(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/tqc", FrozenMap({**_OFF_POLICY, "train_freq": 8})),
        EnvironmentSpec("Pendulum-v1"),
        configs=(
            Config(ent_coef="auto", top_quantiles_to_drop_per_net=2),
            Config(ent_coef=0.5, top_quantiles_to_drop_per_net=0),
        ),
        horizon=128,
        episodes=1,
        fixed=("n_quantiles", 5),
    )


class TestQRDQN(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/qrdqn", FrozenMap({**_OFF_POLICY, "n_quantiles": 10})),
        EnvironmentSpec("CartPole-v1"),
        configs=(
            Config(learning_rate=1e-2, exploration_fraction=0.8, target_update_interval=50),
            Config(learning_rate=1e-2, exploration_fraction=0.3, target_update_interval=10),
        ),
        fixed=("n_quantiles", 5),
    )


class TestCrossQ(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/crossq", FrozenMap({**_OFF_POLICY, "train_freq": 8})),
        EnvironmentSpec("Pendulum-v1"),
        configs=(Config(learning_rate=1e-2), Config(learning_rate=1e-3, policy_delay=1)),
        horizon=128,
        episodes=1,
        fixed=("net_arch", (8,)),
    )


class TestTRPO(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/trpo", FrozenMap({**_ON_POLICY, "n_critic_updates": 2})),
        EnvironmentSpec("CartPole-v1", n_envs=2, normalize=True),
        configs=(
            Config(learning_rate=1e-2, target_kl=0.05),
            Config(learning_rate=1e-3, target_kl=0.01),
        ),
        fixed=("net_arch", (8,)),
    )


class TestRecurrentPPO(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/recurrent_ppo", FrozenMap({**_ON_POLICY, **LSTM})),
        EnvironmentSpec("CartPole-v1", n_envs=2),
        configs=(Config(learning_rate=1e-2), Config(learning_rate=1e-3, gamma=0.9)),
        fixed=("lstm_hidden_size", 4),
    )


class TestMaskablePPO(TrainerConformance):
    case = Case(
        TrainerSpec("sb3/maskable_ppo", FrozenMap({**_ON_POLICY, "n_epochs": 2})),
        MASKED,
        configs=(Config(learning_rate=1e-2), Config(learning_rate=1e-3, gamma=0.9)),
        fixed=("net_arch", (8,)),
    )


def trained(name, folder, environment, until=96, config=None, **kwargs):
    """Train one segment to its end and give its outcome."""
    place = folder / name
    return run_well(segment(f"sb3/{name}", environment, config, until, place, kwargs, episodes=3))


@pytest.mark.parametrize("name", NAMES)
def test_start_spaces_have_names_the_algorithm_takes(name):
    names = load_space(f"sb3/{name}").names
    bases = {part.removesuffix(".shape").removesuffix(".end") for part in names}
    assert bases <= hyperparameter_names(ALGORITHMS[name])


@pytest.mark.parametrize("name", NAMES)
def test_the_default_of_the_start_space_is_built_by_the_dry_run(name):
    on_policy = ALGORITHMS[name].on_policy
    environment = EnvironmentSpec("CartPole-v1" if on_policy or name == "qrdqn" else "Pendulum-v1")
    if ALGORITHMS[name].masked:
        environment = MASKED
    trainer = load(TrainerSpec(f"sb3/{name}"))
    space = load_space(f"sb3/{name}")
    trainer.check(environment, {part for part in space.names if "." not in part})
    trainer.check_model(environment, space.default())


@pytest.mark.parametrize("name", NAMES)
def test_network_defaults_of_the_start_space_are_those_of_the_policy(name):
    kind = ALGORITHMS[name].load_class()
    action = "CartPole-v1" if ALGORITHMS[name].on_policy or name == "qrdqn" else "Pendulum-v1"
    options = {} if ALGORITHMS[name].on_policy else {"buffer_size": 10}
    policy = kind(ALGORITHMS[name].policy_name("Mlp"), action, device="cpu", **options).policy
    default = load_space(f"sb3/{name}").default()
    of_library = policy.net_arch
    if isinstance(of_library, dict) and of_library.get("pi") == of_library.get("vf"):
        of_library = of_library["pi"]
    assert of_library == plain(default["net_arch"])
    assert policy.activation_fn.__name__.lower() == default["activation"]


def test_masked_policies_take_no_action_that_is_invalid(tmp_path, monkeypatch):
    monkeypatch.setattr(Masked, "invalid", 0)
    outcome = trained("maskable_ppo", tmp_path, MASKED, n_steps=32, batch_size=32)
    assert Masked.steps > 96, "training and evaluation step it"
    assert Masked.invalid == 0
    assert outcome.reports[-1].metrics["eval_length"] == 10


def test_an_environment_without_masks_is_refused_before_a_study():
    with pytest.raises(InputError, match=r"`action_masks`.*CartPole-v1 has none.*ActionMasker"):
        load(TrainerSpec("sb3/maskable_ppo")).check(EnvironmentSpec("CartPole-v1"), ())


def test_a_wrapper_may_bring_the_masks():
    wrapper = FrozenMap({"trainer_environments:WithMasks": FrozenMap()})
    environment = EnvironmentSpec("CartPole-v1", wrappers=(wrapper,))
    load(TrainerSpec("sb3/maskable_ppo")).check(environment, ())


def test_a_recurrent_policy_remembers_its_own_episode_in_an_evaluation(tmp_path):
    """Its returns do not depend on how many episodes are played side by side."""
    environment = EnvironmentSpec("CartPole-v1")
    options = {"n_steps": 32, "batch_size": 32, **LSTM}
    metrics = [
        trained("recurrent_ppo", tmp_path / str(envs), environment, evaluation_envs=envs, **options)
        .reports[-1]
        .metrics
        for envs in (1, 2, 3)
    ]
    assert metrics[0] == metrics[1] == metrics[2]


def test_a_recurrent_policy_has_another_state_after_its_first_step(tmp_path, monkeypatch):
    from sb3_contrib import RecurrentPPO

    seen = []
    predict = RecurrentPPO.predict

    def recording(model, observation, state=None, episode_start=None, **options):
        seen.append((None if state is None else state[0].copy(), list(episode_start)))
        return predict(model, observation, state, episode_start, **options)

    monkeypatch.setattr(RecurrentPPO, "predict", recording)
    trained("recurrent_ppo", tmp_path, MASKED, n_steps=32, batch_size=32, **LSTM)
    assert seen[0][0] is None
    assert seen[0][1] == [True, True, True]
    assert all(abs(state).sum() > 0 for state, _ in seen[1:10])
    assert all(start == [False, False, False] for _, start in seen[1:10])


def test_an_exported_model_is_of_the_library_and_acts_as_the_trained_one(tmp_path: Path):
    import sb3_contrib

    outcome = trained(
        "tqc",
        tmp_path,
        EnvironmentSpec("Pendulum-v1"),
        train_freq=8,
        n_quantiles=5,
        **{name: value for name, value in _OFF_POLICY.items()},
    )
    trainer = load(TrainerSpec("sb3/tqc", FrozenMap({**_OFF_POLICY, "n_quantiles": 5})))
    exported = trainer.export_model(outcome.checkpoint, tmp_path / "model")
    assert exported.kind == "sb3_contrib.TQC"
    model = sb3_contrib.TQC.load(exported.path)
    assert model.policy.net_arch == [16]
    assert model.policy_kwargs["n_quantiles"] == 5


def test_optimizer_options_that_qr_dqn_would_overrule_are_refused():
    kwargs = FrozenMap(policy_kwargs=FrozenMap(optimizer_kwargs=FrozenMap(eps=1e-3)))
    with pytest.raises(InputError, match="QR-DQN's own Adam does not read them"):
        load(TrainerSpec("sb3/qrdqn", kwargs))
