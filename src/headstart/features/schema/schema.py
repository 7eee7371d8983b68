"""The schema: which fields contexts and actions have, and which of them are crossed."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from headstart import checks
from headstart.errors import InputError
from headstart.features.schema.categories import is_encodable
from headstart.features.schema.fields import Field
from headstart.features.schema.kinds import field_from_json

if TYPE_CHECKING:
    from headstart.features.schema.review import Review

FORMAT_VERSION = 1  # of the JSON
MANY_COLUMNS = 1000  # from which on a bandit takes hundreds of megabytes, and a fit seconds
NamedFields = tuple[tuple[str, Field], ...]


@dataclasses.dataclass(frozen=True, init=False, repr=False)
class Schema:
    """The fields of contexts and actions, and how they become the features of the model.

    Every action becomes one row of numbers: the columns of the context's fields, those of the
    action's fields, those of the crosses and, with ``identity``, what is known of the item itself.
    The order in which fields are given does not matter.

    Parameters
    ----------
    context : mapping of str to field, optional
        The fields that all actions of a decision share, such as the hour or the device: each is a
        :func:`number`, :func:`category`, :func:`boolean` or :func:`vector`.
    action : mapping of str to field, optional
        The fields of an action, such as its price or its brand.
    crosses : sequence of (str, str), or "all", optional
        Pairs of fields whose columns are multiplied: the weight of one then depends on the other.
        A field of the context raises or lowers all actions alike; only crossed with a field of the
        actions does it change which one is chosen. ``"all"`` crosses every field of the context
        with every field of the actions. Without it there are none, and a warning says so where
        there is a context; ``()`` says that none are wanted.
    identity : bool, default False
        Whether items are known by their ids, beyond their fields: what all tasks have learned of an
        item becomes a few columns, to which each task has its own coefficients. Meant for many
        ids. A few fixed ones can be a category: ``action={"id": category("a", "b")}``.
    id : str, default "id"
        The name of the field that holds the id of an action.
    ignore : sequence of str, default ()
        Names of columns that are allowed and not used, such as a title.

    Examples
    --------
    >>> import headstart as hs
    >>> schema = hs.Schema(
    ...     context={"device": hs.category("phone", "desktop")},
    ...     action={"price": hs.number(missing=False)},
    ...     crosses=[("device", "price")],
    ... )
    >>> schema.feature_names
    ('device=phone', 'device=desktop', 'device other', 'price', 'device=phone × price',
     'device=desktop × price', 'device other × price')
    >>> hs.Schema.from_json(schema.to_json()) == schema
    True
    """

    context_fields: NamedFields
    action_fields: NamedFields
    crosses: tuple[tuple[str, str], ...]
    identity: bool
    id: str
    ignore: tuple[str, ...]

    #: What was found of the columns, if the schema was inferred.
    review: ClassVar[Review | None] = None

    def __init__(
        self,
        context: Mapping[str, Field] | None = None,
        action: Mapping[str, Field] | None = None,
        crosses: Iterable[tuple[str, str]] | str | None = None,
        identity: bool = False,
        *,
        id: str = "id",
        ignore: Iterable[str] = (),
    ) -> None:
        context_fields = check_fields("context", context)
        action_fields = check_fields("action", action)
        identity = checks.flag("identity", identity)
        check_name("id", id)
        names = {name for name, _ in action_fields}
        for name, _ in context_fields:
            if name in names:
                raise InputError(
                    f"context and action must have fields of different names; both have {name!r}"
                )
        names |= {name for name, _ in context_fields}
        if id in dict(context_fields):
            raise InputError(f"context must not have the field {id!r}, the id of an action")
        entries = checks.entries("ignore", ignore, "a list of names")
        ignore = tuple(sorted({check_name("ignore", name) for name in entries}))
        for name in ignore:
            if name in names or name == id:
                raise InputError(f"ignore must not name a field of the schema; got {name!r}")
        if not action_fields and not identity:
            raise InputError(
                "action must have fields, or identity must be True: otherwise actions "
                "cannot be distinguished"
            )
        if crosses is None and context_fields:
            warnings.warn(
                "context raises or lowers all actions alike, and cannot change which one is "
                'chosen, unless its fields are crossed with those of actions: pass crosses="all", '
                "or pairs of fields, or () if that is meant",
                stacklevel=2,
            )
        values = {
            "context_fields": context_fields,
            "action_fields": action_fields,
            "crosses": check_crosses(crosses, context_fields, action_fields, identity, id),
            "identity": identity,
            "id": id,
            "ignore": ignore,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        checks.integer("the number of columns of the schema", self.width, 0, checks.MAX_FEATURES)
        if self.width > MANY_COLUMNS:
            (widest, count), *_ = Counter(self.column_fields).most_common(1)
            warnings.warn(
                f"the schema has {self.width:,} columns, {count:,} of them for {widest!r}: memory "
                "and the time of a decision grow with their square, the time of a fit with their "
                "cube. Categories of many values are better hashed, category(buckets=64), and "
                "many ids are known by identity=True",
                stacklevel=2,
            )

    @property
    def context(self) -> dict[str, Field]:
        """The fields of contexts."""
        return dict(self.context_fields)

    @property
    def action(self) -> dict[str, Field]:
        """The fields of actions."""
        return dict(self.action_fields)

    @property
    def width(self) -> int:
        """How many columns a row has, without those that ``identity`` adds."""
        fields = self.context | self.action
        alone = sum(field.width for field in fields.values())
        return alone + sum(fields[one].width * fields[two].width for one, two in self.crosses)

    @functools.cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns, without those that ``identity`` adds."""
        fields = self.context | self.action
        columns = {name: field.column_names(name) for name, field in fields.items()}
        names = [label for each in columns.values() for label in each]
        for one, two in self.crosses:
            names += [f"{left} × {right}" for left in columns[one] for right in columns[two]]
        return tuple(names)

    @functools.cached_property
    def column_fields(self) -> tuple[str, ...]:
        """Of each column, the field or the cross that it is of."""
        widths = {name: field.width for name, field in (self.context | self.action).items()}
        fields = [name for name, width in widths.items() for _ in range(width)]
        for one, two in self.crosses:
            fields += [f"{one} × {two}"] * (widths[one] * widths[two])
        return tuple(fields)

    def __repr__(self) -> str:
        parts = []
        for name in ("context", "action"):
            fields = getattr(self, name)
            if fields:
                inner = ", ".join(f"{key!r}: {field!r}" for key, field in fields.items())
                parts.append(f"{name}={{{inner}}}")
        if self.crosses or self.context_fields:
            parts.append(f"crosses={list(self.crosses)!r}")
        if self.identity:
            parts.append("identity=True")
        if self.id != "id":
            parts.append(f"id={self.id!r}")
        if self.ignore:
            parts.append(f"ignore={list(self.ignore)!r}")
        return f"Schema({', '.join(parts)})"

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain data, ready for JSON."""
        return {
            "headstart_schema": FORMAT_VERSION,
            "context": {name: field.to_json() for name, field in self.context_fields},
            "action": {name: field.to_json() for name, field in self.action_fields},
            "crosses": [list(pair) for pair in self.crosses],
            "identity": self.identity,
            "id": self.id,
            "ignore": list(self.ignore),
        }

    def to_json(self) -> str:
        """The schema as JSON text, to be kept in a file and edited."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_dict(cls, value: object) -> Schema:
        """The inverse of :meth:`to_dict`."""
        if not isinstance(value, dict) or "headstart_schema" not in value:
            raise InputError(
                'schema must be a JSON object with "headstart_schema", as Schema.to_json() writes '
                f"it; got {checks.describe(value)}"
            )
        if value["headstart_schema"] != FORMAT_VERSION:
            raise InputError(
                f"schema must have version {FORMAT_VERSION}, which this headstart reads; got "
                f"{checks.describe(value['headstart_schema'])}"
            )
        parts = {"headstart_schema", "context", "action", "crosses", "identity", "id", "ignore"}
        if set(value) - parts:
            raise InputError(f"schema has unknown parts: {sorted(map(str, set(value) - parts))}")
        groups = []
        for part in ("context", "action"):
            fields = value.get(part, {})
            if not isinstance(fields, dict):
                raise checks.invalid(
                    f"schema: {part}", "an object with a field for each name", fields
                )
            groups.append({name: field_from_json(name, field) for name, field in fields.items()})
        crosses = value.get("crosses", [])
        if isinstance(crosses, list):
            crosses = [tuple(pair) if isinstance(pair, list) else pair for pair in crosses]
        identity = value.get("identity", False)
        id, ignore = value.get("id", "id"), value.get("ignore", [])
        return cls(groups[0], groups[1], crosses, identity, id=id, ignore=ignore)

    @classmethod
    def infer(
        cls,
        frame: Any,
        *,
        task: str | None = None,
        reward: str | None = None,
        context: Iterable[str] = (),
        id: str = "id",
        ignore: Iterable[str] = (),
    ) -> Schema:
        """A schema proposed for the rows of a frame, with a ``review`` to be printed and checked.

        Texts are categories, listed up to 20 values and hashed beyond; numbers that are all 0 or 1
        are booleans. Columns of free text, or of mixed types, are ignored. Fields of the context
        are crossed with those of actions, as long as there are at most 100 columns.

        Parameters
        ----------
        frame : pandas or Polars data frame, list of dict, array with names, or dict of columns
            The rows; or the path of a log (Parquet, Arrow, CSV or JSON lines: a file, a folder or a
            glob), of which a sample of up to 16,000 rows is read.
        task, reward : str, optional
            The columns of the tasks' ids and of the rewards, which are not fields.
        context : sequence of str, default ()
            The columns that are fields of the context. All others are fields of actions.
        id : str, default "id"
            The column of the actions' ids.
        ignore : sequence of str, default ()
            Columns that are not used.

        Examples
        --------
        >>> rows = [
        ...     {"id": "tea", "price": 3, "brand": "x"},
        ...     {"id": "milk", "price": None, "brand": "y"},
        ... ]
        >>> schema = Schema.infer(rows)
        >>> schema
        Schema(action={'brand': category('x', 'y'), 'id': category('milk', 'tea'), 'price':
        number()})
        >>> print(schema.review)
        2 rows
        column  role    field                    values
        id      id      category('milk', 'tea')  2 different, 1.0 rows each  few ids: each has ...
        price   action  number()                 3 to 3, 1 missing           the same in all rows
        brand   action  category('x', 'y')       2 different
        """
        from headstart.features.schema.infer import propose

        return propose(frame, task, reward, context, id, ignore)

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """The inverse of :meth:`to_json`."""
        try:
            value = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"schema must be JSON text; it cannot be read ({error})") from None
        return cls.from_dict(value)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Schema:
        """The schema in a file of JSON, as :meth:`to_json` writes it; errors name the file."""
        from headstart.storage import atomic

        source = atomic.checked_path(path)
        with (
            atomic.explain_read_errors(source, "a schema"),
            atomic.open_regular(source, "a schema") as file,
        ):
            text = file.read().decode("utf-8")
        try:
            return cls.from_json(text)
        except InputError as error:
            raise InputError(f"{str(source)!r}: {error}") from None


def check_name(what: str, name: object) -> str:
    """The name of a field: text that is not empty."""
    if not isinstance(name, str) or not name or not is_encodable(name):
        raise checks.invalid(what, "a name, as text", name)
    return name


def check_fields(what: str, fields: object) -> NamedFields:
    """The fields of the context or of actions, in the order of their names."""
    if fields is None:
        return ()
    if not isinstance(fields, Mapping):
        raise checks.invalid(
            what, "a dict of fields by name, {'price': headstart.number()}", fields
        )
    for name, field in fields.items():
        check_name(f"the name of a field of the {what}", name)
        if not isinstance(field, Field):
            want = "a headstart.number(), category(…), boolean() or vector(n)"
            raise checks.invalid(f"{what}: field {name!r}", want, field)
    return tuple(sorted(fields.items()))


def check_crosses(
    crosses: Iterable[tuple[str, str]] | str | None,
    context: NamedFields,
    action: NamedFields,
    identity: bool,
    id: str,
) -> tuple[tuple[str, str], ...]:
    """Pairs of fields in their usual order: those of the context first, then by name."""
    if crosses is None:
        return ()
    if isinstance(crosses, str):
        checks.one_of("crosses", crosses, ("all",))
        return tuple((one, two) for one, _ in context for two, _ in action)
    order = {name: place for place, (name, _) in enumerate((*context, *action))}
    want = 'a list of pairs of fields, or "all"'
    pairs = set()
    for entry in checks.entries("crosses", crosses, want):
        pair = checks.entries("crosses", entry, want)
        if len(pair) != 2:
            raise checks.invalid("crosses", want, entry)
        for name in pair:
            if not isinstance(name, str) or name not in order:
                hint = ""
                if isinstance(name, str) and name == id and identity:
                    hint = f": make it a field, action={{{id!r}: category(…)}}, to cross it"
                raise InputError(
                    f"crosses must name fields of the schema; got {checks.describe(name)}{hint}"
                )
        one, two = sorted(pair, key=order.__getitem__)
        if one == two:
            raise InputError(f"crosses must pair different fields; got {one!r} twice")
        pairs.add((one, two))
    return tuple(sorted(pairs, key=lambda pair: (order[pair[0]], order[pair[1]])))
