"""Which columns of the data a reward function is given, by its own parameters, through the task `files`."""

import json

import pytest
from user_code import importable

from autorl.core.types import InputError
from autorl.trainers.language.rewards.user_signals import function_signal
from autorl.trainers.language.tasks.files import FILES

CODE = """
def checked(prompts, completions, answer=None):
    return [float(text == wanted) for text, wanted in zip(completions, answer or ["?"] * len(completions))]

def exact(prompts, completions, *, answer):
    return [float(text == wanted) for text, wanted in zip(completions, answer)]

def by_name(completions, **rest):
    return [float(len(rest.get("answer", ()))) for _ in completions]
"""
KEY = "environment.kwargs.signals.gold"


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    with importable("column_rewards", CODE, tmp_path, monkeypatch):
        yield


def signal(name, rows):
    return function_signal(f"column_rewards:{name}", [(row["prompt"], row) for row in rows], KEY)


def test_a_parameter_with_a_default_is_a_column_where_there_is_one():
    rows = [{"prompt": "p", "answer": "x"}, {"prompt": "q", "answer": "y"}]
    assert signal("checked", rows)(["q", "p", "q"], ["y", "y", "x"]) == [1.0, 0.0, 0.0]
    assert signal("checked", [{"prompt": "p"}])(["p", "p"], ["x", "?"]) == [0.0, 1.0]


@pytest.mark.parametrize("name", ["checked", "exact"])
def test_a_column_that_is_not_one_value_per_prompt_is_refused(name):
    both = [{"prompt": "p", "answer": "x"}, {"prompt": "p", "answer": "y"}]
    with pytest.raises(
        InputError, match=f"{name} takes 'answer', which has two values for the prompt 'p'"
    ):
        signal(name, both)
    some = [{"prompt": "p", "answer": "x"}, {"prompt": "q"}]
    with pytest.raises(
        InputError, match=f"{name} takes 'answer', which has no value for the prompt 'q'"
    ):
        signal(name, some)
    assert signal("by_name", some)(["p"], ["a"]) == [0.0]
    assert signal("by_name", some[:1])(["p"], ["a"]) == [1.0]


def build(folder, name, data, **options):
    (folder / "config.json").write_text("{}")
    for option, rows in {"data": data, **options}.items():
        (folder / f"{option}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {option: str(folder / f"{option}.jsonl") for option in ("data", *options)}
    common = {
        "model": str(folder),
        "signals": {"gold": f"column_rewards:{name}"},
        "training": "gold",
    }
    chosen = common | files | {"selection": "length", "report": "gold"}
    return FILES.with_options(chosen).build(0, folder, **chosen)


PROMPTS = [f"prompt {number}" for number in range(20)]
ANSWERED = [{"prompt": prompt, "answer": prompt[-1]} for prompt in PROMPTS]


@pytest.mark.parametrize("name", ["checked", "exact"])
def test_every_prompt_that_is_sampled_from_has_its_answer(name, tmp_path):
    """From the data, from `prompts` beside texts or other data, and from a held-out set whose answers then count."""
    others = [{"prompt": f"other {number}", "chosen": "a", "rejected": "b"} for number in range(20)]
    texts = [{"text": f"text {number}"} for number in range(20)]
    apart = [{"prompt": prompt, "answer": "kept"} for prompt in PROMPTS[:4]]
    own = {row["prompt"]: row["answer"] for row in ANSWERED}
    kept = own | {row["prompt"]: row["answer"] for row in apart}
    for wanted, built in (
        (own, build(tmp_path, name, ANSWERED)),
        (own, build(tmp_path, name, others, prompts=ANSWERED)),
        (own, build(tmp_path, name, texts, prompts=ANSWERED)),
        (own, build(tmp_path, name, ANSWERED, prompts=[{"prompt": prompt} for prompt in PROMPTS])),
        (kept, build(tmp_path, name, ANSWERED, held_out=apart)),
        (kept, build(tmp_path, name, ANSWERED, held_out=apart, prompts=ANSWERED)),
    ):
        assert set(built.prompts) | set(built.held_out) == set(PROMPTS)
        assert built.signals["gold"](PROMPTS, [wanted[prompt] for prompt in PROMPTS]) == [1.0] * 20
        assert built.signals["gold"](PROMPTS, ["no"] * 20) == [0.0] * 20


def test_prompts_without_the_column_of_the_data_are_refused(tmp_path):
    with pytest.raises(InputError, match="'answer', which has no value for the prompt 'other 0'"):
        build(
            tmp_path,
            "exact",
            ANSWERED,
            prompts=[{"prompt": f"other {number}"} for number in range(20)] + ANSWERED,
        )
