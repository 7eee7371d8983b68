"""A processor's wide registers, for loops that Numba compiles: eight numbers at a time.

Numba leaves it to LLVM to find out which loops may use them. For products of small matrices it
finds too little: a third of the speed is reached. Here they are said by name. A :class:`Lanes` is
a value like a number, and stays in a register; on processors whose registers are narrower, LLVM
takes several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

__all__ = ["LANES", "add_product", "load", "number", "store", "with_lane", "zeros"]

LANES = 8
WIDE = ir.VectorType(ir.DoubleType(), LANES)
EXACT = ("contract",)  # a product and a sum may be one instruction, rounded once

intrinsic: Any = extending.intrinsic  # which says nothing of what it makes

Built = tuple[Any, Callable[..., Any]]


class Lanes(types.Type):
    """The type of eight numbers side by side."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


@extending.register_model(Lanes)
class LanesModel(extending.models.PrimitiveModel):
    """What it is in memory."""

    def __init__(self, manager: Any, kind: Lanes) -> None:
        super().__init__(manager, kind, WIDE)


lanes = Lanes()


def splat(builder: Any, kind: Any, value: Any) -> Any:
    """The same value in every lane."""
    vector = ir.VectorType(kind, LANES)
    nothing, first = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
    one = builder.insert_element(nothing, value, first)
    return builder.shuffle_vector(
        one, nothing, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    )


def place(context: Any, builder: Any, kinds: Sequence[Any], given: Sequence[Any]) -> Any:
    """The address of an element: given are a matrix, a row and a column."""
    array = context.make_array(kinds[0])(context, builder, given[0])
    at = [
        context.cast(builder, value, kind, types.intp)
        for value, kind in zip(given[1:3], kinds[1:3], strict=True)
    ]
    return cgutils.get_item_pointer(context, builder, kinds[0], array, at, wraparound=False)


@intrinsic
def load(typing: Any, matrix: Any, row: Any, column: Any) -> Built:
    """Eight numbers of a row, from a column on."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        number = signature.args[0].dtype
        narrow = ir.VectorType(context.get_data_type(number), LANES)
        start = place(context, builder, signature.args, given)
        start = builder.bitcast(start, narrow.as_pointer())
        found = builder.load(start, align=number.bitwidth // 8)
        return found if number == types.float64 else builder.fpext(found, WIDE)

    return lanes(matrix, row, column), build


@intrinsic
def number(typing: Any, matrix: Any, row: Any, column: Any) -> Built:
    """One number: an index as Python has it may be negative, which costs time to find out."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.load(place(context, builder, signature.args, given))

    return matrix.dtype(matrix, row, column), build


@intrinsic
def store(typing: Any, matrix: Any, row: Any, column: Any, value: Any) -> Built:
    """Write them there."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        start = place(context, builder, signature.args, given)
        builder.store(given[3], builder.bitcast(start, WIDE.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(matrix, row, column, value), build


@intrinsic
def zeros(typing: Any) -> Built:
    """Eight zeros."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return ir.Constant(WIDE, None)

    return lanes(), build


@intrinsic
def add_product(typing: Any, total: Any, factor: Any, value: Any) -> Built:
    """Every number of ``total`` plus ``factor`` times that of ``value``."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        factors = splat(builder, ir.DoubleType(), given[1])
        return builder.fadd(given[0], builder.fmul(factors, given[2], flags=EXACT), flags=EXACT)

    return lanes(total, types.float64, value), build


@intrinsic
def with_lane(typing: Any, value: Any, lane: Any, replaced: Any) -> Built:
    """The same with another number in one lane."""

    def build(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        whole = ir.IntType(64)
        places = ir.Constant(ir.VectorType(whole, LANES), list(range(LANES)))
        here = builder.icmp_signed("==", places, splat(builder, whole, given[1]))
        return builder.select(here, splat(builder, ir.DoubleType(), given[2]), given[0])

    return lanes(value, types.int64, types.float64), build
