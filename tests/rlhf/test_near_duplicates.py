"""Prompts that differ by blanks, letter case or Unicode form are one prompt: held out together, and counted."""

import json

import pytest

from autorl.trainers.language.data.splits import comparable
from autorl.trainers.language.tasks.files import FILES

PROMPTS = [f"Question caf\u00e9 {number}" for number in range(40)]
VARIANTS = {
    "blank behind": lambda text: f"{text} ",
    "blanks inside": lambda text: text.replace(" ", "  \t"),
    "no-break space": lambda text: text.replace(" ", "\u00a0"),
    "letter case": str.upper,
    "decomposed": lambda text: text.replace("\u00e9", "e\u0301"),
}
NAMES = {"training": "data", "selection": "log_likelihood", "report": "log_likelihood"}


def save(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.fixture
def options(tmp_path):
    """Options of a study on rows, and on a held-out data set or share; no model is read."""
    (tmp_path / "config.json").write_text("{}")

    def options(data, held_out=0.25, prompts=None):
        chosen = {
            "model": str(tmp_path),
            "data": save(tmp_path / "data.jsonl", data),
            **NAMES,
            "held_out": held_out,
        }
        if not isinstance(held_out, float):
            chosen["held_out"] = save(tmp_path / "held_out.jsonl", held_out)
        if prompts is not None:
            chosen["prompts"] = save(
                tmp_path / "prompts.jsonl", [{"prompt": prompt} for prompt in prompts]
            )
        return chosen

    return options


def build(options, tmp_path, instance=0):
    return FILES.with_options(options).build(instance, tmp_path, **options)


def completed(prompts):
    return [{"prompt": prompt, "completion": "an answer"} for prompt in prompts]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 3 + 4 ?", "what is 3+4?"),
        ("<|user|>Hello <|end|>\n<|assistant|>", "<|user|>hello<|end|><|assistant|>"),
        ("Stra\u00dfe", "STRASSE"),
        ("caf\u00e9\n", " cafe\u0301"),
    ],
)
def test_what_differs_by_blanks_case_or_form_alone_is_the_same(one, other):
    assert comparable(one) == comparable(other)


@pytest.mark.parametrize(
    ("one", "other"), [("1 23", "12 3"), ("x\u00b2", "x2"), ("a b", "ab"), ("is it?", "is it!")]
)
def test_other_differences_are_differences(one, other):
    assert comparable(one) != comparable(other)


def test_a_text_of_blanks_alone_is_itself():
    assert comparable(" \n") == " \n"


@pytest.mark.parametrize("variant", VARIANTS)
def test_held_out_prompts_are_found_however_they_are_written(variant, options, tmp_path):
    changed = [VARIANTS[variant](prompt) for prompt in PROMPTS[:10]]
    assert not set(changed) & set(PROMPTS)
    built = build(
        options(completed(PROMPTS), [*completed(changed), *completed(["new 1", "new 2"])]), tmp_path
    )
    assert set(built.held_out) == {*changed, "new 1", "new 2"}
    assert set(built.prompts) == set(PROMPTS[10:])
    assert {prompt for prompt, _ in built.completions} == set(PROMPTS[10:])
    (note,) = built.notes
    assert note == (
        "data: 10 of 40 rows have a held-out prompt and are left out of training; 10 of them differ from it by blanks, "
        "letter case or Unicode form alone"
    )


def test_exact_ones_are_counted_too_and_prompts_to_sample_from(options, tmp_path):
    chosen = options(
        completed(PROMPTS),
        completed(PROMPTS[:5]),
        prompts=[*PROMPTS[4:8], PROMPTS[0].upper(), "a", "b"],
    )
    built = build(chosen, tmp_path)
    assert set(built.prompts) == {*PROMPTS[5:8], "a", "b"}
    (note,) = built.notes
    assert note.startswith(
        "data: 7 of 47 rows have a held-out prompt and are left out of training; 1 of them"
    )
    assert FILES.with_options(chosen).notes(chosen) == built.notes


def test_where_nothing_is_left_out_nothing_is_said(options, tmp_path):
    assert build(options(completed(PROMPTS)), tmp_path).notes == ()
    assert build(options(completed(PROMPTS), completed(["new 1", "new 2"])), tmp_path).notes == ()


@pytest.mark.parametrize("instance", range(5))
def test_variants_in_one_data_set_are_held_out_together(instance, options, tmp_path):
    twins = [prompt.upper() for prompt in PROMPTS]
    built = build(options(completed([*PROMPTS, *twins])), tmp_path, instance)
    trained = {prompt.casefold() for prompt, _ in built.completions} | {
        prompt.casefold() for prompt in built.prompts
    }
    tuning = {prompt.casefold() for prompt, _ in built.held_out_completions}
    test = {prompt.casefold() for prompt, _ in built.test_completions}
    assert (len(trained), len(tuning), len(test)) == (30, 5, 5)
    assert len(trained | tuning | test) == 40
    assert set(built.held_out) <= set(PROMPTS)  # asked as it is first written
    assert {prompt.casefold() for prompt in built.held_out[0::2]} == tuning


def test_messages_are_compared_as_they_are_asked(options, tmp_path):
    """Conversations in implicit prompts and in the column `prompt`."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<e>": 0})), eos_token="<e>"
    )
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    tokenizer.save_pretrained(tmp_path)

    def talk(text):
        return [{"role": "user", "content": text}]

    pairs = [
        {
            name: [*talk(prompt), {"role": "assistant", "content": name}]
            for name in ("chosen", "rejected")
        }
        for prompt in PROMPTS
    ]
    held = [
        {"prompt": talk(f" {prompt.upper()} "), "chosen": "c", "rejected": "d"}
        for prompt in PROMPTS[:10]
    ]
    built = build(options(pairs, held), tmp_path)
    assert {prompt for prompt, _, _ in built.pairs} == {
        f"<user>{prompt}</s>" for prompt in PROMPTS[10:]
    }
    assert built.notes[0].startswith("data: 10 of 40 rows have a held-out prompt")


def test_columns_of_a_reward_are_those_of_the_prompt_that_is_asked(options, tmp_path, monkeypatch):
    (tmp_path / "near_rewards.py").write_text(
        "def exact(prompts, completions, answer):\n    return [float(len(one)) for one in answer]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = [{"prompt": prompt, "answer": "x"} for prompt in PROMPTS]
    held = [{"prompt": prompt.upper(), "answer": "yy"} for prompt in PROMPTS[:10]]
    chosen = options(data, held) | dict.fromkeys(("training", "selection", "report"), "exact")
    built = build(chosen | {"signals": {"exact": "near_rewards:exact"}}, tmp_path)
    assert built.signals["exact"]([built.prompts[0], built.held_out[0]], ["", ""]) == [1.0, 2.0]


def test_pairs_with_equal_answers_are_counted(options, tmp_path):
    pairs = [
        {"prompt": prompt, "chosen": "the same", "rejected": "the same" if number < 12 else "other"}
        for number, prompt in enumerate(PROMPTS)
    ]
    built = build(options(pairs), tmp_path)
    assert built.notes == (
        "data: 12 of 40 pairs have two equal answers, of which nothing can be learnt",
    )
    assert len(built.pairs) == 30
