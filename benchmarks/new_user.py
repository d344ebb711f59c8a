"""Walk the way of a new user: package, fresh environment, own task elsewhere, tune, look, train on.

    python benchmarks/new_user.py                      # needs the package index; minutes
    python benchmarks/new_user.py --zoo                # trains on with RL Baselines3 Zoo too
    python benchmarks/new_user.py --python VENV/bin/python   # an environment with the package in it

Prints a line for each step, and ends with 1 at the first that fails. Then it prints what each short
study and each mistake of `benchmarks/mistakes.py` was answered with, and ends with 1 where a study
was refused or a mistake was not answered by one line that names it. No step after the build needs
this repository: they run in a folder of their own, and the package must come from the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

from mistakes import BASE, COMMANDS, DRY_RUNS, FILES, STATEMENTS, Mistake

# The zoo asks for older versions of what it downloads with, and for tables that it prints alone:
# pip finds no versions that agree, and training needs none of them.
ZOO = ("rl_zoo3", "huggingface_sb3", "sb3_contrib")
ZOO_NEEDS = ("huggingface_hub", "wasabi", "seaborn")
REPOSITORY = Path(__file__).parents[1]
ENVIRONMENT = '''
"""Walk to the end of a corridor; each step costs 1."""

import gymnasium as gym
import numpy as np


class Lane(gym.Env):
    def __init__(self, length=8):
        self.length = length
        self.observation_space = gym.spaces.Box(0.0, 1.0, shape=(1,), dtype=np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(3))
        return self._seen(), {}

    def step(self, action):
        self.cell = int(np.clip(self.cell + (1 if action == 1 else -1), 0, self.length))
        return self._seen(), -1.0, self.cell == self.length, False, {}

    def _seen(self):
        return np.array([self.cell / self.length], dtype=np.float32)


gym.register("Lane-v0", entry_point=Lane, max_episode_steps=60)
'''
STUDY = """
trainer: sb3/ppo
environment: {id: "lane:Lane-v0", n_envs: 4}
space:
  learning_rate: log(1e-4, 1e-1)
  n_steps: [16, 32, 64]
  gamma: [0.9, 0.999]
  batch_size: 32
fidelity: {steps: 1_000, evaluations: 2, episodes: 4}
budget: {runs: 8}
seeds: {tuning: 2, test: 3}
"""
TRAIN_ON = """
import gymnasium as gym, lane
from stable_baselines3 import PPO

model = PPO.load("lane.zip", env=gym.make("Lane-v0"))
before = model.num_timesteps
model.learn(512, reset_num_timesteps=False)
assert model.num_timesteps > before, (before, model.num_timesteps)
print("steps", before, "to", model.num_timesteps, "learning rate", model.learning_rate)
"""
NEEDED = (
    "autorl/py.typed",
    "autorl/report/pages/page.html",
    "autorl/report/pages/page.js",
    "autorl/report/pages/style.css",
    "autorl/_shipped/search_spaces/sb3/ppo.yaml",
    "autorl/_shipped/priors/autorl-ppo.json",
    "autorl/_shipped/landscapes/",
    "hydra_plugins/autorl_sweeper/",  # Hydra finds its plug-ins in this namespace alone
)
ROOMS = ("autorl", "hydra_plugins")


class Walk:
    """Runs commands in a folder, and prints how each ended.

    Args:
        folder: where they run; nothing of the repository is on their path.
        python: interpreter of the environment.
    """

    def __init__(self, folder: Path, python: Path) -> None:
        self.folder = folder
        self.python = python
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("PYTHON")
        }
        self.environment["XDG_CONFIG_HOME"] = str(folder / "config")

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Run a command, however it ends."""
        return subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def step(self, name: str, *command: object, must: bool = True) -> str | None:
        """Run a command; return its output, None where it failed and need not succeed."""
        begun = time.perf_counter()
        done = self.run(*command)
        good = done.returncode == 0
        said = (done.stdout if good else done.stderr).strip().splitlines()
        last = said[-1] if said else ""
        word = "ok" if good else f"exit code {done.returncode}"
        print(f"{name:24} {word:12} {time.perf_counter() - begun:6.1f} s  {last[:90]}", flush=True)
        if good:
            return done.stdout
        if must:
            print(done.stdout[-2000:], done.stderr[-4000:], sep="\n", file=sys.stderr)
            sys.exit(1)
        return None

    def autorl(self, *arguments: object) -> str:
        """Run the command of the package, which must succeed."""
        name = " ".join(str(argument) for argument in arguments[:2])
        output = self.step(f"autorl {name}", self.python.parent / "autorl", *arguments)
        return output or ""


def main() -> None:
    """Walk, and say at the end what came of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, help="of an environment that has the package")
    parser.add_argument("--packages", type=Path, help="folder of a wheel and an sdist, as built")
    parser.add_argument("--zoo", action="store_true", help="install RL Baselines3 Zoo too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="new-user-") as scratch:
        folder = Path(scratch) / "work"
        folder.mkdir()
        packages = arguments.packages or Path(scratch) / "packages"
        if arguments.packages is None:
            built(Path(scratch), packages)
        check_contents(packages)
        python = arguments.python or installed(Path(scratch), packages, arguments.zoo)
        user = Walk(folder, python.absolute())
        walk(user)
        wrong = sum(not good for good in [*short_studies(user), *mistakes(user)])
    sys.exit(f"{wrong} answers are not what they should be" if wrong else 0)


def built(scratch: Path, packages: Path) -> None:
    """Build wheel and sdist by an environment that has the builder alone."""
    venv = scratch / "builder"
    here = Walk(REPOSITORY, venv / "bin" / "python")
    here.environment["XDG_CONFIG_HOME"] = str(scratch)
    here.step("environment to build in", sys.executable, "-m", "venv", venv)
    here.step("install hatchling", here.python, "-m", "pip", "install", "-q", "hatchling")
    here.step("build wheel and sdist", here.python, "-m", "hatchling", "build", "-d", packages)


def check_contents(packages: Path) -> None:
    """Fail where a package lacks what it needs, or has what is not the user's."""
    (wheel,) = packages.glob("*.whl")
    (sdist,) = packages.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    missing = [part for part in NEEDED if not any(name.startswith(part) for name in names)]
    rooms = {name.partition("/")[0] for name in names}
    strange = sorted(room for room in rooms if room not in ROOMS and "dist-info" not in room)
    if missing or strange:
        sys.exit(f"{wheel.name}: lacks {missing}, should not have {strange}")
    with tarfile.open(sdist) as archive:
        inside = [name.partition("/")[2] for name in archive.getnames()]
    wrong = [name for name in inside if name.startswith(("tests/", "benchmarks/results/", ".ci"))]
    lacking = [name for name in ("LICENSE", "README.md", "constraints.txt") if name not in inside]
    if wrong or lacking:
        sys.exit(f"{sdist.name}: lacks {lacking}, should not have {wrong[:3]}")
    sizes = ", ".join(f"{path.stat().st_size / 1e6:.1f} MB" for path in (wheel, sdist))
    print(f"{'contents of the packages':24} ok  {len(names)} and {len(inside)} files, {sizes}")


def installed(scratch: Path, packages: Path, zoo: bool) -> Path:
    """Make a fresh environment with the wheel in it, and return its interpreter."""
    venv = scratch / "user"
    here = Walk(scratch, venv / "bin" / "python")
    (wheel,) = packages.glob("*.whl")
    constraints = REPOSITORY / "constraints.txt"
    here.step("fresh environment", sys.executable, "-m", "venv", venv)
    here.step(
        "install the wheel",
        *(
            here.python,
            "-m",
            "pip",
            "install",
            "-q",
            "-c",
            constraints,
            f"{wheel}[sb3,box2d,mujoco]",
        ),
    )
    if zoo:
        pip = (here.python, "-m", "pip", "install", "-q")
        here.step("install the zoo", *pip, "--no-deps", *ZOO)
        here.step("install what it imports", *pip, "-c", constraints, *ZOO_NEEDS)
    return here.python


def walk(user: Walk) -> None:
    """Tune, look, ask, export, and train on."""
    (user.folder / "lane.py").write_text(ENVIRONMENT)
    (user.folder / "lane.yaml").write_text(STUDY)
    (user.folder / "train_on.py").write_text(TRAIN_ON)
    place = "import autorl, pathlib; print(pathlib.Path(autorl.__file__).parent)"
    where = (user.step("where the package is", user.python, "-c", place) or "").strip()
    if Path(where).is_relative_to(REPOSITORY):
        sys.exit(f"the package is that of the repository: {where}")
    user.autorl("tune", "lane.yaml", "--dry-run")
    user.autorl("tune", "lane.yaml", "--out", "study")
    user.autorl("watch", "study", "--once")
    user.autorl("watch", "study")
    user.autorl("doctor", "study")
    (user.folder / "zoo.yml").write_text(user.autorl("best", "study", "--format", "zoo"))
    user.autorl("report", "study")
    if "data-spec=" not in (user.folder / "study" / "report.html").read_text():
        sys.exit("the report has no chart")
    count = "SELECT count(*) AS n FROM runs"
    user.autorl("landscape", "query", "study", count)
    user.autorl("landscape", "plot", "study", "curves", "--out", "curves.html")
    user.autorl("export", "study", "--model", "lane.zip")
    user.step("train on with SB3", user.python, "train_on.py")
    train_on_with_zoo(user)


def short_studies(user: Walk) -> Iterator[bool]:
    """Make the dry runs of short studies, and say of each whether it was accepted."""
    for arguments in DRY_RUNS:
        command = ("tune", *arguments.split(), "--dry-run")
        done = user.run(user.python.parent / "autorl", *command)
        good = done.returncode == 0
        print(f"{'accepted' if good else 'REFUSED':10} {arguments}  {done.stderr.strip()[:200]}")
        yield good


def mistakes(user: Walk) -> Iterator[bool]:
    """Make the mistakes, and say of each whether one line names it."""
    command = user.python.parent / "autorl"
    for place, mistake in enumerate((*FILES, *COMMANDS)):
        arguments = mistake.given
        if not isinstance(arguments, list):
            path = user.folder / f"wrong-{place}.yaml"
            # JSON is YAML too, and needs no package.
            path.write_text(
                arguments if isinstance(arguments, str) else json.dumps(BASE | arguments)
            )
            arguments = ["tune", path.name, "--dry-run"]
        yield answered(mistake, user.run(command, *arguments), lines=1)
    for mistake in STATEMENTS:
        done = user.run(user.python, "-W", "ignore", "-c", f"import autorl; {mistake.given}")
        yield answered(mistake, done, lines=None)


def answered(
    mistake: Mistake, done: subprocess.CompletedProcess[str], *, lines: int | None
) -> bool:
    """Print an answer, and say whether it is of so many lines and its last names the mistake."""
    said = done.stderr.strip().splitlines() or [""]
    lacking = [part for part in mistake.named if part not in said[-1]]
    problems = [f"does not name {', '.join(lacking)}"] * bool(lacking)
    if done.returncode not in (1, 2):
        problems.append(f"exit code {done.returncode}")
    if lines is not None and len(said) != lines:
        problems.append(f"{len(said)} lines")
    print(f"{'; '.join(problems).upper() or 'good':10} {mistake.given}\n           {said[-1]}")
    return not problems


def train_on_with_zoo(user: Walk) -> None:
    """Train the exported model on with RL Baselines3 Zoo, where it is in the environment."""
    there = user.step("rl_zoo3", user.python, "-c", "import rl_zoo3.train", must=False)
    if there is None:
        print("RL Baselines3 Zoo is not installed there: Stable-Baselines3 alone trained on")
        return
    user.step(
        "train on with rl_zoo3",
        *(user.python, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", "Lane-v0"),
        *("--gym-packages", "lane", "-conf", "zoo.yml", "-i", "lane.zip"),
        *("-n", 512, "-f", "logs", "--eval-episodes", 2),
    )


if __name__ == "__main__":
    main()
