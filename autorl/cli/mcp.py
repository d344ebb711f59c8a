"""The command mcp: a server of the Model Context Protocol over studies.

Each tool is a command in a process of its own: its checks and its one-line refusals are the
command line's. `docs/for-programs.md` says what a client may do.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from autorl import __version__
from autorl.cli.options import Folder
from autorl.core.types import InputError
from autorl.report.reading import studies_below
from autorl.space import Dumper
from autorl.store.folder import STUDY_FILE

_OFFERS = """Studies of reinforcement learning in one folder, tuned and judged by `autorl`.
A result is a number of held-out seeds with its interval; a tuning score is optimistic."""
# Python adds the working folder to its path, where a client may have files: -P leaves it out.
_AUTORL = (sys.executable, "-P", "-m", "autorl")
# The alarm ends a study with its server gone, too: it goes on from its last segment.
_UNTIL = "import signal, sys; signal.alarm(int(sys.argv.pop(1))); import autorl.cli as c; c.main()"
_ROWS = 1000
_PATIENCE = 45.0  # seconds that a client waits for an answer, at most


def mcp(
    folder: Folder,
    write: bool = False,
    max_runs: Annotated[float, typer.Option(min=0)] = 100,
    max_hours: Annotated[float, typer.Option(min=0)] = 1,
) -> None:
    """Serve a folder of studies to a program.

    It is a server of the Model Context Protocol, over standard input and output. Its tools read the
    folder and nothing else; with --write they also begin studies, and a study file can run any
    program.

    Options:
        folder: Where the studies are, and new ones will be.
        write: Offer tools that train, too.
        max_runs: Full runs of all studies that the client begins, test phases included.
        max_hours: Hours from now on after which these studies are ended.
    """
    if not folder.is_dir():
        raise InputError("is no folder", file=str(folder))
    server(folder, write=write, max_runs=max_runs, max_hours=max_hours).run("stdio")


def server(folder: Path, *, write: bool, max_runs: float, max_hours: float) -> Any:
    """Make the server of a folder by the official SDK."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError:
        raise InputError('needs the official SDK of MCP: pip install "autorl[mcp]"') from None
    made = MCPServer("autorl", instructions=_OFFERS, version=__version__)
    tools = Tools(folder.resolve(), max_runs, time.time() + 3600 * max_hours)
    reading: list[Any] = [tools.studies, tools.status, tools.best, tools.query]
    for tool in [*reading, tools.tune, tools.judge] if write else reading:
        hints = ToolAnnotations(read_only_hint=tool in reading, destructive_hint=False)
        made.add_tool(tool, description=inspect.getdoc(tool), annotations=hints)
    return made


class Tools:
    """The tools of a client, which reads their docstrings.

    Attributes:
        runs_left: full runs that the client may still begin.
        deadline: when its studies are ended, in seconds since 1970.
    """

    def __init__(self, folder: Path, runs: float, deadline: float) -> None:
        self._folder = folder
        self.runs_left = runs
        self.deadline = deadline
        self._judging: dict[str, asyncio.Task[Any]] = {}

    async def studies(self) -> list[str]:
        """List the studies of the folder by name."""
        return [str(path.relative_to(self._folder)) for path in studies_below(self._folder)]

    async def status(self, study: str) -> dict[str, Any]:
        """Say where a study stands: its budget, incumbent, test score and failures."""
        answer: dict[str, Any] = await self._command("watch", "--json", "--", self._place(study))
        return answer

    async def best(self, study: str, top: int = 1) -> list[dict[str, Any]]:
        """List the best configurations, in a form that a trainer accepts."""
        options = ("--format", "json", "--top", str(top))
        place = self._place(study)
        answer: list[dict[str, Any]] = await self._command("best", *options, "--", place)
        return answer

    async def query(self, study: str, sql: str, limit: int = 100) -> list[dict[str, Any]]:
        """Ask a study or a landscape in SQL.

        The dialect is DuckDB's, the tables are configs, runs, evals, segments and scores.
        """
        if not 0 < limit <= _ROWS:
            raise _refusal(f"limit: expected 1 to {_ROWS}, got {limit}")
        options = ("--json", "--limit", str(limit))
        place = self._place(study)
        query = ("landscape", "query", *options, "--", place, sql)
        answer: list[dict[str, Any]] = await self._command(*query)
        return answer

    async def tune(self, name: str, study: dict[str, Any]) -> dict[str, Any]:
        """Begin a study, which trains in the background.

        `status` says where it stands.

        Args:
            name: of the study, a new folder name.
            study: the keys of a study file (docs/study-file.md), such as trainer, environment,
                space, fidelity, budget and seeds; the budget in runs, configurations or steps.
        """
        file = Path(self._place(f"{name}.yaml"))
        taken = file.exists() or (self._folder / name).exists()
        if file.parent != self._folder or taken:
            raise _refusal(f"{name}: expected the name of a new folder")
        text = yaml.dump({"name": name, **study}, Dumper=Dumper, sort_keys=False)
        file.write_text(text, encoding="utf-8")
        try:
            plan = await self._command("tune", "--dry-run", "--json", "--", str(file))
            if plan["open_ended"]:
                raise _refusal("budget: expected runs, configurations or environment_steps")
            runs = round(plan["environment_steps"] / plan["steps_of_a_run"], 6)
            self._book(runs, f"budget: {runs:g} full runs with the test phase")
        except BaseException:
            file.unlink()
            raise
        arguments = ("tune", "--quiet", "--out", str(self._folder / name), "--", str(file))
        seconds = max(1, int(self.deadline - time.time()))
        with file.with_suffix(".log").open("wb") as log:
            until = (sys.executable, "-P", "-c", _UNTIL, str(seconds))
            await self._begun(*until, *arguments, stdout=log, stderr=log, start_new_session=True)
        return {
            "study": name,
            "runs": runs,
            "runs_left": self.runs_left,
            "log": f"{name}.log",
            "ends_in_seconds": seconds,
            "cautions": plan["cautions"],
        }

    async def judge(
        self,
        study: str,
        baseline: dict[str, Any],
        edit: dict[str, Any],
        min_effect: float = 0.0,
        max_runs: int = 20,
    ) -> dict[str, Any]:
        """Say whether an edit of hyperparameters is better: keep, discard or undecided.

        It trains both on new seeds of a study's task. The verdict is null while it trains: call
        again with the same arguments.

        Args:
            study: whose trainer, task and space are taken.
            baseline: values by hyperparameter, defaults for the rest.
            edit: likewise.
            min_effect: gain that the edit must exceed.
            max_runs: most runs of each side.
        """
        asked = json.dumps([study, baseline, edit, min_effect, max_runs])
        if asked not in self._judging:
            sides = [_values(side) for side in (baseline, edit)]
            file = os.path.join(self._place(study), STUDY_FILE)
            self._book(2 * max_runs, f"max_runs: {2 * max_runs} runs of both sides")
            hours = (self.deadline - time.time()) / 3600
            terms = {"min-effect": min_effect, "max-runs": max_runs, "max-hours": hours}
            limits = [f"--{name}={value}" for name, value in terms.items()]
            arguments = ("judge", "--json", f"--study={file}", *limits, "--", *sides)
            self._judging[asked] = asyncio.create_task(self._command(*arguments))
        await asyncio.wait([self._judging[asked]], timeout=_PATIENCE)
        if not self._judging[asked].done():
            return {"verdict": None}
        answer: dict[str, Any] = await self._judging.pop(asked)
        self.runs_left += 2 * max_runs - answer["trained_now"]
        return answer

    def _book(self, runs: float, what: str) -> None:
        """Take runs from those that are left."""
        if time.time() >= self.deadline:
            raise _refusal("the hours of this server are up (--max-hours)")
        if runs > self.runs_left:
            raise _refusal(f"{what}, {self.runs_left:g} are left (--max-runs)")
        self.runs_left -= runs

    def _place(self, name: str) -> str:
        """Return the path of a study, which lies in the folder."""
        path = Path(os.path.realpath(self._folder / name))
        if not path.is_relative_to(self._folder) or path == self._folder:
            raise _refusal(f"{name}: lies outside {self._folder}")
        return str(path)

    def _begun(self, *words: str, **streams: Any) -> Awaitable[asyncio.subprocess.Process]:
        nothing = asyncio.subprocess.DEVNULL
        return asyncio.create_subprocess_exec(*words, stdin=nothing, cwd=self._folder, **streams)

    async def _command(self, *arguments: str) -> Any:
        """Run a command of ours and return its JSON."""
        pipe = asyncio.subprocess.PIPE
        process = await self._begun(*_AUTORL, *arguments, stdout=pipe, stderr=pipe)
        output, errors = await process.communicate()
        if process.returncode and not output.strip():  # 1 and 2 are verdicts of `judge`
            lines = errors.decode(errors="replace").strip().splitlines() or ["autorl: ended"]
            raise _refusal(lines[-1].removeprefix("autorl: "))
        return json.loads(output)


def _values(side: dict[str, Any]) -> str:
    """Write hyperparameters as `judge` takes them."""
    return ",".join(f"{name}={json.dumps(value)}" for name, value in side.items()) or "default"


def _refusal(message: str) -> Exception:
    """Make the error that a client is shown as one line."""
    from mcp.server.mcpserver.exceptions import ToolError

    made: Exception = ToolError(message)
    return made
