"""A hyperparameter: its domain, its scale, its map to the unit interval.

The unit interval is what every optimizer works in. The scales are those of the AutoRL landscape
paper (Mohan et al., 2023, arXiv 2304.02396): `flipped_log` spreads values close to 1, such as
discount factors, on the logarithm of 1 - x.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypedDict, Unpack, get_args

from autorl.core.plain_text import shown
from autorl.core.types import FrozenMap, InputError
from autorl.space.canonical import canonical_json, frozen, spelled

Kind: TypeAlias = Literal["float", "int", "categorical", "ordinal", "constant"]
Scale: TypeAlias = Literal["linear", "log", "flipped_log"]
KINDS: tuple[str, ...] = get_args(Kind)
SCALES: tuple[str, ...] = get_args(Scale)
CONFIDENCES = {"low": 0.5, "medium": 0.25, "high": 0.125}
"""Deviation of a prior in parts of the range, and what another choice counts beside its centre."""
UNSET: Any = object()  # None may be a choice, and the default
_RESERVED = frozenset({"and", "or", "not", "in", "true", "false", "null", "none"})
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_/-]*(\.[A-Za-z0-9_/-]+)*")
# Decimals relative to the largest bound: far above rounding errors, far below what matters.
_DIGITS = 12
_LARGEST_INT = 2**53  # beyond it a float64 cannot tell integers apart


class Details(TypedDict, total=False):
    """Optional attributes of a `Hyperparameter`, whatever its domain."""

    default: object
    changeable: bool
    prior: object


@dataclass(frozen=True)
class Hyperparameter:
    """A named domain.

    Build it with `real`, `integer`, `categorical`, `ordinal` or `constant`.

    Attributes:
        name: letters, digits, `_`, `-`, `/` and dots.
        type: float, int, categorical, ordinal (ordered choices) or constant (one value, never
            varied).
        lower, upper: inclusive bounds of float and int; None otherwise.
        choices: values of categorical and ordinal, in order; the one value of a constant; empty
            otherwise.
        scale: where numeric values are uniform: on x, on log x, or (float only) on log(1 - x).
        default: value of the default configuration. If not given: the middle of the unit interval
            for float, int and ordinal, the first choice for categorical.
        changeable: whether population-based training may alter it while a run goes on.
        prior: where good values are believed to be (`space/prior.py`), `centre` and `confidence`.

    Raises:
        InputError: a bound, scale, choice or default is wrong; `key` names the field.
    """

    name: str
    type: Kind
    lower: float | None
    upper: float | None
    choices: tuple[Any, ...]
    scale: Scale
    default: Any
    changeable: bool = False
    prior: FrozenMap | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.type not in KINDS:
            raise self._wrong("type", f"expected one of {', '.join(KINDS)}, got {shown(self.type)}")
        if self.numeric:
            self._check_bounds()
        elif not self.choices:
            raise self._wrong("choices", "at least one choice is needed")
        elif len(self._positions) < len(self.choices):
            raise self._wrong("choices", f"a choice is listed twice in {spelled(self.choices)}")
        else:
            self._check_choices()
        problem = self.problem(self.default)
        if problem:
            raise self._wrong("default", problem)

    @classmethod
    def real(
        cls,
        name: str,
        lower: float,
        upper: float,
        *,
        scale: Scale = "linear",
        **details: Unpack[Details],
    ) -> Hyperparameter:
        """Make a float in [lower, upper]."""
        return cls._numeric(name, "float", (lower, upper), scale)._completed(**details)

    @classmethod
    def integer(
        cls,
        name: str,
        lower: int,
        upper: int,
        *,
        scale: Scale = "linear",
        **details: Unpack[Details],
    ) -> Hyperparameter:
        """Make an integer in lower..upper, both included.

        On the log scale the integer v has the share of [v - 0.5, v + 0.5].
        """
        return cls._numeric(name, "int", (lower, upper), scale)._completed(**details)

    @classmethod
    def categorical(
        cls, name: str, choices: Iterable[object], **details: Unpack[Details]
    ) -> Hyperparameter:
        """Make a choice without order.

        Choices are strings, numbers, booleans, None, or (nested) lists and mappings of those.
        """
        return cls._listed(name, "categorical", choices)._completed(**details)

    @classmethod
    def ordinal(
        cls, name: str, choices: Iterable[object], **details: Unpack[Details]
    ) -> Hyperparameter:
        """Make a choice with an order, smallest first."""
        return cls._listed(name, "ordinal", choices)._completed(**details)

    @classmethod
    def constant(cls, name: str, value: object) -> Hyperparameter:
        """Make a value every configuration has."""
        return cls._listed(name, "constant", (value,))

    @classmethod
    def _listed(cls, name: str, kind: Kind, choices: Iterable[object]) -> Hyperparameter:
        values = tuple(frozen(choice) for choice in choices)
        usual = values[len(values) // 2 if kind == "ordinal" else 0] if values else None
        return cls(name, kind, None, None, values, "linear", usual)

    @classmethod
    def _numeric(
        cls, name: str, kind: Kind, bounds: tuple[object, object], scale: Scale
    ) -> Hyperparameter:
        lower, upper = (
            _number(name, key, kind, value)
            for key, value in zip(("lower", "upper"), bounds, strict=True)
        )
        domain = cls(name, kind, lower, upper, (), scale, lower)
        return replace(domain, default=domain.from_unit(0.5))

    def _completed(
        self, default: object = UNSET, changeable: bool = False, prior: object = None
    ) -> Hyperparameter:
        """Add details to a domain.

        A default that is not given is the centre of the prior.
        """
        believed = None if prior is None else self._prior(frozen(prior))
        if default is UNSET:
            default = self.default if believed is None else believed["centre"]
        default = self.canonical(default) if self.numeric else frozen(default)
        return replace(self, default=default, changeable=changeable, prior=believed)

    def _prior(self, prior: object) -> FrozenMap:
        """Return a prior with what it left out."""
        allowed = f"{{centre: VALUE, confidence: {' | '.join(CONFIDENCES)}}}"
        if not isinstance(prior, Mapping) or not {"centre"} <= {*prior} <= {"centre", "confidence"}:
            raise self._wrong("prior", f"expected {allowed}, got {shown(prior)}")
        centre = self.canonical(prior["centre"])
        problem = self.problem(centre)
        if problem:
            raise self._wrong("prior.centre", problem)
        confidence = prior.get("confidence", "medium")
        if confidence not in CONFIDENCES:
            expected = f"expected one of {', '.join(CONFIDENCES)}"
            raise self._wrong("prior.confidence", f"{expected}, got {shown(confidence)}")
        return FrozenMap(centre=centre, confidence=confidence)

    @property
    def numeric(self) -> bool:
        """Whether it has bounds rather than choices."""
        return self.type in ("float", "int")

    @property
    def varies(self) -> bool:
        """Whether it has more than one value."""
        return self.numeric or len(self.choices) > 1

    @property
    def n_choices(self) -> int:
        """Number of choices: 0 for float and int, 1 for a constant."""
        return len(self.choices)

    def accepts(self, value: object) -> bool:
        """Tell whether a value is in the domain and of its type.

        An integer is accepted for a float, never a boolean.
        """
        return self.problem(value) is None

    def problem(self, value: object) -> str | None:
        """Say what is wrong with a value, None if nothing is."""
        if not self.numeric:
            if _key(value) in self._positions:
                return None
            return f"{spelled(value)} is not among the choices {spelled(self.choices)}"
        allowed = int if self.type == "int" else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed):
            expected = "an integer" if self.type == "int" else "a number"
            return f"expected {expected}, got {spelled(value)}"
        lower, upper = self.bounds
        if not lower <= value <= upper:  # NaN is outside too
            return f"{value} is outside [{lower}, {upper}]"
        return None

    @property
    def bounds(self) -> tuple[float, float]:
        """The pair (lower, upper) of a float or int."""
        assert self.lower is not None, f"{self.name} has no bounds"
        assert self.upper is not None, f"{self.name} has no bounds"
        return self.lower, self.upper

    def index(self, value: object) -> int:
        """Return the position of `value` among the choices.

        Raises:
            InputError: it is not among them.
        """
        try:
            return self._positions[_key(value)]
        except KeyError:
            raise InputError(str(self.problem(value)), key=self.name) from None

    def canonical(self, value: object) -> Any:
        """Return a value as this hyperparameter holds it.

        It is unwrapped; an integer of a float becomes a float, a whole float of an int an integer,
        a choice what was listed. A value that does not fit is returned unchanged, for `problem` to
        name.
        """
        value = frozen(value)
        if self.type == "float" and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if self.type == "int" and isinstance(value, float) and value.is_integer():
            return int(value)
        position = None if self.numeric else self._positions.get(_key(value))
        return value if position is None else self.choices[position]

    def to_unit(self, value: Any) -> float:
        """Map a value to [0, 1].

        It is the centre of its bin unless the value is a float. Constants are at 0.5.
        """
        if not self.numeric:
            return (self.index(value) + 0.5) / len(self.choices)
        if self.type == "int" and self.scale == "linear":
            lower, upper = self.bounds
            return float((value - lower + 0.5) / (upper - lower + 1))
        start, width = self._scaled
        return min(1.0, max(0.0, (_forward(self.scale, value) - start) / width))

    def from_unit(self, unit: float) -> Any:
        """Return the value at `unit`, clipped to [0, 1].

        It is the inverse of `to_unit` for every value it returns. Floats are rounded to 12 decimals
        relative to the largest bound (linear, flipped_log) or 10 significant digits (log), so that
        value -> unit -> value is exact and records stay readable.
        """
        assert not math.isnan(unit), f"{self.name}: NaN has no value"
        unit = min(1.0, max(0.0, float(unit)))
        # At 1 the last choice, not one past it; likewise of integers.
        if not self.numeric:
            return self.choices[min(len(self.choices) - 1, int(unit * len(self.choices)))]
        lower, upper = self.bounds
        if self.type == "int" and self.scale == "linear":
            return int(min(upper, lower + int(unit * (upper - lower + 1))))
        start, width = self._scaled
        value = _backward(self.scale, start + unit * width)
        if self.type == "int":
            return int(min(upper, max(lower, math.floor(value + 0.5))))
        # An upper bound of more digits than are kept, such as 1/3, could not be reached otherwise.
        if unit in (0.0, 1.0):
            return upper if unit else lower
        return self.tidy(value)

    def tidy(self, value: float) -> float:
        """Round a float as `from_unit` does and clip it to the bounds."""
        lower, upper = self.bounds
        # On a logarithm it is ratios that count: digits, not decimals.
        rounded = float(f"{value:.10g}") if self.scale == "log" else round(value, self._decimals)
        return min(upper, max(lower, rounded))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of this hyperparameter in a search-space file."""
        if self.type == "constant":
            return {"type": self.type, "value": self.default}
        entry: dict[str, Any] = {"type": self.type}
        if self.numeric:
            entry |= {"lower": self.lower, "upper": self.upper, "scale": self.scale}
        else:
            entry["choices"] = list(self.choices)
        entry |= {"default": self.default} | ({"changeable": True} if self.changeable else {})
        return entry | ({} if self.prior is None else {"prior": dict(self.prior)})

    @cached_property
    def _positions(self) -> Mapping[Any, int]:
        return {_key(choice): position for position, choice in enumerate(self.choices)}

    @cached_property
    def _scaled(self) -> tuple[float, float]:
        """Start and width of the range on the scale.

        It is half a bin wider on both sides for integers.
        """
        lower, upper = self.bounds
        half = 0.5 if self.type == "int" else 0.0
        start = _forward(self.scale, lower - half)
        end = _forward(self.scale, upper + half)
        return start, end - start

    @cached_property
    def _decimals(self) -> int:
        lower, upper = self.bounds
        # Up to 5e8 there are 3 decimals, up to 1e-5 there are 17.
        largest = max(abs(lower), abs(upper))
        if self.scale == "flipped_log":
            largest = max(largest, 1.0)
        return _DIGITS - math.ceil(math.log10(largest))

    def _check_choices(self) -> None:
        try:
            canonical_json(self.choices)
        except InputError as error:
            field = "value" if self.type == "constant" else "choices"
            raise self._wrong(field, error.message) from None

    def _check_bounds(self) -> None:
        lower, upper = self.bounds
        kind = self.type
        if self.scale not in SCALES:
            expected = f"expected one of {', '.join(SCALES)}"
            raise self._wrong("scale", f"{expected}, got {shown(self.scale)}")
        log = self.scale == "log"
        flipped = self.scale == "flipped_log"
        scaled = f"the {self.scale} scale{' (log of 1 - x)' if flipped else ''} needs"
        for wrong, field, message in (
            (not lower < upper, "upper", f"upper must be greater than lower {lower}, got {upper}"),
            (
                kind == "int" and max(abs(lower), abs(upper)) > _LARGEST_INT,
                "upper",
                f"integers beyond 2**53 are not supported, got {lower}..{upper}",
            ),
            (kind == "int" and flipped, "scale", f"{scaled} a float; int takes linear or log"),
            (log and lower <= 0, "lower", f"{scaled} lower > 0, got {lower}"),
            (flipped and upper >= 1, "upper", f"{scaled} upper < 1, got {upper}"),
        ):
            if wrong:
                raise self._wrong(field, message)
        if not 0 < self._scaled[1] < math.inf:
            raise self._wrong(
                "upper", f"the range [{lower}, {upper}] is too narrow or too wide for 64-bit floats"
            )

    def _wrong(self, field: str, message: str) -> InputError:
        return InputError(message, key=f"hyperparameters.{self.name}.{field}")


def check_name(name: object) -> str:
    """Return a name that a hyperparameter may have.

    Raises:
        InputError: no string, other characters than allowed, or a word of expressions.
    """
    if not isinstance(name, str):
        raise InputError(
            f"the name of a hyperparameter is a string, got {shown(name)}",
            key=f"hyperparameters.{name}",
        )
    if not NAME.fullmatch(name) or name.lower() in _RESERVED:
        allowed = "letters, digits and _ - / . are allowed, beginning with a letter or _"
        raise InputError(
            f"{shown(name)} cannot name a hyperparameter: {allowed}", key=f"hyperparameters.{name}"
        )
    return name


def _number(name: str, field: str, kind: Kind, value: object) -> float:
    value = frozen(value)
    key = f"hyperparameters.{name}.{field}"
    if kind == "int" and isinstance(value, float) and value.is_integer():
        value = int(value)  # 1e5 is how people write a hundred thousand
    allowed = int if kind == "int" else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed):
        expected = "an integer" if kind == "int" else "a number"
        raise InputError(f"expected {expected}, got {spelled(value)}", key=key)
    if not math.isfinite(value):
        raise InputError(f"expected a finite number, got {value}", key=key)
    return value if kind == "int" else float(value)


def _forward(scale: Scale, value: float) -> float:
    if scale == "log":
        return math.log(value)
    return -math.log1p(-value) if scale == "flipped_log" else float(value)


def _backward(scale: Scale, position: float) -> float:
    if scale == "log":
        return math.exp(position)
    return -math.expm1(-position) if scale == "flipped_log" else position


def _key(value: object) -> Any:
    """Return a key that tells True from 1, which Python does not."""
    if isinstance(value, bool | str | int | float) or value is None:
        return (isinstance(value, bool), value)
    return canonical_json(value)
