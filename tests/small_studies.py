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
