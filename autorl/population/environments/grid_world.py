"""The world of MiniGrid's tasks: cells, moves and the agent's view.

All tasks share it. A state is float64: the agent's column, row and direction (0 right, 1 down, 2
left, 3 up), what it carries (0: nothing), the steps of the episode; then the cells row by row; then
the constants of the task (`Environment.constants`). A cell is a whole number, object + 16 * colour
+ 256 * state of a door, with MiniGrid's indices for each.

Reference:
    [ChevalierBoisvert2023] M. Chevalier-Boisvert et al. Minigrid & Miniworld: modular &
        customizable reinforcement learning environments for goal-oriented tasks. NeurIPS 2023;
        semantics as in the package `minigrid` 3.
"""

from __future__ import annotations

import numpy as np

from autorl.population.kernels import Array, cached, exact, kernel

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
    if direction == 0:
        return 1, 0
    if direction == 1:
        return 0, 1
    if direction == 2:
        return -1, 0
    return 0, -1


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
    computes them: to the right first, then back. Where walls hide nothing, all is seen.
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

    0 where `seen`, the mask of the row, has no bit. Where the agent stands it sees what it carries.
    """
    if i == _MIDDLE and j == _LAST:
        carried = int(state[CARRIED])
        return carried if carried != 0 else EMPTY
    return viewed(state, i, j) if seen >> i & 1 else 0


@kernel
def write_flat(state: Array, observation: Array) -> None:
    """Write object, colour and state of the view's cells, by columns."""
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
def observe_flat(state: Array, observation: Array) -> None:
    """Write what `ImgObsWrapper` and `FlattenObservation` make, (147,)."""
    write_flat(state, observation)


@cached
def observe_one_hot(state: Array, observation: Array) -> None:
    """Write what `OneHotPartialObsWrapper`, `ImgObsWrapper`, `FlattenObservation` make, (980,)."""
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
