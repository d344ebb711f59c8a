"""What the shipped landscape of RLOO says, for `rlhf.py`: over-optimisation, and random search by gold and by proxy.

Random search of n configurations draws n of those recorded, without replacement, takes the policy (a configuration at
an evaluation) with the best mean on the tuning seeds, and is judged by its mean gold on the test seeds; 4,000 draws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

LANDSCAPE = "trl/rloo/letters-goldproxy"
DRAWS, SIZES = 4000, (4, 16, 48)


def fits() -> list[str]:
    """R2 of both published forms by which policies are fitted, and where the maximum is."""
    from autorl import load_landscape
    from autorl.trainers.language.overoptimization import (
        Fit,
        Form,
        fit,
        fit_landscape,
        frontier,
        policies,
    )

    data = load_landscape(LANDSCAPE)
    every, points = policies(data), frontier(data)
    forms: tuple[Form, ...] = ("best_of_n", "rl")

    def of(table: Any, form: Form) -> Fit:
        return fit(table.kl, table.gold, form, origin=float(table.reference_gold.mean()))

    rows = {
        f"every policy ({len(every)})": [of(every, form) for form in forms],
        f"the frontier of proxy and KL ({len(points)})": [of(points, form) for form in forms],
    }
    for saturated in (0.05, 0.1, 0.2):
        name = f"the frontier more than {saturated:.0%} of the range above the lowest gold"
        rows[name] = [fit_landscape(data, form, saturated) for form in forms]
    lines = [
        "| fitted to | d (a - b d): R2 | maximum at KL | d (a - b log d): R2 | maximum at KL |",
        "| --- " * 5 + "|",
    ]
    for name, found in rows.items():
        cells = [f"{each.r2:.2f} | {each.peak_kl:.1f}" for each in found]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    curves = [
        curve
        for _, curve in every.groupby("config_id")
        if curve.gold.max() - curve.gold.iloc[-1] > 0.5
    ]
    quartiles = [
        np.quantile([of(curve, form).r2 for curve in curves], [0.25, 0.5, 0.75]) for form in forms
    ]
    cells = [f"{middle:.2f} [{low:.2f}, {high:.2f}] | -" for low, middle, high in quartiles]
    lines.append(
        f"| the curve of each that ends 0.5 below its best ({len(curves)}): quartiles | {' | '.join(cells)} |"
    )
    return lines


def random_search() -> list[str]:
    """Test gold of random search, chosen by gold and by the proxy."""
    from autorl import load_landscape
    from autorl.trainers.language.overoptimization import policies

    data = load_landscape(LANDSCAPE)
    tuning, test = (
        policies(data, role).set_index(["config_id", "step"]) for role in ("tuning", "test")
    )
    ids, reference = tuning.index.unique("config_id"), float(test.reference_gold.mean())
    best = {by: tuning.loc[tuning.groupby("config_id")[by].idxmax()] for by in ("gold", "proxy")}
    lines = [
        f"| configurations | chosen by | median test gold | 95 % of draws | below the reference ({reference:.2f}) |"
    ]
    lines.append("| --- " * 5 + "|")
    for size in SIZES:
        for by, table in best.items():
            rng = np.random.default_rng(0)
            scores = table[by].to_numpy()
            drawn = [rng.choice(len(ids), size, replace=False) for _ in range(DRAWS)]
            chosen = [table.index[picked[scores[picked].argmax()]] for picked in drawn]
            found = test.loc[chosen, "gold"].to_numpy(float)
            low, middle, high = np.quantile(found, [0.025, 0.5, 0.975])
            share = np.mean(found < reference)
            lines.append(
                f"| {size} | {by} | {middle:.3f} | [{low:.3f}, {high:.3f}] | {share:.0%} |"
            )
    return lines
