"""No run trains on held-out rows, and no prompt is seen by both seed roles: every kind of data, by
force."""

from itertools import product

import numpy as np
import pytest
from rlhf_support import build_files

from autorl.core.types import InputError
from autorl.trainers.language.data.rows import hold_out_all, hold_out_share

PROMPTS = [f"question {number}" for number in range(64)]
MORE = {  # columns of a data set beside `prompt`
    "": {},
    "pairs": {"chosen": "good", "rejected": "bad"},
    "ranking": {"ranking": ["best", "good", "bad"]},
}
ANSWERS = {
    "": {},
    "completion": {"completion": "good"},
    "label": {"completion": "good", "label": True},
}
ASKED = {  # `prompts` beside a data set of PROMPTS
    "same": PROMPTS,
    "subset": PROMPTS[:20],
    "overlap": [*PROMPTS[40:], *(f"other {number}" for number in range(30))],
    "disjoint": [f"other {number}" for number in range(40)],
}
APART = [*PROMPTS[:9], "new 1", "new 2"]


@pytest.fixture
def build(tmp_path):
    """Builds the task from data, held-out set and prompts given as rows."""

    def build(instance, data, held_out=0.25, prompts=None):
        asked = None if prompts is None else [{"prompt": prompt} for prompt in prompts]
        return build_files(tmp_path, data, instance, held_out=held_out, prompts=asked)

    return build


def keys(*parts):
    """The prompts of tuples, or their texts where they have none."""
    return {row[0] or row[1] for part in parts for row in part}


def of_roles(built):
    """Return prompts of training, of tuning seeds and of test seeds."""
    trained = keys(built.pairs, built.labelled, built.completions) | set(built.prompts)
    tuning = keys(built.held_out_pairs, built.held_out_completions) | set(built.held_out[0::2])
    test = keys(built.test_pairs, built.test_completions) | set(built.held_out[1::2])
    return trained, tuning, test


def assert_disjoint(built):
    trained, tuning, test = of_roles(built)
    assert trained
    assert tuning
    assert test
    assert not trained & tuning
    assert not trained & test
    assert not tuning & test


def rows_of(prompts, more, answers):
    return [{"prompt": prompt} | MORE[more] | ANSWERS[answers] for prompt in prompts]


@pytest.mark.parametrize("asked", [None, *ASKED])
@pytest.mark.parametrize(("more", "answers"), list(product(MORE, ANSWERS)))
@pytest.mark.parametrize("apart", [False, True])
def test_no_prompt_has_two_roles(more, answers, asked, apart, build):
    prompts = ASKED[asked] if asked else None
    data = rows_of(PROMPTS, more, answers)
    for instance in range(3):
        built = build(instance, data, rows_of(APART, more, answers) if apart else 0.25, prompts)
        assert_disjoint(built)
        _, tuning, test = of_roles(built)
        assert set(built.prompts) == set(prompts or PROMPTS) - tuning - test
        rows = {"pairs": 1, "ranking": 3}.get(more, 0)
        held = len(APART) if apart else 16
        assert len(built.held_out_pairs) + len(built.test_pairs) == rows * held
        assert abs(len(built.held_out_pairs) - len(built.test_pairs)) <= rows
        learnt = keys(built.pairs, built.completions)
        assert len(learnt) == (0 if not more and not answers else 64 - (9 if apart else 16))
        if apart:
            assert set(built.held_out) == set(APART)
        else:
            assert len(built.held_out) == round(0.25 * len(prompts or PROMPTS))


@pytest.mark.parametrize("apart", [False, True])
def test_texts_are_held_out_beside_prompts(apart, build):
    """All texts of a separate data set are held out, and a fifth of the prompts that are sampled
    from."""
    texts = [{"text": text} for text in PROMPTS]
    held_out = [{"text": text} for text in APART] if apart else 0.25
    held = len(APART) if apart else 16
    for asked, instance in product(ASKED.values(), range(3)):
        built = build(instance, texts, held_out, asked)
        assert_disjoint(built)
        assert len(built.held_out_completions) + len(built.test_completions) == held
        assert built.held_out
        assert set(built.held_out) <= set(asked)
    with pytest.raises(InputError, match="no prompt to sample from"):
        build(0, texts, held_out)


def test_held_out_texts_beside_data_that_has_prompts(build):
    texts = [{"text": f"text {number}"} for number in range(8)]
    built = build(0, rows_of(PROMPTS, "pairs", ""), texts, PROMPTS)
    assert_disjoint(built)
    assert len(built.held_out) == round(0.2 * 64)
    assert len(built.pairs) == len(built.prompts) == 64 - len(built.held_out)
    assert len(built.held_out_completions) == len(built.test_completions) == 4


def test_the_same_prompts_named_twice_are_split_as_named_once(build):
    """A study without `prompts` is evaluated on the first six of instance 0."""
    data = rows_of(PROMPTS, "pairs", "")
    for instance in range(3):
        once, twice = build(instance, data), build(instance, data, prompts=PROMPTS)
        for part in ("held_out", "pairs", "held_out_pairs", "test_pairs"):
            assert getattr(once, part) == getattr(twice, part)
    assert build(0, data).held_out[:6] == FIRST
    assert build(1, data).held_out != build(0, data).held_out


FIRST = ("question 49", "question 15", "question 48", "question 33", "question 43", "question 23")


def test_of_either_set_just_the_share_is_drawn_and_halves_are_even():
    """Every size of the three parts up to 6, at several shares."""
    tried = 0
    for alone, both, others in product(range(7), repeat=3):
        data = [f"d{i}" for i in range(alone)] + [f"b{i}" for i in range(both)]
        asked = [f"a{i}" for i in range(others)] + data[alone:]
        for share in (0.2, 0.25, 0.5, 0.8):
            counts = [round(share * len(part)) for part in (data, asked)]
            if min(counts) < 2:
                with pytest.raises(InputError, match="at least two"):
                    hold_out_share(data, asked, share, np.random.default_rng(0))
                continue
            found = hold_out_share(data, asked, share, np.random.default_rng(0))
            tried += 1
            halves = [
                [half for key, half in found.halves.items() if key in part]
                for part in (data, asked)
            ]
            assert [len(half) for half in halves] == counts
            assert all(abs(2 * sum(half) - len(half)) <= 1 for half in halves)
            assert set(found.prompts) == set(found.halves) & set(asked)
            assert [found.halves[key] for key in found.prompts] == [
                place % 2 for place in range(counts[1])
            ]
    assert tried > 500


def test_a_set_of_its_own_needs_two_prompts():
    assert set(hold_out_all(["a", "b", "a"], np.random.default_rng(0)).halves.values()) == {0, 1}
    with pytest.raises(InputError, match="1 different prompts give 1 held-out ones"):
        hold_out_all(["a", "a"], np.random.default_rng(0))
