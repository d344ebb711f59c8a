"""Random search spaces for property tests: all types, scales and rules."""

from __future__ import annotations

import string
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from autorl.core.types import InputError
from autorl.space import Space, read_space

CHOICES: list[list[Any]] = [
    ["adam", "sgd", "rmsprop"],
    [True, False],
    [32, 64, 128],
    [[64], [64, 64], [256, 256]],
    ["auto", 0.1, None],
    [1, True, "1"],
    [{"pi": [64]}, {"pi": [64, 64]}],
]


@st.composite
def entries(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a hyperparameter of a search-space file, without a default."""
    kind = draw(st.sampled_from(["float", "int", "categorical", "ordinal", "constant"]))
    changeable = draw(st.booleans())
    if kind == "constant":
        return {"type": kind, "value": draw(st.sampled_from([3, "MlpPolicy", None, [1, 2]]))}
    if kind in ("categorical", "ordinal"):
        return {"type": kind, "choices": draw(st.sampled_from(CHOICES)), "changeable": changeable}
    scale = draw(st.sampled_from(["linear", "log"] + (["flipped_log"] if kind == "float" else [])))
    if kind == "int":
        lower = draw(st.integers(1 if scale == "log" else -1000, 1000))
        return {
            "type": kind,
            "lower": lower,
            "upper": lower + draw(st.integers(1, 10_000)),
            "scale": scale,
            "changeable": changeable,
        }
    if scale == "flipped_log":
        lower = 1.0 - 10.0 ** draw(st.floats(-1, 1))
        upper = 1.0 - 10.0 ** draw(st.floats(-6, -2))
    elif scale == "log":
        lower = 10.0 ** draw(st.floats(-9, 2))
        upper = lower * draw(st.floats(1.5, 1e6))
    else:
        lower = draw(st.floats(-1e6, 1e6))
        upper = lower + draw(st.floats(1e-3, 1e6))
    return {"type": kind, "lower": lower, "upper": upper, "scale": scale, "changeable": changeable}


@st.composite
def definitions(draw: st.DrawFn, rules: bool = True) -> dict[str, Any]:
    """Draw a definition whose conditions name parents placed before their children."""
    names = list(string.ascii_lowercase[: draw(st.integers(1, 7))])
    hyperparameters = {name: draw(entries()) for name in names}
    definition: dict[str, Any] = {
        "hyperparameters": hyperparameters,
        "conditions": {},
        "forbidden": [],
        "constraints": [],
    }
    for position, child in enumerate(names):
        if position and draw(st.booleans()):
            atoms = [
                _atom(draw, name, hyperparameters[name])
                for name in draw(_some(names[:position], 1, 2))
            ]
            definition["conditions"][child] = draw(st.sampled_from([" and ", " or "])).join(atoms)
    if not rules:
        return definition
    numeric = [name for name in names if hyperparameters[name]["type"] in ("float", "int")]
    discrete = [name for name in names if "choices" in hyperparameters[name]]
    if discrete and draw(st.booleans()):
        picked = draw(_some(discrete, 1, 2))
        definition["forbidden"].append(
            {name: draw(_some(hyperparameters[name]["choices"], 1, 2)) for name in picked}
        )
    if len(numeric) > 1 and draw(st.booleans()):
        one, other = draw(st.permutations(numeric))[:2]
        shift = hyperparameters[other]["lower"] - hyperparameters[one]["upper"] * draw(
            st.floats(0.3, 1)
        )
        definition["constraints"].append(f"{one} + {shift!r} <= {other}")
    return definition


@st.composite
def spaces(draw: st.DrawFn, rules: bool = True) -> Space:
    """Draw a space whose default configuration is valid."""
    try:
        return read_space(draw(definitions(rules)))
    except InputError as error:
        assume(
            "never be active" not in error.message
            and "default" not in error.message
            and "empty" not in error.message
        )
        raise


def _some(items: list[Any], least: int, most: int) -> st.SearchStrategy[list[Any]]:
    return st.permutations(items).flatmap(
        lambda mixed: st.integers(least, min(most, len(mixed))).map(
            lambda count: list(mixed)[:count]
        )
    )


def _atom(draw: st.DrawFn, name: str, entry: dict[str, Any]) -> str:
    if entry["type"] in ("float", "int"):
        middle = entry["lower"] + (entry["upper"] - entry["lower"]) * draw(st.floats(0.1, 0.9))
        return f"{name} {draw(st.sampled_from(['<', '>', '<=', '>=']))} {middle!r}"
    choices = entry.get("choices", [entry.get("value")])
    hashable = [choice for choice in choices if not isinstance(choice, dict)]
    assume(hashable)
    if draw(st.booleans()):
        return f"{name} in [{', '.join(map(_text, draw(_some(hashable, 1, 2))))}]"
    return f"{name} {draw(st.sampled_from(['==', '!=']))} {_text(draw(st.sampled_from(hashable)))}"


def _text(value: Any) -> str:
    return {"True": "true", "False": "false", "None": "null"}.get(repr(value), repr(value))
