"""The base class of settings: rules, transfers, and other choices that do not change."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import weakref
from typing import Any, Self

import numpy as np

from headstart import checks
from headstart.errors import InputError
from headstart.records import equal_values, format_value

#: The subclasses of :class:`Settings` that this process has imported, by their full names.
SETTINGS: weakref.WeakValueDictionary[str, type[Settings]] = weakref.WeakValueDictionary()


def full_name(cls: type) -> str:
    """A class's module and name; the library's own modules may move and are left out.

    >>> import headstart as hs
    >>> full_name(hs.UCB)
    'headstart.UCB'
    """
    library = __name__.partition(".")[0]
    module = library if cls.__module__.startswith(f"{library}.") else cls.__module__
    return f"{module}.{cls.__qualname__}"


class Settings:
    """Base of rules, transfers and PCAs: frozen dataclasses that print what is not the default.

    Every subclass is entered in ``SETTINGS`` under its :func:`full_name`, so that a file can name
    the settings it was saved with. A file never causes an import: it can only name classes that the
    process has imported already.

    >>> import headstart as hs
    >>> hs.UCB(), hs.UCB(2.0, explore=0.1)
    (UCB(), UCB(radius=2.0, explore=0.1))
    """

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        SETTINGS[full_name(cls)] = cls
        check = cls.__dict__.get("__post_init__")
        if check is not None:  # convert numbers before they are checked

            @functools.wraps(check)
            def checked(self: Any) -> None:
                convert_numbers(self)
                check(self)

            cls.__post_init__ = checked  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        known: dict[str, dataclasses.Field[Any]] = getattr(self, "__dataclass_fields__", {})
        shown = [
            f"{field.name}={format_value(getattr(self, field.name))}"
            for field in sorted(known.values(), key=lambda field: bool(field.kw_only))
            if field.repr and not equal_values(getattr(self, field.name), field.default)
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; with ``deep`` those of nested settings too, as ``then__radius``.

        With it, scikit-learn can clone rules and transfers and print them.

        >>> import headstart as hs
        >>> hs.Greedy(explore=0.1).get_params()
        {'explore': 0.1, 'probability': None}
        """
        known: tuple[Any, ...] = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
        params = {field.name: getattr(self, field.name) for field in known if field.init}
        if deep:
            for name, value in list(params.items()):
                if isinstance(value, Settings):
                    params |= {f"{name}__{key}": part for key, part in value.get_params().items()}
        return params

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed; ``then__radius=2.0`` changes those of ``then``.

        Settings are immutable, so there is no ``set_params``.

        >>> import headstart as hs
        >>> hs.Forced(3, hs.UCB()).replace(rounds=5, then__radius=2.0)
        Forced(rounds=5, then=UCB(radius=2.0))
        """
        nested: dict[str, dict[str, Any]] = {}
        params = self.get_params(deep=False)
        for key, value in changes.items():
            name, dots, inner = key.partition("__")
            if name not in params or (dots and not isinstance(params[name], Settings)):
                known = ", ".join(self.get_params())
                raise InputError(f"{type(self).__name__} has the settings {known}; got {key!r}")
            if dots:
                nested.setdefault(name, {})[inner] = value
            else:
                params[name] = value
        params |= {name: params[name].replace(**inner) for name, inner in nested.items()}
        return type(self)(**params)

    def __sklearn_clone__(self) -> Self:
        """What :func:`sklearn.base.clone` gives: an equal one."""
        return copy.copy(self)


def convert_numbers(settings: Any) -> None:
    """Convert the numbers among settings to floats, ints and bools."""
    for field in dataclasses.fields(settings):
        value: Any = getattr(settings, field.name)
        if isinstance(value, np.ndarray) and not value.ndim and not np.ma.is_masked(value):
            value = value.item()
        if isinstance(value, np.bool_):
            value = bool(value)
        elif checks.is_whole(value):
            value = int(value)
        fractional = not isinstance(value, (int, float)) and checks.is_real(value)
        too_long = type(value) is int and abs(value) >= 2**63 and "float" in str(field.type)
        if fractional or too_long:
            with contextlib.suppress(OverflowError):  # it will be refused
                value = float(value)
        object.__setattr__(settings, field.name, value)
