"""Methods on a model and data of one's own: each kind of data trains its methods, and says what it cannot do."""

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from patience import PATIENCE
from refusals import expect_error

pytest.importorskip("trl", reason="needs the extra rlhf")

import segments
from rlhf_support import importable, save, write_policy

from autorl.core.types import EnvironmentSpec, FrozenMap, Status, StorageError, TrainerSpec
from autorl.study.setup import check, trainer_loader
from autorl.study.spec import load_spec
from autorl.trainers import load

pytestmark = pytest.mark.cpu_seconds(600)
EXAMPLE = Path(__file__).parents[2] / "examples/rlhf/own_data"
CODE = """
def repeated(prompts, completions):
    return [float(text.split().count("a")) for text in completions]

def long(prompts, completions):
    return [float(len(text.split())) for text in completions]

def sometimes(prompts, completions, completion_ids):
    told = [answer[0]["content"] for answer in completions]  # messages, as in TRL
    return [float(len(ids)) if not text.startswith("a") else None for text, ids in zip(told, completion_ids)]

def different(prompts, completions, limit):
    return [min(float(len(set(text.split()))), float(most)) for text, most in zip(completions, limit)]
"""
SCORED = {
    "signals": {"repeated": "own_trl_rewards:repeated", "different": "own_trl_rewards:different"},
    "training": "repeated",
    "selection": "different",
    "report": "different",
}
LEARNT = {"training": "data", "selection": "pair_accuracy", "report": "pair_accuracy"}
LIKELY = {"training": "data", "selection": "log_likelihood", "report": "log_likelihood"}
CHAT = {
    "signals": {
        "sometimes": "own_trl_rewards:sometimes",
        "format": "trl.rewards:think_format_reward",
    },
    "training": "sometimes",
    "selection": "format",
    "report": "sometimes",
}
LETTERS = "abcdefgh"
PROMPTS = [f"{one} {other}" for one in LETTERS for other in LETTERS]
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.name }} {% endfor %}"
    "{% for part in messages %}{{ part.content }} {% endfor %}"
)


def asks(text):
    return {"role": "user", "content": text}


def says(text):
    return {"role": "assistant", "content": text}


TOOLS = [{"name": "h"}]
ROWS = {
    "prompts": [{"prompt": prompt, "limit": 3} for prompt in PROMPTS],
    "pairs": [{"prompt": prompt, "chosen": "a b c", "rejected": "d d"} for prompt in PROMPTS],
    "ranking": [{"prompt": prompt, "ranking": ["a b c", "a b", "d d"]} for prompt in PROMPTS],
    "labelled": [
        {"prompt": prompt, "completion": "a b", "label": number % 2}
        for number, prompt in enumerate(PROMPTS)
    ],
    "completions": [{"prompt": prompt, "completion": "a b c"} for prompt in PROMPTS],
    "text": [{"text": f"{prompt} a b"} for prompt in PROMPTS],
    "messages": [
        {"messages": [asks(prompt), says("a"), asks("b"), says("c")]} for prompt in PROMPTS
    ],
    "turns": [
        {
            "chosen": [asks(prompt), says("a"), asks("b"), says("c")],
            "rejected": [asks(prompt), says("d")],
            "tools": json.dumps(TOOLS),
        }
        for prompt in PROMPTS
    ],
    "tools": [{"prompt": [asks(prompt)], "tools": TOOLS} for prompt in PROMPTS],
}
ONLINE = {"learning_rate": 1e-3, "num_generations": 4, "per_device_train_batch_size": 8}
SMALL = {"learning_rate": 1e-2, "per_device_train_batch_size": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, the data sets, and the module of rewards."""
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("own")
    write_policy(folder / "model")
    (folder / "model" / "chat_template.jinja").write_text(TEMPLATE)
    for name, rows in ROWS.items():
        save(folder / f"{name}.jsonl", rows)
    return folder


@pytest.fixture(autouse=True)
def _rewards(folder, monkeypatch):
    with importable("own_trl_rewards", CODE, folder, monkeypatch):
        yield


def environment(folder, data, **options):
    common = {"model": str(folder / "model"), "data": str(folder / f"{data}.jsonl")}
    return EnvironmentSpec("files", FrozenMap({**common, "max_completion": 4, **options}))


def segment(name, config, place, **changes):
    options = {"guard": 0} if name != "trl/ppo" else {}
    of_run = {"until": 2, "episodes": 8, "seed": 3} | changes
    return segments.segment(name, place, config, options=options, **of_run)


def train(one):
    found = load(one.trainer)
    found.check(one.environment, one.config)
    return found.train(one, lambda report: None)


PLAIN = {"repeated": "own_trl_rewards:repeated", "different": "own_trl_rewards:long"}
CASES = [
    ("trl/grpo", ONLINE, "prompts", SCORED, {"repeated", "different", "reference_different", "win_rate"}),
    ("trl/rloo", ONLINE, "pairs", SCORED | {"signals": PLAIN}, {"repeated"}),
    ("trl/ppo", {"learning_rate": 1e-3, "batch_size": 8, "num_ppo_epochs": 1}, "prompts", SCORED, {"different"}),
    ("trl/dpo", SMALL, "pairs", LEARNT, {"pair_accuracy", "pair_margin"}),
    ("trl/orpo", SMALL, "ranking", LEARNT, {"pair_accuracy"}),
    ("trl/reward", SMALL, "ranking", LEARNT, {"pair_accuracy", "pair_margin"}),
    ("trl/kto", SMALL, "labelled", LIKELY, {"log_likelihood"}),
    ("trl/kto", SMALL, "pairs", LEARNT, {"pair_accuracy"}),
    ("trl/sft", SMALL, "completions", LIKELY, {"log_likelihood"}),
    ("trl/sft", SMALL, "text", LIKELY, {"log_likelihood"}),
    ("trl/sft", SMALL, "messages", LIKELY, {"log_likelihood"}),
    ("trl/dpo", SMALL, "turns", LEARNT, {"pair_accuracy"}),
    ("trl/grpo", ONLINE, "tools", CHAT, {"sometimes", "format", "win_rate"}),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("name", "config", "data", "names", "metrics"), CASES)
def test_every_kind_of_data_trains_its_methods(name, config, data, names, metrics, folder):
    more = {"prompts": str(folder / "prompts.jsonl")} if data == "text" else {}
    outcome = train(segment(name, config, environment(folder, data, **names, **more)))
    assert outcome.status is Status.DONE
    assert outcome.reached >= 2
    (report,) = outcome.reports
    always = set() if name == "trl/reward" else {"kl", "length", "distinct"}
    assert metrics | always <= set(report.metrics)
    assert ("win_rate" in report.metrics) == (names["training"] != "data")


@pytest.mark.slow
@pytest.mark.parametrize(("data", "prompts"), [("completions", None), ("text", "prompts.jsonl")])
def test_held_out_likelihood_rises_when_completions_are_learnt(data, prompts, folder):
    """Always the same words: they are learnt in twenty steps. Seeds of the two roles read different rows."""
    more = {"prompts": str(folder / prompts)} if prompts else {}
    place = environment(folder, data, **LIKELY, **more)
    steps = {"until": 20, "horizon": 20, "evaluate_at": (0, 20)}
    tuning, test = (
        [
            report.metrics["log_likelihood"]
            for report in train(segment("trl/sft", SMALL, place, role=role, **steps)).reports
        ]
        for role in ("tuning", "test")
    )
    assert tuning[1] > tuning[0] + 2.0
    assert test[0] != tuning[0]


@pytest.mark.slow
def test_a_reward_model_that_was_trained_is_a_signal_of_the_next_study(folder, tmp_path):
    """A reward model learns the pairs; its checkpoint then scores what an online method writes."""
    place = environment(folder, "pairs", **LEARNT)
    steps = {"until": 20, "horizon": 20, "evaluate_at": (20,)}
    steps |= {"save": True, "folder": str(tmp_path / "judge")}
    outcome = train(segment("trl/reward", SMALL, place, **steps))
    assert outcome.reports[0].metrics["pair_accuracy"] == 1.0
    signals = SCORED["signals"] | {"judge": outcome.checkpoint.path}
    place = environment(folder, "prompts", **(SCORED | {"signals": signals, "training": "judge"}))
    outcome = train(segment("trl/grpo", ONLINE, place, evaluate_at=(0, 2)))
    assert outcome.status is Status.DONE
    assert "judge" in outcome.reports[0].metrics
    expect_error("trains on", load(TrainerSpec("trl/grpo")).check_objective, place, ["judge"])
    load(TrainerSpec("trl/grpo")).check_objective(place, ["different"])


def busy(*given, **named):
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def full(*given, **named):
    """torch's native writer tells no errno."""
    import torch

    torch.save({"weights": torch.zeros(100_000)}, "/dev/full")


@pytest.mark.parametrize(
    ("writes", "fails"),
    [
        ("create_model_card", busy),  # TRL's
        ("_save_rng_state", busy),  # transformers'
        ("_save_optimizer_and_scheduler", full),
    ],
)
def test_a_disk_that_fails_while_trl_saves_is_the_disks(
    folder, tmp_path, monkeypatch, writes, fails
):
    """A probe finds the disk well a moment later: the error still is not the configuration's."""
    from trl import DPOTrainer

    monkeypatch.setattr(DPOTrainer, writes, fails)
    place = environment(folder, "pairs", **LEARNT)
    saves = {"folder": str(tmp_path / "one"), "scratch": str(tmp_path / ".tmp-one"), "save": True}
    with pytest.raises(StorageError, match="cannot be written"):
        train(segment("trl/dpo", SMALL, place, **saves))


def test_a_disk_that_fails_while_trl_reads_is_the_disks(folder, tmp_path, monkeypatch):
    """The state is read before training has begun, random streams after."""
    from transformers import TrainerState
    from trl import DPOTrainer

    place = environment(folder, "pairs", **LEARNT)
    first = segment("trl/dpo", SMALL, place, folder=str(tmp_path / "one"), save=True)
    saved = {"parent": train(first).checkpoint, "start": 2, "until": 4, "evaluate_at": (4,)}
    for owner, name in ((TrainerState, "load_from_json"), (DPOTrainer, "_load_rng_state")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, busy)
            with pytest.raises(StorageError, match="cannot be read"):
                train(segment("trl/dpo", SMALL, place, **saved))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("grpo", "pairs", "trained on a reward: expected one of the signals, got 'data'"),
        ("dpo", "prompts", "trained on pairs; files has prompts"),
        ("kto", "completions", "trained on labelled or pairs; files has prompts, completions"),
        ("sft", "prompts", "trained on completions or pairs; files has prompts"),
        ("dpo", None, "trained on pairs; sort-verifiable has prompts"),
    ],
)
def test_a_method_that_needs_a_reward_or_other_data_says_so(folder, name, data, message):
    place = EnvironmentSpec("sort-verifiable")
    if data is not None:
        place = environment(folder, data, **(LEARNT if data == "pairs" else LIKELY))
    expect_error(
        f"trl/{name} is {message}", load(TrainerSpec(f"trl/{name}")).check, place, ["learning_rate"]
    )


def study(folder, **names):
    """A study of a folder's model and prompts; nothing else of it is said without names."""
    files = {"model": "model", "data": "prompts.jsonl", **names}
    document = {"trainer": "trl/grpo", "space": "trl/grpo", "path": str(folder)}
    document |= {"environment": {"id": "files", "kwargs": files}}
    return {**document, "fidelity": {"steps": 10}, "budget": {"runs": 3}}


@pytest.mark.parametrize(
    "names",
    [
        {"training": "different"},
        {"reward": "own_trl_rewards:different"},
        {"signals": dict.fromkeys(SCORED["signals"], "own_trl_rewards:different")},
        {"training": "different", "signals": {"different": "own_trl_rewards:different"}},
    ],
)
def test_a_study_selects_by_what_it_trains_on_only_if_it_says_so(names, folder):
    """The signal itself, its function by another name, and both with the report: a checked answer is all three."""
    reward = names.get("reward")
    names = {name: value for name, value in names.items() if name != "reward"}
    document = study(folder, **SCORED | names)
    if reward:
        document["trainer"] = {"name": "trl/grpo", "kwargs": {"reward.signals": reward}}
    refused = load_spec(document)
    assert refused.objective[0].metric == "different"
    assert "allow_proxy_selection: true" in str(
        expect_error("'different' is what files trains on", check, refused, trainer_loader(refused))
    )
    allowed = load_spec(document | {"allow_proxy_selection": True})
    check(allowed, trainer_loader(allowed))


def test_the_metric_of_the_user_is_selected_by_and_a_study_names_it(folder):
    spec = load_spec(study(folder, **SCORED))
    assert (spec.objective[0].metric, spec.objective[0].reduce) == ("different", "best")
    assert spec.environment.kwargs["model"] == str(folder / "model")
    assert spec.environment.kwargs["data"] == str(folder / "prompts.jsonl")
    for document in (study(folder), study(folder) | {"environment": "files"}):
        expect_error(r"none of its own, name a signal", load_spec, document)


@pytest.mark.slow
def test_the_example_learns_what_it_selects_by(tmp_path):
    """One configuration, three seeds, 30 of its 40 steps, from another working folder; twice the reference's score."""
    place = Path(shutil.copytree(EXAMPLE, tmp_path / "own_data"))

    def python(*words):
        command = [sys.executable, *map(str, words)]
        return subprocess.check_output(command, cwd=tmp_path, text=True, timeout=PATIENCE)

    python(place / "make.py")
    less = ["--runs", "1"]
    for setting in ("fidelity.steps=30", "seeds.tuning=1", "seeds.test=2", "test.top=1"):
        less += ["--set", setting]
    less += ["--set", "executor.workers=1", "--json", "--out", "out"]
    result = json.loads(python("-m", "autorl", "tune", place / "study.yaml", *less))
    assert result["test"]["value"] > 2 * result["beside"]["reference_variety"]


RUNS = [
    ("trl/grpo", {"scale_rewards": False}),
    ("trl/grpo", {"scale_rewards": True, "generation_kwargs": {"no_repeat_ngram_size": 2}}),
    ("trl/grpo", {"loss_type": "vespo"}),
    ("trl/rloo", {"generation_kwargs": {"no_repeat_ngram_size": 2}}),
    ("trl/dpo", {"padding_free": True}),
    ("trl/sft", {"padding_free": True, "max_length": None}),
    ("trl/sft", {"loss_type": "chunked_nll"}),
    ("trl/cpo", {"loss_type": "alphapo"}),
    ("trl/kto", {"loss_type": "apo_zero_unpaired"}),
]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        pytest.param(*case, marks=() if number in (0, 4) else pytest.mark.slow)
        for number, case in enumerate(RUNS)
    ],
)
def test_a_value_that_trl_writes_otherwise_is_trained_with(name, values, folder):
    """False is `none` to GRPO; generation arguments lie among its own."""
    online = name in ("trl/grpo", "trl/rloo")
    data = ("prompts", SCORED) if online else ("pairs", LEARNT)
    place = environment(folder, data[0], **data[1])
    given = segment(name, ONLINE if online else SMALL, place)
    kwargs = FrozenMap({**given.trainer.kwargs, **values})
    outcome = train(replace(given, trainer=TrainerSpec(name, kwargs)))
    assert outcome.status is Status.DONE
    assert {key: outcome.applied[key] for key in values} == values


SPOILT = {
    "learning_rate": lambda live: vars(live.lr_scheduler).update(base_lrs=[7.0]),
    "weight_decay": lambda live: live.optimizer.param_groups[0].update(weight_decay=7.0),
    "adam_beta2": lambda live: live.optimizer.param_groups[0].update(betas=(0.9, 7.0)),
    "beta": lambda live: vars(live).update(beta=7.0),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_value_that_did_not_take_is_still_an_error(name):
    from types import SimpleNamespace

    from autorl.trainers.trl.live_values import read_back, write
    from autorl.trainers.trl.methods import find
    from autorl.trainers.trl.settings import Settings

    values = {"learning_rate": 1e-3, "weight_decay": 0.1, "adam_beta2": 0.9, "beta": 0.5}
    settings = Settings(find("grpo"), {}, values | {"beta.shape": "linear", "beta.end": 1.0})
    args = settings.arguments(0, 1, "unused", 1, cuda=False)
    parts = {"optimizer": {"param_groups": [{}]}, "lr_scheduler": {"base_lrs": [0.0]}}
    made = {part: SimpleNamespace(**values) for part, values in parts.items()}
    live = SimpleNamespace(args=args, **made)
    write(settings, live, 0, 1, first=True)
    assert read_back(settings, live, 0, 1) == settings.values
    SPOILT[name](live)
    with pytest.raises(RuntimeError, match=f"{name} did not take: asked for .*, found 7.0"):
        read_back(settings, live, 0, 1)


@pytest.mark.parametrize("method", ["dpo", "reward"])
def test_when_no_row_is_short_enough_the_limit_is_named(method, folder):
    place = environment(folder, "pairs", **LEARNT)
    given = segment(f"trl/{method}", {**SMALL, "max_length": 2}, place)
    assert expect_error("leaves none of the 51 rows", train, given).key == "max_length"
