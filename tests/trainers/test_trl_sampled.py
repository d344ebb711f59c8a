"""`trl/raft` and `trl/iterated_dpo`: what they train on, against brute force."""

from pathlib import Path

import pytest

pytest.importorskip("trl", reason="needs the extra rlhf")

import torch
from rlhf_support import one_thread, save, write_policy  # noqa: F401
from segments import segment, train

from autorl.core.types import EnvironmentSpec, FrozenMap
from autorl.trainers.language.models import load_policy, load_tokenizer
from autorl.trainers.trl.sampled import IteratedDPOTrainer, RAFTTrainer
from autorl.trainers.trl.segment_trainer import TRLRun

VALUES = {"learning_rate": 1e-2, "per_device_train_batch_size": 6, "num_generations": 4}
VALUES |= {"steps_per_generation": 2, "num_iterations": 2}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """Ten prompts, and a reward that counts some letters of at most four."""
    folder = tmp_path_factory.mktemp("sampled")
    write_policy(folder / "model")
    files = {"model": str(folder / "model"), "training": "proxy", "max_completion": 4}
    files |= {"data": save(folder / "data.jsonl", [{"prompt": one} for one in "abcdefghij"])}
    files |= {"held_out": save(folder / "held.jsonl", [{"prompt": f"{one} x"} for one in "ijkl"])}
    files |= dict.fromkeys(("selection", "report"), "gold")
    files |= {"signals": dict.fromkeys(("proxy", "gold"), "test_trl_sampled:letters")}
    return EnvironmentSpec("files", FrozenMap(files))


def letters(prompts, completions):
    return [float(len({*text.split()} & {*"abcdefgh"})) for text in completions]


def trained(task, name, config, until, monkeypatch):
    """The outcome of a segment, and for each draw its prompts, completions, rewards and rows."""
    draws, build, draw = [], TRLRun.build, RAFTTrainer.draw

    def listening(run, *arguments):
        build(run, *arguments)
        score = run.trl.reward

        def scored(prompts, texts, tokens):
            draws.append([prompts, tokens, score(prompts, texts, tokens)])
            return draws[-1][2]

        run.trl.reward = scored

    def drawing(*arguments):
        rows = draw(*arguments)
        draws[-1].append(rows)
        return rows

    monkeypatch.setattr(TRLRun, "build", listening)
    for owner in (RAFTTrainer, IteratedDPOTrainer):
        monkeypatch.setattr(owner, "draw", drawing)
    one = segment(f"trl/{name}", task, VALUES | config, until, episodes=4, seed=3)
    return train(one), draws


@pytest.mark.parametrize(("name", "ends"), [("raft", [max]), ("iterated_dpo", [max, min])])
def test_rows_are_the_ends_of_each_group_by_the_reward(name, ends, task, monkeypatch):
    outcome, draws = trained(task, name, {}, 8, monkeypatch)
    tokenizer = load_tokenizer(Path(task.kwargs["model"]))
    for prompts, tokens, rewards, rows in draws:
        assert {prompts[::4].count(one) for one in "abcdefghij"} == {1, 2}
        for place, row in zip(range(0, 48, 4), rows, strict=True):
            assert len({*prompts[place : place + 4]}) == 1
            group = dict(zip(rewards[place : place + 4], tokens[place : place + 4], strict=True))
            first = {reward: tokens[rewards.index(reward, place)] for reward in group}
            values = [first[end(group)] for end in ends]
            read = tokenizer(prompts[place])["input_ids"]
            whole = {"input_ids": read + values[0], "labels": [-100] * len(read) + values[0]}
            pair = {"prompt_ids": read, "chosen_ids": values[0], "rejected_ids": values[-1]}
            assert row == (whole if name == "raft" else pair)
    metrics = outcome.reports[-1].metrics
    assert len(draws) == 2  # at steps 0 and 4
    assert metrics["tokens"] == sum(len(one) for draw in draws for one in draw[1])
    assert metrics["train_reward"] == pytest.approx(sum(draws[-1][2]) / 48)


def test_the_first_loss_is_the_likelihood_of_the_best_completions(task, monkeypatch):
    once = {"num_iterations": 1, "steps_per_generation": 1}
    outcome, [[*_, rows]] = trained(task, "raft", once, 1, monkeypatch)
    policy, losses = load_policy(Path(task.kwargs["model"])), []
    for row in rows:
        with torch.no_grad():
            logits = policy(torch.tensor([row["input_ids"]])).logits[0, :-1]
        labels = torch.tensor(row["labels"][1:])
        losses += torch.nn.functional.cross_entropy(logits, labels, reduction="none")[labels >= 0]
    mean = float(sum(losses)) / len(losses)
    assert outcome.reports[-1].metrics["train_loss"] == pytest.approx(mean, rel=1e-5)


@pytest.mark.parametrize("name", ["raft", "iterated_dpo"])
@pytest.mark.parametrize("more", [{}, {"gradient_accumulation_steps": 2}, {"lora.r": 2}])
def test_a_cut_run_is_the_whole_run(name, more, task, tmp_path):
    """By the last evaluation, which samples; with more options, of the reference policy."""
    of_run = {"episodes": 4, "seed": 3, "horizon": 8}
    config = VALUES | more | {"from_ref_model": bool(more)}

    def part(until, folder, evaluate_at, after=None):
        place = {"evaluate_at": evaluate_at, "after": after, **of_run}
        return train(segment(f"trl/{name}", task, config, until, tmp_path / folder, **place))

    second = part(8, "second", (8,), after=part(4, "first", ()))
    assert second.reports[-1].metrics == part(8, "whole", (0, 4, 8)).reports[-1].metrics
