"""Phrases of messages."""

import pytest

from autorl.plain_text import all_counted, counted, did_you_mean


@pytest.mark.parametrize(
    ("name", "allowed", "where", "phrase"),
    [
        ("widht", ["depth", "width"], "", "; did you mean 'width'?"),
        ("adam", ["sgd", "adamw", "nadam"], "", "; did you mean 'nadam' or 'adamw'?"),
        ("widht", ["width"], "known keys: width", "; did you mean 'width'? known keys: width"),
        ("zzz", ["width"], "known keys: width", "; known keys: width"),
        ("zzz", ["width"], "", ""),
        (3, {"3": 0}, "", "; did you mean '3'?"),
        (
            "rate",
            ["rate1", "rate2", "rate3", "rate4"],
            "",
            "; did you mean 'rate4' or 'rate3' or 'rate2'?",
        ),
    ],
)
def test_the_nearest_names_are_suggested(name, allowed, where, phrase):
    assert did_you_mean(name, allowed, where) == phrase


@pytest.mark.parametrize(
    ("counting", "text"),
    [
        ((1, "tuning seed"), "1 tuning seed"),
        ((2, "tuning seed"), "2 tuning seeds"),
        ((0, "run"), "0 runs"),
        ((2.5, "full run"), "2.5 full runs"),
        ((3, "study"), "3 studies"),
        ((3, "key"), "3 keys"),
        ((1, "study", "are"), "1 study is"),
        ((2, "study", "are"), "2 studies are"),
        ((1, "curve", "stop"), "1 curve stops"),
    ],
)
def test_what_is_counted_agrees_with_its_number(counting, text):
    assert counted(*counting) == text


def test_all_of_one_is_the_only_one():
    assert all_counted(1, "test run") == "the only test run"
    assert all_counted(3, "test run") == "all 3 test runs"
