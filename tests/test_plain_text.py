"""Phrases of messages."""

import pytest

from autorl.plain_text import did_you_mean


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
