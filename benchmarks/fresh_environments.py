"""Try the wheel and each extra in fresh environments, with their lowest or newest versions.

    python benchmarks/fresh_environments.py --all                         # newest, this Python
    python benchmarks/fresh_environments.py --versions lowest core mlflow wandb
    python benchmarks/fresh_environments.py --python python3.13 sb3 --with torch==2.13.0
    python benchmarks/fresh_environments.py --sdist core                  # from the sdist
    python benchmarks/fresh_environments.py --sizes sb3 all --with torch==2.13.0

Needs the package index. An environment for each extra: its modules are imported, the commands of a
new user and a few tests run against the installed wheel; the tests' own packages are the newest.
Lowest is what `pyproject.toml` states, or above it the lowest with a wheel for that Python, as a
resolver (uv, from the index) takes it. The newest torch brings gigabytes: name one by `--with`.
`--sizes` tries nothing: it sums the files of each distribution that an extra adds to the core, as
uv lays them, without bytecode. Prints a table, and ends with 1 where something failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from new_user import REPOSITORY, built, check_contents

SUITES = "tests/trainers/test_sb3_suites.py"
STUDY = """
trainer: population/ppo
environment: CartPole-v1
space: population/ppo-small
fidelity: {steps: 2_000, evaluations: 2, episodes: 4}
budget: {runs: 8}
seeds: {tuning: 2, test: 3}
"""
COMMANDS = (
    ("--help",),
    ("tune", "--help"),  # help of arguments is where typer and click of different years part
    ("tune", "examples/demo.yaml", "--dry-run"),
    ("tune", "small.yaml", "--out", "small"),
    ("report", "small"),
    ("landscape", "query", "small", "SELECT count(*) AS n FROM runs"),
    ("doctor", "small"),
    ("doctor",),
)
SOURCE_ALONE = ("antlr4-python3-runtime", "pynisher", "smac")  # pure Python; no wheels
TEST_PACKAGES = ("pytest", "pytest-timeout", "hypothesis")


@dataclass(frozen=True)
class Trial:
    """What is tried of an extra.

    Attributes:
        modules: imported first.
        tests: arguments of pytest; nothing but a failed import is tried without them.
        beside: extras that these tests need too.
        packages: from outside the extras, likewise.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


def suite(module: str, pattern: str) -> Trial:
    """What is tried of the environments of a package: building them, and a short training."""
    return Trial((module,), (SUITES, "-k", pattern), beside=("sb3",))


TRIALS = {
    "core": Trial(
        ("autorl", "hydra_plugins"),
        (
            *("tests/space", "tests/statistics", "tests/population/test_networks.py"),
            *("tests/store", "tests/optimizers/test_tpe.py", "tests/optimizers/test_designs.py"),
            "tests/study/test_driver.py",
            *("tests/cli/test_tune.py", "tests/test_tuner.py", "-m", "not slow"),
        ),
    ),
    "sb3": Trial(
        ("torch", "stable_baselines3"),
        ("tests/trainers/test_sb3.py", "-k", "2n_to_the_last or read_back or sb3_loads"),
    ),
    "contrib": Trial(
        ("sb3_contrib",), ("tests/trainers/test_sb3_contrib.py", "-k", "built or exported")
    ),
    "atari": suite("ale_py", "atari or frames or ALE"),
    "box2d": suite("Box2D", "box2d or Lunar"),
    "mujoco": suite("mujoco", "mujoco or Hopper"),
    "minigrid": suite("minigrid", "minigrid or MiniGrid"),
    "envpool": Trial(("envpool",), ("tests/population/test_vectors.py", "-m", "not slow")),
    "morl": Trial(("mo_gymnasium",), ("tests/trainers/test_vector_rewards.py",), beside=("sb3",)),
    "pettingzoo": Trial(
        ("pettingzoo",), ("tests/trainers/test_shared_policy.py",), beside=("sb3",)
    ),
    "offline": Trial(("minari", "h5py"), ("tests/trainers/test_offline.py",)),
    "bo": Trial(("cmaes",), ("tests/optimizers/test_cmaes.py",)),
    "smac": Trial(("smac",), ("tests/optimizers/test_smac.py", "-m", "not slow")),
    "ray": Trial(
        ("ray.tune",), ("tests/executors/test_ray.py", "tests/integrations/test_ray_tune.py")
    ),
    "rlhf": Trial(
        ("trl", "transformers", "datasets", "accelerate", "peft"),
        ("tests/trainers/test_trl_checks.py", "tests/trainers/test_trl_spaces.py"),
    ),
    "sentiment": Trial(("vaderSentiment",), ("tests/rlhf/test_sentiment.py",), beside=("rlhf",)),
    "smollm": Trial(("gguf",), ("tests/rlhf/test_smollm_example.py",), beside=("rlhf",)),
    "integrations": Trial(("tensorboard",), ("tests/integrations/test_tensorboard_tracker.py",)),
    "mlflow": Trial(
        ("mlflow",), ("tests/integrations/test_mlflow_tracker.py",), packages=("flask",)
    ),
    "wandb": Trial(("wandb",), ("tests/integrations/test_wandb_tracker.py",)),
    "slurm": Trial(("submitit",), ("tests/executors/test_slurm.py",)),
    "mcp": Trial(("mcp",), ("tests/cli/test_mcp.py",)),
    "storage": Trial(("fsspec",), ("tests/store", "-k", "remote or lease or offsite")),
    "docs": Trial(("sphinx", "myst_parser", "furo"), ("tests/docs/test_documentation_site.py",)),
    "hydra": Trial(
        ("hydra", "omegaconf"),
        ("tests/integrations/test_hydra_space.py", "tests/integrations/test_hydra_sweeper.py"),
    ),
    "dev": Trial(("pytest", "xdist", "hypothesis", "mypy", "hatchling", "setuptools")),
}


@dataclass(frozen=True)
class Choice:
    """How environments are made.

    Attributes:
        python: interpreter, a path or a name on the PATH.
        lowest: the lowest versions instead of the newest.
        limits: requirements that hold besides, `torch==2.13.0`.
        without: names of packages that are left out, `nvidia-cublas`.
        sdist: the package is built and installed from the sdist instead of the wheel.
    """

    python: str
    lowest: bool
    limits: tuple[str, ...]
    without: tuple[str, ...]
    sdist: bool = False


class StepError(Exception):
    """A step that failed, with the last line it printed."""


class Environments:
    """Fresh environments with the wheel, and copies of the tests to try them with.

    Args:
        scratch: folder for everything; removed by the caller.
        choice: how they are made.
    """

    def __init__(self, scratch: Path, packages: Path, choice: Choice) -> None:
        self.scratch = scratch
        self.choice = choice
        (wheel,) = packages.glob("*.whl")
        (sdist,) = packages.glob("*.tar.gz")
        self.package = sdist if choice.sdist else wheel
        self.required = required(wheel)
        self.variables = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        self.variables["XDG_CONFIG_HOME"] = str(scratch / "config")
        self.uv = scratch / "resolver" / "bin" / "uv"
        if not self.uv.exists():
            self._run(sys.executable, "-m", "venv", scratch / "resolver")
            pip = scratch / "resolver" / "bin" / "pip"
            self._run(pip, "install", "-q", "uv")
        self.sources = self._sources()

    def _run(self, *command: object, folder: Path | None = None) -> str:
        """Run a command, and return what it printed.

        Raises:
            StepError: its exit code is not 0.
        """
        done = subprocess.run(
            [str(part) for part in command],
            cwd=folder or self.scratch,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            print(done.stdout[-3000:], done.stderr[-3000:], sep="\n", file=sys.stderr)
            said = (done.stderr.strip() or done.stdout.strip()).splitlines() or [""]
            raise StepError(f"{Path(str(command[0])).name} {command[1]}: {said[-1][:120]}")
        return done.stdout

    def _sources(self) -> Path:
        """Copy the files that tests read, without the package: the wheel alone has that."""
        folder = self.scratch / "sources"
        listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.check_output(listed, cwd=REPOSITORY, text=True).splitlines()
        for name in names:
            if name.startswith(("autorl/", "hydra_plugins/")) or not (REPOSITORY / name).is_file():
                continue
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, folder / name)
        (folder / "small.yaml").write_text(STUDY)
        return folder

    def make(self, extra: str) -> Path:
        """Make the environment of an extra with what its tests need, and return its folder."""
        trial = TRIALS[extra]
        venv = self.bare(extra, trial.beside)
        self._run(*self._install(venv), *TEST_PACKAGES, *trial.packages)
        return venv

    def _install(self, venv: Path) -> tuple[object, ...]:
        """Begin the command that installs into an environment."""
        overrides = self.scratch / "left-out.txt"
        overrides.write_text(
            "".join(f"{name}; python_version < '0'\n" for name in self.choice.without)
        )
        python = venv / "bin" / "python"
        return (self.uv, "pip", "install", "-q", "--python", python, "--override", overrides)

    def bare(self, extra: str, beside: Iterable[str] = ()) -> Path:
        """Make the environment of an extra and those beside it, and return its folder."""
        venv = self.scratch / "environments" / extra
        shutil.rmtree(venv, ignore_errors=True)
        self._run(self.uv, "venv", "-q", "--python", self.choice.python, venv)
        asked = set(self.required["core"]).union(
            *(self.required[name] for name in (extra, *beside))
        )
        self._run(
            *self._install(venv),
            *("--resolution", "lowest-direct" if self.choice.lowest else "highest"),
            *("--only-binary", ":all:"),  # the lowest of a range may be older than this Python
            *(part for name in SOURCE_ALONE for part in ("--no-binary", name)),
            *sorted(asked),
            *self.choice.limits,
        )
        self._run(*self._install(venv), "--no-deps", self.package)
        return venv

    def sizes(self, extra: str) -> dict[str, int]:
        """Sum the bytes of each distribution in the environment of an extra alone."""
        venv = self.bare(extra)
        folders = [str(folder) for folder in venv.glob("lib/python*/site-packages")]
        held = {
            found.name: sum(
                Path(str(found.locate_file(file))).stat().st_size for file in found.files or ()
            )
            for found in distributions(path=folders)
        }
        shutil.rmtree(venv)
        return held

    def versions(self, extra: str, venv: Path) -> str:
        """Name what the extra asked for, with the versions that are installed."""
        listed = self._run(self.uv, "pip", "freeze", "--python", venv / "bin" / "python")
        installed = dict(
            line.lower().split("==", 1) for line in listed.splitlines() if "==" in line
        )
        names = [re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in self.required[extra]]
        return ", ".join(f"{name} {installed.get(name, '?')}" for name in dict.fromkeys(names))

    def tried(self, extra: str, venv: Path) -> str:
        """Import, run the commands for the core, run the tests; return what pytest said last."""
        python = venv / "bin" / "python"
        trial = TRIALS[extra]
        for module in trial.modules:
            self._run(python, "-c", f"import {module}")
        shutil.rmtree(self.sources / "small", ignore_errors=True)
        for arguments in COMMANDS if extra == "core" else ():
            self._run(venv / "bin" / "autorl", *arguments, folder=self.sources)
        if not trial.tests:
            return "imported"
        # Not `python -m pytest`, which would put the folder it runs in on the path.
        pytest = (venv / "bin" / "pytest", "-p", "no:cacheprovider", *trial.tests)
        said = self._run(*pytest, folder=self.sources).strip().splitlines()[-1]
        if " passed" not in said:  # skipped where a module is missing, and exit code 0
            raise StepError(f"pytest: no test passed: {said}")
        return said


def required(wheel: Path) -> dict[str, list[str]]:
    """Read what a wheel asks for, by extra; `core` is what it always does."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    wanted: dict[str, list[str]] = {"core": []}
    for line in lines:
        if line.startswith("Provides-Extra: "):
            wanted.setdefault(line.partition(": ")[2], [])
        if line.startswith("Requires-Dist: "):
            requirement, _, marker = line.partition(": ")[2].partition(";")
            extra = re.search(r"extra == '([\w-]+)'", marker)
            wanted.setdefault(extra[1] if extra else "core", []).append(requirement.strip())
    return wanted


def rows(environments: Environments, extras: Iterable[str]) -> bool:
    """Try extras, print a row for each, and return whether all went well."""
    good = True
    for extra in extras:
        begun = time.perf_counter()
        versions = ""
        try:
            venv = environments.make(extra)
            versions = environments.versions(extra, venv)
            outcome = environments.tried(extra, venv)
        except StepError as error:
            good = False
            outcome = f"FAILED: {error}"
        shutil.rmtree(environments.scratch / "environments" / extra, ignore_errors=True)
        seconds = time.perf_counter() - begun
        print(f"| {extra} | {versions} | {outcome} | {seconds:.0f} s |", flush=True)
    return good


def print_sizes(environments: Environments, extras: Iterable[str]) -> bool:
    """Print what each extra adds to the core, and return whether all could be installed."""
    good = True
    core = environments.sizes("core")
    for extra in extras:
        try:
            held = core if extra == "core" else environments.sizes(extra)
        except StepError as error:
            good = False
            print(f"| {extra} | FAILED: {error} | |", flush=True)
            continue
        added = {name: held[name] for name in held if extra == "core" or name not in core}
        first = sorted(added, key=lambda name: (-added[name], name))[:6]
        largest = ", ".join(f"{name} {added[name] / 1e6:.1f}" for name in first)
        print(f"| {extra} | {sum(added.values()) / 1e6:.1f} | {largest} |", flush=True)
    return good


def main() -> None:
    """Build the packages, or take built ones, and try the extras asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("extras", nargs="*", help=f"of: {', '.join(TRIALS)}")
    parser.add_argument("--all", action="store_true", help="every extra")
    parser.add_argument("--python", default=sys.executable, help="interpreter (default: this)")
    parser.add_argument("--versions", choices=("lowest", "newest"), default="newest")
    parser.add_argument("--with", dest="limits", action="append", default=[], metavar="REQUIREMENT")
    parser.add_argument("--without", action="append", default=[], metavar="PACKAGE")
    parser.add_argument("--sdist", action="store_true", help="install the sdist, not the wheel")
    parser.add_argument("--sizes", action="store_true", help="print sizes alone; also of `all`")
    parser.add_argument("--packages", type=Path, help="folder of a wheel and an sdist, as built")
    parser.add_argument("--scratch", type=Path, help="folder to work in; kept")
    arguments = parser.parse_args()
    known = [*TRIALS, "all"] if arguments.sizes else list(TRIALS)
    extras = known if arguments.all else arguments.extras
    strange = sorted(set(extras) - set(known))
    if strange or not extras:
        parser.error(f"extras are {', '.join(known)}; asked for: {', '.join(strange) or 'none'}")
    with tempfile.TemporaryDirectory(prefix="fresh-environments-") as temporary:
        scratch = (arguments.scratch or Path(temporary)).absolute()
        scratch.mkdir(parents=True, exist_ok=True)
        packages = arguments.packages or scratch / "packages"
        if arguments.packages is None:
            built(scratch, packages)
        check_contents(packages)
        choice = Choice(
            arguments.python,
            arguments.versions == "lowest",
            tuple(arguments.limits),
            tuple(arguments.without),
            arguments.sdist,
        )
        environments = Environments(scratch, packages, choice)
        if arguments.sizes:
            print("| extra | adds MB | largest |\n| --- | --- | --- |", flush=True)
            sys.exit(not print_sizes(environments, extras))
        print(f"| extra | {arguments.versions} on {arguments.python} | outcome | time |")
        print("| --- | --- | --- | --- |", flush=True)
        if not rows(environments, extras):
            sys.exit(1)


if __name__ == "__main__":
    main()
