"""The MiniGrid tasks of the engine: first states and observations.

Ids are those of the package `minigrid`, whose tasks these are step by step; only the layouts of
episodes come from the engine's own random numbers, of the same distribution. Names of observations
are the wrappers that make the same of the package's task (`OBSERVATIONS`), so that an exported
model acts in it. No task needs the package.

A state is float64: the agent's column, row and direction (0 right, 1 down, 2 left, 3 up), what it
carries (0: nothing), the steps of the episode; then the cells row by row; then the constants of the
task (`Environment.constants`). A cell is a whole number, object + 16 * colour + 256 * state of a
door, with MiniGrid's indices for each.

Reference:
    [ChevalierBoisvert2023] M. Chevalier-Boisvert et al. Minigrid & Miniworld: modular &
        customizable reinforcement learning environments for goal-oriented tasks. NeurIPS 2023;
        semantics as in the package `minigrid` 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autorl.core.types import InputError
from autorl.population import rng
from autorl.population.environments.base import Environment, compiled
from autorl.population.kernels import Array, cached, exact, kernel
from autorl.population.variants import GRIDS

# Places in a state: the agent, then the cells.
COLUMN, ROW, DIRECTION, CARRIED, CLOCK = range(5)
CELLS = 5
# The constants, counted from the state's end.
WIDTH, HEIGHT, MOST_STEPS, SEE_THROUGH, OPENING_ENDS, MISSION = range(-6, 0)
CONSTANTS = 6

# Objects, in the lowest four bits of a cell; 0 is what the agent does not see.
DOOR_KIND = 4
KEY_KIND = 5
EMPTY = 1
WALL = 2 + 16 * 5  # grey
GOAL = 8 + 16 * 1  # green
# States of a door, from the ninth bit on.
OPEN, CLOSED, LOCKED = range(3)

TURN_LEFT, TURN_RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, DONE = range(7)
N_ACTIONS = 7

VIEW = 7  # cells on a side of what the agent sees; it stands in the middle of the last row
_MIDDLE = VIEW // 2
_LAST = VIEW - 1
_ALL = 2**VIEW - 1
# Bits of the one-hot encoding of a cell: 11 objects, 6 colours, 3 states.
_COLOURS_AT = 11
_STATES_AT = 17
BITS = 20
FLAT_SIZE = VIEW * VIEW * 3
ONE_HOT_SIZE = VIEW * VIEW * BITS
CODES = 28  # of a character of the mission: letters, space, comma
CHARACTERS = 96  # of the longest mission that is encoded
MISSIONS = (
    "get to the green goal square",
    "use the key to open the door and then get to the goal",
    "reach the goal",
    "open the door",
)
# The code of each character, (missions, CHARACTERS); -1 after the end.
_LETTERS = np.array(
    [
        ["abcdefghijklmnopqrstuvwxyz ,".index(letter) for letter in mission]
        + [-1] * (CHARACTERS - len(mission))
        for mission in MISSIONS
    ]
)
WITH_MISSION_SIZE = FLAT_SIZE + CHARACTERS * CODES


@kernel
def door(colour: int, state: int) -> int:
    """Return the cell of a door."""
    return DOOR_KIND + 16 * colour + 256 * state


@kernel
def key_of(colour: int) -> int:
    """Return the cell of a key."""
    return KEY_KIND + 16 * colour


@kernel
def cell(state: Array, column: int, row: int) -> int:
    """Return the cell at a place, a wall beyond the grid."""
    width = int(state[WIDTH])
    if 0 <= column < width and 0 <= row < int(state[HEIGHT]):
        return int(state[CELLS + row * width + column])
    return WALL


@kernel
def put(state: Array, column: int, row: int, content: int) -> None:
    """Write the cell at a place of the grid."""
    state[CELLS + row * int(state[WIDTH]) + column] = content


@kernel
def ahead(direction: int) -> tuple[int, int]:
    """Return the step, in columns and rows, that this direction leads."""
    odd = direction % 2
    return (1 - direction) * (1 - odd), (2 - direction) * odd


@kernel
def is_open_door(content: int) -> bool:
    """Tell whether a cell is a door that stands open."""
    return content & 15 == DOOR_KIND and content >> 8 == OPEN


@exact
def reward_of_success(clock: float, most_steps: float) -> float:
    """Compute 1 - 0.9 clock / most_steps, rounded as by Python."""
    return 1.0 - 0.9 * (clock / most_steps)


@cached
def step(state: Array, action: Array, key: int) -> tuple[float, bool]:
    """Turn, move, or act on the cell ahead.

    `action` is MiniGrid's index. Nothing is random.
    """
    state[CLOCK] += 1.0
    direction = int(state[DIRECTION])
    columns, rows = ahead(direction)
    column = int(state[COLUMN]) + columns
    row = int(state[ROW]) + rows
    content = cell(state, column, row)
    carried = int(state[CARRIED])
    choice = int(action[0])
    success = False
    if choice == TURN_LEFT:
        state[DIRECTION] = (direction + 3) % 4
    elif choice == TURN_RIGHT:
        state[DIRECTION] = (direction + 1) % 4
    elif choice == FORWARD:
        if content in (EMPTY, GOAL) or is_open_door(content):
            state[COLUMN] = column
            state[ROW] = row
        success = content == GOAL
    elif choice == PICK_UP:
        if content & 15 == KEY_KIND and carried == 0:
            state[CARRIED] = content
            put(state, column, row, EMPTY)
    elif choice == DROP:
        if content == EMPTY and carried != 0:
            put(state, column, row, carried)
            state[CARRIED] = 0.0
    elif choice == TOGGLE and content & 15 == DOOR_KIND:
        toggle(state, column, row, carried)
        # As in MiniGrid's Unlock; there the one door opens once.
        success = state[OPENING_ENDS] == 1.0 and is_open_door(cell(state, column, row))
    if success:
        return reward_of_success(state[CLOCK], state[MOST_STEPS]), True
    return 0.0, False


@kernel
def toggle(state: Array, column: int, row: int, carried: int) -> None:
    """Open or close the door at a place.

    A locked one asks for the key of its colour.
    """
    content = cell(state, column, row)
    colour = (content >> 4) & 15
    condition = content >> 8
    if condition != LOCKED:
        put(state, column, row, door(colour, CLOSED if condition == OPEN else OPEN))
    elif carried == key_of(colour):
        put(state, column, row, door(colour, OPEN))


@kernel
def viewed(state: Array, i: int, j: int) -> int:
    """Return the cell at column `i`, row `j` of the view.

    There the agent looks up.
    """
    columns, rows = ahead(int(state[DIRECTION]))
    sideways = i - _MIDDLE
    forwards = _LAST - j
    # To its right lies (-rows, columns).
    return cell(
        state,
        int(state[COLUMN]) + columns * forwards - rows * sideways,
        int(state[ROW]) + rows * forwards + columns * sideways,
    )


@kernel
def spread(state: Array, j: int, seen: int) -> tuple[int, int]:
    """Spread what is seen of row `j` along it and upwards.

    Rows of the view are bit masks, bit i for column i; so are both results, as `Grid.process_vis`
    computes them: to the right first, then back. If walls hide nothing, all is seen.
    """
    if state[SEE_THROUGH] == 1.0:
        return _ALL, _ALL
    above = 0
    for i in range(_LAST):
        if seen >> i & 1 and transparent(state, i, j):
            seen |= 2 << i
            above |= 3 << i
    for i in range(_LAST, 0, -1):
        if seen >> i & 1 and transparent(state, i, j):
            seen |= 1 << (i - 1)
            above |= 3 << (i - 1)
    return seen, above


@kernel
def transparent(state: Array, i: int, j: int) -> bool:
    """Tell whether the agent sees past a cell of the view."""
    content = viewed(state, i, j)
    return content != WALL and (content & 15 != DOOR_KIND or content >> 8 == OPEN)


@kernel
def shown(state: Array, i: int, j: int, seen: int) -> int:
    """Return what the agent sees at a place of the view.

    0 where `seen`, the mask of the row, has no bit. At its own place the agent sees what it
    carries.
    """
    if i == _MIDDLE and j == _LAST:
        carried = int(state[CARRIED])
        return carried if carried != 0 else EMPTY
    return viewed(state, i, j) if seen >> i & 1 else 0


@kernel
def write_flat(state: Array, observation: Array) -> None:
    """Write object, colour and state of the view's cells, by columns.

    It is the observation of `ImgObsWrapper` and `FlattenObservation`, (147,).
    """
    seen = 1 << _MIDDLE
    for j in range(_LAST, -1, -1):
        seen, above = spread(state, j, seen)
        for i in range(VIEW):
            content = shown(state, i, j, seen)
            first = (i * VIEW + j) * 3
            observation[first] = content & 15
            observation[first + 1] = content >> 4 & 15
            observation[first + 2] = content >> 8
        seen = above


@cached
def observe_one_hot(state: Array, observation: Array) -> None:
    """Write the observation of the same with `OneHotPartialObsWrapper`, (980,)."""
    observation.fill(0.0)
    seen = 1 << _MIDDLE
    for j in range(_LAST, -1, -1):
        seen, above = spread(state, j, seen)
        for i in range(VIEW):
            content = shown(state, i, j, seen)
            first = (i * VIEW + j) * BITS
            observation[first + (content & 15)] = 1.0
            observation[first + _COLOURS_AT + (content >> 4 & 15)] = 1.0
            observation[first + _STATES_AT + (content >> 8)] = 1.0
        seen = above


@cached
def observe_with_mission(state: Array, observation: Array) -> None:
    """Write what `FlatObsWrapper` makes: the flat view, then the mission one-hot, (2835,)."""
    write_flat(state, observation)
    observation[FLAT_SIZE:].fill(0.0)
    mission = int(state[MISSION])
    for i in range(CHARACTERS):
        code = _LETTERS[mission, i]
        if code >= 0:
            observation[FLAT_SIZE + i * CODES + code] = 1.0


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
    (IMAGE, FLATTEN): (compiled(write_flat), FLAT_SIZE),
    (ONE_HOT, IMAGE, FLATTEN): (observe_one_hot, ONE_HOT_SIZE),
    (WITH_MISSION,): (observe_with_mission, WITH_MISSION_SIZE),
}
"""What each chain of wrappers observes, and its length; the first is that of no wrappers."""


def _task(name: str, layout: str, size: int) -> Environment:
    """Declare the task of an id, with the first of `OBSERVATIONS`."""
    reset, mission, (width, height), most_steps = {
        "Empty": (reset_empty, 0, (size, size), 4 * size**2),
        "Empty-Random": (reset_empty_random, 0, (size, size), 4 * size**2),
        "DoorKey": (reset_door_key, 1, (size, size), 10 * size**2),
        "FourRooms": (reset_four_rooms, 2, (2 * _CENTRE + 1,) * 2, 100),
        "Unlock": (reset_unlock, 3, (2 * _ROOM - 1, _ROOM), 8 * _ROOM**2),
    }[layout]
    wrappers, (observe, observation_size) = next(iter(OBSERVATIONS.items()))
    see_through = layout.startswith("Empty")
    constants = (width, height, most_steps, see_through, layout == "Unlock", mission)
    return Environment(
        name,
        CELLS + width * height + CONSTANTS,
        observation_size,
        most_steps,
        reset,
        step,
        observe,
        n_actions=N_ACTIONS,
        constants=tuple(map(float, constants)),
        wrappers=wrappers,
        observation_type="uint8",
    )


GRID_TASKS = {name: _task(name, *task) for name, task in GRIDS.items()}


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
