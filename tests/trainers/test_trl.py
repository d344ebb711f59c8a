"""The TRL trainers: what TRL gets silently wrong in a tuner, each trap a test, and what a run reports."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from refusals import expect_error

pytest.importorskip("trl", reason="needs the extra rlhf")

import segments
from rlhf_support import one_thread  # noqa: F401
from segments import train
from trl import DPOConfig, DPOTrainer

from autorl.core.types import (
    Checkpoint,
    Config,
    EnvironmentSpec,
    FrozenMap,
    InputError,
    Status,
    TrainerSpec,
)
from autorl.store.checkpoints import unfinished
from autorl.testing.segments import prove
from autorl.trainers import load, saved_state
from autorl.trainers.language.rewards.options import RewardOptions
from autorl.trainers.language.tasks import build
from autorl.trainers.trl import methods
from autorl.trainers.trl.settings import DEFAULTS

pytestmark = pytest.mark.cpu_seconds(600)  # the first to run builds the task
LETTERS = EnvironmentSpec("letters-goldproxy")
RLOO = {"learning_rate": 1e-3, "beta": 0.3, "num_generations": 4}


def segment(config, name="trl/rloo", steps=3, **changes):
    options = {"per_device_train_batch_size": 16, **changes.pop("options", {})}
    of_run = {"environment": LETTERS, "seed": 3, "episodes": 16, "until": steps} | changes
    return segments.segment(name, config=config, options=options, **of_run)


def weights(checkpoint):
    from safetensors.torch import load_file

    return load_file(Path(checkpoint.path) / "model.safetensors")


def halves(folder, config=None, other=None, **changes):
    """A run of four steps cut in the middle; the second half with another configuration."""
    common = {"save": True, "horizon": 4, "evaluate_at": (), **changes}
    first = segment(config or RLOO, id="first", until=2, folder=str(folder / "first"), **common)
    own = {"config": Config(other or config or RLOO), "parent": train(first).checkpoint}
    return replace(first, id="second", start=2, until=4, folder=str(folder / "second"), **own)


@pytest.mark.slow
def test_a_new_learning_rate_is_used_by_a_continued_run_and_not_the_saved_one(tmp_path):
    """Trap 1: TRL restores optimizer and scheduler, and the learning rate asked for is silently ignored."""
    second = halves(tmp_path, other={**RLOO, "learning_rate": 1e-30})
    outcome = train(second)
    assert outcome.applied["learning_rate"] == 1e-30
    before, after = weights(second.parent), weights(outcome.checkpoint)
    moved = [name for name in before if bool((before[name] != after[name]).any())]
    assert not moved, "a learning rate of nothing moved the weights: the saved one was used"


@pytest.mark.slow
def test_the_kl_reference_of_a_continued_run_is_the_original_policy(tmp_path):
    """Trap 2: a trainer built on a checkpoint takes it for the reference, and KL starts again at 0."""
    from autorl.trainers.language.models import load_policy, load_tokenizer
    from autorl.trainers.language.policy_metrics import measure

    fast = {**RLOO, "learning_rate": 1e-2, "beta": 0.05}
    second = halves(tmp_path, config=fast, other={**fast, "learning_rate": 1e-30}, episodes=64)
    (report,) = train(replace(second, evaluate_at=(4,), save=False)).reports
    built = build("letters-goldproxy", {})
    trained = load_policy(Path(second.parent.path))
    evaluation = {"seed": 3, "role": "tuning", "step": 4, "n": 64}
    tokenizer = load_tokenizer(built.reference)
    to_itself = measure(trained, trained, tokenizer, built, **evaluation)
    assert to_itself["kl"] == 0.0
    assert report.metrics["kl"] > 0.05


def test_a_checkpoint_of_another_reference_policy_is_refused(tmp_path):
    values = {**DEFAULTS, **segment(RLOO).trainer.kwargs, **RLOO}
    state = {"trainer": "trl/rloo", "reference": "another", "values": values}
    state |= {"step": 2, "history": [], "tokens": 0}
    saved_state.write(tmp_path / saved_state.STATE, state)
    with pytest.raises(InputError, match="another reference policy"):
        train(segment(RLOO, parent=Checkpoint("x", str(tmp_path)), start=2, steps=4))


def test_a_reference_that_trl_loaded_from_elsewhere_is_an_error():
    """TRL reads the reference's path off the model's configuration; a wrong one is found by its weights."""
    from types import SimpleNamespace

    from autorl.trainers.language.models import load_policy, weights_hash
    from autorl.trainers.trl import segment_trainer
    from autorl.trainers.trl.methods import find

    policy, moved = (load_policy(build("letters-goldproxy", {}).reference) for _ in range(2))
    moved.lm_head.weight.data += 1.0
    trainer = SimpleNamespace(
        ref_model=moved, accelerator=SimpleNamespace(unwrap_model=lambda model: model)
    )
    with pytest.raises(RuntimeError, match="not the task's"):
        segment_trainer._check_reference(trainer, weights_hash(policy), find("rloo"))


@pytest.mark.slow
def test_kl_is_measured_without_a_penalty_too_and_beta_may_become_positive(tmp_path):
    """Trap 3: at beta 0 TRL logs no KL and loads no reference; raising beta in a live trainer crashes it."""
    free = {**RLOO, "beta": 0.0, "learning_rate": 1e-2}
    second = halves(tmp_path, config=free, other={**free, "beta": 0.5}, episodes=64)
    outcome = train(replace(second, evaluate_at=(4,)))
    assert outcome.reports[0].metrics["kl"] > 0.05
    assert outcome.applied["beta"] == 0.5


@pytest.mark.parametrize("task", ["letters-goldproxy", "sort-verifiable"])
def test_it_knows_every_metric_before_it_trains(task):
    place = EnvironmentSpec(task)
    found = train(segment(RLOO, steps=1, environment=place))
    assert set(found.reports[0].metrics) <= set(
        load(TrainerSpec("trl/rloo")).reported_metrics(place)
    )


@pytest.mark.parametrize(
    ("config", "step", "reached"),
    [
        ({}, 5, 5),
        ({"num_iterations": 3}, 5, 6),
        ({"num_iterations": 2, "steps_per_generation": 2}, 5, 8),
        ({"num_iterations": 2, "steps_per_generation": 4, "gradient_accumulation_steps": 4}, 5, 6),
        ({"generation_batch_size": 48, "num_generations": 4}, 5, 6),
    ],
)
def test_a_run_is_cut_where_a_batch_of_completions_is_used_up(config, step, reached):
    assert load(segment(config).trainer).align(Config(config), step) == reached


@pytest.mark.parametrize(
    ("place", "name", "message"),
    [
        (LETTERS, "learning_rat", "learning_rate"),
        (LETTERS, "max_steps", "set by the study"),
        (LETTERS, "temperature.end", "cannot follow a schedule"),
        (EnvironmentSpec("CartPole-v1"), "beta", "letters-goldproxy"),
        (EnvironmentSpec("letters-goldproxy", FrozenMap(flip=0.1)), "beta", "flips"),
    ],
)
def test_names_are_those_of_trl_and_what_the_study_sets_is_refused(place, name, message):
    method = load(TrainerSpec("trl/rloo"))
    method.check(LETTERS, {"learning_rate", "beta", "learning_rate.end"})
    expect_error(message, method.check, place, {name})


def test_a_package_that_a_trainer_imports_and_is_missing_is_named(monkeypatch):
    # torch 2.6 needs setuptools without naming it: TRL was said to lack the trainer, and "did you mean 'cpo'"
    def import_module(name):
        raise ModuleNotFoundError("No module named 'setuptools'", name="setuptools")

    monkeypatch.setattr(methods.importlib, "import_module", import_module)
    expect_error(
        r"'cpo' cannot be imported: No module named 'setuptools'$", methods.find("cpo").classes
    )


def test_the_guard_stops_after_the_proxy_rose_and_gold_fell_so_many_times():
    from autorl.trainers.rlhf.guards import Guard

    guard = Guard(2, "proxy", "gold")
    seen = [(1.0, 0.1), (2.0, 0.5), (3.0, 0.4), (4.0, 0.6), (5.0, 0.5), (6.0, 0.4)]
    assert [guard.tripped({"proxy": proxy, "gold": gold}) for proxy, gold in seen] == [
        False
    ] * 5 + [True]
    resumed = Guard(2, "proxy", "gold", guard.history[:-1])
    assert resumed.tripped({"proxy": 6.0, "gold": 0.4})
    off = Guard(0, "proxy", "gold")
    assert not any(off.tripped({"proxy": proxy, "gold": -proxy}) for proxy, _ in seen)


@pytest.mark.parametrize(
    ("stop", "metrics", "note"),
    [
        ("diverging", {"kl": 20.0, "length": 10.0}, "KL above 1.5 nats per token"),
        ({"entropy": 0.1}, {"train_entropy": 0.05}, "entropy below 0.1 nats per token"),
        ("diverging", {"train_reward_std": 0.0}, "constant rewards (deviation below 1e-06)"),
    ],
)
def test_a_collapse_is_named_after_so_many_evaluations_in_a_row(stop, metrics, note):
    from autorl.trainers.rlhf.guards import Collapse, collapse_bounds

    collapse = Collapse(collapse_bounds(stop), {})
    assert [collapse.tripped(metrics), collapse.tripped(metrics)] == [False, False]
    assert not collapse.tripped({}), "not in a row"
    assert [collapse.tripped(metrics), collapse.tripped(metrics)] == [False, False]
    resumed = Collapse(collapse_bounds(stop), collapse.counts)
    assert resumed.tripped(metrics)
    assert resumed.note == f"collapse: {note} for 3 evaluations in a row"
    off = Collapse(collapse_bounds(None), {})
    assert not any(off.tripped(metrics) for _ in range(5))


@pytest.mark.parametrize("stop", ["collapsing", {"kl_max": 3}, {"kl": "much"}, {"evaluations": 0}])
def test_bounds_of_a_collapse_are_checked(stop):
    with pytest.raises(InputError, match=r"trainer.kwargs.stop.*expected"):
        load(TrainerSpec("trl/rloo", FrozenMap(stop=stop)))


def test_a_collapsed_run_is_stopped_and_says_why():
    ends = {"steps": 4, "evaluate_at": (1, 2, 3, 4), "episodes": 8}
    options = {"stop": {"kl": 0.0, "evaluations": 2}}
    outcome = train(segment({**RLOO, "learning_rate": 1e-2}, options=options, **ends))
    assert (outcome.status, outcome.reached) == (Status.STOPPED, 2)
    assert outcome.notes == ("collapse: KL above 0 nats per token for 2 evaluations in a row",)


@pytest.mark.parametrize(
    ("trainer", "options", "training"),
    [
        ("rloo", {}, "proxy"),
        ("rloo", {"reward.length.at_most": 8.0}, "proxy"),
        ("rloo", {"reward.signals": ["gold"]}, "gold"),
        ("rloo", {"reward.signals": ["rewards:mine"]}, ""),
        ("dpo", {}, ""),  # it never sees the proxy
    ],
)
def test_the_guard_watches_what_the_run_is_trained_on(trainer, options, training):
    task = build("letters-goldproxy", {})
    method = load(TrainerSpec(f"trl/{trainer}"))
    guard = method.guard(task, RewardOptions.read(options), ())
    assert guard.training == training
    if not training:
        assert not any(guard.tripped({"proxy": step, "gold": -step}) for step in range(10))


@pytest.mark.slow
def test_a_run_that_exploits_its_proxy_is_stopped_and_scored(tmp_path):
    config = {"learning_rate": 3e-3, "beta": 0.02, "num_generations": 4}
    ends = {"steps": 40, "evaluate_at": tuple(range(4, 41, 4)), "episodes": 128}
    outcome = train(segment(config, options={"guard": 2}, **ends))
    assert outcome.status is Status.STOPPED
    assert outcome.reached < 40
    assert "over-optimisation guard" in outcome.notes[0]
    last, before = outcome.reports[-1].metrics, outcome.reports[-2].metrics
    assert last["proxy"] > before["proxy"]
    assert last["gold"] < before["gold"]


@pytest.mark.parametrize("name", ["trl/rloo", "trl/ppo"])
def test_a_segment_leaves_its_checkpoint_alone_and_a_damaged_one_is_not_continued(tmp_path, name):
    """Files that TRL writes on the way lie in the study and go; every file of the checkpoint is
    compared."""
    place = {"save": True, "folder": str(tmp_path / "a"), "scratch": str(unfinished(tmp_path, "a"))}
    first = segment({"learning_rate": 1e-3}, name, steps=2, **place)
    if name == "trl/ppo":
        first = replace(first, trainer=TrainerSpec(name, FrozenMap(batch_size=16)))
    saved = segments.run(first).checkpoint
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    files = sorted(path for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert sorted(saved.files) == [path.relative_to(tmp_path / "a").as_posix() for path in files]
    assert len(files) >= 5
    own = {"folder": str(tmp_path / "b"), "parent": saved, "evaluate_at": (4,)}
    second = replace(first, id="b", start=2, until=4, **own)
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[: len(content) * 9 // 10])
        found = segments.run(second)
        damage = f"{path.name} differs from what was saved"
        assert (found.status, found.damage) == (Status.LOST, damage)
        path.write_bytes(content)


class SameDPOTrainer(DPOTrainer):
    """TRL's, by path."""


@dataclass
class HeavierConfig(DPOConfig):
    weight: float = field(default=1.0)


class HeavierTrainer(DPOTrainer):
    """Multiplies the loss by a hyperparameter of its own."""

    def compute_loss(self, *arguments, **named):
        return super().compute_loss(*arguments, **named) * self.args.weight


PAIRS = EnvironmentSpec("letters-pairs")


def by_path(name, **config):
    options = {"algorithm_class": f"test_trl:{name}"} if name else {}
    config = {"learning_rate": 1e-3, **config}
    return segment(config, "trl/dpo", 2, environment=PAIRS, options=options)


def test_an_empty_subclass_by_path_trains_as_its_base():
    base, same = (train(by_path(name)) for name in ("", "SameDPOTrainer"))
    assert [report.metrics for report in same.reports] == [r.metrics for r in base.reports]
    assert load(by_path("SameDPOTrainer").trainer).changes == load(by_path("").trainer).changes


@pytest.mark.more
def test_the_own_hyperparameters_of_a_subclass_are_applied_and_a_dry_run_proves_it():
    base, heavier = (train(by_path("HeavierTrainer", weight=weight)) for weight in (1.0, 9.0))
    assert heavier.applied["weight"] == 9.0
    assert [r.metrics for r in heavier.reports] != [r.metrics for r in base.reports]
    spec = by_path("HeavierTrainer").trainer
    assert load(spec).changes["weight"] == "rebuild"
    assert load(by_path("SameDPOTrainer").trainer).changes == load(by_path("").trainer).changes
    line = prove(
        load(spec).short_run(LETTERS, Config(weight=4.0)), EnvironmentSpec("letters-pairs")
    )
    assert "1 + 1 steps through a checkpoint equal 2; weight applied and read back" in line


def test_a_class_that_is_no_subclass_is_refused():
    other = TrainerSpec("trl/rloo", FrozenMap(algorithm_class="test_trl:SameDPOTrainer"))
    expect_error(r"no subclass of trl.*RLOOTrainer", load(other).check, LETTERS, ())
    with pytest.raises(InputError, match="rlhf/ppo takes no algorithm_class"):
        load(TrainerSpec("rlhf/ppo", FrozenMap(algorithm_class="test_trl:SameDPOTrainer")))


def test_every_update_is_told_in_the_order_of_steps_beside_the_evaluations():
    """A batch of completions is used for two steps: the evaluation of step 3 is of the weights of step 4."""
    heard = []
    config = {"learning_rate": 1e-3, "num_generations": 4, "num_iterations": 2}
    ends = {"steps": 6, "evaluate_at": (3, 6), "episodes": 4}
    one = segment(config, "trl/grpo", **ends)
    outcome = load(one.trainer).train(one, heard.append)
    assert [report.step for report in outcome.reports] == [3, 6]
    assert [update.step for update in outcome.updates] == [1, 2, 4, 5]
    assert [report.step for report in heard] == [1, 2, 3, 4, 5, 6]
    of_updates = {"train_entropy", "train_clip_fraction", "train_grad_norm", "train_reward_std"}
    assert all(of_updates <= {*update.metrics} for update in outcome.updates)
    assert all(name.startswith("train_") for update in outcome.updates for name in update.metrics)
