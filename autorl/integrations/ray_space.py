"""Spaces of Ray Tune as ours, and configurations back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.tune.search.sample import Categorical, Float, Integer, LogUniform, Quantized, Uniform
from ray.tune.search.variant_generator import parse_spec_vars
from ray.tune.utils.util import flatten_dict, unflatten_dict

from autorl.core.plain_values import plain
from autorl.core.types import Config, InputError
from autorl.space import Space
from autorl.space.define import define_space
from autorl.space.hyperparameter import Hyperparameter, Scale

_MOST_STEPS = 10_000  # values of a quantized domain


def space_of(param_space: Mapping[str, Any]) -> Space | None:
    """Make a space of what a `param_space` searches.

    Nested names are joined by `/`.

    Returns:
        The space; None if it searches nothing.

    Raises:
        InputError: a domain that no `Space` has.
    """
    # Before it is flattened, which would make a name of `grid_search`.
    _, _, grids = parse_spec_vars(dict(param_space))
    if grids:
        name = "/".join(grids[0][0])
        raise InputError("expected tune.choice: a searcher has no grid_search", key=name)
    flat = flatten_dict(dict(param_space), prevent_delimiter=True)
    _, domains, _ = parse_spec_vars(flat)
    if not domains:
        return None
    return define_space(_hyperparameter("/".join(path), domain) for path, domain in domains)


def ray_config(config: Config, *, nested: bool) -> dict[str, Any]:
    """Turn a configuration into the one a trial of Ray gets.

    `nested`: names joined by `/` become nested mappings again.
    """
    values: dict[str, Any] = plain(config)
    return dict(unflatten_dict(values)) if nested else values


def _hyperparameter(name: str, domain: Any) -> Hyperparameter:
    if isinstance(domain, Categorical):
        return Hyperparameter.categorical(name, domain.categories)
    sampler = domain.get_sampler()
    quantum = None
    if isinstance(sampler, Quantized):
        quantum = sampler.q
        sampler = sampler.sampler
    logarithmic = isinstance(sampler, LogUniform)
    if not isinstance(domain, Float | Integer) or not isinstance(sampler, Uniform | LogUniform):
        raise InputError(
            f"expected uniform, loguniform, randint, lograndint or choice, got {domain!r}; "
            "give AutorlSearcher a space for anything else",
            key=name,
        )
    if quantum not in (None, 1) or (quantum is not None and isinstance(domain, Float)):
        return _quantized(name, domain, quantum, logarithmic=logarithmic)
    scale: Scale = "log" if logarithmic else "linear"
    if isinstance(domain, Float):
        return Hyperparameter.real(name, domain.lower, domain.upper, scale=scale)
    # Ray's upper bound of integers is excluded, unless they are quantized.
    upper = domain.upper if quantum is not None else domain.upper - 1
    return Hyperparameter.integer(name, domain.lower, upper, scale=scale)


def _quantized(name: str, domain: Any, quantum: float, *, logarithmic: bool) -> Hyperparameter:
    """Make an ordered choice of the values of a quantized domain."""
    count = round((domain.upper - domain.lower) / quantum) + 1
    if logarithmic or count > _MOST_STEPS:
        raise InputError(
            f"expected at most {_MOST_STEPS:,} equally spaced values, got {domain!r}; "
            "leave the quantum out",
            key=name,
        )
    # Rounded: three times 0.1 is above 0.3.
    values = [round(domain.lower + step * quantum, 12) for step in range(count)]
    return Hyperparameter.ordinal(name, [value for value in values if value <= domain.upper])
