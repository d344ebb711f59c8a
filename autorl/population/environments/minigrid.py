"""The MiniGrid tasks of the engine: first states and observations.

Ids are those of the package `minigrid`, whose tasks these are step by step; only the layouts of
episodes come from the engine's own random numbers, of the same distribution. What an agent observes
is named by the wrappers that make the same of the package's task (`OBSERVATIONS`), so that an
exported model acts in it. No task needs the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from autorl.population import rng
from autorl.population.environments.base import Environment
from autorl.population.environments.grid_world import (
    CARRIED,
    CELLS,
    CLOCK,
    COLUMN,
    CONSTANTS,
    DIRECTION,
    EMPTY,
    FLAT_SIZE,
    GOAL,
    HEIGHT,
    LOCKED,
    MISSIONS,
    N_ACTIONS,
    ONE_HOT_SIZE,
    ROW,
    WALL,
    WIDTH,
    WITH_MISSION_SIZE,
    ahead,
    cell,
    door,
    key_of,
    observe_flat,
    observe_one_hot,
    observe_with_mission,
    put,
    step,
)
from autorl.population.kernels import Array, cached, kernel
from autorl.types import InputError

_YELLOW = 4
_N_COLOURS = 6
# Unlock's two rooms of 6 x 6 share a wall.
_ROOM = 6
# FourRooms: 19 x 19, halved by walls at 9.
_CENTRE = 9


@kernel
def empty_grid(state: Array) -> None:
    """Empty the grid within its walls, and the agent's hands and clock."""
    width = int(state[WIDTH])
    height = int(state[HEIGHT])
    for row in range(height):
        for column in range(width):
            border = row == 0 or row == height - 1 or column == 0 or column == width - 1
            put(state, column, row, WALL if border else EMPTY)
    state[CARRIED] = 0.0
    state[CLOCK] = 0.0
    # No place of the grid: nothing that is placed before the agent avoids it.
    state[COLUMN] = -1.0
    state[ROW] = -1.0


@kernel
def empty_place(state: Array, width: int, height: int, key: int, draw: int) -> tuple[int, int, int]:
    """Draw an empty cell without the agent.

    It lies in the first `width` columns and `height` rows. Returns its column and row, and the
    number of the next draw.
    """
    while True:
        column = int(rng.integer(key, draw, width))
        row = int(rng.integer(key, draw + 1, height))
        draw += 2
        of_agent = column == int(state[COLUMN]) and row == int(state[ROW])
        if cell(state, column, row) == EMPTY and not of_agent:
            return column, row, draw


@kernel
def place_agent(state: Array, width: int, height: int, key: int, draw: int) -> int:
    """Put the agent on an empty cell, in any direction.

    It lies in the first `width` columns and `height` rows. Returns the next draw's number.
    """
    state[COLUMN] = -1.0
    state[ROW] = -1.0
    column, row, draw = empty_place(state, width, height, key, draw)
    state[COLUMN] = column
    state[ROW] = row
    state[DIRECTION] = rng.integer(key, draw, 4)
    return draw + 1


@kernel
def empty_room(state: Array) -> None:
    """Make a room with the goal in the last corner."""
    empty_grid(state)
    put(state, int(state[WIDTH]) - 2, int(state[HEIGHT]) - 2, GOAL)


@cached
def reset_empty(state: Array, key: int) -> None:
    """Begin in the first corner, facing right."""
    empty_room(state)
    state[COLUMN] = 1.0
    state[ROW] = 1.0
    state[DIRECTION] = 0.0


@cached
def reset_empty_random(state: Array, key: int) -> None:
    """Begin on any cell but the goal, in any direction."""
    empty_room(state)
    place_agent(state, int(state[WIDTH]), int(state[HEIGHT]), key, 0)


@cached
def reset_door_key(state: Array, key: int) -> None:
    """Draw a wall with a locked door.

    Agent and key are left of it.
    """
    empty_room(state)
    width = int(state[WIDTH])
    height = int(state[HEIGHT])
    wall = 2 + int(rng.integer(key, 0, width - 4))
    for row in range(height):
        put(state, wall, row, WALL)
    draw = place_agent(state, wall, height, key, 2)
    put(state, wall, 1 + int(rng.integer(key, 1, height - 3)), door(_YELLOW, LOCKED))
    column, row, draw = empty_place(state, wall, height, key, draw)
    put(state, column, row, key_of(_YELLOW))


@cached
def reset_four_rooms(state: Array, key: int) -> None:
    """Draw a gap in each of four walls, then agent and goal."""
    empty_grid(state)
    for place in range(1, 2 * _CENTRE):
        put(state, _CENTRE, place, WALL)
        put(state, place, _CENTRE, WALL)
    for half in range(2):
        gap = 1 + _CENTRE * half
        put(state, _CENTRE, gap + int(rng.integer(key, 2 * half, _CENTRE - 1)), EMPTY)
        put(state, gap + int(rng.integer(key, 2 * half + 1, _CENTRE - 1)), _CENTRE, EMPTY)
    width = int(state[WIDTH])
    height = int(state[HEIGHT])
    draw = place_agent(state, width, height, key, 4)
    column, row, draw = empty_place(state, width, height, key, draw)
    put(state, column, row, GOAL)


@cached
def reset_unlock(state: Array, key: int) -> None:
    """Draw a locked door between two rooms, its key and the agent.

    Both are in the left room. The agent does not begin in front of either.
    """
    empty_grid(state)
    for row in range(_ROOM):
        put(state, _ROOM - 1, row, WALL)
    colour = int(rng.integer(key, 0, _N_COLOURS))
    put(state, _ROOM - 1, 1 + int(rng.integer(key, 1, _ROOM - 2)), door(colour, LOCKED))
    column, row, draw = empty_place(state, _ROOM, _ROOM, key, 2)
    put(state, column, row, key_of(colour))
    faced = GOAL
    while faced != EMPTY and faced != WALL:
        draw = place_agent(state, _ROOM, _ROOM, key, draw)
        columns, rows = ahead(int(state[DIRECTION]))
        faced = cell(state, int(state[COLUMN]) + columns, int(state[ROW]) + rows)


IMAGE = "minigrid.wrappers:ImgObsWrapper"
FLATTEN = "gymnasium.wrappers:FlattenObservation"
ONE_HOT = "minigrid.wrappers:OneHotPartialObsWrapper"
WITH_MISSION = "minigrid.wrappers:FlatObsWrapper"
OBSERVATIONS: dict[tuple[str, ...], tuple[Callable[..., Any], int]] = {
    (IMAGE, FLATTEN): (observe_flat, FLAT_SIZE),
    (ONE_HOT, IMAGE, FLATTEN): (observe_one_hot, ONE_HOT_SIZE),
    (WITH_MISSION,): (observe_with_mission, WITH_MISSION_SIZE),
}
"""What each chain of wrappers observes, and its length; the first is that of no wrappers."""


def _task(
    name: str,
    reset: Callable[..., Any],
    size: tuple[int, int],
    most_steps: int,
    mission: int,
    *,
    see_through: bool = False,
    opening_ends: bool = False,
) -> Environment:
    """Declare a task with the first of `OBSERVATIONS`."""
    width, height = size
    wrappers, (observe, observation_size) = next(iter(OBSERVATIONS.items()))
    return Environment(
        f"MiniGrid-{name}-v0",
        CELLS + width * height + CONSTANTS,
        observation_size,
        most_steps,
        reset,
        step,
        observe,
        n_actions=N_ACTIONS,
        constants=tuple(
            map(float, (width, height, most_steps, see_through, opening_ends, mission))
        ),
        wrappers=wrappers,
        observation_type="uint8",
    )


_TO_GOAL, _WITH_KEY, _REACH, _OPEN = range(len(MISSIONS))


def _empty(name: str, size: int, reset: Callable[..., Any]) -> Environment:
    return _task(name, reset, (size, size), 4 * size**2, _TO_GOAL, see_through=True)


GRID_TASKS = {
    task.id: task
    for task in (
        *(_empty(f"Empty-{size}x{size}", size, reset_empty) for size in (5, 6, 8, 16)),
        *(_empty(f"Empty-Random-{size}x{size}", size, reset_empty_random) for size in (5, 6)),
        *(
            _task(f"DoorKey-{size}x{size}", reset_door_key, (size, size), 10 * size**2, _WITH_KEY)
            for size in (5, 6, 8, 16)
        ),
        _task("FourRooms", reset_four_rooms, (2 * _CENTRE + 1,) * 2, 100, _REACH),
        _task(
            "Unlock",
            reset_unlock,
            (2 * _ROOM - 1, _ROOM),
            8 * _ROOM**2,
            _OPEN,
            opening_ends=True,
        ),
    )
}


def observed(task: Environment, wrappers: Sequence[object]) -> Environment:
    """Return a task with the observations that `wrappers` make of it.

    It is the task as it is where there are none.

    Raises:
        InputError: the engine has no such observation.
    """
    if not wrappers:
        return task
    chain = tuple(wrappers)
    entry = next((item for names, item in OBSERVATIONS.items() if names == chain), None)
    if entry is None:
        chains = " or ".join(f"[{', '.join(names)}]" for names in OBSERVATIONS)
        raise InputError(
            f"the engine observes {task.id} as {chains}; for others use an sb3/* trainer",
            key="environment.wrappers",
        )
    observe, size = entry
    return replace(task, observe=observe, observation_size=size, wrappers=tuple(map(str, wrappers)))
