"""Prompts that differ by blanks, letter case or Unicode form are one prompt: held out together, and counted."""

import pytest
from rlhf_support import build_files, files_options, importable

from autorl.trainers.language.data.rows import comparable, near_duplicates
from autorl.trainers.language.tasks.files import FILES

PROMPTS = [f"Question caf\u00e9 {number}" for number in range(40)]
VARIANTS = {
    "blank behind": lambda text: f"{text} ",
    "blanks inside": lambda text: text.replace(" ", "  \t"),
    "no-break space": lambda text: text.replace(" ", "\u00a0"),
    "letter case": str.upper,
    "decomposed": lambda text: text.replace("\u00e9", "e\u0301"),
}


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
def test_held_out_prompts_are_found_however_they_are_written(variant, tmp_path):
    changed = [VARIANTS[variant](prompt) for prompt in PROMPTS[:10]]
    assert not set(changed) & set(PROMPTS)
    held_out = completed([*changed, "new 1", "new 2"])
    built = build_files(tmp_path, completed(PROMPTS), held_out=held_out)
    assert set(built.held_out) == {*changed, "new 1", "new 2"}
    assert set(built.prompts) == set(PROMPTS[10:])
    assert {prompt for prompt, _ in built.completions} == set(PROMPTS[10:])
    (note,) = built.notes
    assert note == (
        "data: 10 of 40 rows have a held-out prompt and are left out of training; 10 of them differ from it by blanks, "
        "letter case or Unicode form alone"
    )


def test_exact_ones_are_counted_too_and_prompts_to_sample_from(tmp_path):
    asked = [{"prompt": prompt} for prompt in (*PROMPTS[4:8], PROMPTS[0].upper(), "a", "b")]
    more = {"held_out": completed(PROMPTS[:5]), "prompts": asked}
    built = build_files(tmp_path, completed(PROMPTS), **more)
    assert set(built.prompts) == {*PROMPTS[5:8], "a", "b"}
    (note,) = built.notes
    left_out = "data: 7 of 47 rows have a held-out prompt and are left out of training; 1 of them"
    assert note.startswith(left_out)
    chosen = files_options(tmp_path, completed(PROMPTS), **more)
    assert FILES.with_options(chosen).notes(chosen) == built.notes


STORY = "tell me a story of the sea and of the two men in it"  # 13 words


@pytest.mark.parametrize(
    ("held", "text", "near"),
    [
        (STORY, f"please {STORY} now", True),
        (STORY, " ".join(STORY.split()[:8]), True),  # 8 of 13 words
        (STORY, " ".join(STORY.split()[:7]), False),  # no run of 8 words
        (f"{STORY} {STORY[::-1]}", STORY, False),  # 13 of 26 words are not more than half
        ("tell me more", "please tell me more?", True),
        ("tell me more", "tell me now more", False),
        ("more please", "more please now", False),  # too short to tell
    ],
)
def test_prompts_that_share_most_words_in_order_are_near(held, text, near):
    assert near_duplicates([held], [text, "x"]) == ({text: held} if near else {})


def test_near_duplicates_are_named_or_left_out(tmp_path):
    data = completed([*PROMPTS, "so tell me more of it"])
    more = {"held_out": completed(["tell me more", "new"])}
    named = build_files(tmp_path, data, **more)
    dropped = build_files(tmp_path, data, **more, near_duplicates="drop")
    assert set(named.prompts) - set(dropped.prompts) == {"so tell me more of it"}
    assert len(named.completions) == len(dropped.completions) + 1 == 41
    assert named.notes == dropped.notes == ()
    chosen = files_options(tmp_path, data, **more)
    (note,) = FILES.with_options(chosen).notes(chosen)
    (left_out,) = FILES.with_options(chosen).notes({**chosen, "near_duplicates": "drop"})
    assert "in 1 prompt to train on, e.g. 'tell me more' in 'so tell me more of it'; not" in note
    assert left_out.endswith("; left out")


@pytest.mark.parametrize("instance", range(5))
def test_variants_in_one_data_set_are_held_out_together(instance, tmp_path):
    twins = [prompt.upper() for prompt in PROMPTS]
    rows = completed([*PROMPTS, *twins])
    built = build_files(tmp_path, rows, instance, held_out=0.25)

    def folded(completions):
        return {prompt.casefold() for prompt, _ in completions}

    trained = folded(built.completions) | {prompt.casefold() for prompt in built.prompts}
    tuning = folded(built.held_out_completions)
    test = folded(built.test_completions)
    assert (len(trained), len(tuning), len(test)) == (30, 5, 5)
    assert len(trained | tuning | test) == 40
    assert set(built.held_out) <= set(PROMPTS)  # asked as it is first written
    assert {prompt.casefold() for prompt in built.held_out[0::2]} == tuning


def talk(text, *before):
    return [*before, {"role": "user", "content": text}]


@pytest.fixture
def chat_model(tmp_path):
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({"<e>": 0})), eos_token="<e>"
    )
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    tokenizer.save_pretrained(tmp_path)


def test_a_template_and_a_system_message_make_no_prompts_near(tmp_path, chat_model):
    system = {"role": "system", "content": f"You are asked for stories. {STORY}"}
    data = completed([talk(f"{word} it to me", system) for word in ("tell", "sing", "do tell")])
    held = {"held_out": completed([talk("tell it to me", system), talk("new", system)])}
    chosen = files_options(tmp_path, data, **held)
    exact, near = FILES.with_options(chosen).notes(chosen)
    assert exact.startswith("data: 1 of 3 rows have a held-out prompt")
    assert "in 1 prompt to train on, e.g. 'tell it to me' in 'do tell it to me'; not" in near


def test_messages_are_compared_as_they_are_asked(tmp_path, chat_model):
    """Conversations in implicit prompts and in the column `prompt`."""
    answers = {name: {"role": "assistant", "content": name} for name in ("chosen", "rejected")}
    pairs = [
        {name: [*talk(prompt), answer] for name, answer in answers.items()} for prompt in PROMPTS
    ]
    asked = [talk(f" {prompt.upper()} ") for prompt in PROMPTS[:10]]
    held = [{"prompt": prompt, "chosen": "c", "rejected": "d"} for prompt in asked]
    built = build_files(tmp_path, pairs, held_out=held)
    expected = {f"<user>{prompt}</s>" for prompt in PROMPTS[10:]}
    assert {prompt for prompt, _, _ in built.pairs} == expected
    assert built.notes[0].startswith("data: 10 of 40 rows have a held-out prompt")


def test_columns_of_a_reward_are_those_of_the_prompt_that_is_asked(tmp_path, monkeypatch):
    code = "def exact(prompts, completions, answer):\n    return list(map(len, answer))\n"
    data = [{"prompt": prompt, "answer": "x"} for prompt in PROMPTS]
    held = [{"prompt": prompt.upper(), "answer": "yy"} for prompt in PROMPTS[:10]]
    names = dict.fromkeys(("training", "selection", "report"), "exact")
    with importable("near_rewards", code, tmp_path, monkeypatch):
        signals = {"exact": "near_rewards:exact"}
        built = build_files(tmp_path, data, held_out=held, signals=signals, **names)
    assert built.signals["exact"]([built.prompts[0], built.held_out[0]], ["", ""]) == [1.0, 2.0]
