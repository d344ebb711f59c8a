"""Resources of a machine: control groups of both versions, and GPUs."""

import os

import pytest

from autorl.core.types import InputError
from autorl.executors import machine
from autorl.executors.ray_worker import gang_environment


def written(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")
    return folder


def test_control_groups_bound_cores_and_memory(tmp_path):
    all_cores = len(os.sched_getaffinity(0))
    whole = machine.memory_gb(tmp_path)
    assert machine.cores(tmp_path) == all_cores
    assert whole > 0.1
    unlimited = written(tmp_path / "free", cpu__max="max 100000", memory__max="max")
    assert (machine.cores(unlimited), machine.memory_gb(unlimited)) == (all_cores, whole)
    second = written(tmp_path / "v2", cpu__max="50000 100000", memory__max=str(2**26))
    assert (machine.cores(second), machine.memory_gb(second)) == (0.5, 2**-4)
    first = tmp_path / "v1"
    written(first / "cpu", cpu__cfs_quota_us="25000", cpu__cfs_period_us="100000")
    written(first / "memory", memory__limit_in_bytes=str(2**27))
    assert (machine.cores(first), machine.memory_gb(first)) == (0.25, 2**-3)
    written(first / "cpu", cpu__cfs_quota_us="-1")
    assert machine.cores(first) == all_cores


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that is all of PATH, and no answer of `nvidia-smi` remembered."""
    monkeypatch.setenv("PATH", str(tmp_path))
    machine._installed_gpus.cache_clear()
    yield tmp_path
    machine._installed_gpus.cache_clear()


def test_gpus_are_those_of_the_file_then_the_visible_then_the_installed(programs):
    assert machine.gpu_groups(["0,1", 2], {"CUDA_VISIBLE_DEVICES": "7"}) == (("0", "1"), ("2",))
    assert machine.gpu_groups([], {"CUDA_VISIBLE_DEVICES": "7, GPU-ab"}) == (("7", "GPU-ab"),)
    with pytest.raises(InputError, match=r"resources\.gpu: GPUs are asked for.*no NVIDIA driver"):
        machine.gpu_groups([], {})
    with pytest.raises(InputError, match=r"resources\.gpu: GPUs are asked for.*no NVIDIA driver"):
        machine.check_gpus([0])
    for nothing in ("", "-1", "NoDevFiles"):
        with pytest.raises(InputError, match=f"CUDA_VISIBLE_DEVICES={nothing!r} shows none here"):
            machine.gpu_groups([], {"CUDA_VISIBLE_DEVICES": nothing})
    with pytest.raises(InputError, match="CUDA_VISIBLE_DEVICES: expected CUDA devices"):
        machine.gpu_groups([], {"CUDA_VISIBLE_DEVICES": "a"})
    program = programs / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'echo "GPU 0: NVIDIA H100 (UUID: GPU-1)"\n'
        'echo "  MIG 1g.10gb Device 0: (UUID: MIG-1)"\n'
        'echo "GPU 1: NVIDIA H100 (UUID: GPU-2)"\n'
    )
    program.chmod(0o755)
    machine._installed_gpus.cache_clear()
    assert machine.gpu_groups([], {}) == (("0", "1"),)
    for devices, visible in (([], None), ([1, "0"], "7"), ([], "GPU-2,MIG-1"), (["GPU-1"], "")):
        machine.check_gpus(devices, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    for devices, visible, message in (
        (["0,2"], "0", "executor.devices: there is no CUDA device 2 here.*lists 0, GPU-1, MIG-1"),
        ([], "0,GPU-3", "CUDA_VISIBLE_DEVICES: there is no CUDA device GPU-3"),
    ):
        with pytest.raises(InputError, match=message):
            machine.check_gpus(devices, {"CUDA_VISIBLE_DEVICES": visible})


def test_the_hosts_of_a_gang_are_told_of_each_other():
    second = gang_environment(1, 3, "10.0.0.7", 4711)
    expected = {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4711", "WORLD_SIZE": "3", "RANK": "1"}
    assert expected.items() <= second.items()
    assert (second["LOCAL_RANK"], second["NODE_RANK"], second["NNODES"]) == ("0", "1", "3")
    assert (second["PET_NNODES"], second["PET_NODE_RANK"]) == ("3", "1")
    assert (second["PET_MASTER_ADDR"], second["PET_MASTER_PORT"]) == ("10.0.0.7", "4711")
