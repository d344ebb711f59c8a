"""An exported model, scored by others' code alone, has the score that was reported of its seed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autorl.cli import app
from autorl.study import Study

pytestmark = pytest.mark.slow
TUNING, TEST = 0, 100


def tuned(folder, document):
    """The result of a study on one tuning and one test seed, and its exported model's path."""
    from autorl.study.spec import load_spec

    common = {
        "seeds": {"tuning": [TUNING], "test": [TEST]},
        "test": {"top": 1},
        "executor": {"name": "in_process"},
    }
    spec = load_spec(common | {"optimizer": "random", "parallelism": 1} | document)
    with closing(Study.create(spec, folder)) as study:
        return study.run()


def exported(folder, target):
    run = CliRunner().invoke(app, ["export", str(folder), "--model", str(target)])
    assert run.exit_code == 0, run.output
    assert "model and score are of step" in run.output
    return Path(run.output.partition(":")[0])


def agree(mine, reported, episodes, spread=None):
    """The mean of `mine` is within 2 standard errors of a reported mean over `episodes`, whose deviation is `spread`.

    Both means have an error; without `spread` the deviation of `mine` stands for both.
    """
    mine = np.asarray(mine, dtype=float)
    own = mine.std(ddof=1)
    error = np.hypot(
        own / np.sqrt(len(mine)), (own if spread is None else spread) / np.sqrt(episodes)
    )
    assert abs(mine.mean() - reported) <= 2 * error, (
        f"{mine.mean():.3f} of {len(mine)}, reported {reported:.3f}"
    )


# -- language models ---------------------------------------------------------------------------------------------------

RLHF = {
    "trl/rloo": ("letters-goldproxy", {"beta": 0.02, "learning_rate": 3e-3}, 24),
    "trl/grpo": ("letters-goldproxy", {"beta": 0.02, "learning_rate": 3e-3}, 24),
    "trl/dpo": ("letters-pairs", {"beta": 0.1, "learning_rate": 5e-3}, 24),
}


def completions(folder, prompts, most, seed):
    """One sampled completion for each prompt, by transformers alone."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    tokenizer.padding_side = "left"
    batch = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    torch.manual_seed(seed)
    model.eval()
    with torch.no_grad():
        tokens = model.generate(
            **batch,
            do_sample=True,
            top_k=0,
            top_p=1.0,
            temperature=1.0,
            max_new_tokens=most,
            pad_token_id=0,
        )
    return tokenizer.batch_decode(
        tokens[:, batch["input_ids"].shape[1] :], skip_special_tokens=True
    )


@pytest.mark.parametrize("trainer", RLHF)
def test_an_exported_language_model_scores_what_the_study_says(tmp_path, trainer):
    pytest.importorskip("trl", reason="needs the extra rlhf")
    from autorl.trainers.language.tasks.letters import COMPLETION, gold, split_prompts

    task, fixed, steps = RLHF[trainer]
    rate = fixed.pop("learning_rate") if "learning_rate" in fixed else 3e-3
    space = {
        "learning_rate": {
            "type": "float",
            "lower": 0.9 * rate,
            "upper": 1.1 * rate,
            "default": rate,
        }
    }
    document = {
        "trainer": {"name": trainer, "kwargs": fixed},
        "environment": task,
        "space": {"hyperparameters": space},
        "fidelity": {"steps": steps, "evaluations": 6, "episodes": 192},
        "budget": {"runs": 1},
    }
    result = tuned(tmp_path / "study", document)
    assert result.steps.model == result.steps.score
    if trainer != "trl/dpo":
        assert result.steps.model < steps, "too hard an optimization: the last step is not the best"
    model = exported(tmp_path / "study", tmp_path / "model")
    held_out = split_prompts(0)[1][1::2]
    scores = [gold(text) for text in completions(model, [*held_out] * 10, COMPLETION, seed=1)]
    agree(scores, result.test.seeds[TEST], episodes=192)


def stored_spread(folder, step):
    """The deviation over episodes of the evaluation the test score is of."""
    query = (
        "SELECT value FROM reports JOIN runs USING (run_id) WHERE metric = 'eval_return_std' AND step = ? AND seed = ? "
        "AND config_id = 0"
    )
    with sqlite3.connect(folder / "study.sqlite") as connection:
        ((value,),) = connection.execute(query, (step, TEST))
    return value


# -- agents ------------------------------------------------------------------------------------------------------------


def returns(model, environment, episodes):
    """Returns of the greedy policy by a plain loop of gymnasium."""
    import gymnasium

    env = gymnasium.make(environment)
    found = []
    for seed in range(episodes):
        observation, _ = env.reset(seed=10_000 + seed)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        found.append(total)
    env.close()
    return found


@pytest.mark.parametrize("reduce", ["best", "last"])
@pytest.mark.parametrize("trainer", ["population/ppo", "sb3/ppo"])
def test_an_exported_agent_scores_what_the_study_says(tmp_path, trainer, reduce):
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    from stable_baselines3 import PPO

    kwargs = {"n_steps": 128, "n_envs": 4} if trainer == "population/ppo" else {"n_steps": 256}
    space = {"learning_rate": {"type": "float", "lower": 2e-3, "upper": 2e-2, "default": 1e-2}}
    document = {
        "trainer": {"name": trainer, "kwargs": kwargs},
        "environment": {"id": "CartPole-v1"},
        "space": {"hyperparameters": space},
        "fidelity": {"steps": 6144, "evaluations": 6, "episodes": 40},
        "objective": {"metric": "eval_return", "reduce": reduce},
        "budget": {"runs": 1},
    }
    result = tuned(tmp_path / "study", document)
    assert result.steps.model == result.steps.score
    assert (result.steps.model < 6144) == (reduce == "best")
    path = exported(tmp_path / "study", tmp_path / "model.zip")
    spread = stored_spread(tmp_path / "study", result.steps.model)
    agree(
        returns(PPO.load(path, device="cpu"), "CartPole-v1", 40),
        result.test.seeds[TEST],
        40,
        spread,
    )
