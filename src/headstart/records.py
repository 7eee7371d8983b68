"""The base class of immutable records, and their conversion to arrays.

The arrays of a record are read-only, so that it can be shared between threads and between tasks
without copying. :func:`flatten` and :func:`restore` convert nested records to flat tables of arrays
and back, which is how they are stored.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import along_batch, array_namespace, float_if_scalar
from headstart.errors import InputError

Array = npt.NDArray[np.floating[Any]]


def set_read_only(array: Array) -> Array:
    """Make an array read-only (in place: pass one that nobody else will write to)."""
    array.setflags(write=False)
    return array


def read_only_copy(array: Array) -> Array:
    """A read-only copy, independent of the original."""
    return set_read_only(np.array(array, order="C"))


class Record:
    """Base of the immutable records; subclasses are frozen dataclasses with slots."""

    __slots__ = ()

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed.

        >>> import headstart as hs
        >>> hs.Prior.isotropic(2, noise=0.5).replace(noise=0.1).noise
        0.1
        """
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    @classmethod
    def unchecked(cls, *values: Any, **fields: Any) -> Self:
        """A record whose fields are known to be right: read-only, but neither checked nor copied.

        Give every field, by its place or by its name.
        """
        names = fields_of(cls)  # type: ignore[arg-type]
        if len(values) + len(fields) != len(names):
            raise TypeError(f"{cls.__name__} has the fields {names}: give every one")
        by_place = zip(names, values, strict=False)
        return from_fields(cls, (*by_place, *fields.items()) if fields else by_place)

    def set_read_only(self) -> Self:
        """The same record, its arrays made read-only."""
        for name in field_names(self):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                set_read_only(value)
        return self

    def __eq__(self, other: object) -> bool:
        return equal_fields(self, other) if type(self) is type(other) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={format_value(getattr(self, name))}" for name in field_names(self)
        )
        return f"{type(self).__name__}({fields})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).unchecked, tuple(getattr(self, name) for name in field_names(self))


def draft_class(kind: type[Any]) -> Any:
    """A class with the fields of a frozen dataclass that can be assigned to.

    A draft becomes a record by ``draft.__class__ = kind``. That takes a fifth of the time of the
    constructor of ``kind``, which has to get round its own protection field by field, and is for
    records that are made at every decision.

    >>> import headstart as hs
    >>> belief = hs.Belief.start(hs.Prior.isotropic(2))
    >>> draft = draft_class(hs.Belief)(*(getattr(belief, name) for name in field_names(belief)))
    >>> draft.__class__ = hs.Belief
    >>> draft == belief
    True
    """
    draft: Any = dataclasses.make_dataclass(
        f"{kind.__name__}Draft",
        [(field.name, Any) for field in dataclasses.fields(kind)],
        bases=kind.__bases__,
        eq=False,
        repr=False,
        slots="__slots__" in vars(kind),
    )
    draft.__abstractmethods__ = frozenset()  # no draft is ever used as it is
    return draft


def reset_inherited(cls: type, base: type, names: Sequence[str]) -> None:
    """Give a subclass of ``base`` the base's own version of what it does not define itself.

    For shortcuts that stand for other methods: a subclass that overrides one of these methods must
    not inherit a shortcut around it. Call it from ``__init_subclass__``.
    """
    for name in names:
        if name not in vars(cls):
            setattr(cls, name, vars(base)[name])


def field_names(record: object) -> tuple[str, ...]:
    """The names of a dataclass's fields, in order."""
    return fields_of(type(record))  # type: ignore[arg-type]


@functools.cache
def fields_of(kind: type[Any]) -> tuple[str, ...]:
    """The names of the fields of a dataclass, in order."""
    return tuple(field.name for field in dataclasses.fields(kind))


def from_fields(kind: type[Any], fields: Iterable[tuple[str, Any]]) -> Any:
    """A dataclass from its fields, without its constructor; arrays become read-only."""
    record, assign = object.__new__(kind), object.__setattr__
    for name, value in fields:
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
        assign(record, name, value)
    return record


def equal_values(left: object, right: object) -> bool:
    """Equality that understands arrays."""
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(np.asarray(left), np.asarray(right), equal_nan=True)
    return bool(left == right) or (left != left and right != right)


def equal_fields(left: object, right: object) -> bool:
    """Equality of two dataclasses of one kind, field by field; numbers first, which take least."""
    pairs = [(getattr(left, name), getattr(right, name)) for name in field_names(left)]
    pairs.sort(key=lambda pair: type(pair[0]) is not float)
    return all(equal_values(*pair) for pair in pairs)


def format_value(value: object) -> str:
    """A value as it appears in a record's repr: large arrays by their shape."""
    if isinstance(value, np.ndarray):
        return repr(value.tolist()) if value.size <= 6 else f"<array {value.shape}>"
    if isinstance(value, np.floating):
        return repr(float(value))
    return repr(value)


def flatten(state: object, path: str = "") -> dict[str, npt.NDArray[Any]]:
    """All arrays and numbers of a nested state, by their path.

    The state may hold dataclasses, named tuples, tuples, lists, dicts, arrays and numbers; ``None``
    is left out.

    >>> flatten({"a": (1.0, None), "b": np.zeros(2)})
    {'a.0': array(1.), 'b': array([0., 0.])}
    """
    if state is None:
        return {}
    children = list(child_items(state))
    if children or isinstance(state, (Mapping, tuple, list)):
        table: dict[str, npt.NDArray[Any]] = {}
        for name, child in children:
            table |= flatten(child, f"{path}.{name}" if path else name)
        return table
    return {path: np.asarray(state)}


def child_items(state: object) -> Iterator[tuple[str, object]]:
    """The named parts of a nested state; nothing for a leaf."""
    if dataclasses.is_dataclass(state):
        yield from ((name, getattr(state, name)) for name in field_names(state))
    elif isinstance(state, Mapping):
        yield from ((str(name), child) for name, child in state.items())
    elif isinstance(state, tuple) and hasattr(state, "_fields"):
        yield from zip(state._fields, state, strict=True)
    elif isinstance(state, (tuple, list)):
        yield from ((str(index), child) for index, child in enumerate(state))


def outline(state: object) -> Any:
    """The shape of a nested state as plain data: which parts it has, and of what kind.

    >>> outline({"a": (1.0, None), "b": np.zeros(2)})
    {'kind': 'dict', 'keys': ['a', 'b'], 'parts': {'a': {'kind': 'tuple', \
'parts': {'0': 'number', '1': 'none'}}, 'b': 'array'}}
    """
    if state is None:
        return "none"
    if isinstance(state, (np.ndarray, np.generic)):
        return "array" if np.ndim(state) else "number"
    if dataclasses.is_dataclass(state) or hasattr(state, "_fields"):
        kind = type(state).__name__
    elif isinstance(state, (Mapping, tuple, list)):
        kind = "dict" if isinstance(state, Mapping) else type(state).__name__
    else:
        return "number"
    noted: dict[str, Any] = {"kind": kind}
    if isinstance(state, Mapping):
        # As they are: JSON would turn numbers into text.
        noted["keys"] = [key.item() if isinstance(key, np.generic) else key for key in state]
    return noted | {"parts": {name: outline(child) for name, child in child_items(state)}}


def restore(
    shape: Any,
    template: Any,
    table: Mapping[str, npt.NDArray[Any]],
    known: Sequence[type[Any]] = (),
) -> Any:
    """The inverse of :func:`flatten`, in the shape that :func:`outline` noted.

    ``template`` is any state of the same owner: records are of the types found in it, or of those
    ``known``, so that no type is ever looked up by a name that a file gives.

    >>> state = {"a": (1.0, None), "b": np.ones(2)}
    >>> restore(outline(state), {}, flatten(state))
    {'a': (1.0, None), 'b': array([1., 1.])}
    """
    types = {kind.__name__: kind for kind in known} | types_in(template)
    return restore_part(shape, types, table, "")


def restore_part(
    shape: Any, types: Mapping[str, type[Any]], table: Mapping[str, npt.NDArray[Any]], path: str
) -> Any:
    """One part of a nested state."""
    if shape == "none":
        return None
    if shape == "number":
        return table[path].item()
    if shape == "array":
        return table[path]
    parts = {
        name: restore_part(part, types, table, f"{path}.{name}" if path else name)
        for name, part in shape["parts"].items()
    }
    kind = shape["kind"]
    if kind == "dict":
        return dict(zip(shape["keys"], parts.values(), strict=True))
    if kind in ("tuple", "list"):
        return tuple(parts.values()) if kind == "tuple" else list(parts.values())
    owner = types[kind]
    if not dataclasses.is_dataclass(owner):
        return owner(**parts)
    if parts.keys() != {field.name for field in dataclasses.fields(owner)}:
        raise TypeError(f"{kind} has other fields than {list(parts)}")
    return from_fields(owner, parts.items())


def check_like(state: Any, template: Any, name: str = "state") -> None:
    """Refuse a nested state that is not built like another of the same owner.

    Parts must be of the same kinds, arrays of the same types and shapes. Where the template has
    nothing along an axis, any length will do, but the same one throughout a record: that many tasks
    are kept. Numbers must be finite, unless the template's are not.

    >>> check_like((1.0, np.ones((5, 2))), (0.0, np.zeros((0, 2))))
    >>> check_like((1.0, np.ones((5, 3))), (0.0, np.zeros((0, 2))))
    Traceback (most recent call last):
    headstart.errors.InputError: state.1 must be an array of shape (…, 2); got an array of \
shape (5, 3) and type float64
    """
    if template is None:
        return  # filled later, with whatever it may be
    parts: dict[str, Any] = dict(child_items(template))
    if not parts:
        check_leaf(state, template, name)
        return
    children: dict[str, Any] = dict(child_items(state))
    if type(state) is not type(template) or children.keys() != parts.keys():
        raise checks.invalid(
            name, f"a {type(template).__name__} as this transfer makes them", state
        )
    for part, child in children.items():
        check_like(child, parts[part], f"{name}.{part}")
    several = {
        length
        for part, child in children.items()
        if isinstance(parts[part], np.ndarray)
        for length, usual in zip(child.shape, parts[part].shape, strict=True)
        if not usual
    }
    if len(several) > 1:
        raise InputError(f"{name} must hold as many of each as there are tasks; got {several}")


def check_leaf(state: Any, template: Any, name: str) -> None:
    """Refuse a number or an array that is not like another."""
    usual, array = np.asarray(template), np.asarray(state)
    shape = tuple(length or "…" for length in usual.shape)
    want = f"an array of shape {shape}".replace("'", "") if shape else "a number"
    fits = array.ndim == usual.ndim and all(
        not expected or length == expected
        for length, expected in zip(array.shape, usual.shape, strict=True)
    )
    # A number may be whole in one and not in the other; an array that is kept has its type.
    alike = array.dtype == usual.dtype if usual.ndim else array.dtype.kind in "fiub"
    if not fits or not alike:
        raise checks.invalid(name, want, state)
    if not np.isfinite(array).all() and np.isfinite(usual).all():
        raise InputError(f"{name} must be finite; got a number that is not")


def select(which: Any, one: Any, other: Any) -> Any:
    """One nested state or the other, which is built alike, for each batch element.

    >>> select(np.array([True, False]), (np.ones((2, 1)), 5.0), (np.zeros((2, 1)), 5.0))
    (array([[1.],
           [0.]]), 5.0)
    """
    if isinstance(which, (bool, np.bool_, np.ndarray)):
        if np.all(which):
            return one
        if not np.any(which):
            return other

    def selected(left: Any, right: Any) -> Any:
        if left is right or (
            isinstance(left, float) and isinstance(right, float) and left == right
        ):
            return left
        xp = array_namespace(which, left, right)
        chosen = along_batch(xp.asarray(which), left)
        return float_if_scalar(xp.where(chosen, xp.asarray(left), xp.asarray(right)))

    return one if one is other else combine(selected, one, other)


def combine(function: Callable[..., Any], *states: Any) -> Any:
    """A nested state made of a function of each part of one or several that are built alike.

    >>> combine(
    ...     lambda one, other: one + other, (1.0, (np.ones(2), None)), (2.0, (np.ones(2), None))
    ... )
    (3.0, (array([2., 2.]), None))
    """
    first = states[0]
    if first is None:
        return None
    if not isinstance(first, (Record, tuple)):
        return function(*states)
    parts = [
        combine(function, *(child for _, child in children))
        for children in zip(*map(child_items, states), strict=True)
    ]
    if isinstance(first, Record):
        return type(first).unchecked(*parts)
    return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)


def types_in(state: object) -> dict[str, type[Any]]:
    """The record types that a nested state is made of, by name."""
    types: dict[str, type[Any]] = {}
    if dataclasses.is_dataclass(state) or hasattr(state, "_fields"):
        types[type(state).__name__] = type(state)
    for _, child in child_items(state):
        types |= types_in(child)
    return types
