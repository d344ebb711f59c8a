"""The floors of the design: a room imports only lower floors, and heavy packages only when they are used."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

import autorl
from autorl.optimizers.registry import REGISTRY, STOPPING

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import house

PACKAGE = Path(autorl.__file__).parent
FLOORS = [
    {"core"},
    {"space", "statistics"},
    {"store"},
    {"report/pages"},
    {"landscapes"},
    {"population", "trainers/language"},
    {"trainers"},
    {"optimizers", "executors"},
    {"testing"},
    {"study/spec"},
    {"study"},
    {"study/tuner"},
    {"integrations"},
    {"report"},
    {"study/building"},
    {"cli"},
    {"__main__"},
]  # a part of a room that has a floor of its own is written `room/part`
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
HEAVY = {
    "torch",
    "transformers",
    "trl",
    "stable_baselines3",
    "optuna",
    "ConfigSpace",
    "pandas",
    "duckdb",
    "numba",
    "scipy",
}
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def room(module):
    return room_of(Path(module).with_suffix("").parts)


def room_of(parts):
    """The room, or the part of it that has a floor of its own."""
    part = "/".join(parts[:2])
    return part if part in FLOOR else parts[0]


@functools.cache
def text_of(module):
    return (PACKAGE / module).read_text(encoding="utf-8")


@functools.cache
def nodes_of(source):
    """Every node of a module, parsed once for all tests."""
    return tuple(ast.walk(ast.parse(source)))


def resolve(node, module):
    """Full names of what an import statement imports, relative imports resolved."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parts = ["autorl", *Path(module).with_suffix("").parts]
        package = (
            parts[: len(parts) - node.level] if parts[-1] != "__init__" else parts[: -node.level]
        )
        base = ".".join([*package, base]).strip(".")
    return [f"{base}.{alias.name}" for alias in node.names]


def imported_names(module, source=None):
    """Full names of all that a module imports of the package."""
    text = text_of(module) if source is None else source
    return {
        name
        for node in nodes_of(text)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in resolve(node, module)
        if name.startswith("autorl.")
    }


def imported_rooms(module):
    return {room_of(name.split(".")[1:]) for name in imported_names(module)} & set(FLOOR)


def private_names(module, source=None):
    """List underscored names that a module imports from other rooms."""
    return sorted(
        name
        for name in imported_names(module, source)
        if room_of(name.split(".")[1:]) != room(module)
        and any(re.match("_(?!_)", part) for part in name.split(".")[1:])
    )


def test_every_room_has_a_floor():
    assert {room(module) for module in MODULES} - {"__init__"} <= set(FLOOR)


@pytest.mark.parametrize("module", [module for module in MODULES if room(module) != "__init__"])
def test_a_module_imports_only_lower_floors(module):
    """Imports inside functions and under TYPE_CHECKING count as well."""
    mine = room(module)
    wrong = {
        other for other in imported_rooms(module) if other != mine and FLOOR[other] >= FLOOR[mine]
    }
    assert not wrong, f"autorl/{module} ({mine}) imports {sorted(wrong)}"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_nothing_private_of_another_room(module):
    assert private_names(module) == []


WITHOUT_CIRCLES = sorted(
    set(FLOOR) - {"__main__", "core", "integrations", "study/building", "study/tuner"}
)
"""Rooms whose files import each other, in one direction only."""


def imported_files(module):
    """Files of the same room that a file imports, in functions and under TYPE_CHECKING too."""
    imports = [
        node for node in nodes_of(text_of(module)) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = [name for node in imports for name in resolve(node, module)]
    files = {file_of(name) or file_of(name.rpartition(".")[0]) for name in names}
    return {file for file in files if file is not None and room(file) == room(module)}


def file_of(name):
    path = name.removeprefix("autorl").removeprefix(".").replace(".", "/")
    candidates = [f"{path}.py", f"{path}/__init__.py"]
    return next((file for file in candidates if file in MODULES), None)


@pytest.mark.parametrize("name", WITHOUT_CIRCLES)
def test_the_files_of_a_room_import_each_other_without_a_circle(name):
    remaining = {module: imported_files(module) for module in MODULES if room(module) == name}
    assert any(remaining.values())
    while leaves := {module for module, files in remaining.items() if not files}:
        remaining = {
            module: files - leaves for module, files in remaining.items() if module not in leaves
        }
    assert not remaining, f"a circle among {sorted(remaining)}"


MAY_IMPORT_LATE = {  # imports of the package inside functions, by room; only ever to be lowered
    "cli": 1,  # the server of `watch --web`
    "landscapes": 1,
    "optimizers": 1,
    "trainers": 10,
}


def late_imports(source):
    """Imports of the package that stand inside functions."""
    functions = (
        node
        for node in nodes_of(source)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {
        (node.lineno, ast.unparse(node))
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and re.match(r"(from|import) (autorl\b|\.)", ast.unparse(node))
    }


def test_imports_inside_functions_do_not_become_more():
    """They hide circles, and make errors of imports late; heavy libraries may be imported so."""
    counts = dict.fromkeys(MAY_IMPORT_LATE, 0)
    for module in MODULES:
        late = late_imports(text_of(module))
        if late:
            counts[room(module)] = counts.get(room(module), 0) + len(late)
    assert {
        name: count for name, count in counts.items() if count > MAY_IMPORT_LATE.get(name, 0)
    } == {}


# Parts of a room, and the other ones that each may import; "" = the format of landscapes.
MAY_IMPORT = {
    "landscapes": {
        "": set(),
        "importers": {""},
        "benchmark": {""},
        "analysis": {""},
        "front": {"", "benchmark"},  # what users import: the class with its benchmarks
    },
    "trainers/language": {},
}
FRONT = {"landscapes/__init__.py", "landscapes/landscape.py"}
_BELOW = {"__init__"}
for _parts in (  # each imports only those before it
    {"contract", "models", "passes"},
    {"sampling"},
    {"completion_scores", "policy_metrics"},
    {"rewards"},
    {"data"},
    {"tasks"},
    {"ppo", "best_of_n", "overoptimization"},
):
    _BELOW = _BELOW | _parts
    MAY_IMPORT["trainers/language"] |= dict.fromkeys(_parts, _BELOW)


def part_of(module):
    parts = Path(module).with_suffix("").parts
    if room(module) == "trainers/language":
        return parts[2]
    return "front" if module in FRONT else parts[1] if len(parts) > 2 else ""


@pytest.mark.parametrize("module", [file for file in MODULES if room(file) in MAY_IMPORT])
def test_the_parts_of_a_room_import_each_other_in_one_direction(module):
    """Reading and writing landscapes know nothing of importers, benchmarks and analyses."""
    mine = part_of(module)
    others = {part_of(file) for file in imported_files(module)} - {mine}
    assert others <= MAY_IMPORT[room(module)].get(mine, set())


@pytest.mark.parametrize("module", [file for file in MODULES if file.startswith("trainers/rlhf/")])
def test_what_trainers_of_language_models_share_knows_none_of_trl(module):
    assert not [file for file in imported_files(module) if file.startswith("trainers/trl/")]


def test_types_imports_nothing_of_the_package():
    files = {name for file in MODULES if "core/types/" in file for name in imported_names(file)}
    assert all(name.startswith("autorl.core.types") for name in files)


NAMES_OF_TRAINERS = re.compile(
    r"((sb3|trl|rlhf|population)/[\w*-]*|python:|sb3|trl|rlhf|tabular|surrogate|synthetic)$"
)  # whole strings: a sentence may give an example


def strings_in(source):
    """String constants of a file, docstrings left out."""
    texts = {
        id(node.value)
        for node in nodes_of(source)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in nodes_of(source)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts
    ]


def trainers_named_in(source):
    """String constants that name a trainer, docstrings left out."""
    return [string for string in strings_in(source) if NAMES_OF_TRAINERS.match(string)]


@pytest.mark.parametrize(
    "module", [module for module in MODULES if not module.startswith("trainers/")]
)
def test_only_trainers_know_trainers_by_name(module):
    """`TrainerInfo` says how trainers differ."""
    named = trainers_named_in(text_of(module))
    assert named == []


TRAINERS = {"sb3", "trl", "rlhf", "population", "tabular", "surrogate", "synthetic", "command"}


@pytest.mark.parametrize(
    "module", [module for module in MODULES if not module.startswith("trainers/")]
)
def test_no_other_room_imports_the_module_of_a_trainer(module):
    """The contract and `TrainerInfo` answer for a trainer."""
    parts = [name.split(".") for name in imported_names(module)]
    assert not [name for name in parts if name[1] == "trainers" and TRAINERS & {*name[2:3]}]


MAY_NAME_OPTIMIZERS = {
    "cli/landscape_analysis.py": ["transfer"],  # a kind of question
    "cli/landscape_build.py": ["phases"],  # a word of its output
    "landscapes/analysis/charts.py": ["median"],  # a statistic
    "landscapes/analysis/kinds.py": ["median"],
    "landscapes/analysis/tables.py": ["median"],
    "landscapes/analysis/values.py": ["median"],
    "integrations/optuna_storage.py": ["optuna"],  # the library
    "landscapes/export.py": ["optuna"],
    "landscapes/importers/__init__.py": ["optuna"],
    "landscapes/importers/optuna_storage.py": ["optuna"],
    "study/callbacks.py": ["optuna"],
    "landscapes/dataset.py": ["phases"],  # a key of the manifest
    "landscapes/importers/arlbench.py": ["sobol"],  # how these were sampled, by others
    "landscapes/importers/arlbench_runs.py": ["pbt", "random", "smac"],
    "landscapes/importers/hpo_rl_bench.py": ["grid"],
    "report/pages/vega.py": ["grid"],  # of an axis
    "report/formats.py": ["schedule"],  # a key of what is printed
    "report/landscape_page.py": ["phases"],  # a kind of question
    "report/plan_text.py": ["schedule"],
    "report/text.py": ["schedule"],
    "space/json_schema.py": ["schedule"],  # a key of the format
    "space/yaml_format.py": ["schedule"],
    "study/spec/sections.py": ["learned", "median", "overoptimizing"],  # the values of a key
    "study/spec/spec.py": ["schedule"],  # a kind of search
    "statistics/__init__.py": ["median"],
    "statistics/coverage.py": ["median"],
    "study/results/card.py": ["schedule"],  # a key of the card, and the study file that trains it
    "study/results/landscape.py": ["phases"],  # a key of the manifest
    "study/results/replay.py": ["schedule"],  # the study file that it writes
    "study/session.py": ["cmaes", "optuna", "smac"],  # packages
}


def optimizers_named_in(source):
    """String constants that are the name of an optimizer or a stopping rule, docstrings left out."""
    return sorted(set(strings_in(source)) & {*REGISTRY, *STOPPING})


@pytest.mark.parametrize("module", [module for module in MODULES if room(module) != "optimizers"])
def test_only_optimizers_know_optimizers_by_name(module):
    """Classes of optimizers say how they differ."""
    named = optimizers_named_in(text_of(module))
    assert named == MAY_NAME_OPTIMIZERS.get(module, [])


# Files and rooms written as CONTRIBUTING.md asks; the list grows until it holds all.
FINISHED = [
    "__main__.py",
    "cli/",
    "core/",
    "executors/",
    "integrations/hydra_space.py",
    "integrations/hydra_sweeper.py",
    "integrations/optuna_storage.py",
    "integrations/trackers/",
    "landscapes/",
    "optimizers/",
    "population/",
    "report/",
    "space/",
    "statistics/",
    "store/",
    "study/",
    "testing/",
    "trainers/",
]
WRITTEN_SO = (
    *("long code", "long comment", "long docstring", "semicolon", "words", "headless"),
    *("vague", "tuple"),
)


@pytest.mark.parametrize("room_or_file", FINISHED)
def test_finished_rooms_are_written_for_a_reader(room_or_file):
    """Lines to 100, first lines of 12 words, sentences with a subject, names that say something."""
    modules = [module for module in MODULES if module.startswith(room_or_file)]
    assert modules
    places = [
        f"{place.file}:{place.line}: {place.measure}: {place.text}"
        for module in modules
        for place in house.File(PACKAGE / module, PACKAGE).count().places
        if place.measure in WRITTEN_SO
    ]
    assert places == []


SQL = re.compile(
    r"\b(SELECT\s+([\w*(\"]|$)|INSERT\s+(OR\s+\w+\s+)?INTO\s|UPDATE\s+(\w+\s+SET\s|$)|"
    r"DELETE\s+FROM\s|CREATE\s+(TEMP\s+|UNIQUE\s+)?(TABLE|VIEW|INDEX)\s|DESCRIBE\s+(\w|$))"
)  # `$`: what follows is a value of an f-string
ASKS_STUDIES = {"store/integrity.py", "store/log.py", "store/schema.py", "store/tables.py"}
ASKS_LANDSCAPES = {"landscapes/_queries.py", "landscapes/_rules.py", "landscapes/_views.py"}


def statements(source):
    """The texts of a module that are SQL, docstrings left out."""
    return [text for text in strings_in(source) if SQL.search(text)]


def test_sql_stands_in_few_files():
    """Everybody else asks `StudyTables` of a study, and `Queries` of a landscape."""
    asking = {module for module in MODULES if statements(text_of(module))}
    assert asking == ASKS_STUDIES | ASKS_LANDSCAPES


RUNS_WHAT_IT_READS = (
    "eval",
    "exec",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "marshal.loads",
    "shelve.open",
)
UNPICKLES = ("pickle", "cloudpickle", "dill", "joblib", "pandas.read_pickle", "pd.read_pickle")
MAY_UNPICKLE = {
    "executors/function_processes.py": [  # what this process has pickled for its own children
        "pickle.loads",
        "pickle.loads",
        "pickle.loads",
    ],
    # From its parent the tables, from its own child the rows.
    "landscapes/query_process.py": ["pickle.load", "pickle.load"],
    "executors/slurm.py": ["pickle.loads"],  # results of its own jobs, in a folder of mode 0700
    "trainers/agents.py": ["pickle.loads"],  # a file that it has just written from arrays
    "testing/trainers.py": ["pickle.loads"],  # tests that something can be pickled
    "trainers/trl/ranks.py": ["pickle.loads"],  # tests that its own error can be pickled
    "trainers/environment_state.py": [
        "pickle.loads",
        "pickle.loads",
    ],  # signed by this installation, or trusted
}


def calls_that_run_files(source):
    """Every call, and class made from one, that runs what a file says."""
    wrong = []
    for node in nodes_of(source):
        names = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.Call):
            names = [ast.unparse(node.func)]
            given = {word.arg: ast.unparse(word.value) for word in node.keywords}
            if names[0] == "torch.load" and given.get("weights_only") != "True":
                wrong.append("torch.load")
            if names[0] in ("np.load", "numpy.load") and given.get("allow_pickle") != "False":
                wrong.append("np.load")
        for name in names:
            module, _, function = name.rpartition(".")
            unpickles = module in UNPICKLES and function in ("load", "loads", "Unpickler")
            if name in RUNS_WHAT_IT_READS or name in UNPICKLES or unpickles:
                wrong.append(name)
    return wrong


def test_nothing_else_runs_what_a_file_says():
    """A floor: a new call of these names has to be looked at, and `docs/security.md` with it."""
    found = {module: calls_that_run_files(text_of(module)) for module in MODULES}
    assert {module: sorted(calls) for module, calls in found.items() if calls} == MAY_UNPICKLE


@pytest.mark.parametrize(
    "modules", ["autorl, autorl.study.spec", "autorl.study, autorl.study.tuner"]
)
def test_importing_the_core_loads_no_heavy_package(modules):
    code = f"import sys, {modules}; print(sorted({HEAVY!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_public_names_exist_and_are_sorted():
    assert list(autorl.__all__) == sorted(autorl.__all__)
    for name in autorl.__all__:
        assert getattr(autorl, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        autorl.nothing  # noqa: B018


# -- the checks see what they should -----------------------------------------------------------------

PRIVATE = """
def f():
    from autorl.store._pages import read
import autorl.core.seeds._streams
from autorl.store.integrity import _hash
from autorl.study._own import x
from autorl import __version__
from ..store._rows import row
"""
LATE = """
import autorl.store
def f():
    import autorl
    async def g():
        from autorl.space import Space
    from . import other
    import autorlish
"""
RUN = """
np.load(f); torch.load(f, weights_only=False); eval(x); pickle.loads(b); model.eval()
class A(pickle.Unpickler): ...
np.load(f, allow_pickle=False); torch.load(f, weights_only=True)
"""
SAID_IN_SQL = """
query(f'SELECT a FROM {table}'); run('DELETE FROM t'); run(f'UPDATE {table} SET a = 1')
run('INSERT OR IGNORE INTO t VALUES (1)'); text = 'WITH b AS (SELECT (1))'; run('CREATE VIEW v')
log("updates, inserts; SELECT ..."); help = "asks SELECT, CREATE and UPDATE"
"""
SEEN = [
    (
        functools.partial(private_names, "study/study.py"),
        PRIVATE,
        "autorl.core.seeds._streams, autorl.store._pages.read, autorl.store._rows.row, "
        "autorl.store.integrity._hash",
    ),
    (
        lambda source: [text for _, text in late_imports(source)],
        LATE,
        "from . import other, from autorl.space import Space, import autorl",
    ),
    (
        trainers_named_in,
        '"""sb3/ppo"""\nname.startswith("sb3/") or f"python:{name}" or "such as sb3/ppo"',
        "python:, sb3/",
    ),
    (
        optimizers_named_in,
        '"""tpe"""\nname in ("random", "asha") or "such as sobol"',
        "asha, random",
    ),
    (
        statements,
        SAID_IN_SQL,
        "CREATE VIEW v, DELETE FROM t, INSERT OR IGNORE INTO t VALUES (1), SELECT a FROM , "
        "UPDATE , WITH b AS (SELECT (1))",
    ),
    (calls_that_run_files, RUN, "eval, np.load, pickle.Unpickler, pickle.loads, torch.load"),
]


@pytest.mark.parametrize(("check", "source", "found"), SEEN, ids=lambda value: str(value)[:20])
def test_a_check_sees_what_it_should(check, source, found):
    assert ", ".join(sorted(check(source))) == found
