"""Best of n against every subset, against order statistics, and the published shape on the letters."""

from itertools import combinations

import numpy as np
import pytest

from autorl.trainers.language.best_of_n import best_of_n, curve
from autorl.trainers.language.overoptimization import fit


def by_hand(proxy, gold, n):
    """The mean over all subsets of n columns of the gold of the best by proxy; ties share."""
    found = []
    for scores, truth in zip(proxy, gold, strict=True):
        for subset in combinations(range(len(scores)), n):
            top = max(scores[i] for i in subset)
            found.append(np.mean([truth[i] for i in subset if scores[i] == top]))
    return np.mean(found)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6])
def test_it_is_the_mean_over_every_subset(n):
    rng = np.random.default_rng(n)
    proxy, gold = rng.normal(size=(4, 6)), rng.normal(size=(4, 6))
    assert best_of_n(proxy, gold, n) == pytest.approx(by_hand(proxy, gold, n))


def test_one_of_n_is_the_mean_and_all_of_them_the_best():
    proxy, gold = [[1.0, 3.0, 2.0]], [[10.0, 20.0, 60.0]]
    assert best_of_n(proxy, gold, 1) == pytest.approx(30.0)
    assert best_of_n(proxy, gold, 3) == pytest.approx(20.0)
    assert best_of_n(proxy, gold, 2) == pytest.approx((20 + 60 + 20) / 3)


def test_equal_proxies_share_their_chances():
    assert best_of_n([[1.0, 1.0, 0.0]], [[4.0, 8.0, 0.0]], 3) == pytest.approx(6.0)
    assert best_of_n([[2.0] * 4], [[0.0, 1.0, 2.0, 3.0]], 2) == pytest.approx(1.5)


def test_the_best_of_n_uniforms_has_mean_n_over_n_plus_1():
    """300 rows of 400: standard error below 0.003 at every n here."""
    scores = np.random.default_rng(0).random((300, 400))
    for n in (1, 4, 16, 64):
        assert best_of_n(scores, scores, n) == pytest.approx(n / (n + 1), abs=0.012)


def test_large_numbers_of_completions_do_not_overflow():
    scores = np.random.default_rng(1).random((2, 5000))
    assert 0.99 < best_of_n(scores, scores, 2500) <= 1.0


@pytest.mark.parametrize(
    ("gold", "n", "message"), [([[1.0, 2.0]], 3, "1..2"), ([[1.0, 2.0, 3.0]], 1, "same shape")]
)
def test_wrong_input(gold, n, message):
    with pytest.raises(ValueError, match=message):
        best_of_n([[1.0, 2.0]], gold, n)


def test_a_curve_on_a_tiny_policy(tmp_path):
    torch = pytest.importorskip("torch", reason="completions are sampled with torch")
    pytest.importorskip("transformers", reason='needs "autorl[rlhf]"')
    from autorl.trainers.language.contract import Built
    from autorl.trainers.language.tasks.letters import GOLDPROXY, LETTERS, load
    from autorl.trainers.language.tasks.tiny_models import new_policy, write_tokenizer

    torch.set_num_threads(1)
    new_policy(0, len(LETTERS), hidden=16, layers=1).save_pretrained(tmp_path)
    write_tokenizer(tmp_path, LETTERS)
    gold = [0.4, 0.3]
    built = Built(
        name="tiny",
        instance=0,
        reference=tmp_path,
        prompts=("a b",),
        held_out=("c d",),
        max_completion=6,
        signals={"gold": lambda p, c: [gold[0] * t.count("a") - gold[1] * t.count("b") for t in c]},
        training="gold",
        selection="gold",
        report="gold",
        bounds={},
    )
    found = curve(
        *load(tmp_path),
        built,
        ["a b", "c d"],
        0,
        proxy=lambda p, c: [t.count("a") for t in c],
        most=8,
    )
    assert found.n == (1, 2, 4, 8)
    assert found.kl[0] == 0.0
    assert (np.diff(found.proxy) >= 0).all()
    assert GOLDPROXY.report in built.signals


def test_a_proxy_that_misleads_at_the_top_over_optimises():
    """Gold x - 0.25 x^2 under proxy x: from 512 scored completions the curve of best of n has an interior maximum."""
    scores = np.random.default_rng(2).standard_normal((200, 512))
    counts = [1, 2, 4, 8, 16, 32, 64, 128, 256]
    gold = [best_of_n(scores, scores - 0.25 * scores**2, n) for n in counts]
    from autorl.trainers.language.overoptimization import best_of_n_kl

    found = fit(best_of_n_kl(counts), gold, "best_of_n", origin=gold[0])
    assert found.r2 > 0.9
    assert found.interior
