"""Runs in which nothing can be learnt, or whose texts are cut, are seen: a metric each, and a caution in the result."""

from dataclasses import replace

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from rlhf_support import importable, save, write_policy
from segments import segment, train

from autorl.core.types import EnvironmentSpec, FrozenMap, Status
from autorl.report.plan import make_plan
from autorl.study import Study
from autorl.study.spec import load_spec
from autorl.trainers import load
from autorl.trainers.rlhf.counted_reward import CountedReward

pytestmark = pytest.mark.timeout(600)
CODE = """
def same(prompts, completions):
    return [1.0] * len(completions)

def of_prompt(prompts, completions):
    return [float(prompt.startswith("a")) for prompt in prompts]

def gold(prompts, completions):
    return [float(text.split().count("a")) for text in completions]

def varied(prompts, completions):
    return [float(sum(word in "abcdef" for word in text.split())) for text in completions]
"""
PROMPTS = [f"{one} {other}" for one in "abcdefgh" for other in "abcdefgh"]
RLOO = {"num_generations": 4, "per_device_train_batch_size": 8, "beta": 0.05}
CONFIG = {
    "trl/rloo": {"learning_rate": 1e-2, **RLOO},
    "trl/ppo": {"learning_rate": 1e-2, "batch_size": 8, "num_ppo_epochs": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("dead")
    write_policy(folder / "model")
    save(folder / "prompts.jsonl", [{"prompt": prompt} for prompt in PROMPTS])
    answers = [{"chosen": "a b", "rejected": "c"}, {"chosen": "a b", "rejected": "a b"}]
    pairs = [{"prompt": prompt, **answers[n % 2]} for n, prompt in enumerate(PROMPTS)]
    save(folder / "pairs.jsonl", pairs)
    with pytest.MonkeyPatch.context() as patch, importable("dead_rewards", CODE, folder, patch):
        yield folder


def options(folder, reward, **more):
    signals = {"reward": f"dead_rewards:{reward}", "gold": "dead_rewards:gold"}
    files = {"model": str(folder / "model"), "data": str(folder / "prompts.jsonl")}
    names = {"training": "reward", "selection": "gold", "report": "gold"}
    return {**files, **names, "signals": signals, "max_completion": 4, **more}


def one_segment(folder, name, reward, until=2, **config):
    task = EnvironmentSpec("files", FrozenMap(options(folder, reward)))
    of_run = {"episodes": 8, "seed": 3, "horizon": 4}
    return segment(name, task, {**CONFIG[name], **config}, until, None, {"guard": 0}, **of_run)


def metrics(one):
    outcome = train(one)
    assert outcome.status is Status.DONE
    return outcome, outcome.reports[-1].metrics


def test_groups_of_equal_rewards_are_counted():
    """Online DPO: the second completions stand behind the first ones.

    Prompts with one completion each are held against each other; one alone against none.
    """
    reward = CountedReward("reward", lambda prompts, texts: [float(text) for text in texts])
    assert reward.zero_std == 0.0
    for prompts, texts, share in (
        ("ppqq", "1112", 0.5),
        ("pqpq", "1212", 0.75),
        ("pq", "12", 0.6),
        ("p", "1", 0.6),
    ):
        reward(list(prompts), list(texts))
        assert reward.zero_std == share


@pytest.mark.parametrize("name", CONFIG)
def test_a_constant_reward_is_seen(name, folder):
    """PPO scores a completion without an end otherwise, unless it is told not to."""
    plain = {"missing_eos": "none"} if name == "trl/ppo" else {}
    _, constant = metrics(one_segment(folder, name, "same", **plain))
    assert constant["reward_zero_std"] == 1.0
    # The value network of PPO is wrong at first.
    assert (constant["kl"] == 0.0) == (name == "trl/rloo")
    _, found = metrics(one_segment(folder, name, "varied", **plain))
    assert found["reward_zero_std"] < 1.0
    assert found["kl"] > 0.0


def test_a_reward_that_differs_between_prompts_alone_teaches_a_group_nothing(folder):
    _, found = metrics(one_segment(folder, "trl/rloo", "of_prompt"))
    assert (found["reward_zero_std"], found["kl"]) == (1.0, 0.0)


@pytest.mark.parametrize("name", CONFIG)
def test_the_count_goes_on_through_a_checkpoint(name, folder, tmp_path):
    one = replace(one_segment(folder, name, "varied"), save=True, folder=str(tmp_path / "first"))
    outcome, _ = metrics(one)
    more = replace(one, save=False, start=2, until=4, evaluate_at=(4,), parent=outcome.checkpoint)
    _, continued = metrics(more)
    _, whole = metrics(one_segment(folder, name, "varied", until=4))
    assert continued == whole
    assert 0.0 < whole["reward_zero_std"] < 1.0
    # Measures of the latest update: all that the method has.
    measures = {f"train_{measure}" for measure in load(one.trainer).measures}
    if name == "trl/rloo":  # these are of online DPO
        measures -= {"train_accuracy", "train_margin"}
    assert {metric for metric in whole if metric.startswith("train_")} == measures
    nothing = metrics(replace(one_segment(folder, name, "varied"), until=0, evaluate_at=(0,)))[1]
    assert not [metric for metric in nothing if metric.startswith("train_")]


def spec_of(trainer, space, files, metric):
    batch = {"batch_size" if trainer == "trl/ppo" else "per_device_train_batch_size": 8}
    document = {
        "trainer": {"name": trainer, "kwargs": {"guard": 0, **batch}},
        "environment": {"id": "files", "kwargs": files},
        "space": space,
        "objective": {"metric": metric, "reduce": "last"},
        "fidelity": {"steps": 2, "evaluations": 1, "episodes": 8},
        "budget": {"runs": 1},
        "optimizer": "random",
        "test": {"top": 1},
        "executor": {"name": "in_process"},
        "keep": {"checkpoints": "none"},
    }
    return load_spec({**document, "seeds": {"tuning": [0], "test": [100]}})


def study(*parts):
    running = Study.in_memory(spec_of(*parts))
    try:
        return running.run()
    finally:
        running.close()


RATE = {"learning_rate": {"type": "float", "lower": 1e-3, "upper": 1e-2, "scale": "log"}}
DEAD = "every completion got the same reward as the others of its group: nothing could be learnt"
STILL = "KL to the reference policy is 0 after training: the policy has not moved"


def test_the_result_cautions_of_a_dead_run(folder):
    space = {**RATE, "num_generations": {"value": 4}}
    dead = study("trl/rloo", space, options(folder, "same", max_completion=2), "gold")
    assert DEAD in dead.caveats
    assert STILL in dead.caveats
    (cut,) = [text for text in dead.caveats if "max_completion" in text]
    assert cut.endswith("% of completions were cut at max_completion (2 tokens)")
    assert int(cut.split()[0]) > 80  # untrained: one token in 28 ends
    alive = study("trl/rloo", space, options(folder, "varied"), "gold")
    assert not {DEAD, STILL} & set(alive.caveats)


@pytest.mark.parametrize("trainer", CONFIG)
def test_what_was_left_out_of_training_is_said_before_a_study_and_in_its_result(trainer, folder):
    held = save(folder / "held.jsonl", [{"prompt": f"{prompt} "} for prompt in PROMPTS[:9]])
    files = options(folder, "varied", held_out=held)
    space = {**RATE, "num_generations": {"value": 4}} if trainer == "trl/rloo" else RATE
    note = (
        "data: 9 of 64 rows have a held-out prompt and are left out of training; 9 of them differ from it by blanks, "
        "letter case or Unicode form alone"
    )
    spec = spec_of(trainer, space, files, "gold")
    assert note in make_plan(spec).cautions
    assert note in study(trainer, space, files, "gold").caveats


def test_the_result_says_how_many_pairs_are_ties(folder):
    learnt = {"data": str(folder / "pairs.jsonl"), "signals": {}, "training": "data"}
    learnt |= {"selection": "pair_accuracy", "report": "pair_accuracy", "held_out": 0.5}
    found = study("trl/dpo", RATE, options(folder, "same") | learnt, "pair_accuracy")
    equal = "data: 32 of 64 pairs have two equal answers, of which nothing can be learnt"
    assert equal in found.caveats
    (ties,) = [text for text in found.caveats if "ties" in text]
    assert ties.endswith("held-out pairs are ties, each of which counts half in pair_accuracy")
    assert 20 < int(ties.split()[0]) < 80


def test_a_reward_that_is_no_number_is_said_as_what_it_is():
    """TRL takes NaN for None, and says that all reward functions returned that."""
    reward = CountedReward("gold", lambda prompts, texts: [float(text) for text in texts])
    with pytest.warns(RuntimeWarning, match="gold is no number, or None, for 2 of 3 completions"):
        reward(["p", "p", "p"], ["nan", "1", "nan"])
    assert reward.zero_std == 0.0
