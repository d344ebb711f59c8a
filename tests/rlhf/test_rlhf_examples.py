"""Meaning of rows of a user's data, column by column, and the error of a row without meaning."""

import json
from types import SimpleNamespace

import pytest
from refusals import expect_error

from autorl.core.types import InputError
from autorl.trainers.language.data.rows import Reader, chat_renderer, comparable


def shown(messages, tools=None, answered=False):
    """A chat template: of the tools it writes the names."""
    told = "".join(f"[{tool['name']}] " for tool in tools or ())
    talk = " / ".join(f"{part['role']}: {part['content']}" for part in messages)
    return told + talk + ("" if answered else " / assistant: ")


def read(*rows, **columns):
    return Reader(columns, shown, "rows.jsonl").examples(list(rows))


def say(role, content):
    return {"role": role, "content": content}


def test_prompts_with_further_columns():
    (one,) = read({"prompt": "2 1 >", "answer": "1 2"})
    assert (one.prompt, one.pairs, one.completion, one.label) == ("2 1 >", (), None, None)
    assert one.row["answer"] == "1 2"
    assert one.key == comparable("2 1 >")


def test_pairs_and_rankings():
    (pair,) = read({"prompt": "p", "chosen": "good", "rejected": "bad"})
    assert pair.pairs == (("good", "bad"),)
    (ranked,) = read({"prompt": "p", "ranking": ["best", "middle", "worst"]})
    assert ranked.pairs == (("best", "middle"), ("best", "worst"), ("middle", "worst"))


def test_completions_labels_and_texts():
    (plain,) = read({"prompt": "p", "completion": "c"})
    assert (plain.completion, plain.label) == ("c", None)
    labels = [True, False, 1, 0, "true", "False", "1.0"]
    found = read(*({"prompt": "p", "completion": "c", "label": label} for label in labels))
    assert [one.label for one in found] == [True, False, True, False, True, False, True]
    (text,) = read({"text": "once upon"})
    assert (text.prompt, text.completion, text.key) == ("", "once upon", "once upon")


def test_columns_have_the_names_the_user_gives():
    (one,) = read(
        {"question": "p", "good": "a", "bad": "b"}, prompt="question", chosen="good", rejected="bad"
    )
    assert (one.prompt, one.pairs) == ("p", (("a", "b"),))


def test_conversations_are_rendered_and_their_last_message_is_the_completion():
    asked = [say("system", "be brief"), say("user", "hi")]
    (one,) = read({"prompt": asked, "completion": [say("assistant", "hello")]})
    assert (one.prompt, one.completion) == ("system: be brief / user: hi / assistant: ", "hello")
    assert one.chat == asked
    good, bad = [*asked, say("assistant", "hello")], [*asked, say("assistant", "go away")]
    (pair,) = read({"chosen": good, "rejected": bad})
    assert (pair.prompt, pair.pairs) == (one.prompt, (("hello", "go away"),))
    with pytest.raises(InputError, match="begin differently: they have no prompt"):
        read({"chosen": good, "rejected": [say("user", "ho"), bad[-1]]})


def test_an_answer_may_have_several_messages():
    """As in TRL's data: after a common beginning, in `completion`, and in `messages` from the first answer on."""
    asked = [say("user", "hi")]
    long = [say("assistant", "hello"), say("user", "more"), say("assistant", "no")]
    prompt, text = "user: hi / assistant: ", "hello / user: more / assistant: no"
    (pair,) = read({"chosen": [*asked, *long], "rejected": [*asked, say("assistant", "bye")]})
    assert (pair.prompt, pair.pairs) == (prompt, ((text, "bye"),))
    (one,) = read({"prompt": asked, "completion": long})
    (whole,) = read({"messages": [*asked, *long]})
    assert (one.prompt, one.completion) == (whole.prompt, whole.completion) == (prompt, text)
    assert (one.chat, whole.chat) == (asked, asked)


@pytest.mark.parametrize("form", [lambda tools: tools, json.dumps])
def test_tools_are_told_by_the_chat_template(form):
    tools = form([{"name": "look"}])
    (one,) = read({"prompt": [say("user", "hi")], "tools": tools})
    (talk,) = read({"messages": [say("user", "hi"), say("assistant", "a")], "tools": tools})
    assert one.prompt == talk.prompt == "[look] user: hi / assistant: "
    assert talk.completion == "a"
    (none,) = read({"prompt": "p", "tools": None})
    assert none.prompt == "p"


PROMPT = {"prompt": "p"}
DONE = {"prompt": "p", "completion": "c"}
TALK = [say("user", "u"), say("assistant", "a")]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (PROMPT, {"prompt": ""}, "row 2: expected a text or messages in 'prompt', got ''"),
        (PROMPT, {"question": "p"}, "row 2: nothing in column 'prompt'"),
        (DONE, PROMPT | {"completion": 3}, "row 2: expected a text or one message"),
        (DONE, PROMPT | {"completion": [*TALK, *TALK]}, "row 2: expected a text or one message"),
        ({"messages": TALK}, {"messages": TALK[:1]}, "row 2: expected a question and an answer"),
        (
            {"messages": TALK},
            {"messages": TALK[1:] * 2},
            "row 2: expected a question and an answer",
        ),
        (PROMPT, PROMPT | {"tools": "[look"}, "row 2: expected a list of tools in 'tools'"),
        (
            PROMPT,
            PROMPT | {"tools": "[3]"},
            "row 2: tools are for a chat template: the prompt is a",
        ),
        (
            *(PROMPT | {"ranking": ["a", "b"]}, PROMPT | {"ranking": ["a"]}),
            "row 2: expected in 'ranking' at least two",
        ),
        (
            *(DONE | {"label": 1}, DONE | {"label": "maybe"}),
            "row 2: expected true or false in 'label', got 'maybe'",
        ),
        (
            *({"chosen": TALK, "rejected": TALK}, {"chosen": "a", "rejected": "b"}),
            "row 2: chosen and rejected are texts, so a column `prompt` is needed",
        ),
        (
            *({"question": "p"}, {"question": "q"}),
            "row 1: its columns are question; expected prompt · prompt, chosen",
        ),
    ],
)
def test_a_row_that_means_nothing_is_named(first, second, message):
    assert expect_error(message, read, first, second).file == "rows.jsonl"


def test_columns_that_are_not_there_or_unknown():
    expect_error("no column 'question'; there are prompt", read, {"prompt": "p"}, prompt="question")
    with pytest.raises(InputError, match="unknown column 'answer'; allowed: prompt, chosen"):
        read({"prompt": "p"}, answer="solution")


class Template:
    """A tokenizer with a chat template that begins with `<s>`, which `adds` says it puts before every text itself."""

    bos_token, bos_token_id, eos_token, chat_template = "<s>", 1, "</s>", "yes"

    def __init__(self, adds):
        self.adds = adds

    def __call__(self, text):
        return {"input_ids": [1] if self.adds else []}

    def apply_chat_template(self, messages, tools, tokenize, add_generation_prompt):
        assert (tools, tokenize) == (None, False)
        return f"<s>{messages[0]['content']}|" + ("" if add_generation_prompt else "</s>\n")


def test_a_template_does_not_begin_a_text_twice():
    asked = [say("user", "hi")]
    assert chat_renderer(lambda: Template(adds=False))(asked) == "<s>hi|"
    assert chat_renderer(lambda: Template(adds=True))(asked) == "hi|"
    assert chat_renderer(lambda: Template(adds=True))(asked, answered=True) == "hi|"  # no end
    with pytest.raises(InputError, match="no chat template"):
        chat_renderer(lambda: SimpleNamespace(chat_template=None))(asked)
