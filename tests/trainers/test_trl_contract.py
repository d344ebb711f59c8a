"""Contract with TRL: each name is there, no other is used, and training is TRL's to the bit."""

import ast
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

import trl
from rlhf_support import one_thread, save, write_policy  # noqa: F401
from segments import segment, train

import autorl.trainers.trl as room
from autorl.core.seeds import integer_seed
from autorl.core.types import EnvironmentSpec, FrozenMap
from autorl.trainers.language.models import load_policy, load_tokenizer
from autorl.trainers.rlhf.trainer import build_task
from autorl.trainers.trl.data_sets import data_set
from autorl.trainers.trl.methods import _EXPERIMENTAL, SAMPLED, STABLE, find
from autorl.trainers.trl.segment_trainer import TRLRun

EVERY = {
    *("accelerator", "model", "train", "state", "args", "optimizer", "lr_scheduler"),
    *("train_dataset", "processing_class", "remove_callback", "training_step"),
    *("_send_telemetry", "_load_rng_state", "_save_checkpoint"),
}
"""Of every trainer."""
GROUPED = {"eos_token_ids", "ref_model", "_metrics", "beta", "epsilon_low", "epsilon_high"}
GROUPED |= {"_compute_loss", "_get_per_token_logps_and_entropies"}
OF = {
    "rloo": GROUPED,
    "grpo": GROUPED,
    "gmpo": GROUPED,
    "dpo": {"ref_model", "beta"},
    "kto": {"ref_model"},
    "cpo": {"tokenize_row"},
    "orpo": {"tokenize_row"},
    "online_dpo": {"_generate"},
    "raft": {"_prepare_dataset", "data_collator", "_metrics"},
    "iterated_dpo": {"_prepare_dataset", "data_collator", "_metrics", "ref_model", "beta"},
}
INSIDE = {
    "optimizer": ("param_groups",),
    "lr_scheduler": ("base_lrs", "lr_lambdas", "_last_lr", "last_epoch"),
    "accelerator": ("unwrap_model", "is_main_process", "wait_for_everyone"),
    "state": ("global_step", "log_history"),
    "args": (
        *("learning_rate", "weight_decay", "adam_epsilon", "adam_beta1", "adam_beta2"),
        *("device", "output_dir", "process_index", "should_save", "save_only_model"),
    ),
}
"""Of what a trainer has."""
NOT_OF_TRL = {"title", "__init__", "evaluate"}
RATE = {"learning_rate": 1e-2, "per_device_train_batch_size": 8}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contract")
    write_policy(folder / "model")
    rows = [{"prompt": one, "chosen": "a b", "rejected": "c"} for one in "abcdefgh" * 6]
    held = [{"prompt": f"{one} x", "chosen": "a", "rejected": "b"} for one in "ijkl"]
    files = {
        name: save(folder / f"{name}.jsonl", of)
        for name, of in (("data", rows), ("held_out", held))
    }
    names = dict.fromkeys(("selection", "report"), "first")
    signals = {"words": "test_trl_contract:words", "first": "test_trl_contract:first"}
    files |= {"model": str(folder / "model"), "signals": signals, "max_completion": 4}
    files |= {"training": "words", **names}
    return EnvironmentSpec("files", FrozenMap(files))


def words(prompts, completions):
    return [float(len(text.split())) for text in completions]


def first(prompts, completions):
    return [float(text.count("a")) for text in completions]


def trained(task, name, config, monkeypatch, **more):
    """TRL's trainer after a segment."""
    built, build = [], TRLRun.build

    def listening(run, *arguments):
        build(run, *arguments)
        built.append(run.trl)

    monkeypatch.setattr(TRLRun, "build", listening)
    values = {**RATE, **config}
    train(segment(f"trl/{name}", task, values, options={"guard": 0}, episodes=4, seed=3, **more))
    return built[0]


@pytest.mark.parametrize("name", [*STABLE, *_EXPERIMENTAL, *SAMPLED])
def test_every_name_the_package_uses_is_there(name, task, monkeypatch):
    live = trained(task, name, {"num_generations": 4} if find(name).grouped else {}, monkeypatch)
    # what we put in its place does not count
    theirs = [
        owner for owner in type(live).__mro__ if owner.__module__.startswith(("trl", "transf"))
    ]
    there = set(vars(live)).union(*map(vars, theirs))
    missing = sorted((EVERY | OF.get(name, set())) - there)
    for part, names in INSIDE.items():
        missing += [f"{part}.{one}" for one in names if not hasattr(getattr(live, part), one)]
    assert not missing, f"{type(live).__name__} of TRL {trl.__version__} has no {missing}"


def test_no_other_name_is_used():
    used = set()
    for file in ("segment_trainer.py", "live_values.py"):
        for node in ast.walk(ast.parse((Path(room.__file__).parent / file).read_text())):
            match node:
                case ast.Attribute(value=ast.Name("trainer") | ast.Attribute(attr="trl")):
                    used.add(node.attr)
                case ast.Attribute(value=ast.Attribute(attr=str(part))) if part in INSIDE:
                    used.add(node.attr)
                case ast.Attribute(value=ast.Call(func=ast.Name("super"))):
                    used.add(node.attr)
                case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), *_]):
                    used.add(name)
                case ast.ClassDef(name="Segmented"):
                    used |= {item.name for item in node.body}
    everything = EVERY.union(*OF.values(), *INSIDE.values())
    assert used - NOT_OF_TRL <= everything


@pytest.mark.parametrize("name", ["dpo", "grpo", "rloo"])
def test_training_is_trls_to_the_bit(name, task, tmp_path, monkeypatch):
    """Against TRL as its documentation has it, though a policy of ours is evaluated on the way."""
    import torch

    method, folder = find(name), Path(task.kwargs["model"])
    config = {**RATE, "beta": 0.1, "weight_decay": 0.01}
    config |= {"num_generations": 4} if method.online else {}
    ours = trained(task, name, config, monkeypatch, until=4, evaluate_at=(1, 3, 4))
    config |= {"report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True}
    config |= {"bf16": False, "activation_checkpointing": False, "lr_scheduler_type": "constant"}
    parts = {"train_dataset": data_set(method, build_task(task))}
    if method.online:
        config["max_completion_length"] = 4
        parts["reward_funcs"] = lambda completions, **rest: words([], completions)
    trainer_class, config_class = method.classes()
    config |= {"max_steps": 4, "seed": integer_seed(3, "algorithm")}
    parts |= {"args": config_class(str(tmp_path), **config)}
    theirs = trainer_class(load_policy(folder), processing_class=load_tokenizer(folder), **parts)
    theirs.train()
    of_all = (ours.model, theirs.model, load_policy(folder))
    for mine, other, first in zip(*(one.parameters() for one in of_all), strict=True):
        assert torch.equal(mine, other)
        assert not torch.equal(mine, first)
