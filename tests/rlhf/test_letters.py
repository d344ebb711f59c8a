"""letters-goldproxy: what gold rewards, how the proxy is fitted, and that an instance is built once and the same."""

import functools
import json

import numpy as np
import pytest
from refusals import expect_error

from autorl.trainers.language.tasks import build, letters, task, tiny_models
from autorl.trainers.language.tasks.letters import (
    LETTERS,
    PAIRS,
    LinearReward,
    bootstrapped,
    counts,
    gold,
    sequences,
    transitions,
)
from autorl.trainers.language.tasks.tiny_models import stored


@pytest.mark.parametrize(
    ("completion", "value"),
    [
        ("", -1.0),
        ("x x", 0.0),
        ("a b", 0.75),
        ("a b c d", 1.0),
        ("a a a a", 1.0),
        ("a b c d e f a b", 0.0),
        ("a b c d e f a b c d e f", -3.0),
        ("a b c d g", 0.75),
        ("g h i j", -1.0),
    ],
)
def test_gold_is_an_inverted_u_of_good_letters_less_the_bad_ones(completion, value):
    assert gold(completion) == pytest.approx(value)


def test_the_proxy_is_a_fitted_bradley_terry_model():
    """Its penalised gradient is zero, and it recovers the signs of the weights that made the labels."""
    rng = np.random.default_rng(0)
    true = np.where(np.arange(24) < 12, 1.0, -1.0)
    texts = [" ".join(LETTERS[letter] for letter in rng.integers(24, size=8)) for _ in range(800)]
    pairs = []
    for one, other in zip(texts[::2], texts[1::2], strict=True):
        chance = 1 / (1 + np.exp(-(counts([one]) - counts([other]))[0] @ true))
        pairs.append(("", one, other) if rng.random() < chance else ("", other, one))
    found = LinearReward.fit(pairs, ridge=1.0)
    _, chosen, rejected = zip(*pairs, strict=True)
    differences = counts(chosen) - counts(rejected)
    gradient = differences.T @ (1 / (1 + np.exp(differences @ found.weights))) - found.weights
    assert np.abs(gradient).max() < 1e-8
    assert (np.sign(found.weights) == np.sign(true)).all()
    assert (differences @ found.weights > 0).mean() > 0.8
    assert found([""], ["a a x"]) == pytest.approx([2 * found.weights[0] + found.weights[23]])


def test_the_source_ends_sequences_and_prefers_what_its_table_says():
    rng = np.random.default_rng(0)
    source = transitions(0)
    assert source.sum(axis=1) == pytest.approx(np.ones(24))
    rows = sequences(source, 4000, rng)
    assert {len(row) for row in rows} <= set(range(5, 15))
    assert 0.3 < np.mean([len(row) == 14 for row in rows]) < 0.8  # 0.94 ** 9 = 0.57 never end early
    after = np.bincount([row[2] for row in rows if row[1] == 0], minlength=24)
    assert after.argmax() == source[0].argmax()


@pytest.mark.parametrize(
    ("kwargs", "key"),
    [
        ({"pairs": 4}, "pairs"),
        ({"flips": 0.5}, "flips"),
        ({"flip": 0.1}, "kwargs"),
        ({"instance": -1}, "instance"),
        ({"models": 0}, "models"),
        ({"models": 65}, "models"),
    ],
)
def test_options_out_of_range_are_input_errors(kwargs, key, tmp_path):
    assert key in expect_error("", build, "letters-goldproxy", kwargs, tmp_path).key
    assert not list(tmp_path.iterdir())


def test_a_folder_is_made_once_for_the_same_content_and_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_models, "version", lambda package: "5.1.0")
    made = []

    def make(folder):
        made.append(folder)
        (folder / "data").write_text("x")
        return {"made": len(made)}

    first = stored(tmp_path, "thing", 0, {"a": 1}, make)
    assert stored(tmp_path, "thing", 0, {"a": 1}, make) == first == (first[0], {"made": 1})
    assert stored(tmp_path, "thing", 0, {"a": 2}, make)[1] == {"made": 2}
    content = json.loads((first[0] / "content.json").read_text())
    assert (content["options"], content["transformers"]) == ({"a": 1}, "5")
    # transformers 4 cannot read what 5 wrote
    monkeypatch.setattr(tiny_models, "version", lambda package: "4.56.2")
    assert stored(tmp_path, "thing", 0, {"a": 1}, make)[1] == {"made": 3}

    def fails(folder):
        (folder / "half").write_text("x")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        stored(tmp_path, "thing", 1, {}, fails)
    third, _ = stored(tmp_path, "thing", 1, {}, make)
    assert sorted(path.name for path in third.iterdir()) == ["content.json", "data", "task.json"]


def test_an_ensemble_is_fitted_to_resampled_comparisons():
    """Models differ from each other and from the fit to all comparisons, and agree with it on what is clear."""
    rng = np.random.default_rng(1)
    texts = [" ".join(LETTERS[letter] for letter in rng.integers(24, size=8)) for _ in range(600)]
    twos = zip(texts[::2], texts[1::2], strict=True)
    pairs = [("", *sorted(two, key=gold, reverse=True)) for two in twos]
    found = bootstrapped(pairs, 0, 5)
    assert list(found) == [f"proxy_{number}" for number in range(5)]
    weights = np.array([model.weights for model in found.values()])
    assert len(np.unique(weights, axis=0)) == 5
    assert (bootstrapped(pairs, 0, 3)["proxy_2"].weights == weights[2]).all()
    assert (bootstrapped(pairs, 1, 3)["proxy_2"].weights != weights[2]).any()
    whole = LinearReward.fit(pairs).weights
    bad = [LETTERS.index(letter) for letter in "ghij"]
    assert whole[bad].max() < 0
    assert weights[:, bad].max() < 0
    assert np.abs(weights.mean(axis=0) - whole).mean() < weights.std(axis=0).mean()


def test_the_names_of_an_ensemble_are_known_before_it_is_built():
    assert task("letters-goldproxy").signals == ("proxy", "gold")
    four = task("letters-goldproxy", {"instance": 3, "models": 4})
    assert four.signals == ("proxy", "proxy_0", "proxy_1", "proxy_2", "proxy_3", "gold")
    assert four.ensemble == four.signals[1:5]
    expect_error("models", four.check, {"models": 0})
    expect_error("no option 'models'", PAIRS.check, {"models": 4})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("transformers", reason='tasks need "autorl[rlhf]"')
    torch = pytest.importorskip("torch", reason="tasks are built with torch")
    torch.set_num_threads(1)
    return tmp_path_factory.mktemp("tasks")


def test_letters_pairs(folder, monkeypatch):
    """On a policy trained for a moment: of 540 pairs a fifth is flipped, and no held-out one."""
    full = letters.reference
    monkeypatch.setattr(letters, "reference", functools.partial(full, steps=20))

    def right(pairs):
        return np.mean([gold(chosen) > gold(rejected) for _, chosen, rejected in pairs])

    built = PAIRS.build(0, folder)
    assert 400 < len(built.pairs) <= 600
    assert 0.74 < right(built.pairs) < 0.86
    assert right(built.held_out_pairs) == right(PAIRS.build(0, folder, flips=0.0).pairs) == 1.0
    trained, tuning, test = (
        {prompt for prompt, *_ in pairs}
        for pairs in (built.pairs, built.held_out_pairs, built.test_pairs)
    )
    assert trained <= set(built.prompts)
    assert tuning <= set(built.held_out[0::2])
    assert test <= set(built.held_out[1::2])
    assert not set(built.prompts) & set(built.held_out)
    assert len(built.held_out_pairs) > 100 < len(built.test_pairs)
    assert PAIRS.build(1, folder).pairs != built.pairs == PAIRS.build(0, folder).pairs
