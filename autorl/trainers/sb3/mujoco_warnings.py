"""MuJoCo's warnings on standard error.

By itself it writes each into MUJOCO_LOG.TXT in the working folder, one for every environment of
HalfCheetah that is made.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

_MOST = 100
_said: set[str] = set()


def say_warnings(mujoco: Any) -> None:
    """Have the warnings of the package said from now on, each once.

    A handler that somebody has set stays.
    """
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_say)


def _say(warning: str) -> None:
    # Those of a simulation that diverges have the time in them.
    if warning in _said or len(_said) == _MOST:
        return
    _said.add(warning)
    # An error in here would end the process: standard error may be closed.
    with suppress(OSError, ValueError):
        print(f"MuJoCo: {warning}", file=sys.stderr, flush=True)
