"""Register-tiled products of small row-major matrices.

`gemm(out, a, b, start, rows, columns, depth)` computes `out = start + a @ b`. A tile of the result
stays in vector registers while the inner dimension is walked; each step broadcasts one element of
`a` per row and multiplies it into a row of `b` by fused multiply-add. Every element of the result
is the same chain of operations (start, then k = 0, 1, ...) whatever tile it falls into: results
depend neither on how many rows are computed together nor on the lane count. Where `b` is wider than
a tile and many rows read it, blocks of it are copied next to each other first [Goto2008].

Lanes come from the host: 16 floats (AVX-512), 8 (AVX2), 4 (NEON, SSE); without fused multiply-add,
or for float64, the plain loops of `gemm_loops` do the same sum. `a` may be a transposed view;
`columns` must be a multiple of `PAD`.

Reference:
    [Goto2008] K. Goto, R. van de Geijn. Anatomy of high-performance matrix multiplication. ACM TOMS
        34(3), 2008.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.funcdesc import ExternalFunctionDescriptor
from numba.extending import intrinsic, overload

from autorl.population.kernels import INNER, Array, before_compiling, cached_c_function, kernel

PAD = 4  # rows of `b` and `out` are padded to a multiple of this many elements
TILE_ROWS = 4


def host_lanes() -> int:
    """Return how many floats the widest vector register holds.

    Registers with fused multiply-add on this machine count; 0 where there is none.
    """
    features = binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 16
    if features.get("fma") and features.get("avx2"):
        return 8
    return 4 if features.get("neon") or features.get("fma") else 0


LANES = host_lanes()


def make_tile(rows: int, vectors: int, lanes: int) -> Callable[..., None]:
    """Make an intrinsic that computes one tile of a product.

    The tile is part of c = start + a @ b.

    The tile is `rows` x (`vectors` * `lanes`) float32, the sum is over `depth` terms. Arguments of
    the intrinsic are addresses and strides counted in elements; a start stride of 0 repeats one
    row.
    """

    @intrinsic
    def tile(  # type: ignore[no-untyped-def]
        context, c, c_row, start, start_row, a, a_row, a_column, b, b_row, depth
    ):
        signature = types.void(*[types.intp] * 10)

        def generate(
            context: Any, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]
        ) -> Any:
            _Tile(builder, rows, vectors, lanes).emit(arguments)
            return context.get_dummy_value()

        return signature, generate

    compiled: Callable[..., None] = tile
    return compiled


class _Tile:
    """Emits the code of one tile.

    It loads the accumulators, loops over the inner dimension, and stores them.
    """

    def __init__(self, builder: ir.IRBuilder, rows: int, vectors: int, lanes: int) -> None:
        self.builder = builder
        self.rows = rows
        self.vectors = vectors
        self.lanes = lanes
        self.scalar = ir.FloatType()
        self.index = ir.IntType(64)
        self.vector = ir.VectorType(self.scalar, lanes)
        function = ir.FunctionType(self.vector, [self.vector] * 3)
        insert: Any = cgutils.get_or_insert_function
        self.fma = insert(builder.module, function, f"llvm.fma.v{lanes}f32")

    def emit(self, arguments: Sequence[ir.Value]) -> None:
        c, c_row, start, start_row, a, a_row, a_column, b, b_row, depth = arguments
        build = self.builder
        entry = build.block
        loop = build.append_basic_block("depth")
        leave = build.append_basic_block("done")
        initial = self._row_vectors(start, start_row)
        some = build.icmp_signed(">", depth, self._constant(0))
        build.cbranch(some, loop, leave)
        build.position_at_end(loop)
        k = build.phi(self.index)
        sums = [build.phi(self.vector) for _ in initial]
        updated = self._accumulate(sums, a, a_row, build.mul(k, a_column), b, build.mul(k, b_row))
        following = build.add(k, self._constant(1))
        k.add_incoming(self._constant(0), entry)
        k.add_incoming(following, loop)
        for value, before, after in zip(sums, initial, updated, strict=True):
            value.add_incoming(before, entry)
            value.add_incoming(after, loop)
        build.cbranch(build.icmp_signed("<", following, depth), loop, leave)
        build.position_at_end(leave)
        self._store(c, c_row, initial, entry, updated, loop)

    def _accumulate(
        self,
        sums: list[ir.Value],
        a: ir.Value,
        a_row: ir.Value,
        a_offset: ir.Value,
        b: ir.Value,
        b_offset: ir.Value,
    ) -> list[ir.Value]:
        build = self.builder
        strips = [
            build.load(
                self._address(b, build.add(b_offset, self._constant(q * self.lanes)), self.vector),
                align=4,
            )
            for q in range(self.vectors)
        ]
        updated = []
        for row in range(self.rows):
            offset = build.add(a_offset, build.mul(a_row, self._constant(row)))
            element = self._broadcast(build.load(self._address(a, offset, self.scalar), align=4))
            for q, strip in enumerate(strips):
                updated.append(build.call(self.fma, [element, strip, sums[row * self.vectors + q]]))
        return updated

    def _store(
        self,
        c: ir.Value,
        c_row: ir.Value,
        initial: list[ir.Value],
        entry: ir.Value,
        updated: list[ir.Value],
        loop: ir.Value,
    ) -> None:
        results = []
        for before, after in zip(initial, updated, strict=True):
            result = self.builder.phi(self.vector)
            result.add_incoming(before, entry)
            result.add_incoming(after, loop)
            results.append(result)
        for result, address in zip(results, self._row_addresses(c, c_row), strict=True):
            self.builder.store(result, address, align=4)

    def _row_vectors(self, base: ir.Value, row_stride: ir.Value) -> list[ir.Value]:
        return [
            self.builder.load(address, align=4) for address in self._row_addresses(base, row_stride)
        ]

    def _row_addresses(self, base: ir.Value, row_stride: ir.Value) -> list[ir.Value]:
        build = self.builder
        return [
            self._address(
                base,
                build.add(
                    build.mul(row_stride, self._constant(row)), self._constant(q * self.lanes)
                ),
                self.vector,
            )
            for row in range(self.rows)
            for q in range(self.vectors)
        ]

    def _address(self, base: ir.Value, offset: ir.Value, kind: ir.Type) -> Any:
        build = self.builder
        byte = build.add(base, build.mul(offset, self._constant(4)))
        return build.inttoptr(byte, kind.as_pointer())

    def _broadcast(self, element: ir.Value) -> Any:
        build = self.builder
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = build.insert_element(undefined, element, ir.Constant(ir.IntType(32), 0))
        return build.shuffle_vector(
            first,
            undefined,
            ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes),
        )

    def _constant(self, value: int) -> Any:
        return ir.Constant(self.index, value)


def make_panel(vectors: int, lanes: int, tall_rows: int = TILE_ROWS) -> Callable[..., None]:
    """Make a kernel for one panel of `vectors` * `lanes` columns.

    It goes through all rows, in tiles of `tall_rows` and then one by one.

    Enough independent sums have to be in flight to hide the latency of a multiply-add: narrow
    panels take tall tiles.
    """
    tall = make_tile(tall_rows, vectors, lanes)
    single = make_tile(1, vectors, lanes)

    @kernel
    def panel(  # type: ignore[no-untyped-def]
        c, c_row, start, start_row, a, a_row, a_column, b, b_row, rows, depth
    ):
        row = 0
        while row + tall_rows <= rows:
            at = c + 4 * row * c_row
            first = start + 4 * row * start_row
            tall(at, c_row, first, start_row, a + 4 * row * a_row, a_row, a_column, b, b_row, depth)
            row += tall_rows
        while row < rows:
            at = c + 4 * row * c_row
            first = start + 4 * row * start_row
            single(
                at, c_row, first, start_row, a + 4 * row * a_row, a_row, a_column, b, b_row, depth
            )
            row += 1

    compiled: Callable[..., None] = panel
    return compiled


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
def _blocked_panel(  # type: ignore[no-untyped-def]
    block, c, c_row, s, s_row, a, a_row, a_column, b, b_row, rows, depth
):
    """Compute the widest panel from copies of blocks of `b`."""
    k = 0
    while k < depth:
        deep = min(BLOCK_DEPTH, depth - k)
        for row in range(deep):
            source = b + 4 * (k + row) * b_row
            # A tile without a sum is a copy.
            _copy(block + 4 * row * WIDE, 0, source, 0, a, 0, 0, b, 0, 0)
        left = a + 4 * k * a_column
        if k == 0:
            _wide_panel(c, c_row, s, s_row, left, a_row, a_column, block, WIDE, rows, deep)
        else:
            _wide_panel(c, c_row, c, c_row, left, a_row, a_column, block, WIDE, rows, deep)
        k += BLOCK_DEPTH


def _product(  # type: ignore[no-untyped-def]
    c, c_row, s, s_row, a, a_row, a_column, b, b_row, rows, columns, depth
):
    """Start + a @ b on addresses and strides, panel by panel."""
    block = _new_block()
    blocked = rows >= BLOCKED_ROWS and b_row > WIDE and depth > 0
    j = 0
    while j + WIDE <= columns:
        at = c + 4 * j
        first = s + 4 * j
        right = b + 4 * j
        if blocked:
            _blocked_panel(  # type: ignore[no-untyped-call]
                block, at, c_row, first, s_row, a, a_row, a_column, right, b_row, rows, depth
            )
        else:
            _wide_panel(at, c_row, first, s_row, a, a_row, a_column, right, b_row, rows, depth)
        j += WIDE
    while j + _MIDDLE <= columns:
        _middle_panel(
            c + 4 * j, c_row, s + 4 * j, s_row, a, a_row, a_column, b + 4 * j, b_row, rows, depth
        )
        j += _MIDDLE
    while j < columns:
        _narrow_panel(
            c + 4 * j, c_row, s + 4 * j, s_row, a, a_row, a_column, b + 4 * j, b_row, rows, depth
        )
        j += PAD


_SYMBOL = "autorl_population_gemm"
_SIGNATURE = types.void(*[types.intp] * 12)


@intrinsic
def _call_product(context, out, a, b, start, rows, columns, depth):  # type: ignore[no-untyped-def]
    """Call the product of `link` on the arrays' addresses and strides.

    `start` is a row, which is repeated, or a matrix. Written out in a kernel, a call is thirty
    expressions to infer and to lower.
    """
    signature = types.void(out, a, b, start, *[types.intp] * 3)
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
        sizes = arguments[4:]
        product = context.declare_external_function(builder.module, described)
        values = [c, c_row, first, first_row, left, left_row, left_column, right, right_row, *sizes]
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
    out: Array, a: Array, b: Array, start: Array, rows: int, columns: int, depth: int
) -> None:
    """Compute `gemm` by plain loops, for any element type."""
    for i in range(rows):
        for j in range(columns):
            out[i, j] = start[j]
        for k in range(depth):
            scale = a[i, k]
            for j in range(columns):
                out[i, j] += scale * b[k, j]


@kernel
def gemm_add_loops(out: Array, a: Array, b: Array, rows: int, columns: int, depth: int) -> None:
    """Compute `gemm_add` by plain loops, for any element type."""
    for i in range(rows):
        for k in range(depth):
            scale = a[i, k]
            for j in range(columns):
                out[i, j] += scale * b[k, j]


def gemm(out: Array, a: Array, b: Array, start: Array, rows: int, columns: int, depth: int) -> None:
    """Set out[:rows, :columns] to start[:columns] + a[:rows, :depth] @ b[:depth, :columns]."""
    out[:rows, :columns] = start[:columns] + a[:rows, :depth] @ b[:depth, :columns]


def gemm_add(out: Array, a: Array, b: Array, rows: int, columns: int, depth: int) -> None:
    """Add a[:rows, :depth] @ b[:depth, :columns] to out[:rows, :columns]."""
    out[:rows, :columns] += a[:rows, :depth] @ b[:depth, :columns]


@overload(gemm, jit_options=INNER, inline="always")
def _gemm(out, a, b, start, rows, columns, depth):  # type: ignore[no-untyped-def]
    def tiled(out, a, b, start, rows, columns, depth):  # type: ignore[no-untyped-def]
        _linked(out, a, b, start, rows, columns, depth)

    def looped(out, a, b, start, rows, columns, depth):  # type: ignore[no-untyped-def]
        gemm_loops(out, a, b, start, rows, columns, depth)

    return tiled if LANES and out.dtype == types.float32 else looped


@overload(gemm_add, jit_options=INNER, inline="always")
def _gemm_add(out, a, b, rows, columns, depth):  # type: ignore[no-untyped-def]
    def tiled(out, a, b, rows, columns, depth):  # type: ignore[no-untyped-def]
        _linked(out, a, b, out, rows, columns, depth)

    def looped(out, a, b, rows, columns, depth):  # type: ignore[no-untyped-def]
        gemm_add_loops(out, a, b, rows, columns, depth)

    return tiled if LANES and out.dtype == types.float32 else looped


before_compiling(link)
