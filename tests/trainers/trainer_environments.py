"""Small environments for the tests of trainers: each has one property that a trainer must cope with."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.utils import EzPickle


class Line(gym.Env[Any, Any]):
    """A random walk of ten steps; the reward is one where the action equals the sign of the observation."""

    reset_seeds: ClassVar[list[int | None]] = []

    def __init__(self, continuous: bool = False, bonus: float = 0.0) -> None:
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = (
            gym.spaces.Box(-1.0, 1.0, (1,), np.float32) if continuous else gym.spaces.Discrete(2)
        )
        self.bonus = bonus
        self.left = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.reset_seeds.append(seed)
        self.left = 10
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        right = float(np.asarray(action).reshape(-1)[0] > 0) == float(self.observation[0] > 0)
        self.left -= 1
        done = self.left == 0
        info = {"is_success": bool(right), "left": 0} if done else {}
        return self._observe(), float(right) + self.bonus, done, False, {"right": right, **info}

    def _observe(self) -> Any:
        self.observation = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.observation


class Spaces(gym.Env[Any, Any]):
    """Nine random observations of a given kind; the first of two actions is rewarded."""

    def __init__(self, space: str = "dict") -> None:
        image = gym.spaces.Box(0, 255, (36, 36, 3), np.uint8)
        kinds: dict[str, gym.Space[Any]] = {"image": image, "discrete": gym.spaces.Discrete(5)}
        kinds["dict"] = gym.spaces.Dict(
            {"image": image, "vector": gym.spaces.Box(-1, 1, (2,), np.float32)}
        )
        self.observation_space = kinds[space]
        self.action_space = gym.spaces.MultiDiscrete([2, 3])
        self.count = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.observation_space.sample(), float(action[0] == 0), self.count == 9, False, {}


class Masked(Line):
    """Three actions, of which the one that the walk would not reward is never valid."""

    invalid: ClassVar[int] = 0
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.action_space = gym.spaces.Discrete(3)

    def action_masks(self) -> Any:
        valid = np.ones(3, dtype=bool)
        valid[int(self.observation[0] > 0)] = False
        return valid

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        Masked.steps += 1
        Masked.invalid += int(not self.action_masks()[int(action)])
        return super().step(action)


class WithMasks(gym.Wrapper[Any, Any, Any, Any]):
    """Says that every action is valid."""

    def action_masks(self) -> Any:
        return np.ones(self.action_space.n, dtype=bool)  # type: ignore[attr-defined]


class Unpicklable(Line):
    """Holds a lock, as an environment with a simulator handle would."""

    def __init__(self) -> None:
        super().__init__()
        self.handle = threading.Lock()


class ConstructorPickled(Line, EzPickle):
    """Pickles its constructor's arguments only, as Box2D and MuJoCo environments do."""

    def __init__(self) -> None:
        Line.__init__(self)
        EzPickle.__init__(self)


class Infinite(Line):
    """Its rewards overflow after a few episodes."""

    episodes = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.episodes += 1
        return super().reset(**kwargs)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, float("nan") if self.episodes > 1 else 1.0, terminated, truncated, info


class Doubled(gym.RewardWrapper[Any, Any]):
    """A wrapper that shapes rewards."""

    def __init__(self, env: gym.Env[Any, Any], factor: float = 2.0) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return float(reward) * self.factor


class Helper:
    """A simulator that a task holds: an object of a class of its own."""

    def __init__(self) -> None:
        self.count = 0


class Opaque(Line):
    """Keeps a part of its state in an object, which is no plain data but can be pickled."""

    def __init__(self) -> None:
        super().__init__()
        self.helper = Helper()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.helper.count += 1
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward + self.helper.count % 7, terminated, truncated, info


class _Slots(gym.Env[Any, Any]):
    """Has an attribute that `vars` does not show."""

    __slots__ = ("hidden",)


class Slotted(Line, _Slots):
    """Keeps a part of its state in a slot."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.hidden = 1
        return super().reset(**kwargs)


class Changing(Line):
    """Keeps a text that changes."""

    phase = "new"

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.phase = "running"
        return super().reset(**kwargs)


class Viewing(Line):
    """Keeps two arrays that share memory."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.positions = np.zeros(4)
        self.first = self.positions[:2]
        return super().reset(**kwargs)


class Bytes(gym.Env[Any, Any]):
    """Shows bytes, as MiniGrid does: a position in a row, and noise."""

    observation_space = gym.spaces.Box(0, 255, (4,), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self) -> None:
        self.place = 0
        self.left = 0

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=kwargs.get("seed"))
        self.place = int(self.np_random.integers(10))
        self.left = 12
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 1 if action else -1
        self.left -= 1
        return self._seen(), float(self.place > 5), False, self.left == 0, {}

    def _seen(self) -> Any:
        noise = self.np_random.integers(0, 200, 3)
        return np.array([self.place % 256, *noise], np.uint8)


class Goal(gym.Env[Any, Any]):
    """A place on a line is to be moved to a goal, in twelve steps of 0.3 to the left or right."""

    action_space = gym.spaces.Discrete(3)

    def __init__(self) -> None:
        names = ("observation", "achieved_goal", "desired_goal")
        box = gym.spaces.Box(-2.0, 2.0, (1,), np.float32)
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, box))

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=kwargs.get("seed"))
        self.place, self.goal = self.np_random.uniform(-1.0, 1.0, 2)
        self.left = 12
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = float(np.clip(self.place + 0.3 * (int(action) - 1), -2.0, 2.0))
        self.left -= 1
        seen = self._seen()
        reward = self.compute_reward(seen["achieved_goal"], seen["desired_goal"], {"far": 0.2})
        return seen, float(reward), False, self.left == 0, {"far": 0.2}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        far = np.abs(achieved - desired).max(axis=-1) > 0.2
        # Hindsight replay gives what `step` gave, of each transition.
        assert info["far"] == 0.2 if isinstance(info, dict) else all(i["far"] == 0.2 for i in info)
        return -far.astype(np.float32)

    def _seen(self) -> Any:
        values = {"observation": self.place, "achieved_goal": self.place, "desired_goal": self.goal}
        return {name: np.array([value], np.float32) for name, value in values.items()}


_KINDS: dict[str, type[gym.Env[Any, Any]]] = {
    **{"Line": Line, "Unpicklable": Unpicklable, "EzPickled": ConstructorPickled},
    **{"Infinite": Infinite, "Spaces": Spaces, "Masked": Masked},
    **{"Opaque": Opaque, "Slotted": Slotted, "Changing": Changing, "Viewing": Viewing},
    **{"Bytes": Bytes, "Goal": Goal},
}
for name, kind in _KINDS.items():
    gym.register(f"{name}Test-v0", kind)
