"""Register-tiled products of small row-major matrices.

`gemm` computes `out = start + a @ b`. A tile of the result
stays in vector registers while the inner dimension is walked; each step broadcasts one element of
`a` per row and multiplies it into a row of `b` by fused multiply-add. Every element of the result
is the same chain of operations (start, then k = 0, 1, ...) whatever tile it falls into: results
depend neither on how many rows are computed together nor on the lane count. If `b` is wider than a
tile and many rows read it, blocks of it are copied next to each other first [Goto2008].
Zeros are put in place of some elements (`then`) while they are in registers.

Lanes come from the host: 16 floats (AVX-512), 8 (AVX2), 4 (NEON, SSE); without fused multiply-add,
or for float64, the plain loops of `gemm_loops` do the same sum. `a` may be a transposed view;
`columns` must be a multiple of `PAD`.

Reference:
    [Goto2008] K. Goto, R. van de Geijn. Anatomy of high-performance matrix multiplication. ACM TOMS
        34(3), 2008.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.funcdesc import ExternalFunctionDescriptor
from numba.extending import intrinsic, overload

from autorl.population.kernels import INNER, Array, before_compiling, cached_c_function, kernel
from autorl.population.tiles import GATED, LANES, PLAIN, RECTIFIED, TILE_ROWS, make_panel, make_tile

PAD = 4  # rows of `b` and `out` are padded to a multiple of this many elements
_MIDDLE = max(LANES, PAD)
_VECTORS = 2 if LANES == 8 else 4  # AVX2 has 16 vector registers, AVX-512 and NEON have 32
WIDE = _VECTORS * _MIDDLE  # columns of the widest panel
# A panel of 256 rows is 64 KiB and in the cache 1 KiB apart: read anew for every tile it comes from
# the second level. From copies of 64 rows (16 KiB) a product of 256 x 256 has 250 GFLOP/s, not 205,
# and 245, not 175, where `a` is transposed. A copy pays where eight tiles and more read it.
BLOCK_DEPTH = 64
BLOCKED_ROWS = 8 * TILE_ROWS
_wide_panel = make_panel(_VECTORS, _MIDDLE)
_middle_panel = make_panel(1, _MIDDLE, 2 * TILE_ROWS)
_narrow_panel = make_panel(1, PAD, 2 * TILE_ROWS)


@intrinsic
def _block_memory(context):  # type: ignore[no-untyped-def]
    """Reserve memory for a block of `b` on the stack."""

    def generate(
        context: Any, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]
    ) -> Any:
        # Not `cgutils.alloca_once`, which clears it: a tenth of a microsecond in every product.
        with builder.goto_entry_block():
            memory = builder.alloca(ir.ArrayType(ir.FloatType(), BLOCK_DEPTH * WIDE))
        memory.align = 64  # a line of the cache
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.intp(), generate


_new_block: Any = _block_memory
_copy = make_tile(1, _VECTORS, _MIDDLE)


@kernel
def _blocked_panel(block, places, steps, rows, depth, then):  # type: ignore[no-untyped-def]
    """Compute the widest panel from copies of blocks of `b`."""
    c, start, a, b, gate = places
    c_row, start_row, a_row, a_column, b_row, gate_row = steps
    k = 0
    while k < depth:
        deep = min(BLOCK_DEPTH, depth - k)
        for row in range(deep):
            to = block + 4 * row * WIDE
            # A tile without a sum is a copy.
            _copy((to, b + 4 * (k + row) * b_row, a, b, 0), (0, 0, 0, 0, 0, 0), 0, PLAIN)
        _wide_panel(
            (c, start if k == 0 else c, a + 4 * k * a_column, block, gate),
            (c_row, start_row if k == 0 else c_row, a_row, a_column, WIDE, gate_row),
            rows,
            deep,
            then if k + deep == depth else PLAIN,
        )
        k += BLOCK_DEPTH


def _product(  # type: ignore[no-untyped-def]
    c, c_row, s, s_row, a, a_row, a_column, b, b_row, then, gate, gate_row, rows, columns, depth
):
    """Start + a @ b on addresses and strides, panel by panel."""
    block = _new_block()
    blocked = rows >= BLOCKED_ROWS and b_row > WIDE and depth > 0
    steps = (c_row, s_row, a_row, a_column, b_row, gate_row)
    j = 0
    while j < columns:
        places = (c + 4 * j, s + 4 * j, a, b + 4 * j, gate + 4 * j)
        if j + WIDE <= columns:
            if blocked:
                _blocked_panel(  # type: ignore[no-untyped-call]
                    block, places, steps, rows, depth, then
                )
            else:
                _wide_panel(places, steps, rows, depth, then)
            j += WIDE
        elif j + _MIDDLE <= columns:
            _middle_panel(places, steps, rows, depth, then)
            j += _MIDDLE
        else:
            _narrow_panel(places, steps, rows, depth, then)
            j += PAD


_SYMBOL = "autorl_population_gemm"
_SIGNATURE = types.void(*[types.intp] * 15)


@intrinsic
def _call_product(  # type: ignore[no-untyped-def]
    context, out, a, b, start, gate, then, rows, columns, depth
):
    """Call the product of `link` on the arrays' addresses and strides.

    `start` is a row, which is repeated, or a matrix. Written out in a kernel, a call is thirty
    expressions to infer and to lower.
    """
    signature = types.void(out, a, b, start, gate, *[types.intp] * 4)
    describe: Any = ExternalFunctionDescriptor
    described = describe(_SYMBOL, types.void, _SIGNATURE.args)

    def generate(
        context: Any, builder: ir.IRBuilder, signature: Any, arguments: Sequence[ir.Value]
    ) -> Any:
        def place(index: int) -> list[Any]:
            """Return the address of an array's data, then its strides in elements."""
            model = context.data_model_manager[signature.args[index]]
            value = arguments[index]
            data = builder.extract_value(value, model.get_field_position("data"))
            unpack: Any = cgutils.unpack_tuple
            strides = unpack(
                builder, builder.extract_value(value, model.get_field_position("strides"))
            )
            size = ir.Constant(strides[0].type, 2)
            # Strides of float32 are multiples of 4 bytes.
            return [
                builder.ptrtoint(data, strides[0].type),
                *(builder.ashr(stride, size) for stride in strides),
            ]

        c, c_row, _ = place(0)
        left, left_row, left_column = place(1)
        right, right_row, _ = place(2)
        first, *steps = place(3)
        first_row = steps[0] if len(steps) == 2 else ir.Constant(c_row.type, 0)
        gates, gate_row, _ = place(4)
        then, *sizes = arguments[5:]
        product = context.declare_external_function(builder.module, described)
        matrices = [c, c_row, first, first_row, left, left_row, left_column, right, right_row]
        values = [*matrices, then, gates, gate_row, *sizes]
        builder.call(product, values)
        return context.get_dummy_value()

    return signature, generate


_linked: Any = _call_product


@functools.cache
def link() -> Any:
    """Compile the product once and publish its symbol.

    Programs that use it are linked to it by name.

    Compiled into every caller instead, it would be half of all code the compiler has to translate.
    """
    product = cached_c_function(_SIGNATURE, _product)
    binding.add_symbol(_SYMBOL, product.address)
    return product  # kept alive by the cache


@kernel
def gemm_loops(
    out: Array,
    a: Array,
    b: Array,
    start: Array,
    gate: Array,
    then: int,
    rows: int,
    columns: int,
    depth: int,
) -> None:
    """Compute `gemm` by plain loops, for any element type."""
    zero = out.dtype.type(0.0)
    for i in range(rows):
        row = out[i]
        first = start if start.ndim == 1 else start[i]
        for j in range(columns):
            row[j] = first[j]
        for k in range(depth):
            scale = a[i, k]
            for j in range(columns):
                row[j] += scale * b[k, j]
        if then == RECTIFIED:
            for j in range(columns):
                # Not `max`: NaN must stay NaN.
                row[j] = row[j] if not row[j] < zero else zero
        if then == GATED:
            gates = gate[i]
            for j in range(columns):
                row[j] = row[j] if gates[j] > zero else zero


def gemm(
    out: Array,
    a: Array,
    b: Array,
    start: Array,
    gate: Array,
    then: int,
    rows: int,
    columns: int,
    depth: int,
) -> None:
    """Set out[:rows, :columns] to start + a[:rows, :depth] @ b[:depth, :columns].

    `start` is a row for all, or a matrix, as `out` itself. `then` says where zeros are put:
    nowhere (PLAIN), where the result is negative (RECTIFIED), or where `gate` is not positive
    (GATED); otherwise `gate` may be any matrix.
    """
    # Row by row: with NumPy's library it may depend on how many are computed together.
    for row in range(rows):
        first = start if start.ndim == 1 else start[row]
        product = first[:columns] + a[row, :depth] @ b[:depth, :columns]
        if then == RECTIFIED:
            product[product < 0.0] = 0.0
        if then == GATED:
            product[~(gate[row, :columns] > 0.0)] = 0.0
        out[row, :columns] = product


@overload(gemm, jit_options=INNER, inline="always")
def _gemm(out, a, b, start, gate, then, rows, columns, depth):  # type: ignore[no-untyped-def]
    def tiled(out, a, b, start, gate, then, rows, columns, depth):  # type: ignore[no-untyped-def]
        _linked(out, a, b, start, gate, then, rows, columns, depth)

    def looped(out, a, b, start, gate, then, rows, columns, depth):  # type: ignore[no-untyped-def]
        gemm_loops(out, a, b, start, gate, then, rows, columns, depth)

    # Products of float32 are tiles of vector registers.
    return tiled if LANES and out.dtype == types.float32 else looped


before_compiling(link)
