from __future__ import annotations

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from numba import njit
from patience import PATIENCE
from population_helpers import CARTPOLE, SMALL, advanced

from autorl.population import kernels, rng
from autorl.population.environments import Environment
from autorl.population.kernels import (
    CACHE_LINE,
    LinkOnlyLibrary,
    Program,
    aligned_zeros,
    inlined_kernel,
    kernel,
    kind_of,
    program,
)

_TRAIN = """
import numpy as np
from autorl.population import engine
from autorl.population.environments import ENVIRONMENTS
from autorl.population.hyperparameters import record
algorithm, environment = engine.find_algorithm("dqn"), ENVIRONMENTS["CartPole-v1"]
hp = record(algorithm.settings, {"learning_starts": 10, "buffer_size": 100}, 1000)
state = algorithm.create(environment, hp, 3, np.float32)
algorithm.bind(state, environment, hp).advance(20)
print(state["member"].parameters.tobytes().hex()[:4000])
"""


@kernel
def _double(x):
    return 2 * x


@kernel
def _add(x, y):
    return _double(x) + y


@program
def _fill_with_numbers(out):
    out[0] = _add(1, 2)
    out[1] = _add(3, len(out))


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """A program that was compiled, not loaded from the cache of an earlier run, and its kernels."""
    monkeypatch.setattr(kernels, "cache_directory", lambda: tmp_path)
    double = kernel(_double.py_func)
    monkeypatch.setitem(globals(), "_double", double)
    add = kernel(_add.py_func)
    monkeypatch.setitem(globals(), "_add", add)
    out = np.zeros(2)
    program(_fill_with_numbers.py_func)(out)
    assert list(out) == [4, 8]
    return double, add


def test_a_kernel_is_compiled_once_whatever_numbers_stand_in_its_calls(compiled):
    assert [len(part._dispatcher.overloads) for part in compiled] == [1, 1]


def test_a_kernel_has_no_machine_code_of_its_own(compiled):
    _, add = compiled
    (made,) = add._dispatcher.overloads.values()
    assert isinstance(made.library, LinkOnlyLibrary)
    name = made.fndesc.llvm_func_name
    assert f'@"{name}"' in made.library.get_llvm_str() or f"@{name}" in made.library.get_llvm_str()
    # Numba's engine knows every function that it has made machine code of.
    engine = made.library._codegen._engine
    assert not engine.is_symbol_defined(name)


def test_a_function_of_numba_alone_may_call_a_kernel():
    @njit
    def draw(key):
        return rng.uniform(key, 0) + _add(1, 1)

    key = np.uint64(7)
    with np.errstate(over="ignore"):
        assert draw(key) == rng.uniform(key, 0) + 3


def _filling(part):
    """A program of a factory, and a kernel of its own between."""

    @inlined_kernel
    def fill(out):
        for i in range(len(out)):
            out[i] = part(i)

    def run(out):
        fill(out)

    return Program(run)


@kernel
def _zero(x):
    return 0.0 * x


def test_programs_of_a_factory_are_told_apart_and_loaded_by_the_next_process(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "cache_directory", lambda: tmp_path)
    for _ in range(2):  # the second time as another process: both are loaded
        for part, expected in ((_double, [0, 2]), (_zero, [0, 0])):
            out = np.ones(2)
            _filling(part)(out)
            assert list(out) == expected
        assert len(list(tmp_path.rglob("*.nbc"))) == 2


def _ones(out):
    out[:] = 1.0


def _twos(out):
    out[:] = 2.0


def _call(function, out):
    function(out)


def test_functions_of_a_further_environment_are_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "cache_directory", lambda: tmp_path)
    kind = kernels.types.FunctionType(kernels.types.void(kernels.types.float64[::1]))
    for files in (3, 3):  # the second time as another process: everything is loaded
        caller = Program(_call)
        for function, value in ((_ones, 1.0), (_twos, 2.0)):
            out = np.zeros(2)
            caller(kernels.Function(kernels.cached(function), kind), out)
            assert list(out) == [value, value]
        assert len(list(tmp_path.rglob("*.nbc"))) == files


def test_garbage_is_collected_again_after_compilation():
    assert gc.isenabled()
    Program(lambda out: out[0])(np.zeros(1))
    assert gc.isenabled()
    gc.disable()
    try:
        Program(lambda out: out[0])(np.zeros(1, np.float32))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_fingerprint_follows_the_source(tmp_path, monkeypatch):
    before = kernels._fingerprint()
    copy = tmp_path / "kernels.py"
    copy.write_text("changed = True", encoding="utf-8")
    monkeypatch.setattr(kernels, "__file__", str(copy))
    assert kernels._fingerprint() != before


@njit
def _reset(state, key):
    state[0] = 0.0


@njit
def _step(state, action, key):
    state[0] += 1.0
    return action[0], False


@njit
def _observe(state, observation):
    observation[0] = 1.0


def test_a_users_environment_trains_in_the_program_compiled_before():
    from autorl.population import ppo

    advanced("ppo", 0, (1,), CARTPOLE, **SMALL)
    compiled = len(ppo.train._compiled)
    right = Environment("Right", 1, 1, 10, _reset, _step, _observe, n_actions=2)
    config = {"n_steps": 64, "n_envs": 2, "learning_rate": 1e-2, "net_width": 8}
    member = advanced("ppo", 0, (15,), right, **config)["member"]
    assert member.recent.mean() > 9.0  # action 1 pays: ten of ten
    assert len(ppo.train._compiled) == compiled  # no further specialisation


@pytest.mark.slow
def test_processes_that_start_together_compile_once_and_agree(tmp_path):
    environment = {**os.environ, "AUTORL_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", _TRAIN]
    started = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    printed = [process.communicate(timeout=PATIENCE)[0] for process in started]
    assert all(process.returncode == 0 for process in started)
    assert len(set(printed)) == 1
    assert len(printed[0]) > 1000
    programs = [path for path in tmp_path.rglob("*.nbc") if "train" in path.name]
    assert len(programs) == 1
    later = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert later == printed[0]
    assert len([path for path in tmp_path.rglob("*.nbc") if "train" in path.name]) == 1


@pytest.mark.parametrize("shape", [5, (0,), (), (3, 7), (2, 0, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint64, np.bool_])
def test_aligned_arrays_are_those_of_numpy(shape, dtype):
    array = aligned_zeros(shape, dtype)
    plain = np.zeros(shape, dtype)
    assert array.ctypes.data % CACHE_LINE == 0 or not array.size
    np.testing.assert_array_equal(array, plain)
    assert kind_of(array) == kind_of(plain)
