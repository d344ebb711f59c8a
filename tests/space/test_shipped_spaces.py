"""Every shipped search space loads, and the Stable-Baselines3 ones have its defaults."""

import inspect
from pathlib import Path

import numpy as np
import pytest

from autorl.space import find_space, load_space
from autorl.trainers.sb3.algorithms import ALGORITHMS, CONTRIB

ROOT = Path(__file__).resolve().parents[2] / "search_spaces"
FILES = sorted(ROOT.glob("**/*.yaml"))
# Those of a suite of environments have its presets: tests/trainers/test_sb3_suites.py.
OF_SUITES = ("atari", "box2d", "mujoco", "minigrid")
SB3 = sorted(
    path.stem
    for path in (ROOT / "sb3").glob("*.yaml")
    if path.stem.partition("-")[2] not in OF_SUITES
)
OF_SB3 = [name for name in SB3 if ALGORITHMS[name.split("-")[0]].library != CONTRIB]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_it_loads_says_what_it_is_for_and_can_be_sampled(path):
    assert path.read_text().startswith("# ")
    space = load_space(path)
    assert not space.missing
    rng = np.random.default_rng(0)
    for _ in range(50):
        config = space.sample(rng)
        space.check(config)
        space.check(space.perturb(config, rng))
    assert load_space(path).hash == space.hash


def test_a_shipped_name_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_space("sb3/ppo").name == "ppo.yaml"
    own = tmp_path / "search_spaces" / "sb3" / "ppo.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("hyperparameters: {x: {choices: [1, 2]}}\n")
    assert load_space("sb3/ppo").names == ("x",), "the working folder comes first"


@pytest.mark.parametrize("name", SB3)
def test_defaults_are_those_of_the_constructor(name):
    algorithm = ALGORITHMS[name.split("-")[0]]
    pytest.importorskip(algorithm.library, reason=f"needs {algorithm.library}")
    space = load_space(ROOT / "sb3" / f"{name}.yaml")
    kind = algorithm.load_class()
    policy = kind.policy_aliases[algorithm.policy_name("Mlp")]
    constructor = {
        **inspect.signature(policy.__init__).parameters,
        **inspect.signature(kind.__init__).parameters,
    }
    others = {"net_arch", "activation", "learning_rate.shape", "learning_rate.end"}
    checked = [name for name in space.names if name not in others]
    assert len(checked) >= 5
    for name in checked:
        assert space.hyperparameters[name].default == constructor[name].default, name
    assert space.default().get("learning_rate.shape", "constant") == "constant"


@pytest.mark.parametrize("name", [name for name in OF_SB3 if name != "ppo-small"])
def test_network_defaults_are_those_of_the_policy(name):
    sb3 = pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    from torch import nn

    environment = "CartPole-v1" if name in ("ppo", "a2c", "dqn") else "Pendulum-v1"
    options = {} if name in ("ppo", "a2c") else {"buffer_size": 10}
    policy = getattr(sb3, name.upper())("MlpPolicy", environment, device="cpu", **options).policy
    network = {"dqn": lambda: policy.q_net.q_net, "sac": lambda: policy.actor.latent_pi}.get(
        name, lambda: policy.mlp_extractor.policy_net if name in ("ppo", "a2c") else policy.actor.mu
    )()
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    inner = layers if name in ("ppo", "a2c", "sac") else layers[:-1]
    default = load_space(ROOT / "sb3" / f"{name}.yaml").default()
    assert tuple(layer.out_features for layer in inner) == default["net_arch"]
    assert type(network[1]).__name__.lower() == default["activation"]


def test_batch_never_exceeds_the_rollout():
    space = load_space("sb3/ppo").with_constants({"n_envs": 2})
    rng = np.random.default_rng(0)
    sampled = [space.sample(rng) for _ in range(300)]
    assert max(config["batch_size"] / (2 * config["n_steps"]) for config in sampled) == 1
    assert any(config["batch_size"] > config["n_steps"] for config in sampled)
