"""Compiles functions that only ever become part of others.

Numba optimizes every function together with all that it calls, and makes machine code of it. A
kernel's machine code would never run: its callers take its LLVM code into theirs, and the program
around them is optimized as a whole. Without both, compilation takes three quarters of the time, and
programs compute the same to the bit.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import NopythonTypeInference


class _NoMachineCode:
    """Stands for numba's code generator, which hears of finished functions."""

    def set_env(self, name: str, environment: object) -> None:
        """Forget the function's environment.

        Compiled code reads it to call the interpreter, which kernels never do; a program from the
        cache has none of its kernels' either.
        """


class LinkOnlyLibrary(JITCodeLibrary):
    """LLVM code of a function, for callers who link it into theirs."""

    @property
    def codegen(self) -> Any:
        """What numba tells of a function that is ready to run."""
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
