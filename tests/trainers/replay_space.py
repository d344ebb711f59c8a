"""The space of the landscapes that the tests of replaying trainers make up."""

from autorl.space import load_space

SPACE = load_space(
    {
        "hyperparameters": {
            "x": {"type": "float", "lower": 0.0, "upper": 1.0, "default": 0.5},
            "rate": {"type": "float", "lower": 1e-4, "upper": 1.0, "scale": "log", "default": 1e-2},
            "kind": {"type": "categorical", "choices": ["a", "b", "c"], "default": "a"},
            "only_b": {"type": "int", "lower": 1, "upper": 9, "default": 5},
        },
        "conditions": {"only_b": "kind == b"},
    }
)
