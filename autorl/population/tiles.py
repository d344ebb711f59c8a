"""Tiles of products in vector registers, written as LLVM code.

A tile of start + a @ b is loaded, summed over the inner dimension and stored, as it is or with
zeros in place of some elements: what activates a layer or closes its gradient costs no pass of its
own.
Panels go through all rows in tiles. Lanes come from the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from autorl.population.kernels import kernel

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
