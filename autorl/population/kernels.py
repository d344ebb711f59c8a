"""Compiles the engine: numba options, disk cache, entry points.

Many processes may compile the entry points at once.

A `kernel` is compiled into whatever calls it. A `program` is called from Python: it is compiled
once for each signature and cached on disk under a fingerprint of the engine's whole source, so
editing one kernel never revives a stale program. An environment's `reset`, `step` and `observe` are
passed as typed function pointers (`Function`): one compiled algorithm serves every environment, a
user's own included.

Reassociation is allowed inside one compiled loop (vector reductions) and fixed at compile time: a
member's result is bitwise the same alone or in company, on any thread, however its run is cut. The
flags that let LLVM assume away NaN and infinity stay off: divergence must remain visible.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import math
import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import llvmlite
import numba
import numpy as np
import numpy.typing as npt
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import NopythonTypeInference
from numba.core.typing.templates import Signature

from autorl.core.garbage import collection_paused
from autorl.core.shipped import cache_folder
from autorl.core.types import InputError


class _NoMachineCode:
    """Stands for numba's code generator, which hears of finished functions."""

    def set_env(self, name: str, environment: object) -> None:
        """Forget the function's environment.

        Compiled code reads it to call the interpreter, which kernels never do; a program from the
        cache has none of its kernels' either.
        """


class LinkOnlyLibrary(JITCodeLibrary):
    """LLVM code of a function, for callers who link it into theirs.

    Numba optimizes every function together with all that it calls, and makes machine code of it. A
    kernel's machine code would never run: its callers take its LLVM code into theirs, and the
    program around them is optimized as a whole. Leaving both out saves a quarter of the compilation
    time, and programs compute the same to the bit.
    """

    @property
    def codegen(self) -> Any:
        """Facts of numba about a function that is ready to run."""
        return _NoMachineCode()

    def _optimize_final_module(self) -> None:
        """Leave the module as it was linked.

        The function itself has been through LLVM's function passes: without them there would be
        more to link than is saved.
        """

    def _finalize_final_module(self) -> None:
        """Keep the module: who makes machine code never hears of it."""
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._verify_declare_only_symbols()  # type: ignore[no-untyped-call]
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)  # type: ignore[no-untyped-call]
class _ChooseLibrary(AnalysisPass):
    """Gives a function a `LinkOnlyLibrary` before LLVM code is made of it."""

    _name = "autorl_link_only"

    # Abstract in numba's class: without it no pass can be made.
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def run_pass(self, state: Any) -> bool:
        """Make the library. Nothing else of the state changes."""
        library: Any = LinkOnlyLibrary
        state.library = library(state.targetctx.codegen(), state.func_id.func_qualname)
        return False


class LinkOnly(CompilerBase):
    """Numba's compiler for such functions: a `pipeline_class` of `numba.njit`."""

    def define_pipelines(self) -> list[Any]:
        """Return the one pipeline. None falls back to the interpreter."""
        passes: Any = DefaultPassBuilder
        pipeline = passes.define_nopython_pipeline(self.state)
        pipeline.add_pass_after(_ChooseLibrary, NopythonTypeInference)
        pipeline.finalize()
        return [pipeline]


F = TypeVar("F", bound=Callable[..., Any])
Array: TypeAlias = npt.NDArray[Any]

OPTIONS: dict[str, Any] = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "_nrt": False,  # kernels allocate nothing: no reference counts to keep
    # Fused multiply-add, vector sums, -0 as 0, reciprocals. Not "nnan" and "ninf".
    "fastmath": {"contract", "reassoc", "nsz", "arcp"},
}
# Compiled code alone calls the compiled form of a kernel: without Python wrappers, and machine code
# of its own, a program compiles in a third of the time.
INNER: Any = {
    **OPTIONS,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": LinkOnly,
}


kind_of: Callable[[Any], Any] = numba.typeof
CACHE_LINE = 64  # bytes


def aligned_zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """Make zeros that begin with a line of the cache.

    NumPy's begin at any sixteenth byte, and every vector of 64 bytes is read from two lines.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) if isinstance(shape, tuple) else shape
    memory = np.zeros(size * kind.itemsize + CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + size * kind.itemsize].view(kind).reshape(shape)


def aligned_copy(array: Array) -> Array:
    """Copy an array to `aligned_zeros`, in C order."""
    copied = aligned_zeros(array.shape, array.dtype)
    copied[...] = array
    return copied


class Function(NamedTuple):
    """A compiled function handed to a program.

    It holds numba's dispatcher and the function-pointer type it is passed as.
    """

    dispatcher: Any
    kind: Any


class Kernel:
    """A function compiled into the programs that call it.

    Called from Python it runs as plain Python, for debugging.
    """

    __module__: str
    __qualname__: str

    def __init__(self, function: Callable[..., object], options: Mapping[str, Any] = INNER) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._dispatcher = numba.njit(**options)(function)
        self._dispatcher.compile = _lightly(self._dispatcher.compile)
        self._dispatcher.get_call_template = _of_variables(self._dispatcher.get_call_template)
        # Numba reads it when one kernel names another.
        self._numba_type_ = kind_of(self._dispatcher)
        # Numba reads both to see whether a kernel is inlined, and its source.
        self.targetoptions = self._dispatcher.targetoptions
        self.py_func = function

    def __call__(self, *arguments: object) -> object:
        return self._function(*arguments)

    # Numba tells programs of one text apart by what they close over, pickled: nobody reads it.
    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (self.full_name,)

    @property
    def full_name(self) -> str:
        """Module and name, with those of the kernels that it closes over."""
        cells = [cell.cell_contents for cell in self._function.__closure__ or ()]
        parts = [part.full_name for part in cells if isinstance(part, Kernel)]
        return f"{self.__module__}.{self.__qualname__}({', '.join(parts)})"


def _of_variables(template: F) -> F:
    """Make a dispatcher's calls with numbers written in them those with variables.

    `template` is the dispatcher's method. Numba would compile a kernel, and all that it calls, once
    more for each such number, and the program would be the same.
    """

    def without_literals(args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        of_variable: Any = types.unliteral
        return template(
            tuple(map(of_variable, args)), {name: of_variable(kind) for name, kind in kws.items()}
        )

    return cast(F, without_literals)


def _lightly(compiled: F) -> F:
    """Make a dispatcher compile under numba's first level of optimization.

    `compiled` is the dispatcher's method.

    A kernel is only ever part of a program, which is optimized as a whole. The level is that of the
    passes over a kernel by itself, and of what numba compiles for it.
    """

    def at_first_level(*arguments: object) -> Any:
        # A setting of the whole process, read when a function is compiled.
        config: Any = numba.config
        level = config.OPT
        config.OPT = 1
        try:
            return compiled(*arguments)
        finally:
            config.OPT = level

    return cast(F, at_first_level)


def kernel(function: F) -> F:
    """Make a `Kernel` of `function`."""
    return cast(F, Kernel(function))


def exact(function: F) -> F:
    """Make a `Kernel` that rounds after every operation, as Python does.

    No multiply-add is fused and no quotient replaced by a product.
    """
    return cast(F, Kernel(function, {**INNER, "fastmath": False}))


def inlined_kernel(function: F) -> F:
    """Make a `Kernel` that is compiled into the text of its callers.

    Its arguments are constants wherever a caller's are: the same code, to the bit, as if they stood
    in it.
    """
    return cast(F, Kernel(function, {**INNER, "inline": "always"}))


def program(function: Callable[..., object]) -> Program:
    """Make `function` an entry point from Python.

    It is cached on disk, with one specialisation per signature.
    """
    return Program(function)


class Program:
    """A compiled function called from Python, by many threads at once.

    Other processes wait while one compiles.
    """

    __name__: str

    def __init__(self, function: Callable[..., object]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        # Python alone calls it: no pointer to it is ever handed on.
        self._dispatcher = cached(function, no_cfunc_wrapper=True)
        self._compiled: set[tuple[types.Type, ...]] = set()

    def __call__(self, *arguments: object) -> Any:
        signature = tuple(_kind(argument) for argument in arguments)
        functions = [argument for argument in arguments if isinstance(argument, Function)]
        # Left to numba, those of a further environment would be compiled under another name in the
        # cache, by several processes at once.
        if signature not in self._compiled or not all(map(_is_compiled, functions)):
            self._compile(signature, functions)
        passed = (a.dispatcher if isinstance(a, Function) else a for a in arguments)
        return self._dispatcher(*passed)

    def prepared(self, *arguments: object) -> Callable[..., Any]:
        """Compile for these arguments, and return what takes more of their types.

        It does not look at types again, which for an agent takes longer than a small program:
        for who calls it at every step. No argument may be a `Function`.
        """
        signature = tuple(_kind(argument) for argument in arguments)
        if signature not in self._compiled:
            self._compile(signature, ())
        return cast(Callable[..., Any], self._dispatcher)

    def _compile(self, signature: tuple[types.Type, ...], functions: Sequence[Function]) -> None:
        name = f"{self.py_func.__module__.rpartition('.')[2]}.{self.__name__}"
        dispatchers = [function.dispatcher for function in functions]
        with _compiling(name, [self._dispatcher, *dispatchers]):
            for first in _before:
                first()
            # A pointer is to one compiled form: that of the signature the engine calls.
            for function in functions:
                function.dispatcher.compile(function.kind.signature.args)
            if signature in self._compiled:
                return
            self._dispatcher.disable_compile(False)
            self._dispatcher.compile(signature)
            # From here on, dispatchers among the arguments become pointers.
            self._dispatcher.disable_compile()
            self._compiled.add(signature)


def _is_compiled(function: Function) -> bool:
    return function.kind.signature.args in function.dispatcher.overloads


def _kind(argument: object) -> Any:
    return argument.kind if isinstance(argument, Function) else kind_of(argument)


def cached_c_function(signature: Signature, function: Callable[..., object]) -> Any:
    """Compile `function` to a C function of this signature.

    It is cached in the engine's own folder.
    """
    with _engine_cache():
        return numba.cfunc(signature, cache=True, **OPTIONS)(function)


def prepare(name: str, functions: Sequence[Function]) -> None:
    """Compile functions that programs take as arguments, or load them."""
    with _compiling(name, [function.dispatcher for function in functions]):
        for function in functions:
            function.dispatcher.compile(function.kind.signature.args)


class Prepared(NamedTuple):
    """Result of compiling or loading a program.

    Attributes:
        name: of a program, or as `prepare` was told.
        seconds: it took, those included in which another process compiled.
        compiled: whether it was, or else came from the cache or was loaded before.
    """

    name: str
    seconds: float
    compiled: bool


@contextmanager
def tell_preparations(listener: Callable[[Prepared], None]) -> Iterator[None]:
    """Tell a listener all that is compiled or loaded in this block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


@contextmanager
def _compiling(name: str, dispatchers: Sequence[Any]) -> Iterator[None]:
    """Let one thread at a time compile, and measure its time."""

    def misses() -> int:
        return sum(sum(dispatcher.stats.cache_misses.values()) for dispatcher in dispatchers)

    began = time.perf_counter()
    with _lock, _one_process(), collection_paused():
        before = misses()
        yield
    prepared = Prepared(name, time.perf_counter() - began, misses() > before)
    for listener in _listeners:
        listener(prepared)


_lock = threading.RLock()
_listeners: list[Callable[[Prepared], None]] = []
_before: list[Callable[[], object]] = []


def before_compiling(first: Callable[[], object]) -> None:
    """Have `first` called before any program is compiled or loaded.

    One process at a time calls it.
    """
    _before.append(first)


def cached(function: Callable[..., object], **options: bool) -> Any:
    """Compile `function` with numba, cached in the engine's own folder.

    `options` are further ones of `numba.njit`.
    """
    all_options: dict[str, Any] = {**OPTIONS, **options}
    with _engine_cache():
        return numba.njit(cache=True, **all_options)(function)


@contextmanager
def _engine_cache() -> Iterator[None]:
    """Cache functions decorated in this block in the engine's folder.

    Numba's setting is put back.
    """
    # Numba reads it when a function is decorated, and the user's own functions have theirs.
    config: Any = numba.config
    previous = config.CACHE_DIR
    config.CACHE_DIR = str(cache_directory())
    try:
        yield
    finally:
        config.CACHE_DIR = previous


@functools.cache
def cache_directory() -> Path:
    """Return the folder compiled programs are kept in.

    It lies in `$AUTORL_CACHE`, else in the user's cache folder, with one folder per fingerprint.
    """
    folder = cache_folder("compiled") / _fingerprint()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def check_cache() -> Path:
    """Return the cache's folder after a trial write.

    Raises:
        InputError: no file can be written there.
    """
    try:
        folder = cache_directory()
        # Tried: permission bits say nothing of a disk that is read-only or full.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"autorl")
    except OSError as error:
        raise unwritable(error) from error
    return folder


def unwritable(error: OSError) -> InputError:
    """Say that the cache cannot be written."""
    place = cache_folder("compiled").parent
    return InputError(
        f"compiled programs cannot be kept in {place} ({error.strerror}): "
        "let AUTORL_CACHE name a folder that can be written"
    )


def _fingerprint() -> str:
    """Hash the engine's source files and the versions that compile them."""
    versions = (numba.__version__, llvmlite.__version__, np.__version__, platform.python_version())
    digest = hashlib.sha256(" ".join(versions).encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _one_process() -> Iterator[None]:
    """Let one process compile at a time.

    Numba's cache index is not safe against two writers.
    """
    with open(cache_directory() / "lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
