"""The command doctor: whether an installation, or a study, is whole."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from autorl.cli.options import AsJson, print_answer
from autorl.executors.children import fork_server, start

_SECONDS = 60.0
_SYSTEM = (platform.system(), platform.machine())


class Check(NamedTuple):
    """One line of the report.

    `missing` is an extra nobody asked for, `broken` has to be repaired.
    """

    name: str
    verdict: Literal["ok", "missing", "broken"]
    detail: str


def doctor(
    names: Annotated[list[str] | None, typer.Argument(metavar="[DIR|ALGORITHM]...")] = None,
    folder: Annotated[Path, typer.Option("--out")] = Path(),
    warm: bool = False,
    as_json: AsJson = False,
) -> None:
    """Check this installation, or that a study is whole.

    The installation: versions, extras, cores, GPUs, write permission, child processes. A study: the
    log with its chain of hashes, the study file, the tables against the events, the checkpoints
    against the log, and files that no event names; says what can be saved, works while the study
    runs, writes nothing. Exit code 1 if something is broken.

    With --warm nothing is checked: the population engine is compiled, a line for each program.
    Compiled programs are kept in $AUTORL_CACHE, else in ~/.cache/autorl.

    Options:
        names: Studies; with --warm ppo, dqn, ... as in population/ppo, all by default.
        folder: Folder studies will be kept in.
        warm: Only compile the population engine, for all who train after that.
    """
    if warm:
        # Like a command, imported when it runs: `doctor` without --warm needs no compiler. The
        # engine cannot even be imported without its cache, which is tried before that.
        importlib.import_module("autorl.population.kernels").check_cache()
        importlib.import_module("autorl.cli.warm").warm(names or [], as_json)
        return
    if names:
        verify = importlib.import_module("autorl.cli.safety").verify
        if not all([verify(Path(name), as_json=as_json) for name in names]):
            raise typer.Exit(1)
        return
    checks = [
        Check("python", "ok", f"{platform.python_version()} on {' '.join(_SYSTEM)}"),
        *_packages(),
        Check("cores", "ok", str(os.cpu_count())),
        _cuda(),
        _writable(folder),
        _child_processes(),
    ]
    lines = [f"{check.verdict:8} {check.name:22} {check.detail}".rstrip() for check in checks]
    print_answer("\n".join(lines), [check._asdict() for check in checks], as_json=as_json)
    if any(check.verdict == "broken" for check in checks):
        raise typer.Exit(1)


def _packages() -> list[Check]:
    """Check the core and every extra that the distribution declares."""
    try:
        declared = metadata.metadata("autorl")
    except metadata.PackageNotFoundError:
        return [Check("autorl", "broken", "is not installed: pip install -e . in the checkout")]
    # The extra `all` is made of the others: autorl[sb3,bo,...].
    extras = sorted({*(declared.get_all("Provides-Extra") or ())} - {"all", "dev"})
    return [Check("autorl", "ok", declared["Version"]), *map(_group, ["", *extras])]


def _required(package: str, extra: str) -> dict[str, str]:
    """Map what a package or its extra needs to installed versions.

    An absent package has the version "".
    """
    versions: dict[str, str] = {}
    for line in metadata.requires(package) or []:
        # As in `numpy>=2.0`, `smac>=2.4; extra == "smac"` or `ray[tune]>=2.40; extra == "ray"`.
        requirement, _, marker = line.partition(";")
        name, *parts = re.findall(r"[\w.-]+", re.split(r"[\s<>=!~]", requirement, maxsplit=1)[0])
        named = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        python = re.search(r"python_version\s*(<|>=)\s*['\"]3\.(\d+)", marker)
        fits = not python or (sys.version_info[1] < int(python[2])) == (python[1] == "<")
        if (named[1] if named else "") == extra and fits and "platform" not in marker:
            try:
                versions[name] = metadata.version(name)
                for part in parts:
                    versions |= _required(name, part)
            except metadata.PackageNotFoundError:
                versions[name] = ""
    return versions


def _group(extra: str) -> Check:
    required = _required("autorl", extra)
    absent = [name for name, version in required.items() if not version]
    if not absent:
        return Check(extra or "core", "ok", ", ".join(map(" ".join, required.items())))
    # Not "autorl" for the core: on PyPI that is another project, which would take its place.
    remedy = f'"autorl[{extra}]"' if extra else " ".join(absent)
    detail = f"{', '.join(absent)} not installed: pip install {remedy}"
    return Check(extra or "core", "missing" if extra else "broken", detail)


def _cuda() -> Check:
    """List the GPUs, as torch sees them.

    If torch is not installed, the driver lists them.
    """
    # A driver may be there beside a torch that was built without CUDA.
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            devices = range(torch.cuda.device_count())
            return Check("cuda", "ok", ", ".join(map(torch.cuda.get_device_name, devices)))
        return Check("cuda", "missing", "torch sees no CUDA device: training runs on the CPU")
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return Check("cuda", "missing", "no NVIDIA driver: training runs on the CPU")
    done = subprocess.run(
        [tool, "-L"], capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    names = "; ".join(done.stdout.splitlines())
    return Check("cuda", "missing" if done.returncode else "ok", names)


def _writable(folder: Path) -> Check:
    """Check that a file can be written where studies will be kept.

    Or where that folder would be made.
    """
    place = next(parent for parent in (folder.resolve() / "study").parents if parent.exists())
    try:
        # Tried: permission bits say nothing of a disk that is read-only or full.
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"autorl")
    except OSError as error:
        return Check("write permission", "broken", f"{place}: {error.strerror}")
    free = shutil.disk_usage(place).free / 2**30
    return Check("write permission", "ok", f"{place} ({free:.1f} GiB free)")


def _child_processes() -> Check:
    """Check that a child of the fork server starts, answers and ends."""
    receiver, sender = Pipe(duplex=False)
    try:
        process = start(fork_server([]), _tell_process_id, (sender,))
        # The child has its own: while ours is open, a child that died is no end of file.
        sender.close()
        try:
            # With a limit, because a child that hangs is one of the things looked for.
            if not receiver.poll(_SECONDS):
                raise RuntimeError(f"no answer in {_SECONDS:.0f} seconds")
            answer = receiver.recv()
        finally:
            process.kill()
            process.join()
            receiver.close()
    except (OSError, EOFError, RuntimeError) as error:
        return Check("child processes", "broken", f"{type(error).__name__}: {error}")
    return Check("child processes", "ok", f"forkserver works (child {answer})")


def _tell_process_id(connection: Connection) -> None:
    connection.send(os.getpid())
