"""Adapters: what a checkpoint holds, the model that comes out, and what is refused."""

import importlib.util
import math
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from rlhf_support import one_thread  # noqa: F401
from segments import segment, train
from test_trl_contract import task as task_of_contract

from autorl.core.types import InputError, TrainerSpec, freeze
from autorl.trainers import load
from autorl.trainers.language.models import load_policy, load_reward_model, load_tokenizer
from autorl.trainers.trl.checks import check_values
from autorl.trainers.trl.methods import find

task = task_of_contract
METHODS = ("rloo", "grpo", "dpo", "kto", "sft", "reward", "cpo", "orpo", "online_dpo")
FIRST = ("rloo", "dpo", "reward")
LORA = {"learning_rate": 1e-2, "lora.r": 4, "lora.alpha": 8}


def adapted(name, task, folder, until=1, **more):
    config = LORA | ({"num_generations": 4} if find(name).grouped else {})
    options = {"guard": 0, "per_device_train_batch_size": 8, **more.pop("options", {})}
    values = {"horizon": 2, "episodes": 8, "seed": 3, **more}
    return segment(f"trl/{name}", task, config, until, folder, options, **values)


def logits(model, tokenizer):
    import torch

    with torch.no_grad():
        return model(**tokenizer("a b", return_tensors="pt", return_token_type_ids=False)).logits


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in FIRST else pytest.mark.more) for one in METHODS]
)
def test_the_adapter_is_the_checkpoint_and_both_exports_are_the_model_that_was_scored(
    name, task, tmp_path
):
    """The base is loaded by transformers alone, the adapter put on it by peft."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    outcome = train(adapted(name, task, tmp_path / "one"))
    files = {path.name for path in Path(outcome.checkpoint.path).iterdir()}
    assert {"adapter_model.safetensors", "optimizer.pt"} <= files
    assert not files & {"model.safetensors", "README.md", "training_args.bin"}
    trainer, base = load(TrainerSpec(f"trl/{name}")), Path(task.kwargs["model"])
    merged = trainer.export_model(outcome.checkpoint, tmp_path / "merged").path
    alone = trainer.export_adapter(outcome.checkpoint, tmp_path / "adapter").path
    of_rewards = name == "reward"
    kind = AutoModelForSequenceClassification if of_rewards else AutoModelForCausalLM
    tokenizer = load_tokenizer(merged)
    whole = logits(kind.from_pretrained(merged), tokenizer)
    on_base = load_reward_model(base, 1) if of_rewards else load_policy(base)
    assert torch.allclose(
        whole, logits(PeftModel.from_pretrained(on_base, alone), tokenizer), atol=1e-5
    )
    if not of_rewards:
        assert not torch.allclose(whole, logits(load_policy(base), tokenizer), atol=1e-3)
    metrics = outcome.reports[-1].metrics
    assert all(map(math.isfinite, metrics.values()))
    assert of_rewards or metrics["kl"] > 1e-6


@pytest.mark.parametrize("name", ["rloo", "dpo"])
def test_a_run_that_is_cut_ends_with_the_adapter_of_one_that_is_not(name, task, tmp_path):
    ends = [train(adapted(name, task, tmp_path / "whole", 2))]
    half = train(adapted(name, task, tmp_path / "half"))
    ends.append(train(adapted(name, task, tmp_path / "rest", 2, after=half)))
    files = [Path(one.checkpoint.path, "adapter_model.safetensors").read_bytes() for one in ends]
    assert files[0] == files[1]
    assert ends[0].reports[-1].metrics == ends[1].reports[-1].metrics


def test_options_of_a_mapping_are_those_of_names_with_a_dot(task, tmp_path):
    spec = TrainerSpec("trl/dpo", freeze({"lora": {"r": 2, "target_modules": ["q_proj"]}}))
    assert load(spec).defaults == {"lora.r": 2, "lora.target_modules": ("q_proj",)}
    load(spec).check(task, ())
    spec = TrainerSpec("trl/dpo", freeze({"lora": {"target_modules": ["nothing"]}}))
    with pytest.raises(InputError, match=r"kwargs.lora.target_modules: Target modules .*nothing"):
        load(spec).check(task, ())
    with pytest.raises(InputError, match=r"lora.target_modules: .*lm_head"):
        train(adapted("dpo", task, None, options={"lora": {"target_modules": ["lm_head"]}}))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("r", 0, "lora.r: expected a whole number of at least 1, got 0"),
        ("dropout", 1.5, "expected a number in 0..0.99"),
        ("rslora", "yes", "expected true or false, got 'yes'"),
        ("target_modules", 3, "expected all-linear or names of modules, got 3"),
        ("base", "int4", "expected nf4, got 'int4'"),
        ("base", "nf4", "nf4 needs bitsandbytes, which is not installed"),
    ],
)
def test_a_value_that_no_adapter_can_have_is_refused(name, value, message, monkeypatch):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda module, *more: None if module == "bitsandbytes" else find_spec(module, *more),
    )
    with pytest.raises(InputError, match=message):
        check_values(find("dpo"), {f"lora.{name}": value}, {})


def test_a_whole_model_has_no_adapter_to_export(task, tmp_path):
    one = segment("trl/dpo", task, {"learning_rate": 1e-2}, 1, tmp_path / "one", {"guard": 0})
    trainer = load(TrainerSpec("trl/dpo"))
    with pytest.raises(InputError, match="--adapter: the model was trained whole"):
        trainer.export_adapter(train(one).checkpoint, tmp_path / "adapter")
