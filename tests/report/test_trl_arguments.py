"""Output of `autorl best` on an RLHF study, fed to TRL's own classes: the values of the run."""

import dataclasses
import shlex
from contextlib import closing

import pytest
import yaml

pytest.importorskip("trl", reason="needs the extra rlhf")

from report_support import arguments

from autorl.core.types import Config, EnvironmentSpec, FrozenMap, Segment, TrainerSpec
from autorl.report.reading import open_view
from autorl.space import resolve_schedules, schedule_function
from autorl.trainers import load
from autorl.trainers.trl.arguments import trl_arguments
from autorl.trainers.trl.methods import find

pytestmark = pytest.mark.cpu_seconds(600)  # the first to run builds the task
OF_STUDY = {  # fields that say where and how a study runs, not what is trained
    "output_dir", "seed", "data_seed", "report_to", "save_strategy", "eval_strategy",
    "logging_strategy", "disable_tqdm", "use_cpu", "gradient_checkpointing",
    "dataloader_pin_memory", "max_completion_length", "activation_checkpointing",
    "remove_unused_columns",
}  # fmt: skip
DECAYING = {"num_generations": 4, "learning_rate": 1e-3, "learning_rate.end": 1e-5}
SIMPO = {"loss_type": "simpo", "gamma_ratio": 0.5, "beta": 2.0, "learning_rate": 1e-3}
DECAYING_BY_TRL = {"num_generations": 4, "lr_scheduler_type": "cosine", "learning_rate": 1e-3}
RUNS = [
    ("rloo", {"num_generations": 4, "beta": 0.3, "learning_rate": 1e-3, "weight_decay": 0.1}),
    ("grpo", {"num_generations": 4, "use_kl": False, "num_iterations": 2, "learning_rate": 1e-3}),
    ("grpo", DECAYING_BY_TRL | {"reward.length_limit": 6}),
    ("dpo", {"loss_type": "rpo", "sft_weight": 0.3, "beta": 0.2, "learning_rate": 1e-3}),
    ("cpo", SIMPO),
    ("reward", {"learning_rate": 1e-3, "center_rewards_coefficient": 0.01}),
]


def segment(name, config, steps=2):
    return Segment(
        id="one",
        trainer=TrainerSpec(
            f"trl/{name}", FrozenMap({"per_device_train_batch_size": 16, "guard": 0})
        ),
        environment=EnvironmentSpec("letters-goldproxy"),
        config=Config(config),
        seed=3,
        role="tuning",
        until=steps,
        horizon=steps,
        evaluate_at=(),
        episodes=16,
    )


def live_arguments(one, monkeypatch):
    """The arguments TRL's trainer has while it trains a segment."""
    from autorl.trainers.trl.segment_trainer import TRLRun

    heard, build = [], TRLRun.build

    def listening(run, arguments, seed):
        build(run, arguments, seed)
        heard.append(run.trl.args)

    monkeypatch.setattr(TRLRun, "build", listening)
    load(one.trainer).train(one, lambda report: None)
    return heard[0]


def as_dict(config):
    fields = {field.name for field in dataclasses.fields(config)} - OF_STUDY
    return {name: getattr(config, name) for name in sorted(fields)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "config"), RUNS)
def test_keyword_arguments_make_the_configuration_of_the_run(tmp_path, monkeypatch, name, config):
    one = segment(name, config)
    used = as_dict(live_arguments(one, monkeypatch))
    _, owner = find(name).classes()
    code = arguments(one.trainer, one.config, one.horizon)
    printed = as_dict(eval(f"owner('{tmp_path}', {code}\n)", {"owner": owner}))
    assert printed == used
    assert printed != as_dict(owner(str(tmp_path), bf16=False)), "TRL's defaults are others"


@pytest.mark.parametrize(("name", "config"), RUNS)
def test_flags_say_the_same(tmp_path, name, config):
    from transformers import HfArgumentParser

    one = segment(name, config)
    _, owner = find(name).classes()
    words = shlex.split(arguments(one.trainer, one.config, one.horizon, "cli"), comments=True)
    (parsed,) = HfArgumentParser(owner).parse_args_into_dataclasses(
        ["--output_dir", str(tmp_path), *words]
    )
    code = arguments(one.trainer, one.config, one.horizon)
    assert as_dict(parsed) == as_dict(eval(f"owner('{tmp_path}', {code}\n)", {"owner": owner}))


def rates(config, tmp_path, steps):
    """The learning rate at each step, from the scheduler that transformers makes of a configuration."""
    import torch
    from transformers import get_scheduler

    optimizer = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=config.learning_rate)
    further = config.lr_scheduler_kwargs or {}
    scheduler = get_scheduler(
        config.lr_scheduler_type, optimizer, 0, steps, scheduler_specific_kwargs=further
    )
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine"])
def test_the_learning_rate_decays_as_it_did_in_the_run(tmp_path, shape):
    one = segment("rloo", DECAYING | {"learning_rate.shape": shape}, steps=20)
    _, owner = find("rloo").classes()
    code = arguments(one.trainer, one.config, 20)
    theirs = rates(eval(f"owner('{tmp_path}', {code}\n)", {"owner": owner}), tmp_path, 20)
    ours = schedule_function(one.config, "learning_rate")
    assert theirs == pytest.approx([ours(step / 20) for step in range(20)], rel=1e-9)
    assert ("learning_rate goes from 0.001 to 1e-05 by step 20" in code) == (shape != "constant")


@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate.end": 1e-2},
        {"lr_scheduler_type": "cosine"},
        {"warmup_steps": 3},
        {"learning_rate.shape": "warmup"},
        {"num_iterations": 3},
    ],
)
def test_a_schedule_that_transformers_does_not_have_is_said_in_words(change):
    """It rises, is multiplied with another, or warms up, or ends at another step than the run."""
    one = segment("rloo", DECAYING | {"learning_rate.shape": "linear"} | change, steps=20)
    found = trl_arguments(one.trainer, one.config, 20)
    assert found.values["learning_rate"] == 1e-3
    assert "lr_scheduler_kwargs" not in found.values
    shape = one.config["learning_rate.shape"]
    assert found.notes[0].endswith(f"by step 20 ({shape}), which RLOOConfig cannot say")
    assert found.values["max_steps"] == (21 if "num_iterations" in change else 20)


def test_other_schedules_and_names_of_ours_are_said_in_words():
    config = {
        "num_generations": 4,
        "beta": 0.1,
        "beta.shape": "cosine",
        "beta.end": 0.3,
        "reward.length_limit": 6,
    }
    found = trl_arguments(TrainerSpec("trl/grpo"), config, 10)
    assert found.values["beta"] == resolve_schedules(config, 0, 10)["beta"]
    assert found.notes == (
        "beta goes from 0.1 to 0.3 by step 10 (cosine), which GRPOConfig cannot say",
        "not arguments of GRPOConfig: reward.length_limit=6",
        "max_completion_length is the task's",
    )


def test_half_precision_is_only_taken_back_where_the_run_was_on_the_cpu():
    assert trl_arguments(TrainerSpec("trl/sft"), {}, 10).values["bf16"] is False
    spec = TrainerSpec("trl/sft", FrozenMap(device="auto"))
    assert "bf16" not in trl_arguments(spec, {}, 10).values


def test_our_own_ppo_keeps_its_names():
    trainer = TrainerSpec("trl/ppo", FrozenMap({"kl_coef": 0.2}))
    assert arguments(trainer, Config({"kl_coef": 0.1, "lam": 0.9}), 10) == "kl_coef=0.1, lam=0.9"


@pytest.mark.slow
def test_a_study_is_exported_and_its_whole_configuration_is_printed(tmp_path, monkeypatch):
    """From the command line: every value in YAML, model and configuration of the same incumbent."""
    from transformers import AutoModelForCausalLM
    from typer.testing import CliRunner

    from autorl.cli import app

    def autorl(*given, code=0):
        found = CliRunner().invoke(app, [str(word) for word in given])
        assert found.exit_code == code, found.output
        return found

    short = ["budget.runs", "seeds.tuning", "seeds.test", "fidelity.evaluations"]
    sets = [f"{key}=1" for key in short]
    sets += ["fidelity.steps=2", "fidelity.episodes=16", "executor.name=in_process"]
    options = [word for one in sets for word in ("--set", one)]
    tune = ("tune", "trl/rloo", "--env", "letters-goldproxy", *options, "--out", tmp_path / "s")
    made = autorl(*tune, "--quiet").stdout
    assert f"autorl export {tmp_path / 's'} --model model " in made
    (found,) = yaml.safe_load(autorl("best", tmp_path / "s").stdout)
    assert found["trainer"] == "trl/rloo"
    assert found["configuration"]["lr_scheduler_type"] == "constant"
    load(TrainerSpec(found["trainer"])).check(
        EnvironmentSpec("letters-goldproxy"), found["configuration"]
    )
    printed = autorl("best", tmp_path / "s", "--format", "kwargs").stdout
    assert eval(f"dict({printed})")["max_steps"] == 2
    error = autorl("export", tmp_path / "s", "--model", tmp_path / "m.zip", code=2).stderr
    assert error.count("\n") == 1
    assert "is a folder" in error
    assert "seed 100" in autorl("export", tmp_path / "s", "--model", tmp_path / "m").stdout
    with closing(open_view(tmp_path / "s")) as view:
        ours = view.result().load_model()
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    assert type(ours) is type(theirs)
    states = ours.state_dict()
    assert all(bool((states[name] == value).all()) for name, value in theirs.state_dict().items())
