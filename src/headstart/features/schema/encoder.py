"""Encoding: a context and the actions on offer as rows of numbers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.features.items.table import COLUMN_NAMES
from headstart.features.schema.cache import RowCache
from headstart.features.schema.fields import Field, FieldError, Values
from headstart.features.schema.rows import ActionRows, ActionSpec, action_label, read_actions
from headstart.features.schema.schema import Schema
from headstart.records import Array, set_read_only

Places = npt.NDArray[np.intp]
Columns = slice | Places


class EncodedRows(NamedTuple):
    """The actions on offer as the model's features, without the intercept.

    Attributes
    ----------
    table : ndarray of shape (K, width)
        One row per action.
    labels : sequence, or None
        The ids of the actions, or their labels in the index of a frame.
    has_ids : bool
        Whether the labels are ids that were given.
    """

    table: Array
    labels: Sequence[Any] | None
    has_ids: bool


class FieldColumns(NamedTuple):
    """A field with its name and its columns."""

    name: str
    field: Field
    columns: slice


class Encoder:
    """A schema, prepared to encode actions.

    Parameters
    ----------
    schema
        The fields.

    Attributes
    ----------
    width : int
        How many columns a row has, without those that identity adds.
    action_columns : slice or ndarray of int
        The columns that are of actions alone: their fields, and crosses of these.
    number_columns : ndarray of int
        Those of them that are numbers, or products of numbers, whose origin is arbitrary.
    is_bounded : ndarray of bool
        Of each column, whether it holds only zeros and ones.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.width = schema.width
        start, columns = 0, {}
        for name, field in (*schema.context_fields, *schema.action_fields):
            columns[name] = slice(start, start := start + field.width)
        self.context = [
            FieldColumns(name, field, columns[name]) for name, field in schema.context_fields
        ]
        self.action = [
            FieldColumns(name, field, columns[name]) for name, field in schema.action_fields
        ]
        self.context_width = sum(each.field.width for each in self.context)
        self.action_columns: Columns = slice(self.context_width, start)
        self.field_width = start
        self.crosses = []
        fields = schema.context | schema.action
        for one, two in schema.crosses:
            stop = start + fields[one].width * fields[two].width
            self.crosses.append((columns[one], columns[two], slice(start, stop)))
            start = stop
        own = [crossed for one, _, crossed in self.crosses if one.start >= self.context_width]
        if own:
            self.action_columns = np.r_[self.action_columns, *own]
        bounded = [flag for each in (*self.context, *self.action) for flag in each.field.is_bounded]
        numbers = [not flag for flag in bounded]
        for one, two in schema.crosses:
            pairs = list(itertools.product(fields[one].is_bounded, fields[two].is_bounded))
            bounded += [left and right for left, right in pairs]
            numbers += [not (left or right) for left, right in pairs]
        self.is_bounded = np.array(bounded, dtype=bool)
        of_actions = np.arange(self.width)[self.action_columns]
        self.number_columns: Places = of_actions[np.array(numbers, dtype=bool)[of_actions]]
        factors = self.column_factors()
        self.action_factors = self.factors_among(factors, factors >= self.context_width)
        self.context_factors = self.factors_among(factors, factors < self.context_width)
        names = tuple(schema.action)
        ignore = frozenset(schema.ignore)
        spec = ActionSpec(names, (), schema.id, ignore, schema.identity, distinct=True)
        self.spec = spec
        self.cache = RowCache(spec, self.width)
        self.context_parts: dict[tuple[Any, ...], Array] = {}
        self.spec_with_context = spec._replace(shared=tuple(schema.context))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns, with those that identity adds."""
        return self.schema.feature_names + (COLUMN_NAMES if self.schema.identity else ())

    @property
    def column_fields(self) -> tuple[str, ...]:
        """Of each column, the field or the cross that it is of; those of items are their own."""
        return self.schema.column_fields + (COLUMN_NAMES if self.schema.identity else ())

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain data."""
        return self.schema.to_dict()

    def encode(
        self, context: Any, actions: Any, extra: int = 0, *, distinct: bool = True
    ) -> EncodedRows:
        """The rows of the actions; ``extra`` columns of zeros are added at the end.

        Where ``context`` is ``None``, its fields are columns of the actions. Ids must be
        ``distinct``, unless the rows are those of several decisions.
        """
        if context is None and self.context:
            rows = read_actions(actions, self.spec_with_context._replace(distinct=distinct))
            table = np.zeros((rows.size, self.width + extra))
            self.write(self.action, rows.columns, rows.labels, table)
            self.write(self.context, rows.columns, rows.labels, table)
            self.write_crosses(table)
            return EncodedRows(table, rows.labels, rows.has_ids)
        encoded = self.cache.find(actions) if distinct else None
        if encoded is None:
            rows = read_actions(actions, self.spec._replace(distinct=distinct))
            encoded = EncodedRows(self.action_part(rows), rows.labels, rows.has_ids)
            if type(actions) is list:
                self.cache.add(actions, encoded.table)
        part, labels, has_ids = encoded
        if context is not None:
            part *= self.context_part(context)
        if not extra:
            return EncodedRows(part, labels, has_ids)
        table = np.zeros((len(part), self.width + extra))
        table[:, : self.width] = part
        return EncodedRows(table, labels, has_ids)

    def column_factors(self) -> Places:
        """Of each column, the columns of fields whose product it is: two, or one and a 1.

        The latter is the column after those of fields.
        """
        ones = self.field_width
        pairs = [(column, ones) for column in range(ones)]
        for one, two, _ in self.crosses:
            pairs += itertools.product(range(one.start, one.stop), range(two.start, two.stop))
        return np.array(pairs, dtype=np.intp).reshape(-1, 2).T

    def factors_among(self, factors: Places, mask: npt.NDArray[np.bool_]) -> list[Places]:
        """The chosen factors of each column, 1 where there is none: one list, or two if needed."""
        first, second = np.sort(np.where(mask, factors, self.field_width), axis=0)
        return [first, second] if (second < self.field_width).any() else [first]

    def action_part(self, rows: ActionRows) -> Array:
        """What actions contribute to each column, of shape ``(K, width)``.

        A row is the product of this and of :meth:`context_part`.
        """
        columns = np.zeros((rows.size, self.field_width + 1))
        columns[:, -1] = 1.0
        self.write(self.action, rows.columns, rows.labels, columns)
        return multiply_columns(columns, self.action_factors)

    def context_part(self, context: Any) -> Array:
        """What a context contributes to each column; kept, because contexts are often alike."""
        if type(context) is not dict or len(context) != len(self.context):
            return self.encode_context(context)
        parts = self.context_parts
        try:
            values = tuple(map(context.__getitem__, self.schema.context))
            part = parts.get(values)
        except (KeyError, TypeError):  # a field is missing, or a value has no hash
            return self.encode_context(context)
        if part is None:
            part = self.encode_context(context)
            if len(parts) >= self.cache.capacity:
                parts.clear()
            parts[values] = part
        return part

    def encode_context(self, context: Any) -> Array:
        """The same, computed."""
        return set_read_only(multiply_columns(self.context_row(context), self.context_factors))

    def write_crosses(self, table: Array) -> None:
        """Write the products of fields whose columns are in every row."""
        for one, two, product in self.crosses:
            outer = table[:, one, None] * table[:, None, two]
            table[:, product] = outer.reshape(len(table), outer.shape[1] * outer.shape[2])

    def write(
        self,
        fields: list[FieldColumns],
        columns: Mapping[str, Values],
        labels: Sequence[Any] | None,
        table: Array,
    ) -> None:
        """Write the columns of some fields of the actions."""
        for name, field, place in fields:
            try:
                field.write(columns[name], table[:, place])
            except KeyError:
                raise InputError(
                    f"context must have the field {name!r}, or actions must have it as a column"
                ) from None
            except FieldError as error:
                label = None if labels is None else labels[error.place]
                raise InputError(
                    f"{action_label(error.place, label)}: field {name!r} must be {error.want}; "
                    f"got {error.description}"
                ) from None

    def context_row(self, context: Any) -> Array:
        """The columns of the context's fields, zeros in place of the actions', and a 1."""
        if type(context) is not dict and not isinstance(context, Mapping):
            want = f"a dict with the fields {[each.name for each in self.context]}"
            raise checks.invalid("context", want, context)
        row = np.zeros(self.field_width + 1)
        row[-1] = 1.0
        for name, field, place in self.context:
            if name not in context:
                raise InputError(
                    f"context: field {name!r} is missing (a value that is not known is None)"
                )
            try:
                field.write_one(context[name], row[place])
            except FieldError as error:
                raise InputError(
                    f"context: field {name!r} must be {error.want}; got {error.description}"
                ) from None
        if len(context) > len(self.context):
            expected_names = {each.name for each in self.context} | set(self.schema.ignore)
            extra = [name for name in context if name not in expected_names]
            if extra:
                raise InputError(
                    f"context: field {extra[0]!r} is not in the schema, whose context has "
                    f"{[each.name for each in self.context]}"
                )
        return row


def multiply_columns(columns: Array, factors: Sequence[Places]) -> Array:
    """Products of columns (the last axis), given by lists of their places."""
    product: Array = columns.take(factors[0], -1)
    for places in factors[1:]:
        product *= columns.take(places, -1)
    return product
