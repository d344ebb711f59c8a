"""Change one place of the code at a time: do the tests notice?

    python benchmarks/mutation.py statistics --sample 40
    python benchmarks/mutation.py store space --sample 20 --seed 1
    python benchmarks/mutation.py study --sample 40 --lines FOLDER    # see lines_of_tests.py

Draws places from a seed among comparisons, arithmetic, numbers, `and`/`or`, `not`, `True`/`False`,
`min`/`max` and `any`/`all`. What is raised, asserted or put into a text, annotations and decorators
are left alone. Each mutant is imported by a process of its own, which runs the tests that are not
slow: those of the module (`tests/ROOM/test_MODULE.py` and `test_MODULE_*.py`), then those `TESTS`
names for the room. With `--lines` the tests of the whole suite that run its lines come first, the
quickest of them first, `LINES_SECONDS` of CPU time in all. A mutant is killed if a test fails on it
that passes alone on the code as it is. No file is written. Code that a test runs in another program
is not mutated, so a survivor may be one for that reason alone. The exit code is the number of
survivors.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import random
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from lines_of_tests import TestLines

ROOT = Path(__file__).resolve().parents[1]
PRELOADED = ("hypothesis", "numpy", "scipy.stats", "pandas", "yaml")
CPU_SECONDS = 240  # of a mutant: one that loops for ever is noticed by this limit
LINES_SECONDS = 100  # of all tests that run a line, as measured without a mutant
TESTS = {  # what is run besides the tests of the module itself
    "statistics": [
        "tests/statistics/test_aggregates.py",
        "tests/statistics/test_reductions.py",
        "tests/statistics/test_comparison.py",
        "tests/statistics/test_coverage.py",
    ],
    "space": ["tests/space"],
    "store": ["tests/store", "tests/study/test_sessions.py", "tests/study/test_proof.py"],
    "optimizers": [
        "tests/optimizers/test_base.py",
        "tests/optimizers/test_recorded_proposals.py",
        "tests/optimizers/test_conformance.py",
    ],
    "study": [
        "tests/study/test_driver.py",
        "tests/study/test_lineage.py",
        "tests/study/test_racing.py",
        "tests/study/test_checkpoints.py",
        "tests/study/test_held_out.py",
    ],
}
OWN_TESTS = {  # of modules whose tests have another name
    "optimizers/_parzen.py": "test_tpe.py",
    "optimizers/_retraining.py": "test_pbt.py",
    "optimizers/_smac_facade.py": "test_smac.py",
    "optimizers/asha.py": "test_halving.py",
    "optimizers/bohb.py": "test_halving.py",
    "optimizers/de.py": "test_evolution.py",
    "optimizers/dehb.py": "test_evolution.py",
    "optimizers/grid.py": "test_designs.py",
    "optimizers/hyperband.py": "test_halving.py",
    "optimizers/phases.py": "test_designs.py",
    "optimizers/process.py": "test_pb2.py",
    "optimizers/schedule.py": "test_schedule_optimizer.py",
    "optimizers/sobol.py": "test_designs.py",
    "optimizers/dry_run.py": "test_designs.py",
    "statistics/_check.py": "test_bootstrap.py",
    "store/checkpoints.py": "test_checkpoint_files.py",
    "store/schema.py": "test_store.py",
    "study/folder/safety.py": "test_verify_and_backup.py",
    "study/checkpoints.py": "test_checkpoint_places.py",
    "study/results/result.py": "test_adaptive.py",
    "study/setup.py": "test_fixed_values.py",
    "study/results/landscape.py": "test_landscape_of_study.py",
    "study/more_seeds.py": "test_racing.py",
    "study/results/replay.py": "test_replay_schedule.py",
    "study/session.py": "test_sessions.py",
    "study/study.py": "test_study_steps.py",
    "study/test_phase.py": "test_held_out.py",
}
NO_TEST = "no test"
ARGUMENTS = ("-q", "-x", "-n0", "-m", "not slow", "-p", "no:cacheprovider", "--no-header")
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
OTHER_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
LEFT_ALONE = (ast.Raise, ast.Assert, ast.JoinedStr)


@dataclass(frozen=True)
class Mutant:
    """A change of one expression of a file, number `place` of those that can be changed."""

    path: Path
    place: int
    line: int
    last_line: int
    before: str
    after: str

    def __str__(self) -> str:
        where = f"{self.path.relative_to(ROOT)}:{self.line}"
        return f"{where}: {self.before} -> {self.after}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rooms", nargs="+", choices=sorted(TESTS))
    parser.add_argument("--sample", type=int, default=20, help="mutants of each room")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of the sample")
    parser.add_argument("--module", default="", help="only of modules of this name")
    parser.add_argument("--lines", type=Path, help="folder that pytest -p lines_of_tests wrote")
    options = parser.parse_args()
    lines = None if options.lines is None else TestLines(options.lines)
    prepare()
    survivors = 0
    for room in options.rooms:
        mutants = sample(room, options.module, options.sample, options.seed)[options.first :]
        survived = 0
        for mutant in mutants:
            is_killed = (lines is not None and seen(lines, mutant)) or killed(room, mutant)
            survived += not is_killed
            print(f"{'killed  ' if is_killed else 'SURVIVED'} {mutant}", flush=True)
        killed_share = 1 - survived / max(1, len(mutants))
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        minutes = (cpu.ru_utime + cpu.ru_stime) / 60
        print(
            f"{room}: {len(mutants)} mutants of seed {options.seed}, {killed_share:.0%} killed, "
            f"{minutes:.1f} CPU minutes so far",
            flush=True,
        )
        survivors += survived
    return survivors


def prepare() -> None:
    """Import what every process of a mutant needs, but nothing of the package."""
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{library}_NUM_THREADS"] = "1"
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for name in PRELOADED:
        importlib.import_module(name)
    if "autorl" in sys.modules:
        raise SystemExit("a library has imported autorl: nothing can be mutated any more")


def sample(room: str, module: str, size: int, seed: int) -> list[Mutant]:
    """The mutants of a room in an order that the seed decides, `size` of them."""
    folder = ROOT / "autorl" / room
    paths = sorted(folder.rglob("*.py"))
    if module:
        paths = [path for path in paths if path.stem == module]
    mutants = [mutant for path in paths for mutant in mutants_of(path)]
    random.Random(f"{room} {seed}").shuffle(mutants)
    return mutants[:size]


def mutants_of(path: Path) -> list[Mutant]:
    """Every mutant of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    mutants = []
    for place, node in enumerate(changeable(tree)):
        changed = copy.deepcopy(node)
        change(changed)
        last = node.end_lineno or node.lineno
        before = ast.unparse(node)
        mutants.append(Mutant(path, place, node.lineno, last, before, ast.unparse(changed)))
    return mutants


def changeable(node: ast.AST) -> Iterator[Any]:
    """The expressions below a node that `change` can change, depth first."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, LEFT_ALONE):
                yield from changeable(child)
                if can_change(child):
                    yield child


def can_change(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[operator]):
            return type(operator) in COMPARISONS
        case ast.BinOp(left, operator, right):
            return type(operator) in ARITHMETIC and not (is_text(left) or is_text(right))
        case ast.Constant(value):
            return isinstance(value, int | float)
        case ast.Call(ast.Name(name)):
            return name in OTHER_NAMES
        case ast.UnaryOp(ast.Not()) | ast.BoolOp():
            return True
    return False


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def change(node: ast.AST) -> None:
    """Turn an expression into another one, in place."""
    match node:
        case ast.Compare(ops=[operator]):
            node.ops = [COMPARISONS[type(operator)]()]
        case ast.BinOp(op=operator):
            node.op = ARITHMETIC[type(operator)]()
        case ast.Constant(bool(value)):
            node.value = not value
        case ast.Constant(int() | float() as value):
            node.value = value + 1
        case ast.Call(ast.Name() as function):
            function.id = OTHER_NAMES[function.id]
        case ast.UnaryOp():
            node.operand = ast.UnaryOp(ast.Not(), node.operand)
        case ast.BoolOp(operator):
            node.op = ast.Or() if isinstance(operator, ast.And) else ast.And()


def compiled(mutant: Mutant) -> CodeType:
    """The file with its change."""
    tree = ast.parse(mutant.path.read_text(encoding="utf-8"))
    for place, node in enumerate(list(changeable(tree))):
        if place == mutant.place:
            change(node)
    return compile(ast.fix_missing_locations(tree), str(mutant.path), "exec")


class Mutated(importlib.machinery.SourceFileLoader):
    """Imports a file as it is, but for the mutant."""

    def __init__(self, name: str, path: str, code: CodeType) -> None:
        super().__init__(name, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


class MutantFinder(importlib.abc.MetaPathFinder):
    """Finds the module of a mutant before anybody else does."""

    def __init__(self, mutant: Mutant) -> None:
        parts = mutant.path.relative_to(ROOT).with_suffix("").parts
        self._name = ".".join(parts).removesuffix(".__init__")
        self._mutant = mutant

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        file = str(self._mutant.path)
        loader = Mutated(fullname, file, compiled(self._mutant))
        return importlib.util.spec_from_file_location(fullname, file, loader=loader)


def killed(room: str, mutant: Mutant) -> bool:
    """Whether one of the room's own tests notices the mutant."""
    module = mutant.path.relative_to(ROOT / "autorl" / room).as_posix()
    first = tests_of_module(room, module)
    rest = [path for path in TESTS[room] if path not in first]
    return any(paths and noticed(paths, mutant) for paths in (first, rest))


def tests_of_module(room: str, module: str) -> list[str]:
    """List the files of tests of a module, `test_MODULE.py` and `test_MODULE_*.py`."""
    name = OWN_TESTS.get(f"{room}/{module}", f"test_{Path(module).stem.strip('_')}.py")
    stem = name.removesuffix(".py")
    folder = ROOT / "tests" / room
    paths = [folder / name, *sorted(folder.glob(f"{stem}_*.py"))]
    return [path.relative_to(ROOT).as_posix() for path in paths if path.exists()]


def seen(lines: TestLines, mutant: Mutant) -> bool:
    """Whether a test anywhere that runs the mutant's lines notices it."""
    file = mutant.path.relative_to(ROOT).as_posix()
    tests = lines.tests_of(file, mutant.line, mutant.last_line, LINES_SECONDS)
    return bool(tests) and noticed(tests, mutant)


def noticed(paths: Sequence[str], mutant: Mutant) -> bool:
    """Whether a test of some files fails on the mutant, and passes without it."""
    failure = first_failure(paths, mutant)
    if failure is None:
        return False
    if failure == NO_TEST and not passes((*paths, "--collect-only")):
        raise SystemExit(f"pytest does not find all of {' '.join(paths)}")
    if failure != NO_TEST and not passes((failure,)):
        raise SystemExit(f"{failure} fails without a mutant")
    return True


@functools.cache
def passes(arguments: tuple[str, ...]) -> bool:
    """Whether pytest succeeds with these arguments on the code as it is."""
    return first_failure(arguments, None) is None


def first_failure(paths: Sequence[str], mutant: Mutant | None) -> str | None:
    """Name the first of some tests that fails, on the mutant or on the code as it is.

    They run in a process of their own. None: all pass. `NO_TEST`: the process ended before a test
    had failed, by its limit of CPU time or because the mutant cannot be imported.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with open(reader, encoding="utf-8") as pipe:
            name = pipe.read()
        if os.waitpid(child, 0)[1] == 0:
            return None
        return name or NO_TEST
    code = 1
    try:
        os.close(reader)
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silence, stream)
        if mutant is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            sys.meta_path.insert(0, MutantFinder(mutant))
        code = int(pytest.main([*paths, *ARGUMENTS], plugins=[FailureWriter(writer)]))
    finally:
        os._exit(code)


class FailureWriter:
    """Writes the name of each test that fails to a pipe."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            os.write(self._pipe, report.nodeid.encode())


if __name__ == "__main__":
    sys.exit(main())
