"""Cards: what is signed, what training them again says, and what a study file takes of them."""

import math
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
import yaml
from cli_support import as_json, autorl, finished_study, study_file
from scipy.stats import permutation_test

from autorl.core.types import InputError
from autorl.statistics.exchange import fewest_new, interval_of_mean
from autorl.study.spec import load_spec
from autorl.study.spec.cards import signed_text

SHORT = {"budget": {"runs": 1}, "seeds": {"tuning": 1, "test": 1}, "test": {"baseline": False}}
SCORES = [500.0, 500.0, 500.0, 500.0, 493.6, 471.2, 456.1, 394.9, 336.4, 500.0, 12.5, 499.5]


def inside(old, new):
    return fmean(new) in interval_of_mean(old, new, rng=np.random.default_rng(0))


def splits(count):
    for chosen in combinations(range(len(SCORES)), count):
        new = [SCORES[index] for index in chosen]
        yield [SCORES[index] for index in range(len(SCORES)) if index not in chosen], new


@pytest.mark.parametrize("count", [2, 3])
def test_new_seeds_of_the_same_runs_lie_outside_at_most_as_often_as_the_level_says(count):
    found = [inside(old, new) for old, new in splits(count)]
    assert 0 < found.count(False) <= 0.05 * len(found)


@pytest.mark.parametrize("shift", [0.0, -60.0, -200.0, -480.0, 300.0])
def test_the_interval_is_the_permutation_test_of_scipy(shift):
    old, new = SCORES[:9], [score + shift for score in SCORES[9:]]
    test = permutation_test((new, old), lambda *parts: np.mean(parts[0]), n_resamples=np.inf)
    assert inside(old, new) == (test.pvalue > 0.05)


@pytest.mark.parametrize(("old", "fewest"), [(10, 2), (5, 3), (3, 5), (1, 39)])
def test_so_few_seeds_are_refused_as_could_never_lie_outside(old, fewest):
    assert fewest_new(old) == fewest
    assert math.comb(old + fewest, fewest) >= 40 > math.comb(old + fewest - 1, fewest - 1)


@pytest.fixture(scope="module")
def card(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    kwargs = {"optimum": {"x": 0.7}, "noise": 0.02}
    changes = {"trainer": {"name": "synthetic", "kwargs": kwargs}, "budget": {"runs": 8}}
    study = finished_study(folder, seeds={"tuning": 2, "test": 10}, test={"top": 1}, **changes)
    autorl("card", study, "--out", folder / "small.card.yaml")
    return folder / "small.card.yaml"


def changed(card, path, **values):
    """A card whose schedule begins with other values, signed again."""
    content = yaml.safe_load(card.read_text())
    content["schedule"][0] |= values
    path.write_text(signed_text(content))
    return path


def test_a_card_trained_again_lies_inside_and_with_another_hyperparameter_outside(card, tmp_path):
    again = tmp_path / "again"
    found = as_json("verify", card, "--out", again, "--quiet")
    assert found["inside"]
    assert list(found["seeds"]) == ["110", "111", "112"]
    assert found["differs"] == []
    assert as_json("verify", card, "--out", again, "--quiet") == found
    worse = changed(card, tmp_path / "worse.yaml", x=0.0)
    low = as_json("verify", worse, "--out", tmp_path / "worse", "--quiet", code=1)
    assert low["mean"] < low["interval"][0]
    refused = autorl("verify", worse, "--out", again, code=2).stderr
    assert "another study: choose another folder with --out" in refused


def test_what_was_edited_or_signed_elsewhere_is_trained_only_where_asked(
    card, tmp_path, monkeypatch
):
    edited = tmp_path / "edited.yaml"
    edited.write_text(card.read_text().replace("steps: 100", "steps: 200"))
    refused = autorl("verify", edited, code=2).stderr
    assert "was edited since it was signed; --unsigned" in refused
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "is not signed by this installation" in autorl("verify", card, code=2).stderr
    assert "2 new ones, got 1" in autorl("verify", card, "--unsigned", "--rerun", 1, code=2).stderr
    assert as_json("verify", card, "--unsigned", "--out", tmp_path / "s", "-q")["inside"]
    assert "is no card" in autorl("verify", study_file(tmp_path), code=2).stderr


def test_a_study_file_takes_a_card_as_defaults_and_as_a_baseline(card, tmp_path):
    preset = {"card": str(card)}
    trainer = yaml.safe_load(card.read_text())["study"]["trainer"]
    changes = {"trainer": trainer, "baselines": {"published": preset}}
    study = yaml.safe_load(study_file(tmp_path, **changes).read_text())
    spec = load_spec({**study, "preset": preset})
    values = yaml.safe_load(card.read_text())["schedule"][0]
    assert spec.search_space.default() == spec.baselines["published"] == values
    for wrong, words in (({"trainer": "tabular"}, "is of synthetic"), ({"preset": {}}, "{card: F")):
        with pytest.raises(InputError, match=words):
            load_spec({**study, "preset": preset, **wrong})


def test_a_card_holds_no_secret(tmp_path):
    study = finished_study(tmp_path, note="train.py --api-key 0123456789", **SHORT)
    assert "holds a secret" in autorl("card", study, "--out", tmp_path / "c.yaml", code=2).stderr
    assert not (tmp_path / "c.yaml").exists()
