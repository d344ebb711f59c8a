"""Runs in which nothing can be learnt, or whose texts are cut, are seen: a metric each, and a caution in the result."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

from segments import segment, train

from autorl.core.types import EnvironmentSpec, FrozenMap, Status
from autorl.report.plan import make_plan
from autorl.study import Study
from autorl.study.spec import load_spec
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
CONFIG = {
    "trl/rloo": {
        "learning_rate": 1e-2,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "beta": 0.05,
    },
    "trl/ppo": {"learning_rate": 1e-2, "batch_size": 8, "num_ppo_epochs": 1},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import torch

    from autorl.trainers.language.tasks.letters import LETTERS
    from autorl.trainers.language.tasks.tiny_models import new_policy, write_tokenizer

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("dead")
    new_policy(0, 24, hidden=16, layers=1).save_pretrained(folder / "model")
    write_tokenizer(folder / "model", LETTERS)
    (folder / "prompts.jsonl").write_text(
        "".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS)
    )
    pairs = [
        {"prompt": prompt, "chosen": "a b", "rejected": "a b" if n % 2 else "c"}
        for n, prompt in enumerate(PROMPTS)
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    (folder / "dead_rewards.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


def options(folder, reward, **more):
    return {
        "model": str(folder / "model"),
        "data": str(folder / "prompts.jsonl"),
        "max_completion": 4,
        "signals": {"reward": f"dead_rewards:{reward}", "gold": "dead_rewards:gold"},
        "training": "reward",
        "selection": "gold",
        "report": "gold",
        **more,
    }


def one_segment(folder, name, reward, until=2, **config):
    task, of_run = EnvironmentSpec("files", FrozenMap(options(folder, reward))), {"episodes": 8}
    of_run |= {"seed": 3, "horizon": 4}
    return segment(name, task, {**CONFIG[name], **config}, until, None, {"guard": 0}, **of_run)


def metrics(one):
    outcome = train(one)
    assert outcome.status is Status.DONE
    return outcome, outcome.reports[-1].metrics


def test_groups_of_equal_rewards_are_counted():
    reward = CountedReward("reward", lambda prompts, texts: [float(text) for text in texts])
    assert reward.zero_std == 0.0
    reward(["p", "p", "q", "q"], ["1", "1", "1", "2"])
    assert reward.zero_std == 0.5
    reward(
        ["p", "q", "p", "q"], ["1", "2", "1", "2"]
    )  # online DPO: the second completions stand behind the first ones
    assert reward.zero_std == 0.75
    reward(
        ["p", "q"], ["1", "2"]
    )  # one completion of each prompt: they are held against each other
    assert reward.zero_std == 0.6
    reward(["p"], ["1"])  # nothing to be held against
    assert reward.zero_std == 0.6


@pytest.mark.parametrize("name", CONFIG)
def test_a_constant_reward_is_seen(name, folder):
    """PPO scores a completion without an end otherwise, unless it is told not to."""
    plain = {"missing_eos": "none"} if name == "trl/ppo" else {}
    _, constant = metrics(one_segment(folder, name, "same", **plain))
    assert constant["reward_zero_std"] == 1.0
    assert (constant["kl"] == 0.0) == (
        name == "trl/rloo"
    )  # the value network of PPO is wrong at first
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


BATCH = {
    "trl/rloo": {"per_device_train_batch_size": 8},
    "trl/dpo": {"per_device_train_batch_size": 8},
    "trl/ppo": {"batch_size": 8},
}


def spec_of(trainer, space, files, metric):
    document = {
        "trainer": {"name": trainer, "kwargs": {"guard": 0, **BATCH[trainer]}},
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
    (folder / "held.jsonl").write_text(
        "".join(json.dumps({"prompt": f"{prompt} "}) + "\n" for prompt in PROMPTS[:9])
    )
    files = options(folder, "varied", held_out=str(folder / "held.jsonl"))
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
    (ties,) = [text for text in found.caveats if "ties" in text]
    assert (
        "data: 32 of 64 pairs have two equal answers, of which nothing can be learnt"
        in found.caveats
    )
    assert ties.endswith(
        "% of the held-out pairs are ties, each of which counts half in pair_accuracy"
    )
    assert 20 < int(ties.split()[0]) < 80


def test_a_reward_that_is_no_number_is_said_as_what_it_is():
    """TRL takes NaN for None, and says that all reward functions returned that."""
    reward = CountedReward("gold", lambda prompts, texts: [float(text) for text in texts])
    with pytest.warns(
        RuntimeWarning, match="the reward gold is not a number for 2 of 3 completions"
    ):
        reward(["p", "p", "p"], ["nan", "1", "nan"])
    assert reward.zero_std == 0.0
