"""YAML as people mean it."""

import pytest
from refusals import expect_error

from autorl.core.types import InputError
from autorl.space import parse_document, read_document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 1e-3), ("1E5", 1e5), ("+1e3", 1e3), ("-2.5e-4", -2.5e-4), (".5", 0.5), ("1.", 1.0),
        ("1_000", 1000), ("100_000", 100_000), ("010", 10), ("0x1F", 31), ("-7", -7),
        ("1_0.5", 10.5), ("true", True), ("False", False),
        ("null", None), ("~", None), ("", None), ("yes", "yes"), ("off", "off"), ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"), ("e5", "e5"), ("1e", "1e"), ("'1e-3'", "1e-3"),
        ("v1.0", "v1.0"), ("_1", "_1"),
        (".inf", float("inf")), ("CartPole-v1", "CartPole-v1"),
    ],
)  # fmt: skip
def test_scalars(text, value):
    found = parse_document(f"x: {text}\n").data["x"]
    assert (type(found), found) == (type(value), value)


def test_lines_of_keys_and_items():
    document = parse_document("a:\n  b.c: 1\n  d: [1, 2]\ne:\n- x: 1\n  y: 2\n- 3\n", "file.yaml")
    lines = {"a": 1, "a.b.c": 2, "a.d": 3, "a.d[0]": 3, "a.d[1]": 3}
    lines |= {"e": 4, "e[0]": 5, "e[0].x": 5, "e[0].y": 6, "e[1]": 7}
    assert document.lines == lines
    assert document.line("a.d[1]") == 3
    assert document.line("e[0].z") == 5
    assert document.line("e[5]") == 4
    assert document.line("zzz") is None
    assert str(document.error("is wrong", "e[0].y")) == "file.yaml:6: e[0].y: is wrong"
    located = document.located(InputError("is wrong", key="b.c"), "a")
    assert str(located) == "file.yaml:2: a.b.c: is wrong"


def test_merge_keys_and_anchors_work():
    data = parse_document(
        "base: &base {lower: 0, upper: 1}\nx:\n  <<: *base\n  upper: 2\ny: *base\n"
    ).data
    assert data["x"] == {"lower": 0, "upper": 2}
    assert data["y"] == {"lower": 0, "upper": 1}


def bomb(first, again="[{}]"):
    """Nine of the line before in each line, nine lines."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{i}: &a{i} {again.format(', '.join([f'*a{i - 1}'] * 9))}" for i in range(1, 9)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "text",
    [
        bomb("[x, x]"),
        bomb("{x: 1}", "{{<<: [{}]}}"),
        bomb("[x, x]") + "? *a8\n: 1\n",
        f"a: &a {'x' * 1000}\nb: [{', '.join(['*a'] * 200)}]\n",
    ],
    ids=["lists", "merged mappings", "a key", "one long text"],
)
def test_what_aliases_stand_for_is_counted(text):
    assert expect_error("aliases written out", parse_document, text).line is not None


def test_a_long_document_without_aliases_is_read():
    text = "a" * 150_000
    assert parse_document(f"[{text}]").data == [text]


def test_json_with_tabs(tmp_path):
    path = tmp_path / "space.json"
    path.write_text('{\n\t"a": [1, 1e-3, true, null, "x\\n\\u00e9"]\n}\n')
    document = read_document(path)
    assert document.data == {"a": [1, 1e-3, True, None, "x\né"]}
    assert document.lines["a"] == 2


@pytest.mark.parametrize(
    ("text", "line", "pattern"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "key 'a' is given twice, first in line 1"),
        ("a: {b: 1, b: 2}\n", 1, "key 'b' is given twice"),
        ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
        ("a: 'x\n", 2, "not valid YAML"),
        ("a: 1\n  b: 2\n", 2, "not valid YAML"),
        ("? [1]\n: 2\n", 1, "cannot be a list"),
        ("a: *nowhere\n", 1, "undefined alias"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: !!python/name:os.system\n", 1, "not valid YAML"),
        ("&a [*a]\n", 1, "may not contain itself"),
    ],
)
def test_errors_have_a_line(text, line, pattern):
    assert str(expect_error(pattern, parse_document, text, "file.yaml")).startswith(
        f"file.yaml:{line}: "
    )


def test_deep_nesting_is_an_error_not_a_crash():
    expect_error("nested too deeply", parse_document, "[" * 5000 + "]" * 5000)


def test_file_errors(tmp_path):
    expect_error("file not found", read_document, tmp_path / "nowhere.yaml")
    expect_error("this is a folder", read_document, tmp_path)
