"""The command benchmark: an optimizer against random search on recorded landscapes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from autorl.cli.compare import Pages, run_comparison
from autorl.cli.landscape_options import landscapes_of
from autorl.cli.options import AsJson, Quiet, Settings, Workers
from autorl.cli.progress import Way
from autorl.cli.run import STUDIES, overrides_of
from autorl.core.types import InputError
from autorl.landscapes import Landscape
from autorl.optimizers.registry import PLAIN
from autorl.space import parse_document
from autorl.study.spec.comparison import read_comparison, safe_name
from autorl.trainers.registry import REPLAY

SHIPPED = ["autorl/ppo", "autorl/dqn", "autorl/sac"]


def benchmark(
    optimizer: Annotated[str, typer.Argument(metavar="OPTIMIZER")],
    landscapes: Annotated[
        list[str] | None, typer.Option("--landscape", metavar="LANDSCAPE")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, max=1_000)] = 5,
    runs: Annotated[float, typer.Option(min=1, max=100_000)] = 96,
    out: Path | None = None,
    workers: Workers = None,
    settings: Settings = None,
    html: Path | None = None,
    replace: bool = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare an optimizer with random search on recorded landscapes.

    Recorded runs answer for training: three tuning seeds a configuration, up to ten test seeds for
    the incumbent. Scores are on the scale of each landscape: 0 is its worst configuration on test
    seeds, 1 its best. The nearest recorded configuration answers for any, which favours searches
    that spread out: --set trainer.name=surrogate has a model answer, which takes longer. The same
    command goes on where it was interrupted.

    Options:
        optimizer: A name, module:Class, or '{name: tpe, ...options}'.
        landscapes: An id or a folder, or a folder of many; repeat it; default those of PPO, DQN and
            SAC that come with the package.
        repeats: Searches for each optimizer and landscape.
        runs: Budget of a search in full runs, three of which make a configuration.
        out: Folder of the studies; default studies/<optimizer>-benchmark.
        html: Also write a report, one HTML file.
    """
    stated = parse_document(optimizer, "OPTIMIZER").data
    if stated == PLAIN:
        raise InputError("is what the others are compared with", key="OPTIMIZER")
    recorded = landscapes_of(landscapes or SHIPPED)
    study = {
        "name": "benchmark",
        "trainer": {"name": REPLAY},
        "optimizer": PLAIN,
        "budget": {"runs": runs},
        "test": {"top": 0, "baseline": False},
        "keep": {"checkpoints": "none"},
        "compare": {
            "methods": {PLAIN: PLAIN, optimizer: {"optimizer": stated}},
            "tasks": {data.manifest.id: _task(data) for data in recorded},
            "repeats": repeats,
            "scale": {data.manifest.id: _scale(data) for data in recorded},
        },
    }
    section, specs = read_comparison(study, overrides_of(settings), {})
    folder = out or STUDIES / f"{safe_name(optimizer)}-benchmark"
    way = Way(workers, as_json, quiet)
    run_comparison(specs, folder, way, section.scale, Pages(html, None, replace))


def _task(data: Landscape) -> dict[str, Any]:
    """Say what a study on a landscape has beside its optimizer."""
    manifest = data.manifest
    return {
        "trainer.kwargs": {"landscape": str(data.path.resolve())},
        "space": str((data.path / "space.yaml").resolve()),
        "fidelity": {"steps": manifest.steps[-1], "evaluations": len(manifest.steps)},
        "objective": {
            "metric": manifest.objective.metric,
            "direction": manifest.objective.direction,
        },
        "seeds": {
            "tuning": list(manifest.seeds["tuning"][:3]),
            "test": list(manifest.seeds["test"][:10]),
        },
    }


def _scale(data: Landscape) -> tuple[float, float]:
    """Return test scores of the worst and the best configuration."""
    grid = data.grid
    means = grid.at(len(grid.steps) - 1).values[:, grid.seed_positions("test")].mean(axis=1)
    if np.isnan(means).any():
        message = f"{data.manifest.id}: not every configuration has a run with every test seed"
        raise InputError(message, key="--landscape")
    ends = float(means.min()), float(means.max())
    return ends if data.manifest.objective.direction == "maximize" else ends[::-1]
