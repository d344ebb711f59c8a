"""What `autorl forecast` predicts of runs that it has not seen.

    python benchmarks/forecast.py                      # writes results/forecast.md

*sizes*: `trl/dpo/letters-sizes`, fitted without the longest horizon and without the largest model.
A cell is a size at the longest horizon, or the largest size at any. *horizons*: the shipped
landscapes of one size, fitted to the first half of the steps; a cell is the end of a run.

In a cell the best value is that of the configuration with the best mean on its test seeds. `8 runs`
draws configurations and tuning seeds of a cell, with replacement, from all of them or from those
inside ranges (those by which the command narrows, or that of the learning rate, refused or not).
It keeps the one with the best score and judges it by its mean on test seeds: the loss is its
distance to the best one in parts of the range of the cell. 200 repeats.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from autorl import load_landscape
from autorl.landscapes.forecast import Group, Law, Study, forecasts, judged, left_out, read

SIZES = "trl/dpo/letters-sizes"
HORIZONS = (
    "trl/rloo/letters-goldproxy",
    "trl/grpo/letters-goldproxy",
    "trl/grpo/sort-verifiable",
    "trl/dpo/letters-pairs",
    "autorl/ppo/CartPole-v1",
    "autorl/ppo/Acrobot-v1",
    "autorl/ppo/Pendulum-v1",
    "autorl/ppo/LunarLander-v3",
    "autorl/dqn/CartPole-v1",
    "autorl/dqn/Acrobot-v1",
    "autorl/sac/Pendulum-v1",
)
REPEATS, RUNS = 200, 8
Cell = tuple[Study, Group]


def cells_of_sizes() -> list[Cell]:
    """Return the cells that were left out, each with what the law is fitted to."""
    study = read([load_landscape(SIZES)])
    kept, held = left_out(study.groups)
    return [(Study(study.items, tuple(kept)), group) for group in held]


def cells_of_horizons() -> list[Cell]:
    """Return the end of each landscape, with the first half of its steps."""
    cells = []
    for id in HORIZONS:
        study = read([load_landscape(id)])
        end = max(study.groups, key=lambda group: float(group.axes[0, 0]))
        half = end.axes[0, 0] - np.log10(2.0) + 1e-9
        kept = tuple(group for group in study.groups if group.axes[0, 0] <= half)
        cells.append((Study(study.items, kept), end))
    return cells


def loss(group: Group, among: np.ndarray, rng: np.random.Generator) -> float:
    """Draw runs among configurations, and return what the chosen one loses."""
    rows = rng.choice(among, RUNS)
    seeds = rng.integers(group.scores.shape[1], size=RUNS)
    chosen = rows[np.nanargmax(group.scores[rows, seeds])]
    spread = np.nanmax(group.judged) - np.nanmin(group.judged)
    return float((np.nanmax(group.judged) - group.judged[chosen]) / spread)


def table(title: str, cells: list[Cell]) -> list[str]:
    """Judge every hyperparameter of cells, as predicted and as narrowed by the command."""
    rows: dict[str, list[tuple[bool, float, bool]]] = {}
    laws: dict[tuple[int, str], Law] = {}
    regions: dict[str, list[tuple[Group, np.ndarray]]] = {"by the command": [], "of the rate": []}
    for study, group in cells:
        steps, size = 10.0 ** group.axes[0]
        known = study.seen[1] is not None
        found = forecasts(study, round(steps), round(size) if known else None)
        narrowed = np.ones(len(group.configs), dtype=bool)
        for name, forecast in found.items():
            law = laws.setdefault((id(study.groups[0]), name), Law.fit(study.groups, name))
            low, high, best = judged(law, group, name)
            key = name if name in ("learning_rate", "beta") else "others"
            rows.setdefault(key, []).append((low <= best <= high, high - low, not forecast.refused))
            units = group.units[name]
            inside = np.isnan(units) | ((units >= low) & (units <= high))
            if name == "learning_rate":
                regions["of the rate"].append((group, inside))
            if not forecast.refused:
                narrowed &= inside
        if not narrowed.all():
            regions["by the command"].append((group, narrowed))
    lines = [
        f"## {title}",
        "",
        "| hyperparameter | cells | range holds the best | width, median | narrowed | of these held |"
        " width, median |",
        "| --- " * 7 + "|",
    ]
    for name, values in rows.items():
        held, width, narrow = (np.array(column) for column in zip(*values, strict=True))
        kept = (
            f"{held[narrow].mean():.0%} | {np.median(width[narrow]):.2f}"
            if narrow.any()
            else "- | -"
        )
        lines.append(
            f"| {name} | {len(held)} | {held.mean():.0%} | {np.median(width):.2f} | {narrow.sum()} |"
            f" {kept} |"
        )
    lines.append("")
    for name, drawn in regions.items():
        lines += [compared(name, drawn), ""]
    return lines


def compared(name: str, cells: list[tuple[Group, np.ndarray]]) -> str:
    """Compare runs inside ranges with as many in the whole space."""
    used = [(group, inside) for group, inside in cells if inside.any()]
    empty = len(cells) - len(used)
    if not used:
        return f"{RUNS} runs, ranges {name}: nothing is narrowed."
    rng = np.random.default_rng(0)
    whole = np.empty((len(used), REPEATS, 2))
    for number, (group, inside) in enumerate(used):
        for region, among in enumerate((inside, np.ones_like(inside))):
            places = np.flatnonzero(among)
            whole[number, :, region] = [loss(group, places, rng) for _ in range(REPEATS)]
    inside, outside = whole.mean(axis=0).T
    saved = outside - inside
    low, high = np.quantile(saved, [0.025, 0.975])
    return (
        f"{RUNS} runs, ranges {name}, {len(used)} cells ({empty} more without a recorded configuration "
        f"inside): mean loss inside {inside.mean():.3f}, in the whole space {outside.mean():.3f}; saved "
        f"{saved.mean():.3f} [{low:.3f}, {high:.3f}] (95 % of {REPEATS} repeats)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).parent / "results" / "forecast.md"
    parser.add_argument("--out", type=Path, default=default)
    given = parser.parse_args()
    parts = [
        table(f"Sizes: `{SIZES}`", cells_of_sizes()),
        table("Horizons: eleven landscapes of one size", cells_of_horizons()),
    ]
    head = ["# Forecasts", "", "`python benchmarks/forecast.py`, no training.", ""]
    text = "\n".join([*head, *(line for part in parts for line in part)])
    given.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
