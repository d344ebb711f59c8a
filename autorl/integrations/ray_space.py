"""Spaces of Ray Tune as ours, and configurations back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ray.tune.search.optuna import OptunaSearch
from ray.tune.search.sample import LogUniform, Quantized
from ray.tune.search.variant_generator import parse_spec_vars
from ray.tune.utils.util import flatten_dict, unflatten_dict

from autorl.core.plain_values import plain
from autorl.core.types import Config, InputError
from autorl.space import Space
from autorl.space.foreign import from_optuna


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
    distributions = {
        "/".join(path): _distribution("/".join(path), domain) for path, domain in domains
    }
    return from_optuna(distributions) if distributions else None


def ray_config(config: Config, *, nested: bool) -> dict[str, Any]:
    """Turn a configuration into the one a trial of Ray gets.

    `nested`: names joined by `/` become nested mappings again.
    """
    values: dict[str, Any] = plain(config)
    return dict(unflatten_dict(values)) if nested else values


def _distribution(name: str, domain: Any) -> Any:
    sampler = domain.get_sampler()
    # Ray would drop the quantum, with a word in a log.
    dropped = isinstance(sampler, Quantized) and isinstance(sampler.sampler, LogUniform)
    if not dropped:
        with suppress(ValueError):
            return OptunaSearch.convert_search_space({"x": domain})["x"]
    raise InputError(
        "expected uniform, loguniform, randint, lograndint, choice or equally spaced values, got "
        f"{domain!r}; give AutorlSearcher a space for anything else",
        key=name,
    )
