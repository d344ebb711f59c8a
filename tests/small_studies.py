"""The small study on the synthetic trainer that many tests change a key or two of."""

SMALL = {
    "trainer": {"name": "synthetic", "kwargs": {"optimum": {"x": 0.7}, "noise": 0.1}},
    "space": {"x": {"type": "float", "lower": 0.0, "upper": 1.0}},
    "fidelity": {"steps": 100, "evaluations": 2},
    "budget": {"runs": 8},
    "seeds": {"tuning": 2, "test": 2},
    "optimizer": "random",
    "executor": {"name": "in_process"},
}
