"""Writes the stored studies and landscapes that `test_stored_studies.py` opens and resumes.

Run once, with the package as it was at commit f26760a, and never again for what is stored: fixtures that a later
version writes prove nothing. For a new family add a study to `fixture_studies.py` and name it:

    python tests/compatibility/make_fixtures.py NAME...          # default: those that have no archive yet

One archive holds one study: `finished/`, one `interrupted-N/` for each place it was killed at (SIGKILL, right after an
event became durable), what lies beside them (scripts, a landscape, a model), `landscape/` if one was written from it,
and `expected.json`: the tables, the result, the best configurations and the answers of the landscape. `index.json`
lists the archives and the installation that wrote them, its packages and the type of its CPU among it; an archive that
another installation wrote has its own there.

What is not of the study is left out, as it was written and not afterwards: event hashes hold. Events are a second
apart from 2026-01-01, a step takes a millisecond, the platform is "Linux", and all paths are relative: trainers of
user code, replays and language models look in the working folder. Replaced when all is over are only the holder's
name in `study.lock` and paths in tracebacks of logs. One study, `function-processes`, holds seconds that were measured.
"""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import os
import platform
import shutil
import signal
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fixture_studies import STUDIES, StoredStudy, synthetic
from stored_tables import QUERY, Tables, tables, without_session

HERE = Path(__file__).resolve().parent
ARCHIVES = HERE / "studies"
INDEX = HERE / "index.json"
START = 1_767_225_600.0  # 2026-01-01
_FOLDER = "finished"


class ExpectedError(Exception):
    """A study did not become what it is stored for."""


def make_anonymous() -> None:
    """Have this process record nothing of its machine but the type of its CPU, and no time."""
    from llvmlite.binding import get_host_cpu_name

    import autorl.store.store as store
    import autorl.study.session as session
    from autorl.trainers import _shared
    from autorl.trainers import population as engine

    platform.platform = lambda *_, **__: "Linux"
    os.cpu_count = lambda: 1
    session.cpu = get_host_cpu_name
    _shared.Clock.cost = lambda self, steps: {
        "environment_steps": steps,
        "wall_seconds": steps / 1000,
    }
    ticks = iter(range(10**9))
    engine.time = SimpleNamespace(perf_counter=lambda: next(ticks) / 1000, thread_time=lambda: 0.0)
    entry = store.Store._entry

    def at_a_fixed_time(self: Any, kind: str, body: Mapping[str, Any]) -> Any:
        waiting = [] if self._batch is None else self._batch.entries
        store.time.time = lambda: START + (waiting[-1].seq if waiting else self._head.seq)
        return entry(self, kind, body)

    store.time = SimpleNamespace(time=lambda: START)
    store.Store._entry = at_a_fixed_time


def kill_at(kind: str, count: int) -> None:
    """Have this process end by SIGKILL right after its study recorded so many events of a kind."""
    import autorl.store.store as store

    write = store.Store._write

    def deadly(self: Any, entries: Any) -> None:
        write(self, entries)
        rows = self.query("SELECT kind, body FROM event ORDER BY seq")
        if (
            any(counts_as(kind, entry.kind, entry.body) for entry in entries)
            and sum(counts_as(kind, other, json.loads(text)) for other, text in rows) >= count
        ):
            os.kill(os.getpid(), signal.SIGKILL)

    store.Store._write = deadly


def counts_as(name: str, kind: str, body: Mapping[str, Any]) -> bool:
    """Whether an event is one that a stop names."""
    if name == "continued":
        return kind == "proposed" and body["resume_from"] is not None
    return kind == name


def in_child(act: Callable[[], None]) -> bool:
    """Do something in a forked process; False if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            make_anonymous()
            act()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise ExpectedError("a session failed by itself")
    return os.WIFEXITED(status)


def autorl(*arguments: object) -> str:
    """What the command prints."""
    from typer.testing import CliRunner

    from autorl.cli import app

    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exit_code != 0:
        raise ExpectedError(f"{arguments}: {result.output} {result.exception!r}")
    return str(result.stdout)


def run(study: StoredStudy, folder: str) -> None:
    """Begin a study in `folder` and bring it to its end."""
    from autorl.spec import load_spec, thaw
    from autorl.study import Study

    text = load_spec({**study.document, "path": "."}).freeze()
    spec = thaw(text.replace(f"{Path.cwd()}/", ""), "study.yaml")
    begun = Study.create(spec, Path(folder))
    begun.run()
    begun.close()
    for command, *arguments in study.more:
        autorl(command, folder, *arguments, "--quiet")


def write_inputs(name: str, study: StoredStudy) -> None:
    """What lies beside a study: files of the user's, a landscape, a model and data."""
    for path, text in study.files.items():
        Path(path).write_text(text, encoding="utf-8")
    if name.startswith("surrogate"):
        in_child(write_landscape)
    if name.startswith("tabular"):
        with lzma.open(ARCHIVES / "random.tar.xz") as packed, tarfile.open(fileobj=packed) as tar:
            members = [
                member for member in tar.getmembers() if member.name.startswith("landscape/")
            ]
            tar.extractall(".", members, filter="data")
    if name.startswith("trl"):
        write_language_model()


def write_landscape() -> None:
    """A landscape with the fewest configurations that a forest is fitted to, twenty."""
    from autorl.landscapes import from_study

    landscape = "stored/synthetic/stored"
    changes = {
        "budget": {"configurations": 20},
        "test": {"top": 20},
        "landscape": {"id": landscape, "bounds": [-2, 2]},
        "keep": {"checkpoints": "none"},
    }
    run(synthetic("sobol", changes=changes), "source")
    from_study("source", "landscape", landscape, licence="CC0-1.0", creator="autorl")
    shutil.rmtree("source")


def write_language_model() -> None:
    """A policy of 8 units with random weights, prompts, and pairs of completions."""
    from autorl.rlhf.tasks.letters import LETTERS
    from autorl.rlhf.tasks.tiny_models import new_policy, write_tokenizer

    new_policy(0, 24, hidden=8, layers=1).save_pretrained("model")
    write_tokenizer(Path("model", LETTERS))
    prompts = [f"{first} {second}" for first in LETTERS[:6] for second in LETTERS[:6]]
    rows = {
        "prompts": [{"prompt": prompt} for prompt in prompts],
        "pairs": [{"prompt": prompt, "chosen": "a b c", "rejected": "d d"} for prompt in prompts],
    }
    for name, lines in rows.items():
        Path(f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def stop_of(text: str) -> tuple[str, int]:
    """The kind and number of the event a stop names, counted in the finished study."""
    kind, _, share = text.partition(":")
    with closing(sqlite3.connect(f"{_FOLDER}/study.sqlite")) as connection:
        rows = connection.execute("SELECT kind, body FROM event ORDER BY seq").fetchall()
    total = sum(counts_as(kind, other, json.loads(body)) for other, body in rows)
    if total == 0:
        raise ExpectedError(f"no event {kind}")
    return kind, 1 + int(float(share or 0) * (total - 1))


def begin_and_die(study: StoredStudy, folder: str, stop: tuple[str, int]) -> None:
    """The study in `folder`, killed at an event."""

    def session() -> None:
        kill_at(*stop)
        run(study, folder)

    if in_child(session):
        raise ExpectedError(f"{stop} did not come")


def lose_a_checkpoint(folder: str) -> None:
    """Delete what the last proposal would continue."""
    with closing(sqlite3.connect(f"{folder}/study.sqlite")) as connection:
        rows = connection.execute("SELECT resume_from FROM proposals ORDER BY proposal").fetchall()
    paths = list(Path(folder, "checkpoints").glob(f"{rows[-1][0]}.*"))
    if not paths:
        raise ExpectedError("no checkpoint to lose")
    for path in paths:
        shutil.rmtree(path)


def resume(folder: str, stop: tuple[str, int] | None = None) -> bool:
    """Go on with a study, to its end or to an event; whether it lived."""

    def session() -> None:
        if stop is not None:
            kill_at(*stop)
        autorl("resume", folder, "--quiet")

    return in_child(session)


def make(name: str) -> dict[str, Any]:
    """Write a study's archive; its line of the index."""
    study = STUDIES[name]
    write_inputs(name, study)
    in_child(lambda: run(study, _FOLDER))
    stopped = []
    for number, text in enumerate(study.stops):
        folder = f"interrupted-{number}"
        begin_and_die(study, folder, stop_of(text))
        stopped.append(folder)
    if study.lost_checkpoint:
        lose_a_checkpoint(stopped[0])
        shutil.rmtree(_FOLDER)
        shutil.copytree(stopped[0], _FOLDER)
        shutil.copytree(stopped[0], "interrupted-1")
        resume(_FOLDER)
        if resume("interrupted-1", ("regained", 1)):
            raise ExpectedError("nothing was regained")
        stopped.append("interrupted-1")
    for folder in () if study.torn else stopped:
        with closing(sqlite3.connect(f"{folder}/study.sqlite")) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    others = check(study, stopped)
    in_child(lambda: write_expected(study, others))
    for folder in (_FOLDER, *stopped):
        Path(folder, "study.lock").write_text(json.dumps({"pid": 1, "host": "host"}))
    remove_paths()
    pack(ARCHIVES / f"{name}.tar.xz")
    return {
        "states": [*stopped, _FOLDER],
        "landscape": study.landscape,
        "needs": list(study.needs),
        "portable": study.portable,
        "slow": study.slow,
        "lost_checkpoint": study.lost_checkpoint,
    }


def check(study: StoredStudy, stopped: list[str]) -> dict[str, Tables]:
    """Raise unless every interrupted study ends as the other, and those that continue have a checkpoint.

    Returns the tables of those that train a lost checkpoint again: they cost more.
    """
    whole, others = tables(Path(_FOLDER)), {}
    for folder, stop in zip(stopped, (*study.stops, "regained"), strict=False):
        if stop.startswith("continued") and not any(Path(folder, "checkpoints").iterdir()):
            raise ExpectedError("no checkpoint")
        shutil.copytree(folder, "again")
        resume("again")
        ended = tables(Path("again"))
        shutil.rmtree("again")
        different = [name for name in whole if ended[name] != whole[name]]
        if different and not (study.lost_checkpoint and set(different) <= {"runs", "segments"}):
            raise ExpectedError(f"{folder} ends with other tables: {different}")
        if different:
            others[folder] = ended
    return others


def write_expected(study: StoredStudy, others: Mapping[str, Tables]) -> None:
    """What this version says of the finished study."""
    expected = {
        "tables": tables(Path(_FOLDER)),
        "tables_of": others,
        "result": without_session(json.loads(autorl("resume", _FOLDER, "--json"))),
        "best": json.loads(autorl("best", _FOLDER, "--top", 3, "--format", "json")),
        "study_query": json.loads(autorl("landscape", "query", _FOLDER, QUERY, "--json")),
    }
    if study.landscape:
        from autorl.landscapes import from_study

        from_study(_FOLDER, "landscape", study.landscape, licence="CC0-1.0", creator="autorl")
        folder = f"landscape/{study.landscape}"
        autorl("landscape", "validate", folder)
        expected["query"] = json.loads(autorl("landscape", "query", folder, QUERY, "--json"))
    Path("expected.json").write_text(json.dumps(expected, indent=0), encoding="utf-8")


def remove_paths() -> None:
    """Shorten the paths of this machine in tracebacks of logs, which nothing reads again."""
    root = HERE.parents[1]
    for log in Path().glob("*/logs/*.log"):
        text = log.read_text(encoding="utf-8")
        for folder in (root, Path.cwd(), Path(sys.base_prefix), Path(sys.prefix)):
            text = text.replace(f"{folder}/", "")
        log.write_text(text, encoding="utf-8")


def pack(archive: Path) -> None:
    """Every file of the working folder, in order, without owners and times."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for path in sorted(Path().rglob("*")):
            if path.name.endswith("-shm") or "__pycache__" in path.parts:
                continue
            entry = tar.gettarinfo(path, path.as_posix())
            entry.mtime, entry.mode = 0, 0o755 if path.is_dir() else 0o644
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if path.is_file():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)
    archive.write_bytes(lzma.compress(content.getvalue(), preset=9 | lzma.PRESET_EXTREME))


@contextlib.contextmanager
def working_folder() -> Iterator[None]:
    """A folder of its own, where the process works meanwhile."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def installation() -> dict[str, Any]:
    """What numbers can depend on beside the code."""
    from llvmlite.binding import get_host_cpu_name

    names = (
        *("numpy", "scipy", "numba", "pandas", "duckdb", "ConfigSpace", "gymnasium"),
        *("optuna", "cmaes", "scikit-learn", "smac", "torch", "stable-baselines3"),
        *("trl", "transformers", "accelerate", "datasets"),
    )
    return {
        "cpu": get_host_cpu_name(),
        "packages": {name: metadata.version(name) for name in names},
    }


def main(names: list[str]) -> None:
    import duckdb  # noqa: F401 - once, not in every process that is forked
    import pandas  # noqa: F401

    import autorl.cli.app
    import autorl.study
    import autorl.trainers.population  # noqa: F401

    ARCHIVES.mkdir(exist_ok=True)
    index = json.loads(INDEX.read_text()) if INDEX.exists() else {"studies": {}}
    index.setdefault("installation", installation())
    for name in names or [name for name in STUDIES if name not in index["studies"]]:
        with working_folder():
            try:
                index["studies"][name] = make(name)
            except ExpectedError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
        if installation() != index["installation"]:
            index["studies"][name]["installation"] = installation()
        print(name, (ARCHIVES / f"{name}.tar.xz").stat().st_size)
        INDEX.write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
