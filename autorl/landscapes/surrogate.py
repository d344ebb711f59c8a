"""The former place of `autorl.landscapes.benchmark.surrogate`, for scripts that name it."""

from autorl.landscapes.benchmark.surrogate import (
    MIN_CORRELATION,
    TREES,
    Quality,
    Surrogate,
    SurrogateObjective,
)

__all__ = ["MIN_CORRELATION", "TREES", "Quality", "Surrogate", "SurrogateObjective"]
