"""Mutants of `benchmarks/mutation.py`: which expressions change, and how."""

import mutation
import pytest


def changes(tmp_path, text):
    path = tmp_path / "code.py"
    path.write_text(text)
    return [(mutant.before, mutant.after) for mutant in mutation.mutants_of(path)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < b", [("a < b", "a <= b")]),
        ("a not in b", [("a not in b", "a in b")]),
        ("not a", [("not a", "not not a")]),
        ("a or b", [("a or b", "a and b")]),
        ("a // b", [("a // b", "a * b")]),
        ("min(a, b)", [("min(a, b)", "max(a, b)")]),
        ("-1 + a", [("1", "2"), ("-1 + a", "-1 - a")]),
        ("f(True)", [("True", "False")]),
        ("a < b < c", []),
        ("'text' + a", []),
        ("raise ValueError(1 + 1)", []),
        ("f'{1 + 1}'", []),
        ("a: Literal[1] = b", []),
    ],
)
def test_one_expression_changes_at_a_time(tmp_path, text, expected):
    assert changes(tmp_path, text) == expected


def test_the_seed_decides_the_sample():
    assert mutation.sample("statistics", "", 9, 1) == mutation.sample("statistics", "", 9, 1)
    assert mutation.sample("statistics", "", 9, 1) != mutation.sample("statistics", "", 9, 2)


def test_the_tests_of_a_module_have_its_name():
    of_transfer = ["test_transfer.py", "test_transfer_decisions.py"]
    paths = [f"tests/optimizers/{name}" for name in of_transfer]
    assert mutation.tests_of_module("optimizers", "transfer.py") == paths
    assert "tests/optimizers/test_halving.py" in mutation.tests_of_module("optimizers", "asha.py")
    assert mutation.tests_of_module("optimizers", "nothing.py") == []


def test_the_mutant_is_what_is_compiled(tmp_path):
    path = tmp_path / "code.py"
    path.write_text("value = 2 + 3\nother = 5 - 4\n")
    values = []
    for mutant in mutation.mutants_of(path):
        namespace = {}
        exec(mutation.compiled(mutant), namespace)
        values.append((namespace["value"], namespace["other"]))
    assert values == [(6, 1), (6, 1), (-1, 1), (5, 2), (5, 0), (5, 9)]
