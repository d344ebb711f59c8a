"""Phrases of messages."""

import math

import pytest

from autorl.core.plain_text import counted, did_you_mean, number, one_of


@pytest.mark.parametrize(
    ("name", "allowed", "where", "phrase"),
    [
        ("widht", ["depth", "width"], "", "; did you mean 'width'?"),
        ("adam", ["sgd", "adamw", "nadam"], "", "; did you mean 'nadam' or 'adamw'?"),
        ("widht", ["width"], "known keys: width", "; did you mean 'width'?"),
        (
            "lr",
            ["learning_rate", "learning_rate.end", "rate"],
            "",
            "; did you mean 'learning_rate'?",
        ),
        ("zzz", ["width"], "known keys: width", "; known keys: width"),
        ("zzz", ["width"], "", ""),
        (3, {"3": 0}, "", "; did you mean '3'?"),
        ("ab", ["ab1", "ab2", "ab3", "ab4"], "", "; did you mean 'ab4' or 'ab3' or 'ab2'?"),
    ],
)
def test_the_nearest_names_are_suggested(name, allowed, where, phrase):
    assert did_you_mean(name, allowed, where) == phrase


def test_where_none_is_near_all_are_listed_the_nearest_of_many_first():
    assert one_of("zzz", ["b", "a"], "keys") == "; keys: b, a"
    assert one_of("zzz", [], "keys") == "; keys: none"
    assert one_of("bb", ["a", "b"]) == "; did you mean 'b'? allowed: a, b"
    many = [f"name{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    said = one_of("zzzz", many)
    assert said.startswith("; allowed: namez, namea, ")
    assert said.endswith(" and 6 more")
    assert one_of("nameb", many).startswith("; did you mean 'nameb' or ")
    assert "allowed" not in one_of("nameb", many)


@pytest.mark.parametrize(
    ("counting", "text"),
    [
        ((1, "tuning seed"), "1 tuning seed"),
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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (math.nan, "-"),
        (-math.inf, "-inf"),
        (-0.0, "0"),
        (0.99996, "0.99996"),
        (1 / 3, "0.3333"),
        (12_345.6, "12350"),
        (1e6, "1000000"),
        (1.23456e-5, "1.235e-05"),
        (-1.23456e12, "-1.235e+12"),
    ],
)
def test_a_number_has_four_significant_digits(value, text):
    assert number(value) == text
