"""Transformers of a user's own in place of a schema, such as a fitted ``ColumnTransformer``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from headstart import checks
from headstart.errors import FileError, InputError
from headstart.features.conversion import is_frame
from headstart.features.schema.encoder import EncodedRows, Encoder
from headstart.features.schema.rows import check_ids
from headstart.features.schema.schema import Schema

MAX_REASON = 200  # characters of a transformer's own error


class TransformerEncoder:
    """Rows by the ``transform`` of an object that is fitted already.

    It is given what was passed, a frame or a list of dicts, with the fields of the context as
    further columns or entries. One that was fitted on a frame, and has the names of its columns
    (``feature_names_in_``), is given a frame of these columns. The id of an action is its ``id``,
    if there is one, or its label in the index of a frame.

    Parameters
    ----------
    transformer
        Anything with ``transform`` whose width is known, by ``get_feature_names_out()`` or by an
        attribute ``width``.
    """

    def __init__(self, transformer: Any) -> None:
        self.schema = transformer
        self.feature_names = self.column_fields = transformer_names(transformer)
        self.width = len(self.feature_names)
        self.is_bounded = np.zeros(self.width, dtype=bool)

    def to_dict(self) -> dict[str, Any]:
        """What a file holds about it: a file holds no code."""
        return {"transformer": type(self.schema).__name__}

    def encode(
        self, context: Any, actions: Any, extra: int = 0, *, distinct: bool = True
    ) -> EncodedRows:
        """The rows of the actions."""
        name = type(self.schema).__name__
        try:
            labels, has_ids = labels_of(actions)
            if context is not None:
                actions = with_context(actions, context)
                self.check_context(context)
            table = self.schema.transform(self.as_fitted(actions))
            if hasattr(table, "toarray"):
                table = table.toarray()
        except (InputError, MemoryError):
            raise
        except Exception as error:  # of the transformer, or of the objects that it is given
            reason = f"{type(error).__name__}: {str(error)[:MAX_REASON]}"
            raise InputError(
                f"actions must be what the transform of {name} takes; it refused "
                f"{checks.describe(actions)} ({reason})"
            ) from error
        table = checks.finite_array("actions", table, f"rows of {self.width} numbers")
        if table.ndim != 2 or table.shape[1] != self.width:
            raise InputError(
                f"actions must become rows of {self.width} numbers by the transform of {name}; "
                f"got shape {table.shape}"
            )
        if labels is not None and len(labels) != len(table):
            raise InputError(
                f"actions must become one row each by the transform of {name}; got {len(table)} "
                f"rows for {len(labels)}"
            )
        if has_ids:
            check_ids(labels, distinct=distinct)
        return EncodedRows(np.array(table, dtype=np.float64, order="C"), labels, has_ids)

    @property
    def fitted_names(self) -> list[str] | None:
        """The columns of the frame that a transformer was fitted on, by scikit-learn's name."""
        names = getattr(self.schema, "feature_names_in_", None)
        return None if names is None else list(names)

    def check_context(self, context: Any) -> None:
        """Refuse fields that the transformer would ignore."""
        names = self.fitted_names
        extra = [] if names is None else [name for name in context if name not in names]
        if extra:
            raise InputError(
                f"context: field {extra[0]!r} is not among the columns that "
                f"{type(self.schema).__name__} was fitted on: {names}"
            )

    def as_fitted(self, actions: Any) -> Any:
        """Actions as a frame with the columns of the fit, where these are known.

        Without pandas, dicts stay as they are.
        """
        names = self.fitted_names
        if names is None:
            return actions
        is_list = isinstance(actions, (list, tuple)) and len(actions) > 0
        if is_list and all(isinstance(row, Mapping) for row in actions):
            for place, row in enumerate(actions):
                if row.keys() != actions[0].keys():
                    raise InputError(
                        f"action at row {place} must have the fields of the first one, "
                        f"{list(actions[0])}; got {list(row)}"
                    )
            actions = {name: [row[name] for row in actions] for name in actions[0]}
        if isinstance(actions, Mapping):
            try:
                pandas = importlib.import_module("pandas")  # which this library does not need
            except ImportError:
                return actions
            actions = pandas.DataFrame(dict(actions))
        if is_frame(actions):
            return actions[[name for name in names if name in actions.columns]]
        return actions


AnyEncoder = Encoder | TransformerEncoder


def encoder_of(value: Any) -> AnyEncoder | None:
    """The encoder of a schema or of a transformer; ``None`` for anything else."""
    if isinstance(value, Schema):
        return Encoder(value)
    if callable(getattr(value, "transform", None)) and not isinstance(value, type):
        return TransformerEncoder(value)
    return None


def encoder_from_dict(value: Any, schema_of_caller: Any = None) -> AnyEncoder | None:
    """The encoder that :meth:`to_dict` describes; a transformer must be passed by the caller."""
    if isinstance(value, dict) and "transformer" in value:
        encoder = None if isinstance(schema_of_caller, Schema) else encoder_of(schema_of_caller)
        if encoder is None:
            raise FileError(
                f"the file was saved with a transformer, a {checks.describe(value['transformer'])}"
                f": pass it as load(path, schema=…)"
            )
        return encoder
    schema = None if value is None else Schema.from_dict(value)
    if schema_of_caller is not None and schema_of_caller != schema:
        raise FileError(f"schema must be the one that the file was saved with, {schema!r}")
    return None if schema is None else Encoder(schema)


def transformer_names(transformer: Any) -> tuple[str, ...]:
    """The names of the columns that a transformer makes."""
    if callable(getattr(transformer, "get_feature_names_out", None)):
        try:
            return tuple(str(name) for name in transformer.get_feature_names_out())
        except Exception as error:
            raise InputError(
                f"dim must be a number, a Schema, or a transformer that is fitted; "
                f"{type(transformer).__name__} does not know its columns ({error})"
            ) from None
    if not hasattr(transformer, "width"):
        raise InputError(
            f"dim must be a number, a Schema, or a transformer of known width; "
            f"{type(transformer).__name__} has neither get_feature_names_out() nor width"
        )
    width = checks.integer("width", transformer.width, 1, checks.MAX_FEATURES)
    return tuple(f"column {at}" for at in range(width))


def labels_of(actions: Any) -> tuple[Any, bool]:
    """The ids of actions, or their labels in the index of a frame, and whether they are ids."""
    if hasattr(actions, "columns"):
        columns = [str(name) for name in actions.columns]
        if "id" in columns:
            return actions[actions.columns[columns.index("id")]].to_list(), True
        return actions.index.to_list() if hasattr(actions, "index") else None, False
    is_list = isinstance(actions, (list, tuple)) and len(actions) > 0
    if is_list and all(isinstance(row, Mapping) and "id" in row for row in actions):
        return [row["id"] for row in actions], True
    return None, False


def with_context(actions: Any, context: Any) -> Any:
    """Actions with the fields of a context."""
    if isinstance(context, Mapping):
        if isinstance(actions, (list, tuple)) and all(isinstance(row, Mapping) for row in actions):
            return [{**row, **context} for row in actions]
        columns = {name: [value] * len(actions) for name, value in context.items()}
        if hasattr(actions, "assign"):  # pandas
            return actions.assign(**columns)
        if hasattr(actions, "hstack"):  # Polars
            return actions.hstack(type(actions)(columns))
    raise InputError(
        "context must be a dict, and actions a frame or dicts, where the bandit has a "
        f"transformer; got {checks.describe(context)} and {checks.describe(actions)}"
    )
