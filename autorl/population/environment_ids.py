"""Ids of the native environments. Importing this compiles and imports nothing.

The environments themselves are in `autorl.population.environments`.
"""

from __future__ import annotations

from autorl.population.variants import NATIVE

_GRIDS = {
    "Empty": (5, 6, 8, 16),
    "Empty-Random": (5, 6),
    "DoorKey": (5, 6, 8, 16),
    "FourRooms": (0,),  # of one size, which is not in the id
    "Unlock": (0,),
}
GRIDS = {
    f"MiniGrid-{layout}{f'-{size}x{size}' if size else ''}-v0": (layout, size)
    for layout, sizes in _GRIDS.items()
    for size in sizes
}
"""The tasks of MiniGrid: layout and size of each id."""
NATIVE_IDS = frozenset({*NATIVE, *GRIDS})


def is_outside(name: str | None) -> bool:
    """Tell whether an id is Gymnasium's and none of the engine's.

    `module:NAME` is an `Environment` of the user's, `module:Env-v0` an id that a module registers.
    """
    if name is None or name in NATIVE_IDS:
        return False
    return not (":" in name and name.rpartition(":")[2].isidentifier())
