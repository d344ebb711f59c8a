"""The former place of `autorl.landscapes.benchmark.replay`, for scripts that name it."""

from autorl.landscapes.benchmark.replay import (
    LOOK_UPS,
    LookUp,
    RecordedRun,
    Replay,
    ReplayObjective,
)

__all__ = ["LOOK_UPS", "LookUp", "RecordedRun", "Replay", "ReplayObjective"]
