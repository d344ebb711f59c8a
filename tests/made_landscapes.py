"""Landscapes that tests make up, run by run."""

import pandas as pd

from autorl.core.types import FrozenMap
from autorl.landscapes import Landscape, Manifest, Tables, config_rows, write_landscape


def write(folder, space, configs, runs, *, steps, seeds, **fields):
    """Write a landscape of (configuration, role, seed, status, steps, seconds, {step: metrics})."""
    fields = {"id": "toys/toy/Toy-v0", "algorithm": "toy", "environment": "Toy-v0", **fields}
    of_all = {name: fields[name] for name in ("algorithm", "environment")}
    of_all |= {"parent_run": None, "start_step": 0, "member": None}
    rows, evals = [], []
    for run_id, (number, role, seed, status, trained, seconds, curve) in enumerate(runs):
        run = {"run_id": run_id, "config_id": number, "seed": seed, "seed_role": role}
        run |= {"status": status, "environment_steps": trained, "wall_seconds": seconds}
        rows.append(run | of_all)
        evals += [{"run_id": run_id, "step": step, **metrics} for step, metrics in curve.items()]
    frame = pd.DataFrame(rows)
    segments = frame[["run_id", "seed", "config_id", "member"]].assign(
        segment=frame["run_id"].astype(str),
        parent=None,
        from_step=0,
        to_step=frame["environment_steps"],
    )
    of_data = {"description": "Made.", "steps": steps, "seeds": FrozenMap(seeds), "licence": "CC0"}
    manifest = Manifest(**of_data | fields)
    tables = Tables(config_rows(space, configs, "sobol"), frame, pd.DataFrame(evals), segments)
    write_landscape(folder / manifest.id, tables, manifest, space)
    return Landscape(folder / manifest.id)
