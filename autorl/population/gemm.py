"""Register-tiled products of small row-major matrices.

`gemm` computes `out = start + a @ b`. A tile of the result, written as LLVM code, stays in vector
registers while the inner dimension is walked; each step broadcasts one element of `a` per row and
multiplies it into a row of `b` by fused multiply-add. Every element of the result is the same chain
of operations (start, then k = 0, 1, ...) whatever tile it falls into: results depend neither on how
many rows are computed together nor on the lane count. Panels go through all rows in tiles. If `b`
is wider than a tile and many rows read it, blocks of it are copied next to each other first
[Goto2008]. Zeros are put in place of some elements (`then`) while they are in registers: what
activates a layer or closes its gradient costs no pass of its own.

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

TILE_ROWS = 4
# Operations on a product's elements before they are stored.
PLAIN, RECTIFIED, GATED = range(3)


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

    The tile is `rows` x (`vectors` * `lanes`) float32, the sum is over `depth` terms. The intrinsic
    takes the addresses of (c, start, a, b, gate) and the steps, counted in elements, from row to
    row of (c, start, a), from column to column of a, and from row to row of (b, gate); a step of 0
    repeats one row of the start.
    """

    @intrinsic
    def tile(context, places, steps, depth, then):  # type: ignore[no-untyped-def]
        signature = types.void(places, steps, depth, then)

        def generate(
            context: Any, builder: ir.IRBuilder, signature: object, arguments: Sequence[ir.Value]
        ) -> Any:
            unpacked: Any = cgutils.unpack_tuple
            of_tile = _Tile(builder, rows, vectors, lanes)
            of_tile.emit(*(unpacked(builder, part) for part in arguments[:2]), *arguments[2:])
            return context.get_dummy_value()

        return signature, generate

    compiled: Callable[..., None] = tile
    return compiled


class _Tile:
    """Emits the code of one tile.

    It loads the accumulators, loops over the inner dimension, and stores them, as they are or with
    zeros in place of some.
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

    def emit(
        self, places: Sequence[ir.Value], steps: Sequence[ir.Value], depth: ir.Value, then: ir.Value
    ) -> None:
        c, start, a, b, gate = places
        c_row, start_row, a_row, a_column, b_row, gate_row = steps
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
        sums = self._either(initial, entry, updated, loop)
        results = self._with_zeros(sums, then, gate, gate_row)
        for result, address in zip(results, self._row_addresses(c, c_row), strict=True):
            build.store(result, address, align=4)

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

    def _with_zeros(
        self, sums: list[ir.Value], then: ir.Value, gate: ir.Value, gate_row: ir.Value
    ) -> list[ir.Value]:
        """Put zeros in place of some sums, as `then` says."""
        build = self.builder
        zero = ir.Constant(self.vector, [0.0] * self.lanes)
        plain = build.block
        rectify = build.append_basic_block("rectify")
        keep = build.append_basic_block("gate")
        store = build.append_basic_block("store")
        choice = build.switch(then, store)
        choice.add_case(self._constant(RECTIFIED), rectify)
        choice.add_case(self._constant(GATED), keep)
        build.position_at_end(rectify)
        # Not a maximum: NaN must stay NaN, or a diverged member would go on unseen.
        positive = [build.select(build.fcmp_ordered("<", x, zero), zero, x) for x in sums]
        build.branch(store)
        build.position_at_end(keep)
        gates = self._row_vectors(gate, gate_row)
        gated = [
            build.select(build.fcmp_ordered(">", g, zero), x, zero)
            for g, x in zip(gates, sums, strict=True)
        ]
        build.branch(store)
        build.position_at_end(store)
        rectified = self._either(positive, rectify, gated, keep)
        for value, before in zip(rectified, sums, strict=True):
            value.add_incoming(before, plain)
        return rectified

    def _either(
        self, first: list[ir.Value], origin: ir.Value, second: list[ir.Value], other: ir.Value
    ) -> list[Any]:
        """Take the values of the block that was left."""
        values = []
        for before, after in zip(first, second, strict=True):
            value = self.builder.phi(self.vector)
            value.add_incoming(before, origin)
            value.add_incoming(after, other)
            values.append(value)
        return values

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
    def panel(places, steps, rows, depth, then=PLAIN):  # type: ignore[no-untyped-def]
        c, start, a, b, gate = places
        c_row, start_row, a_row, _, _, gate_row = steps
        row = 0
        while row < rows:
            first = 4 * row
            of_tile = (
                c + first * c_row,
                start + first * start_row,
                a + first * a_row,
                b,
                gate + first * gate_row,
            )
            if row + tall_rows <= rows:
                tall(of_tile, steps, depth, then)
                row += tall_rows
            else:
                single(of_tile, steps, depth, then)
                row += 1

    compiled: Callable[..., None] = panel
    return compiled


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
