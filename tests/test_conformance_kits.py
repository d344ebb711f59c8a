"""The kits that other packages test their classes with: the document's pass, and broken ones do not."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import autorl.testing

DOCUMENT = (Path(__file__).parents[1] / "docs" / "extending.md").read_text()


def block(file):
    """The code block of the document that begins with the name of a file, as a user would copy it."""
    return re.search(rf"```python\n# {file}\n(.*?)```", DOCUMENT, re.DOTALL)[1]


def run_kits(folder, *arguments, changes=()):
    """Run pytest on the document's classes in a folder of their own, after some replacements.

    Returns what it printed and the tests that failed, by class.
    """
    for file in ("my_trainers.py", "my_optimizers.py", "test_mine.py"):
        source = block(file)
        for changed, before, after in changes:
            if changed == file:
                assert before in source
                source = source.replace(before, after)
        (folder / file).write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=line"]
    done = subprocess.run(
        [*command, *arguments, "test_mine.py"], cwd=folder, capture_output=True, text=True
    )
    failures = re.findall(r"^FAILED \S+::(\w+)::(\w+)", done.stdout, re.MULTILINE)
    return done.stdout, set(failures)


def test_the_documents_classes_pass(tmp_path):
    printed, failures = run_kits(tmp_path)
    assert failures == set()
    assert re.search(r"^\d\d passed", printed, re.MULTILINE), printed


def test_broken_classes_fail_where_they_are_broken(tmp_path):
    """A checkpoint that is not read, noise without its seed, and `ask` with an effect."""
    remembers = """space = self.problem.space
        asked = self.__dict__.setdefault("asked", [])
        asked.append(rng)
        rng = np.random.default_rng(len(asked))
"""
    changes = [
        ("my_trainers.py", '["height"]', '["height"] * 0.0'),
        ("my_trainers.py", "generator(segment.seed,", "generator(7,"),
        ("my_optimizers.py", "space = self.problem.space\n", remembers),
    ]
    printed, failures = run_kits(tmp_path, "-k", "not hash_seeds", changes=changes)
    expected = {
        ("TestHill", "test_n_plus_n_steps_equal_2n"),
        ("TestHill", "test_another_seed_gives_another_outcome"),
        ("TestNeighbour", "test_ask_has_no_effect"),
        ("TestNeighbour", "test_killed_at_every_event_equals_uninterrupted"),
    }
    assert expected <= failures, printed
    trainers_failures = {failure for failure in failures if failure[0] == "TestHill"}
    assert trainers_failures == {failure for failure in expected if failure[0] == "TestHill"}


def test_names_are_imported_when_first_used_and_say_what_they_need():
    code = """
import sys
sys.modules["pytest"] = None  # as if it was not installed
import autorl.testing
assert autorl.testing.simulate
try:
    autorl.testing.OptimizerConformance
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needs = "autorl.testing.OptimizerConformance needs pytest: pip install pytest"
    assert done.stdout.strip() == needs
    assert [name for name in autorl.testing.__all__ if getattr(autorl.testing, name) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        autorl.testing.nothing  # noqa: B018
