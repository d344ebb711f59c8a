"""A user's reward functions, plain or as TRL calls them, with columns of the data."""

import pytest
from user_code import importable

from autorl.rlhf.signals import function_signal, is_function
from autorl.types import InputError

CODE = """
def plain(texts, answers):
    return [len(text) + len(answer) for text, answer in zip(texts, answers)]

def exact(prompts, completions, answer):
    return [float(text == wanted) for text, wanted in zip(completions, answer)]

def like_trl(completions, **rest):
    rows = zip(completions, rest["answer"], rest["prompts"])
    return [float(text in wanted and prompt != "") for text, wanted, prompt in rows]

def optional(prompts, completions, scale=2.0):
    return [scale] * len(completions)

def short(prompts, completions):
    return [1.0]

def alone(text):
    return 1.0
"""
ROWS = [
    ("p", {"prompt": "p", "answer": "x"}),
    ("q", {"prompt": "q", "answer": "y z"}),
    ("p", {"prompt": "p", "answer": "x"}),
]
KEY = "environment.kwargs.signals.gold"


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    with importable("users_own_rewards", CODE, tmp_path, monkeypatch):
        yield


def signal(name, rows=ROWS):
    return function_signal(f"users_own_rewards:{name}", rows, KEY)


def test_functions_of_prompts_and_completions():
    assert signal("plain")(["p", "qq"], ["a", "bb"]) == [2.0, 4.0]
    assert signal("optional")(["p"], ["a"]) == [2.0]


def test_further_parameters_are_columns_by_prompt():
    assert signal("exact")(["q", "p", "q"], ["y z", "y z", "x"]) == [1.0, 0.0, 0.0]
    assert signal("like_trl")(["q", "p"], ["z", "z"]) == [1.0, 0.0]


def test_columns_that_are_missing_or_not_one_per_prompt_are_refused():
    with pytest.raises(InputError, match="takes 'answer', and the data has no such column"):
        signal("exact", [("p", {"prompt": "p"})])
    both = [*ROWS, ("q", {"prompt": "q", "answer": "other"})]
    with pytest.raises(InputError, match="'answer', which has two values for the prompt 'q'"):
        signal("exact", both)
    with pytest.raises(KeyError):  # of the function: a column that is not one per prompt is not handed on
        signal("like_trl", both)(["p"], ["x"])


def test_what_is_no_reward_function_is_refused():
    with pytest.raises(InputError, match=r"must take prompts and completions, not \(text\)"):
        signal("alone")
    with pytest.raises(InputError, match="cannot import"):
        signal("nothing")
    with pytest.raises(InputError, match="returned 1 numbers for 2 completions"):
        signal("short")(["p", "p"], ["a", "b"])


def test_a_function_is_told_from_a_folder(tmp_path):
    (tmp_path / "a:b").mkdir()
    assert is_function("users_own_rewards:exact")
    assert not is_function("models/reward")
    assert not is_function(str(tmp_path / "a:b"))
