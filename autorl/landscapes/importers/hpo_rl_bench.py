"""HPO-RL-Bench's JSON files as landscapes.

One file is one run of a configuration with a seed, evaluated 100 times.

`<environment>_<ALGORITHM>_[random_]lr_<log10>_gamma_<...>[_<name>_<value>...]_seed<n>[_eval].json`
with `returns_eval`, `std_returns_eval` and `timestamps_eval`. Files of schedules (`configs`,
`switch_every`) list a value for each of three phases. The i-th evaluation is taken at nominal step
10,000 i: the logged steps are not counted ones.

References:
    [Shala2024] Shala et al., "HPO-RL-Bench: a zero-cost benchmark for HPO in reinforcement
        learning", AutoML 2024.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autorl.core.plain_text import counted
from autorl.core.types import InputError
from autorl.landscapes.importers.common import (
    Options,
    Run,
    Source,
    errors_naming,
    id_part,
    read_object,
    write_source,
)
from autorl.landscapes.importers.inference import numbered
from autorl.landscapes.manifest import Manifest, Objective

INTERVAL = 10_000  # nominal steps between evaluations
_NAME = re.compile(
    r"(?P<environment>.+?)_(?P<algorithm>PPO|A2C|DDPG|SAC|TD3|DQN)_"
    # A run may have a second file, `_eval_1`; exact copies are left out later.
    r"(random_)?(?P<values>lr_.+)_seed(?P<seed>\d+)(_eval(_\d+)?)?\.json\Z"
)
_NAMES = {"lr": "learning_rate", "clip": "clip_range", "layers": "n_layers", "units": "n_units"}
_EXTENDED = "n_layers"
_ABOUT = {
    "citation": (
        "Shala et al., HPO-RL-Bench: a zero-cost benchmark for HPO in reinforcement learning, "
        "AutoML 2024"
    ),
    "url": "https://github.com/releaunifreiburg/HPO-RL-Bench",
    "creator": "Universität Freiburg",
}
_NOTES = (
    "Steps are nominal: the i-th evaluation is at 10,000 i. Training went on in whole rollouts, "
    "up to 16,384 steps an evaluation, and the logged counts reset; so counted steps are not "
    "given.",
)


def recognises(path: Path) -> bool:
    """Tell whether the name of a file, or of one below, fits."""
    files = [path] if path.is_file() else path.rglob("*_seed*.json")
    return any(_NAME.match(file.name) for file in files)


def import_source(path: Path, options: Options) -> list[Manifest]:
    """Import all files below a folder.

    Each algorithm, environment and kind of space becomes one landscape.

    Raises:
        InputError: no such files, or one is not as described above.
    """
    files = [path] if path.is_file() else sorted(path.rglob("*.json"))
    groups: dict[str, list[tuple[Path, dict[str, float], Run]]] = {}
    for file in files:
        name = _NAME.match(file.name)
        if name is not None:
            with errors_naming(file):
                config, run = _read(file, name)
            groups.setdefault(_id(config, name, options.namespace), []).append((file, config, run))
    if not groups:
        message = "no files <environment>_<ALGORITHM>_[random_]lr_..._seed<n>[_eval].json are in it"
        raise InputError(message)
    if options.id is not None and len(groups) > 1:
        raise InputError(f"--id names one landscape, here are {', '.join(groups)}", key="id")
    return [
        write_source(_source(path, options.id or id, group), options)
        for id, group in sorted(groups.items())
    ]


def _id(config: Mapping[str, float], name: re.Match[str], namespace: str | None) -> str:
    kind = ""
    # Schedules and networks of other sizes are other spaces, so they cannot share a landscape.
    if "learning_rate_1" in config:
        kind = "-dynamic"
    elif _EXTENDED in config:
        kind = "-extended"
    algorithm = name["algorithm"].lower()
    environment = id_part(name["environment"])
    return f"{namespace or 'hpo-rl-bench'}{kind}/{algorithm}/{environment}"


def _source(path: Path, id: str, group: Sequence[tuple[Path, dict[str, float], Run]]) -> Source:
    """Describe a group of files as a source.

    Curves shorter than the others' were cut, and nobody says why: lost.
    """
    # The files have no status: Enduro's shortest curve has 37 of 100 evaluations.
    longest = max(len(run.steps) for _, _, run in group)
    configs, numbers = numbered(config for _, config, _ in group)
    runs = [
        replace(run, config_id=number, status="done" if len(run.steps) == longest else "lost")
        for (_, _, run), number in zip(group, numbers, strict=True)
    ]
    cut = sum(run.status == "lost" for run in runs)
    note = (
        f"{counted(cut, 'curve', 'stop')} before the others without a reason given, which counts "
        "as lost."
    )
    notes = (*_NOTES, note) if cut else _NOTES
    return Source(
        path=path,
        files=[file for file, _, _ in group],
        id=id,
        format="HPO-RL-Bench",
        configs=configs,
        runs=runs,
        objective=Objective(),
        origin="grid",
        sampler={"name": "grid"},
        notes=notes,
        about=_ABOUT,
    )


def _read(file: Path, name: re.Match[str]) -> tuple[dict[str, float], Run]:
    values = read_object(file)
    curves = {}
    for metric, key in (("eval_return", "returns_eval"), ("eval_return_std", "std_returns_eval")):
        curves[metric] = _listed(values, key)
    if len(curves["eval_return_std"]) != len(curves["eval_return"]):
        message = (
            f"{len(curves['eval_return_std'])} values for {len(curves['eval_return'])} evaluations"
        )
        raise InputError(message, key="std_returns_eval")
    config = _schedule(values) if "configs" in values else _static(name["values"])
    # Seconds since the start of the run, so the last are all it took.
    times = values.get("timestamps_eval") or [None]
    steps = [INTERVAL * (place + 1) for place in range(len(curves["eval_return"]))]
    # Numbered by `_source`, where equal configurations of several files are known.
    return config, Run(0, int(name["seed"]), steps, curves, wall_seconds=times[-1], counted=False)


def _static(text: str) -> dict[str, float]:
    """Parse `lr_-4_gamma_0.95_clip_0.2` into hyperparameters."""
    words = text.split("_")
    config: dict[str, float] = {}
    try:
        for key, value in zip(words[::2], words[1::2], strict=True):
            # The learning rate is given by its exponent.
            config[_NAMES.get(key, key)] = 10.0 ** int(value) if key == "lr" else float(value)
    except ValueError:
        raise InputError(f"expected pairs <name>_<value>, got {text!r}") from None
    return {
        key: int(value) if key in ("n_layers", "n_units") else value
        for key, value in config.items()
    }


def _schedule(values: Mapping[str, object]) -> dict[str, float]:
    """Read the values of each phase of a schedule."""
    config: dict[str, float] = {}
    for key in ("learning_rate", "gamma"):
        for phase, value in enumerate(_listed(values, key), 1):
            config[f"{key}_{phase}"] = 10.0**value if key == "learning_rate" else value
    return config


def _listed(values: Mapping[str, Any], key: str) -> list[float]:
    listed = values.get(key)
    if not isinstance(listed, list) or not all(isinstance(v, int | float | None) for v in listed):
        raise InputError("expected a list of numbers", key=key)
    # JSON has no NaN, null stands for it.
    return [float("nan") if value is None else float(value) for value in listed]
