"""The small studies on the synthetic trainer that many tests change a key or two of."""

SMALL = {
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1}},
    "space": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}},
    "fidelity": {"steps": 100, "evaluations": 2},
    "budget": {"runs": 8},
    "seeds": {"tuning": 2, "test": 2},
    "optimizer": "random",
    "executor": {"name": "in_process"},
}
MIXED = {
    "hyperparameters": {
        "x": {"type": "float", "lower": 0.0, "upper": 1.0, "changeable": True},
        "rate": {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log", "changeable": True},
        "kind": {"type": "categorical", "choices": ["a", "b"]},
        "only_b": {"type": "int", "lower": 1, "upper": 9},
    },
    "conditions": {"only_b": "kind == b"},
}
TRAINER = {"optimum": {"x": 0.7, "rate": 0.2}, "noise": 0.1, "interaction": 0.05}
OF_MIXED = {
    **SMALL,
    "name": "small",
    "trainer": {"name": "synthetic", "kwargs": TRAINER},
    "space": MIXED,
    "fidelity": {"steps": 100, "evaluations": 5},
    "budget": {"runs": 16},
    "parallelism": 3,
    "test": {"top": 2},
}
RECORDED = {
    "configurations": "*",
    "proposals": "*",
    "runs": "run_id, config_id, seed, seed_role, algorithm, environment, parent_run, start_step, member, status, "
    "environment_steps",
    "reports": "*",
    # The name of a checkpoint says in which session it was written.
    "segments": "segment, proposal, run_id, seed, parent, member, from_step, to_step, config_id, status, applied, "
    "notes, message, checkpoint IS NOT NULL",
    "reductions": "*",
    "tests": "*",
}
"""What a study records, by table, except seconds."""


def recorded(query, columns=RECORDED) -> dict[str, list[tuple]]:
    """Sorted rows of a study's tables, which `query` takes SQL for."""
    return {
        name: sorted(query(f"SELECT {what} FROM {name}"), key=repr)
        for name, what in columns.items()
    }
