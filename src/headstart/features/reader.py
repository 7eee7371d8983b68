"""Reading the contexts that are passed to a bandit, with the names and usual sizes of features."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.errors import InputError
from headstart.features.conversion import MAX_SQUARES, Features
from headstart.features.requests import Request, is_ragged, plain_contexts
from headstart.features.schema.encoder import EncodedRows
from headstart.features.schema.rows import action_label, item_key
from headstart.features.transformer import AnyEncoder, encoder_of
from headstart.features.usual_sizes import FarOutError, UsualSizes
from headstart.records import Array

# The usual sizes are computed at offers 1, 2, 4, …, and at the first ones where values were few;
# after these, every second time if they are known.
FIRST_OFFERS = 16

#: Writes what is known of items, given by the keys of their ids, into the last columns of a table.
ItemWriter = Callable[[Sequence[Any], Array], None]


@dataclasses.dataclass(slots=True, eq=False)
class Offer:
    """What is on offer, as it was read.

    Attributes
    ----------
    contexts, rows
        The contexts as they were passed or encoded, and as the model sees them (in a new array).
        Of several tasks, one table for each.
    names, sizes
        The names and the usual sizes of features from now on.
    labels, has_ids
        The names of the arms, and whether these are ids that were given; ``None`` if arms have only
        row numbers. Of several tasks, the labels of each.
    """

    contexts: Any
    rows: Any
    names: tuple[str, ...] | None
    sizes: UsualSizes
    labels: Any = None
    has_ids: bool = False

    def ids(self, at: int | None = None) -> Any:
        """The labels by which arms can be excluded: ids, or an index of texts; of one task."""
        labels = self.labels if at is None or self.labels is None else self.labels[at]
        is_named = self.has_ids or any(isinstance(label, str) for label in labels or ())
        return labels if is_named else None


class ContextReader:
    """Checks contexts and transforms them, and remembers names and usual sizes of features.

    With an ``encoder`` (of a schema), contexts and actions are encoded first.
    """

    def __init__(
        self,
        features: Features,
        sizes: UsualSizes | None = None,
        offer_count: int = 0,
        encoder: AnyEncoder | None = None,
    ) -> None:
        self.features = features
        self.encoder = encoder
        # Columns that the encoder makes itself, such as those of items, cannot be far out either.
        self.is_bounded = np.full(features.context_dim, encoder is not None)
        if encoder is not None:
            self.is_bounded[: encoder.width] = encoder.is_bounded
        self.offer_count = offer_count
        self.set_sizes(sizes or UsualSizes.zero(features.context_dim))

    def copy(self) -> ContextReader:
        """A copy that shares no mutable state."""
        encoder = None if self.encoder is None else encoder_of(self.encoder.schema)
        return ContextReader(self.features, self.sizes, self.offer_count, encoder)

    def set_sizes(self, sizes: UsualSizes) -> None:
        """Set the usual sizes of the features."""
        self.sizes, self.limits = sizes, sizes.limits
        self.limits[self.is_bounded] = np.inf
        self.max_squares = float(self.limits.min()) ** 2  # no sum of squares is below its terms
        if self.max_squares == 0.0:
            self.unsized = np.flatnonzero(self.limits == 0.0)
            self.max_squares_of_sized = (
                float(self.limits[self.limits > 0.0].min(initial=np.inf)) ** 2
            )
        self.usual_sizes = sizes.usual(self.features)

    def read(
        self, contexts: Any, write_items: ItemWriter | None = None, distinct: bool = True
    ) -> Offer:
        """The contexts of one task, shape ``(K, context_dim)``; with ``distinct``, no id twice."""
        features, labels, has_ids = self.features, None, False
        if self.encoder is not None:
            (table, labels, has_ids), squares = self.encode(
                contexts, write_items, distinct=distinct
            )
            rows, names = features.transform(table), features.names
        else:
            if type(contexts) is Request:
                contexts = plain_contexts(contexts)
            table, squares, names, rows = features.read_rows(contexts)
            if type(contexts) is not np.ndarray:
                labels = index_labels(contexts)
        try:
            sizes = self.check_sizes(table, squares)
        except FarOutError as error:
            if self.encoder is None:
                raise
            label = None if labels is None else labels[error.row]
            raise InputError(f"{action_label(error.row, label)}: {error.in_row}") from None
        return Offer(table, rows, names, sizes, labels, has_ids)

    def encode(
        self, contexts: Any, write_items: ItemWriter | None = None, *, distinct: bool = True
    ) -> tuple[EncodedRows, float]:
        """Contexts and actions by the schema, and the sum of squares of their rows."""
        assert self.encoder is not None
        request = contexts if type(contexts) is Request else Request(None, contexts)
        if isinstance(request.actions, EncodedRows):
            encoded = self.check_encoded(request)
        else:
            extra = self.features.context_dim - self.encoder.width
            encoded = self.encoder.encode(*request, extra, distinct=distinct)
            if write_items is not None:
                write_items(encoded.labels or (), encoded.table)
        squares = float(np.vdot(encoded.table, encoded.table))
        if not squares <= MAX_SQUARES:
            self.features.check(encoded.table)
        return encoded, squares

    def check_encoded(self, request: Request) -> EncodedRows:
        """Rows that were encoded before: to be decided on as they are."""
        encoded: EncodedRows = request.actions
        if request.context is not None:
            raise InputError("context must not be given together with rows that are encoded")
        table = checks.finite_array("actions", encoded.table, "rows that were encoded", ndim=2)
        self.features.check(table)
        labels, has_items = encoded.labels, False
        if self.encoder is not None:
            has_items = self.encoder.width < self.features.context_dim
        is_list = isinstance(labels, Sequence) and not isinstance(labels, str)
        if (labels is not None or has_items) and not (is_list and len(labels or ()) == len(table)):
            raise InputError(f"actions must have {len(table)} labels, one per row; got others")
        if has_items:
            for place, label in enumerate(labels or ()):
                item_key(label, place)
        return encoded._replace(table=np.array(table, dtype=np.float64, order="C"))

    def read_many(
        self, contexts: Any, tasks: int, write_items: Sequence[ItemWriter | None] = ()
    ) -> Offer:
        """What is on offer to several tasks: requests with a schema, otherwise their contexts.

        Contexts are of shape ``(tasks, K, context_dim)``, or a list of tables or frames.
        """
        if self.encoder is not None:
            return self.read_requests(contexts, write_items)
        frames = isinstance(contexts, Sequence) and any(
            hasattr(part, "columns") for part in contexts
        )
        if frames or is_ragged(contexts):
            return self.read_ragged(contexts, tasks)
        tables, sizes = self.features.read_many(contexts, tasks), self.sizes
        if tasks:
            flat = tables.reshape(-1, self.features.context_dim)
            sizes = self.check_sizes(flat, float(np.vdot(flat, flat)))
        return Offer(tables, self.features.transform(tables), self.features.names, sizes)

    def read_ragged(self, contexts: Any, tasks: int) -> Offer:
        """The contexts of several tasks: tables with different numbers of arms, or frames."""
        if len(contexts) != tasks:
            raise InputError(
                f"contexts must hold {tasks} tables, one per task; got {len(contexts)}"
            )
        features, tables = self.features, []
        for at, table in enumerate(contexts):
            with checks.errors_at("contexts", at):
                values, _, names = features.read(table)
            features = dataclasses.replace(features, names=names)
            tables.append(values.copy())
        names = self.features.names if features.names == self.features.names else features.names
        return self.offer_of(tables, names, [index_labels(table) for table in contexts])

    def read_requests(
        self, requests: Sequence[Request], write_items: Sequence[ItemWriter | None]
    ) -> Offer:
        """What is on offer to several tasks, by the schema."""
        offers = []
        for at, (request, writer) in enumerate(zip(requests, write_items, strict=True)):
            try:
                offers.append(self.encode(request, writer)[0])
            except InputError as error:
                raise InputError(f"ids[{at}]: {error}") from None
        labels = [encoded.labels for encoded in offers]
        has_ids = any(encoded.has_ids for encoded in offers)
        tables = [encoded.table for encoded in offers]
        return self.offer_of(tables, self.features.names, labels, has_ids)

    def offer_of(
        self, tables: list[Array], names: Any, labels: Any, has_ids: bool = False
    ) -> Offer:
        """What is on offer to several tasks, of which each has a table of its own."""
        rows, sizes = [self.features.transform(table) for table in tables], self.sizes
        if tables:
            flat = np.concatenate(tables)
            sizes = self.check_sizes(flat, float(np.vdot(flat, flat)))
        return Offer(tables, rows, names, sizes, labels, has_ids)

    def check_sizes(self, contexts: Array, squares: float) -> UsualSizes:
        """The usual sizes from now on; contexts with values far out are refused.

        Most contexts pass a quick test by their sum of ``squares`` or by the limits.
        """
        count, sizes = self.offer_count, self.sizes
        due = count & (count - 1) == 0 or (count < FIRST_OFFERS and not sizes.are_known)
        if due and count > FIRST_OFFERS and count.bit_length() % 2 == 0:
            due = not sizes.are_known
        if not due and (squares <= self.max_squares or self.are_within_limits(contexts, squares)):
            return sizes
        if self.encoder is not None:
            contexts = np.where(self.is_bounded, 0.0, contexts)
            # A category that is met late, crossed with a number, is a column without a size.
            due = due or bool(((self.limits == 0.0) & contexts.any(0)).any())
        new_sizes = sizes.update(contexts, self.features)
        return new_sizes if due else sizes

    def are_within_limits(self, contexts: Array, squares: float) -> bool:
        """Whether no value exceeds the limit of its feature."""
        if self.max_squares == 0.0 and squares <= self.max_squares_of_sized:
            # In a column without a size, every value is too large.
            return not np.count_nonzero(contexts.take(self.unsized, 1))
        return not np.count_nonzero(np.abs(contexts) > self.limits)

    def accept(self, offer: Offer, is_frozen: bool) -> bool:
        """Remember an offer that a choice was made from; returns whether the sizes have changed.

        As long as learning is frozen, they do not.
        """
        self.offer_count += 1
        if offer.names is not self.features.names:
            self.features = dataclasses.replace(self.features, names=offer.names)
        if offer.sizes is self.sizes or is_frozen:
            return False
        self.set_sizes(offer.sizes)
        return True


def index_labels(contexts: Any) -> list[Any] | None:
    """The index of a pandas frame, which names its arms; ``None`` for anything else."""
    if hasattr(contexts, "columns") and hasattr(contexts, "index"):
        labels: list[Any] = contexts.index.to_list()
        return labels
    return None
