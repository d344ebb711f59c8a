"""How the cost of a call grows, without a clock: bytecodes that Python executes, the same on every machine."""

import math
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def opcodes(call: Callable[[], object]) -> int:
    """Bytecodes that a call executes, everything it calls included; what C code does is not counted."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def exponent(work: Callable[[int], object], size: int) -> float:
    """The power with which `work(n)` grows from `size` to twice as much: 1 = linear, 2 = quadratic."""
    # Python 3.12.1 and 3.13.0 tell nothing of the bytecodes of a function traced for the first time.
    opcodes(lambda: work(size))
    return math.log2(opcodes(lambda: work(2 * size)) / opcodes(lambda: work(size)))
