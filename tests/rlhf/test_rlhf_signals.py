"""A user's reward functions, plain or as TRL calls them, with columns of the data."""

import pytest
from user_code import importable

from autorl.core.types import InputError
from autorl.trainers.language.rewards.user_signals import function_signal, is_function

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
    with pytest.raises(
        InputError, match="like_trl failed: KeyError"
    ):  # such a column is not handed on
        signal("like_trl", both)(["p"], ["x"])


def test_what_is_no_reward_function_is_refused():
    with pytest.raises(InputError, match=r"must take prompts and completions, not \(text\)"):
        signal("alone")
    with pytest.raises(InputError, match="cannot import"):
        signal("nothing")
    with pytest.raises(InputError, match="returned 1 number for 2 completions"):
        signal("short")(["p", "p"], ["a", "b"])


def test_a_function_is_told_from_a_folder(tmp_path):
    (tmp_path / "a:b").mkdir()
    assert is_function("users_own_rewards:exact")
    assert not is_function("models/reward")
    assert not is_function(str(tmp_path / "a:b"))


FAULTS = """
def of_messages(completions, **rest):
    return [len(completion[0]["content"]) for completion in completions]

async def slow(prompts, completions):
    return [float(len(text)) for text in completions]

async def slow_column(completions, answer, **rest):
    return [float(text == wanted) for text, wanted in zip(completions, answer)]

def none(prompts, completions):
    return [None for text in completions]

def words(prompts, completions):
    return ["good" for text in completions]

def single(prompts, completions):
    return 1.0

def missing(prompts, completions):
    return [{}["x"] for text in completions]

def steps(prompts, completions):
    return [len(text[0]["content"]) for text in completions]

def no_memory(prompts, completions):
    raise MemoryError
"""


@pytest.fixture
def faults(tmp_path, monkeypatch):
    with importable("faulty_rewards", FAULTS, tmp_path, monkeypatch):
        yield


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "of_messages",
            r"of_messages failed: TypeError: string indices .* are texts, not messages",
        ),
        ("none", "none returned None, expected a number for each completion; None"),
        ("words", "words returned 'good', expected a number"),
        ("single", "single failed: TypeError: 'float' object is not iterable"),
        ("missing", "missing failed: KeyError: 'x'"),
    ],
)
def test_what_goes_wrong_in_a_reward_says_in_which(name, message, faults):
    with pytest.raises(InputError, match=f"{KEY}: faulty_rewards:{message}"):
        function_signal(f"faulty_rewards:{name}", ROWS, KEY)(["p", "q"], ["a", "b"])


def test_an_asynchronous_reward_is_awaited(faults):
    assert function_signal("faulty_rewards:slow", ROWS, KEY)(["p", "q"], ["a", "bb"]) == [1.0, 2.0]
    assert function_signal("faulty_rewards:slow_column", ROWS, KEY)(["p", "q"], ["x", "x"]) == [
        1.0,
        0.0,
    ]


def test_failures_of_the_machine_keep_their_kind(faults):
    with pytest.raises(MemoryError):
        function_signal("faulty_rewards:no_memory", ROWS, KEY)(["p"], ["a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"reward.signals": "faulty_rewards:missing"},
            "reward.signals: faulty_rewards:missing failed: KeyError",
        ),
        (
            {"reward.signals": ["gold", "faulty_rewards:none"], "reward.rule": "mean"},
            "faulty_rewards:none returned None",
        ),
        (
            {"reward.process": "faulty_rewards:steps"},
            "reward.process: faulty_rewards:steps failed: TypeError",
        ),
    ],
)
def test_functions_among_the_options_of_the_reward_are_named_too(options, message, faults):
    from types import SimpleNamespace

    from autorl.trainers.language.rewards.options import RewardOptions

    built = SimpleNamespace(
        name="t",
        signals={"gold": lambda prompts, texts: [0.0] * len(texts)},
        training="gold",
        ensemble=(),
    )
    with pytest.raises(InputError, match=message):
        RewardOptions.read(options).signal(built)(["p"], ["a"])


def test_a_reward_is_called_once_before_a_study(faults, tmp_path):
    """The task `files` calls every signal on a few rows; nothing is trained for it."""
    import json

    from autorl.trainers.language.tasks.files import FILES

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "data.jsonl").write_text(
        "".join(json.dumps({"prompt": f"p {number}"}) + "\n" for number in range(20))
    )
    options = {
        "model": str(tmp_path),
        "data": str(tmp_path / "data.jsonl"),
        "training": "fine",
        "selection": "gold",
    }
    options |= {
        "report": "gold",
        "signals": {"fine": "faulty_rewards:slow", "gold": "faulty_rewards:of_messages"},
    }
    with pytest.raises(
        InputError, match=r"signals\.gold: faulty_rewards:of_messages failed: TypeError"
    ):
        FILES.with_options(options).check(options)
    options["signals"]["gold"] = "users_own_rewards:plain"
    assert FILES.with_options(options).check(options) == ["prompts"]
