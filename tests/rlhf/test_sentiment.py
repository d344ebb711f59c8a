"""The task `tiny-sentiment` on an archive of our own making, laid out like the real one, and on that where it is."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
from refusals import expect_error

from autorl.trainers.language.tasks import sentiment, task
from autorl.trainers.language.tasks.sentiment import (
    SENTIMENT,
    Snippet,
    WordReward,
    _comparisons,
    snippets,
)

GOOD = ("lovely", "funny")
BAD = ("dull", "awful")
FILLER = ("film", "plot", "cast", "scene", "story", "it's")


def packed(**members):
    """The bytes of an archive; keys are paths."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return memory.getvalue()


def write_archive(path, n=120):
    """Texts of five words, a good or a bad one among them, rated by five people; they begin with a byte-order mark."""
    rng = np.random.default_rng(0)
    texts, ratings = ["\ufeff0\t9\tToo short"], ["\ufeff0\t9\t0.0\t[4, 4]"]
    for number in range(1, n):
        words = [str(word) for word in rng.choice(FILLER, size=4)]
        good = bool(rng.random() < 0.5)
        words.insert(2, str(rng.choice(GOOD if good else BAD)))
        scores = (rng.integers(0, 5, size=5) if good else -rng.integers(0, 5, size=5)).tolist()
        texts.append(f"{number}\t{np.mean(scores)}\t{' '.join(words).capitalize()}!")
        ratings.append(f"{number}\t{np.mean(scores)}\t1.0\t{scores}")
    files = {"GroundTruth": texts, "anonDataRatings": ratings}
    inner = {
        f"hutto_ICWSM_2014/movieReviewSnippets_{name}.txt": "\r\n".join(lines).encode()
        for name, lines in files.items()
    }
    place = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
    path.write_bytes(packed(**{place: packed(**inner)}))


@pytest.fixture
def archive(tmp_path, monkeypatch):
    path = tmp_path / "ratings.tar.gz"
    write_archive(path)
    monkeypatch.setattr(sentiment, "_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setenv("AUTORL_RATINGS", str(path))
    return path


def test_texts_and_ratings_are_read_by_number(archive):
    found, known = snippets(archive)
    assert len(found) == 119, "the first has no completion"
    assert set(known) == {*GOOD, *BAD, *FILLER, "too", "short"}
    for snippet in found:
        assert len(snippet.words) == len(snippet.ratings) == 5
        liked = bool(set(snippet.words) & set(GOOD))
        assert min(snippet.ratings) >= 0 if liked else max(snippet.ratings) <= 0


def test_rare_words_are_left_out(archive, monkeypatch):
    monkeypatch.setattr(sentiment, "VOCABULARY", 6)
    found, known = snippets(archive)
    assert set(known) == set(FILLER)
    assert {len(snippet.words) for snippet in found} == {4}


def test_a_missing_or_other_archive_is_one_clear_line(archive, tmp_path):
    expect_error(r"pip download .* and set AUTORL_RATINGS", snippets, tmp_path / "nothing.tar.gz")
    (tmp_path / "other.tar.gz").write_bytes(b"other")
    expect_error("SHA-256 differs", snippets, tmp_path / "other.tar.gz")


def test_without_the_package_of_the_gold_the_task_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sentiment.importlib.util, "find_spec", lambda name: None)
    wanted = r'pip install "autorl\[sentiment\]" and set AUTORL_RATINGS'
    for make in (lambda: SENTIMENT.build(0, tmp_path), lambda: SENTIMENT.check({})):
        expect_error(wanted, make)


def test_a_study_is_refused_before_it_begins_where_ratings_are_missing(
    archive, tmp_path, monkeypatch
):
    monkeypatch.setattr(sentiment.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("AUTORL_CACHE", str(tmp_path / "cache"))
    assert SENTIMENT.check({"pairs": 8}) == ("prompts",)
    monkeypatch.delenv("AUTORL_RATINGS")
    expect_error(r"which is not at .*cache.* set AUTORL_RATINGS", SENTIMENT.check, {})
    monkeypatch.setenv("AUTORL_RATINGS", __file__)
    expect_error("SHA-256 differs", SENTIMENT.check, {})
    (tmp_path / "cache" / "rlhf" / "tiny-sentiment-0123").mkdir(parents=True)
    assert SENTIMENT.check({}) == ("prompts",), "it was built here before, and needs no ratings"


def test_raters_disagree_so_pairs_are_noisy():
    """One text is liked by 4 of 5, the other by 1 of 5: the order is that of the means in 16 of 17 untied draws."""
    rated = [Snippet(("a",), (1, 1, 1, 1, 0)), Snippet(("b",), (1, 0, 0, 0, 0))]
    pairs = _comparisons(rated, 0, 4000)
    share = np.mean([better == ("a",) for better, worse in pairs if better != worse])
    assert share == pytest.approx(16 / 17, abs=0.03)


def test_the_word_model_by_hand():
    """One word apart, liked 3 times in 4: the weight solves 3 - 4 sigmoid(w) = w at a ridge of 1."""
    pairs = [(("a",), ())] * 3 + [((), ("a",))]
    weight = WordReward.fit(pairs).weights["a"]
    assert 3 - 4 / (1 + np.exp(-weight)) == pytest.approx(weight, abs=1e-4)
    reward = WordReward({"a": 0.5, "b": -1.0})
    assert reward(["p"] * 3, ["a a", "a b c", ""]) == [1.0, -0.5, 0.0]


def test_a_built_task(archive, tmp_path):
    torch = pytest.importorskip("torch", reason="tasks are built with torch")
    pytest.importorskip("transformers", reason='tasks need "autorl[rlhf]"')
    pytest.importorskip("vaderSentiment", reason="its gold is the package vaderSentiment")
    torch.set_num_threads(1)
    assert task("tiny-sentiment") is SENTIMENT
    built = SENTIMENT.build(0, tmp_path / "cache", pairs=400, sft_steps=3)
    assert not set(built.prompts) & set(built.held_out)
    assert all(len(prompt.split()) == 2 for prompt in (*built.prompts, *built.held_out))
    proxy = built.signals["proxy"]
    good, bad = (np.mean(proxy(["p"] * 2, list(words))) for words in (GOOD, BAD))
    assert good > bad + 1
    assert proxy(["p"], ["funny"])[0] * 3 == pytest.approx(proxy(["p"], ["funny funny funny"])[0])
    golds = built.signals["gold"](["p"] * 3, ["a funny film", "an awful film", ""])
    assert golds[0] > 0.3
    assert golds[1] < -0.3
    assert golds[2] == 0.0
    again = SENTIMENT.build(0, tmp_path / "cache", pairs=400, sft_steps=3)
    assert again.reference == built.reference


@pytest.mark.parametrize("options", [{"pairs": 0}, {"sft_steps": 1.5}, {"flips": 0.1}])
def test_wrong_options(options, tmp_path):
    expect_error("kwargs", SENTIMENT.build, 0, tmp_path, **options)


def test_the_real_archive():
    path = Path(os.environ.get("AUTORL_RATINGS", "no such file"))
    if not path.is_file():
        pytest.skip("AUTORL_RATINGS does not name the source archive of vaderSentiment 3.3.2")
    found, known = snippets(path)
    assert len(known) == sentiment.VOCABULARY
    assert 9_000 < len(found) <= 10_605
    assert min(len(snippet.ratings) for snippet in found) >= 15
    pairs = _comparisons(found, 0, 2000)
    means = {snippet.words: np.mean(snippet.ratings) for snippet in found}
    assert np.mean([means[better] > means[worse] for better, worse in pairs]) > 0.8
