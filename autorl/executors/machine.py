"""Resources of this machine for segments: cores, memory and GPUs.

A container or a job of a scheduler has only what it may use.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from autorl.core.types import InputError
from autorl.executors.devices import VISIBLE_DEVICES, device_groups, visible_device

_GIB = 2**30
_NVIDIA_SECONDS = 300.0  # a driver that hangs, not one that is slow
_LISTED = re.compile(r"(?<=^GPU )\d+(?=:)|(?<=UUID: )[^\s)]+", re.MULTILINE)
_NO_DRIVER = "no NVIDIA driver answers: `nvidia-smi -L` lists no GPU"
_NO_DEVICES = ("-1", "NoDevFiles", "none", "void")  # what CUDA, Slurm and Docker write for none


def cores(groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Count the cores this process may use, a part of one too.

    Args:
        groups: where control groups are mounted (Linux).
    """
    count = float(os.cpu_count() or 1)
    if hasattr(os, "sched_getaffinity"):  # Linux
        count = float(len(os.sched_getaffinity(0)))
    for folder in _control_groups(groups, "cpu"):
        with suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            count = min(count, int(quota) / int(period))
        with suppress(OSError, ValueError):
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="ascii")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="ascii")
            if int(quota) > 0:
                count = min(count, int(quota) / int(period))
    return count


def memory_gb(groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Measure the memory this process may use, in GiB.

    Args:
        groups: where control groups are mounted (Linux).
    """
    bytes_of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in _control_groups(groups, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                limit = int((folder / name).read_text(encoding="ascii"))
                bytes_of_machine = min(bytes_of_machine, limit)
    return bytes_of_machine / _GIB


def gpu_groups(
    devices: Sequence[str | int], environment: Mapping[str, str] = os.environ
) -> tuple[tuple[str, ...], ...]:
    """List the GPUs that segments may have, in groups.

    Args:
        devices: `executor.devices` of the study file; without any, those this process sees.
        environment: variables of this process.

    Raises:
        InputError: there are none.
    """
    if devices:
        return device_groups(devices)
    visible = environment.get(VISIBLE_DEVICES)
    if visible is not None:
        names = [name.strip() for name in visible.split(",") if name.strip()]
        if not names or names[0] in _NO_DEVICES:
            raise InputError(
                f"GPUs are asked for, and {VISIBLE_DEVICES}={visible!r} shows none here",
                key="resources.gpu",
            )
        return (tuple(visible_device(visible, VISIBLE_DEVICES).split(",")),)
    numbers = tuple(name for name in _installed_gpus() if name.isdecimal())
    if not numbers:
        raise InputError(
            f"GPUs are asked for, and none are here: {VISIBLE_DEVICES} is not set and {_NO_DRIVER}",
            key="resources.gpu",
        )
    return (numbers,)


def check_gpus(devices: Sequence[str | int], environment: Mapping[str, str] = os.environ) -> None:
    """Check that this machine has the GPUs that `gpu_groups` lists.

    Raises:
        InputError: there is no driver, or no such device.
    """
    groups = gpu_groups(devices, environment)
    installed = _installed_gpus()
    if not installed:
        raise InputError(f"GPUs are asked for, and {_NO_DRIVER}", key="resources.gpu")
    for name in (name for group in groups for name in group):
        # CUDA takes the beginning of a UUID too.
        if name not in installed and (
            name.isdecimal() or not any(uuid.startswith(name) for uuid in installed)
        ):
            raise InputError(
                f"there is no CUDA device {name} here: `nvidia-smi -L` lists "
                f"{', '.join(installed)}",
                key="executor.devices" if devices else VISIBLE_DEVICES,
            )


@functools.cache  # asked several times before a study; it can take seconds
def _installed_gpus() -> tuple[str, ...]:
    """List the GPUs of this machine by number and UUID.

    There are none without `nvidia-smi`.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    try:
        listed = subprocess.run(
            [program, "-L"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NVIDIA_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"`nvidia-smi -L` does not answer: {error}", key="resources.gpu") from None
    return tuple(_LISTED.findall(listed.stdout))


def _control_groups(mount: Path, controller: str) -> Iterator[Path]:
    """Give the folders of this process's control group, and those above.

    Both versions are read; where a container hides them, the mount itself is the group.
    """
    folders = {mount: None, mount / controller: None}
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            root = mount / controller if controllers else mount
            innermost = root / path.lstrip("/")
            folders |= dict.fromkeys(
                [innermost, *(above for above in innermost.parents if mount in above.parents)]
            )
    yield from folders
