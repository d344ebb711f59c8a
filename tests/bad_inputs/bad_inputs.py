"""Bad inputs from a seed: study files, spaces, manifests, CSV files, queries and command lines that nobody should give.

Each begins with a good input and replaces one to three places. `python tests/bad_inputs/bad_inputs.py 42 20` prints
twenty of each kind.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).parents[1] / "landscapes"))
from hostile_manifests import COPY, hostile_texts, places, replaced

KINDS = ("study", "space", "manifest", "csv", "query", "command")
HUGE = 10**400
WRONG = (
    None, True, False, -1, 0, 3, 2.5, 1e30, 10**19, HUGE, 1e300, float("nan"), float("inf"),
    float("-inf"), "", " ", "x", "x" * 5000, "(" * 5000, "9" * 5000, "nan", "1e999", "0.5",
    "\u0000", "a\u001b]0;t\u0007\u202e", "../../../etc/passwd", "/etc/passwd", "~/x", ".", "..",
    "echo 'x", "$(id)", "`id`", "{x", "{", "%s %n", "=1+1", "__import__('os').system('id')",
    "lambda: 1", "9**9**9**9", "python:os:system", "python:nowhere:f", "\U0001f600", [], {}, [[]],
    [1, "a"], [None], [-1], [[[[1]]]], {"x": 1}, {"": 1}, {"name": "tpe", "x": [1]},
    {"type": "float"}, {"extends": "/etc/passwd"}, {"value": HUGE}, {"choices": list(range(2000))},
    list(range(300)),
)  # fmt: skip
STUDY: dict[str, Any] = {
    "name": "small",
    "seed": 1,
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1}},
    "environment": {"kwargs": {}, "wrappers": [], "n_envs": 1, "normalize": False},
    "space": {
        "hyperparameters": {
            "x": {"type": "float", "lower": 0.1, "upper": 1.0, "default": 0.5, "scale": "log"},
            "k": {"type": "int", "lower": 1, "upper": 9, "default": 2},
            "kind": {"type": "categorical", "choices": ["a", "b"], "default": "a"},
        },
        "conditions": {"k": "kind == b"},
        "constraints": ["x <= k + 1"],
        "forbidden": [{"kind": "b", "k": 9}],
    },
    "objective": {"metric": "eval_return", "reduce": "last", "direction": "maximize"},
    "constraints": [{"metric": "environment_steps", "max": 1000}],
    "fidelity": {"steps": 100, "evaluations": 5, "episodes": 1},
    "optimizer": {"name": "random", "stop": "median", "rungs": 2},
    "budget": {"runs": 8},
    "seeds": {"tuning": 2, "test": [100, 101]},
    "evaluation": {"seeds": "fixed", "aggregate": "mean"},
    "parallelism": 2,
    "asynchronous": False,
    "executor": {"name": "in_process", "workers": 1, "devices": []},
    "failures": {"penalty": "worst", "retries": 1},
    "limits": {"disk_gb": 1},
    "warm_start": [{"x": 0.5, "kind": "a"}],
    "test": {"top": 2, "baseline": False},
    "keep": {"checkpoints": "none"},
}
ECHO = {"command": "echo {seed} {until}", "style": "kebab", "metrics": {"from": "stdout"}}
TRAINERS: tuple[dict[str, Any], ...] = (
    {"name": "command", "kwargs": ECHO},
    {"name": "python:f.py:f", "kwargs": {"metric": "eval_return", "path": "."}},
)
TEXTS = (
    "", "[]", "- 1", "{", "{{{", "a: b: c", "\t\tx", "%YAML 9", "&a [*a]",
    "!!python/object/apply:os.system [id]", "x: &x [*x, *x]",
    "trainer: synthetic\ntrainer: command", "\u0000", "'" * 999, "[" * 3000, "? [1]\n: 2", "<<: 3",
)  # fmt: skip
CSV = "config,seed,step,eval_return,x\n" + "".join(
    f"{number},{seed},{step},{number + seed + step / 100},{0.1 * number}\n"
    for number, seed, step in itertools.product(range(1, 4), range(2), (50, 100))
)
CELLS = (
    "", "nan", "inf", "-inf", "1e300", "1e30", "x", "x" * 5000, '"', '"a', "=cmd|' /C calc'!A0",
    "\u0000", "-1", "2.5", "9" * 5000, "True", "NULL", "\u202e", "2026-01-01", "[1]", "{}", "a,b",
    "\r", "../../x", "\ufeff", "1;2", "0x10",
)  # fmt: skip
QUERIES = (
    "", " ", ";", "--", "/*", "SELECT", "SELECT * FROM nowhere", "SELECT 1; SELECT 2", "x" * 9000,
    "SELECT " + "(" * 300, COPY, f"EXPLAIN ANALYZE {COPY}", f"EXPLAIN {COPY}", f"SELECT 1; {COPY}",
    f"WITH a AS (SELECT 1) {COPY}", "ATTACH 'x.db'", "INSTALL httpfs", "LOAD httpfs",
    "SET memory_limit='1TB'", "PRAGMA database_list", "VACUUM", "CREATE TABLE t AS SELECT 1",
    "DROP VIEW evals", "INSERT INTO evals SELECT 1", "DELETE FROM runs", "CALL pragma_version()",
    "SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM glob('/root/*')", "SELECT * FROM 'https://example.com/x.csv'",
    "SELECT * FROM '/etc/passwd'", "SELECT getenv('HOME')", "SELECT '\u0000'",
    "EXPORT DATABASE 'x'", "CHECKPOINT", "BEGIN", "SELECT * FROM evals WHERE nope = 1",
    "SELECT 1/'x'", "FROM", "\\d", "COPY evals TO 'x.csv'", "COPY (SELECT 1) TO '/tmp/x.csv'",
    "PREPARE p AS SELECT 1", "EXECUTE p", "USE main", "\ud800",
)  # fmt: skip
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("resume", "{study}", "--runs", "{wrong}", "-q"),
    ("test", "{study}", "--seeds", "{wrong}", "-q"),
    ("best", "{study}", "--top", "{wrong}"),
    ("best", "{study}", "--format", "{wrong}"),
    ("export", "{study}", "--model", "model.zip", "--seed", "{wrong}"),
    ("tune", "{file}", "--out", "{out}", "--set", "{wrong}", "--dry-run"),
    ("tune", "{file}", "--out", "{out}", "--set", "budget.runs={wrong}", "--dry-run"),
    ("tune", "{file}", "--out", "{out}", "--runs", "{wrong}", "--dry-run"),
    ("tune", "{file}", "--out", "{out}", "--steps", "{wrong}", "--dry-run"),
    ("tune", "{file}", "--out", "{out}", "--seed", "{wrong}", "--dry-run"),
    ("tune", "{file}", "--out", "{out}", "--optimizer", "{wrong}", "--dry-run"),
    ("tune", "{file}", "--out", "{out}", "--workers", "{wrong}", "--dry-run"),
    ("tune", "{wrong}", "--out", "{out}", "--dry-run"),
    ("compare", "{file}", "--optimizers", "{wrong}", "--out", "{out}", "-q"),
    tuple(
        [
            "compare",
            "{file}",
            "--optimizers",
            "random,sobol",
            "--repeats",
            "{wrong}",
            "--out",
            "{out}",
            "-q",
        ]
    ),
    ("watch", "{wrong}", "--once"),
    ("report", "{wrong}"),
    ("list", "spaces", "{wrong}"),
    ("list", "spaces", "{space}", "--sample", "{wrong}"),
    ("list", "optimizers", "{wrong}"),
    ("landscape", "best", "{landscape}", "--by", "{wrong}"),
    ("landscape", "best", "{landscape}", "--step", "{wrong}"),
    ("landscape", "best", "{landscape}", "--reduce", "{wrong}"),
    ("landscape", "top", "{landscape}", "-n", "{wrong}"),
    ("landscape", "curve", "{landscape}", "{wrong}"),
    ("landscape", "info", "{wrong}"),
    ("landscape", "validate", "{wrong}"),
    ("landscape", "build", "{file}", "--study", "{out}", "--id", "{wrong}", "-q"),
    ("{wrong}",),
    ("tune", "{wrong}", "{wrong}"),
)
ARGUMENTS = (
    *(
        "",
        " ",
        *["x", "nan", "inf", "-inf", "1e300", "1e30", "0", "-1"],
        "9" * 5000,
        "x" * 5000,
        "(" * 5000,
    ),
    *[
        "=",
        "a=",
        "=b",
        "../../../etc/passwd",
        "/etc/passwd",
        "/dev/null",
        "/proc/self/mem",
        ".",
        "..",
    ],
    *("a\u001b[2J\u202e", "\ud800", "{}"),
    *["space.x=1", "trainer.kwargs=3", "a.b.c.d=1", "seeds.test=1e9", "fidelity=["],
    *["optimizer.name=nowhere", "100000000000"],
)


@dataclass(frozen=True)
class BadInput:
    """A command line and the files it is given.

    Attributes:
        kind: one of `KINDS`; number: its place among all of a seed.
        arguments: of `autorl`; `{study}`, `{landscape}`, `{file}`, `{space}` stand for good ones, `{out}` for a folder
            that may be written to.
        files: texts by name, in the working folder.
        about: what was replaced, for people.
    """

    kind: str
    number: int
    arguments: tuple[str, ...]
    files: dict[str, str | bytes] = field(default_factory=dict)
    about: str = ""


def bad_inputs(seed: int, count: int) -> list[BadInput]:
    """`count` bad inputs, as many of each kind; the same for the same seed."""
    makers = {"study": _study, "space": _space, "csv": _csv, "query": _query, "command": _command}
    each = -(-count // len(KINDS))
    rows = []
    for kind in KINDS:
        rng = random.Random(f"{seed} {kind}")
        if kind == "manifest":
            rows.append(list(_manifests(rng.randrange(2**31), each)))
        else:
            rows.append([makers[kind](rng) for _ in range(each)])
    mixed = [row for rows_of_all in zip(*rows, strict=True) for row in rows_of_all][:count]
    return [replace(row, number=number) for number, row in enumerate(mixed)]


def _study(rng: random.Random) -> BadInput:
    good = copy.deepcopy(STUDY)
    if rng.random() < 0.3:
        good["trainer"] = copy.deepcopy(rng.choice(TRAINERS))
    text, about = _spoiled(good, rng)
    command = ("tune", "bad.yaml", "--out", "{out}", "--dry-run" if rng.random() < 0.7 else "-q")
    files = {"bad.yaml": text, "f.py": "def f(config, *, seed): return 0.0\n"}
    return BadInput("study", 0, command, files, about)


def _space(rng: random.Random) -> BadInput:
    text, about = _spoiled(STUDY["space"], rng)
    command = ("list", "spaces", "bad.yaml", "--sample", "2")
    return BadInput("space", 0, command, {"bad.yaml": text}, about)


def _spoiled(good: Any, rng: random.Random) -> tuple[str, str]:
    """A YAML text with one to three places replaced, sometimes torn, and what was done."""
    if rng.random() < 0.1:
        text = rng.choice(TEXTS)
        return text, f"the text {text[:40]!r}"
    changed, about = good, []
    for _ in range(rng.choice((1, 1, 1, 1, 2, 3))):
        where = rng.choice(list(places(changed)))
        wrong = copy.deepcopy(rng.choice(WRONG))
        changed = replaced(changed, where, wrong)
        about.append(f"{'.'.join(map(str, where))} = {_short(wrong)}")
    text = yaml.safe_dump(changed, sort_keys=False)
    if rng.random() < 0.05:
        text = text[: rng.randrange(len(text))]
        about.append("torn")
    return text, ", ".join(about)


def _short(value: Any) -> str:
    return "10**400" if value == HUGE else repr(value)[:60]


def _manifests(seed: int, count: int) -> Iterator[BadInput]:
    from landscape_samples import manifest

    good = json.loads(json.dumps(manifest().to_dict()))
    commands = itertools.cycle(
        (("info",), ("best",), ("top",), ("query", "SELECT count(*) FROM scores"), ("validate",))
    )
    for text, (name, *rest) in zip(hostile_texts(good, seed, count), commands, strict=False):
        command = ("landscape", name, "copy", *rest)
        yield BadInput("manifest", 0, command, {"copy/manifest.json": text}, text[:80])


def _csv(rng: random.Random) -> BadInput:
    rows = [line.split(",") for line in CSV.splitlines()]
    about = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
        rows[row][column] = rng.choice(CELLS)
        about.append(f"row {row}, column {column} = {rows[row][column][:40]!r}")
    text: str | bytes = "\n".join(map(",".join, rows)) + "\n"
    damage = rng.random()
    if damage < 0.1:
        text = text[: rng.randrange(len(text))]
    elif damage < 0.2:
        text = bytes(rng.randrange(256) for _ in range(400))
    maps = ("config=config_id", "seed=seed", "step=step", "eval_return=metric", "x=hyperparameter")
    options = [word for entry in maps[: rng.choice((5, 5, 5, 3))] for word in ("--map", entry)]
    if rng.random() < 0.3:
        columns = ["x=nowhere", "nope=seed", "x", "=seed", "seed=step", "/etc/passwd", "f.yaml"]
        options += ["--map", rng.choice(columns)]
    command = [
        "landscape",
        "import",
        "bad.csv",
        "--id",
        "me/dqn/toy",
        "--out",
        "{out}",
        "--metric",
        "eval_return",
    ]
    return BadInput("csv", 0, (*command, *options), {"bad.csv": text}, ", ".join(about))


def _query(rng: random.Random) -> BadInput:
    query = rng.choice(QUERIES)
    return BadInput("query", 0, ("landscape", "query", "{landscape}", query), {}, query[:80])


def _command(rng: random.Random) -> BadInput:
    wrong = rng.choice(ARGUMENTS)
    arguments = tuple(word.replace("{wrong}", wrong) for word in rng.choice(COMMANDS))
    return BadInput("command", 0, arguments, {}, f"{wrong[:40]!r}")


if __name__ == "__main__":
    for made in bad_inputs(int(sys.argv[1]), len(KINDS) * int(sys.argv[2])):
        print(made.kind, made.arguments, made.about[:200])
