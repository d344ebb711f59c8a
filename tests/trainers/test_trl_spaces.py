"""The shipped search spaces of RLHF: TRL takes every name and every configuration of them."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from segments import segment, train

from autorl.core.types import Status, TrainerSpec
from autorl.space import load_space
from autorl.trainers import load
from autorl.trainers.trl.methods import SAMPLED, find
from autorl.trainers.trl.settings import Settings

ROOT = Path(__file__).parents[2] / "search_spaces" / "trl"
METHODS = {
    "simpo": "cpo",
    "gspo": "grpo",
    "dpo-sft": "dpo",
}  # where the space is not named after the trainer
METHODS |= {f"{name}-lora": name for name in ("rloo", "grpo", "dpo")}
SPACES = sorted(path.stem for path in ROOT.glob("*.yaml"))
OWN = sorted(path.stem for path in (ROOT.parent / "rlhf").glob("ppo*.yaml"))
TINY = [name for name in SPACES if name.endswith("-tiny")]
OURS = {
    "use_kl",
    "per_device_train_batch_size",
}  # the batch is ours because TRL counts it otherwise in each method
SHAPES = {"learning_rate.shape", "learning_rate.end"}


def method_of(name):
    name = name.removesuffix("-tiny")
    return METHODS.get(name, name)


def learns_from_prompts(name):
    return method_of(name) == "ppo" or find(method_of(name)).online


@pytest.mark.parametrize("name", SPACES)
def test_every_name_is_one_the_trainer_has(name):
    names = {name for name in load_space(ROOT / f"{name}.yaml").names if "." not in name}
    load(TrainerSpec(f"trl/{method_of(name)}")).check_names(names)


@pytest.mark.parametrize("name", OWN)
def test_our_own_ppo_takes_its_spaces_and_the_first_by_their_earlier_name_too(name):
    space = load_space(f"rlhf/{name}")
    load(TrainerSpec("rlhf/ppo")).check_names({name for name in space.names if "." not in name})
    if name in SPACES:
        assert load_space(f"trl/{name}").hash == space.hash
    rng = np.random.default_rng(0)
    for config in (space.default(), *(space.sample(rng) for _ in range(30))):
        load(TrainerSpec("rlhf/ppo")).check_configuration(config)


@pytest.mark.slow
@pytest.mark.cpu_seconds(600)  # builds the task
@pytest.mark.parametrize(
    ("trainer", "space", "steps"),
    [
        ("rlhf/ppo", "rlhf/ppo-remax-tiny", 40),
        ("rlhf/ppo", "rlhf/ppo-reinforce++-tiny", 40),
        ("trl/raft", "trl/raft-tiny", 8),
        ("trl/iterated_dpo", "trl/iterated_dpo-tiny", 8),
        ("trl/dpo", "trl/dpo-sft-tiny", 8),
    ],
)
def test_a_default_beats_the_reference_policy(trainer, space, steps):
    config = load_space(space).default()
    of_run = {"horizon": steps, "episodes": 256, "seed": 0, "save": False}
    outcome = train(segment(trainer, "letters-goldproxy", config, steps, None, **of_run))
    metrics = outcome.reports[-1].metrics
    assert metrics["gold"] > metrics["reference_gold"] + 0.2


@pytest.mark.parametrize("name", [name for name in SPACES if method_of(name) != "ppo"])
def test_trl_takes_every_configuration(name, tmp_path):
    space = load_space(ROOT / f"{name}.yaml")
    rng = np.random.default_rng(0)
    for config in (space.default(), *(space.sample(rng) for _ in range(30))):
        settings = Settings(find(method_of(name)), {}, config)
        arguments = settings.arguments(0, 10, str(tmp_path), 8, cuda=False)
        assert arguments.learning_rate == pytest.approx(config["learning_rate"])
        assert arguments.per_device_train_batch_size == config["per_device_train_batch_size"]


@pytest.mark.parametrize(
    "name", [name for name in SPACES if name not in (*TINY, *METHODS, *SAMPLED, "ppo")]
)
def test_defaults_are_those_of_trl(name):
    _, config_class = find(name).classes()
    own = vars(config_class(output_dir="unused", use_cpu=True, bf16=False))
    default = {
        key: value
        for key, value in load_space(ROOT / f"{name}.yaml").default().items()
        if key not in OURS | SHAPES
    }
    assert default
    for key, value in default.items():
        assert value == own[key] or [value] == own[key], key


@pytest.mark.slow
@pytest.mark.cpu_seconds(600)
@pytest.mark.parametrize("name", TINY)
def test_configurations_of_it_train(name):
    space, rng = load_space(ROOT / f"{name}.yaml"), np.random.default_rng(1)
    task = "letters-goldproxy" if learns_from_prompts(name) else "letters-pairs"
    for _ in range(3):
        config = space.sample(rng)
        method = f"trl/{method_of(name)}"
        outcome = train(segment(method, task, config, 2, None, {"guard": 0}, episodes=8, seed=0))
        assert outcome.status is Status.DONE, outcome.message
        assert {key: outcome.applied[key] for key in config} == dict(config)


@pytest.mark.parametrize("name", ["rloo", "grpo", "dpo"])
def test_the_rate_of_an_adapter_is_ten_times_that_of_the_whole_model(name):
    for tiny in ("", "-tiny"):
        whole, adapter = (load_space(f"trl/{name}{lora}{tiny}").default() for lora in ("", "-lora"))
        assert adapter["learning_rate"] == pytest.approx(10 * whole["learning_rate"])
        assert adapter.keys() - whole.keys() == {"lora.r", "lora.alpha"}
