"""Ids of the native environments. Importing this compiles and imports nothing.

The environments themselves are in `autorl.population.environments`.
"""

from __future__ import annotations

NATIVE_IDS = frozenset(
    {
        *("Acrobot-v1", "CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1"),
        *(f"MiniGrid-Empty-{size}x{size}-v0" for size in (5, 6, 8, 16)),
        *(f"MiniGrid-Empty-Random-{size}x{size}-v0" for size in (5, 6)),
        *(f"MiniGrid-DoorKey-{size}x{size}-v0" for size in (5, 6, 8, 16)),
        *("MiniGrid-FourRooms-v0", "MiniGrid-Unlock-v0"),
    }
)


def is_outside(name: str | None) -> bool:
    """Tell whether an id is Gymnasium's and none of the engine's.

    `module:NAME` is an `Environment` of the user's, `module:Env-v0` an id that a module registers.
    """
    if name is None or name in NATIVE_IDS:
        return False
    return not (":" in name and name.rpartition(":")[2].isidentifier())
