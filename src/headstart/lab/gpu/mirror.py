"""The library's own transfers on JAX arrays: the same source, run with other arrays.

The transfers are plain functions of arrays, written with NumPy. To compile them for a GPU they must
see JAX's functions under the name ``np``. So their modules are loaded a second time, from the same
files, with an ``import numpy`` that gives :class:`Arrays`: functions that hand NumPy's arguments to
NumPy and JAX's to JAX. The modules that everybody else imports are not touched. What is mirrored
does not check its arguments again (a value that is still being traced cannot be looked at).
"""

from __future__ import annotations

import builtins
import dataclasses
import importlib.util
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from headstart.errors import InputError
from headstart.transfer import Transfer

__all__ = ["Mirror"]

#: The modules that compute with arrays. Others are used as they are.
MODULES = (
    "headstart.records",
    "headstart.model.evidence",
    "headstart.model.prior",
    "headstart.subspace",
    "headstart.subspace.base",
    "headstart.subspace.ccipca",
    "headstart.subspace.exact",
    "headstart.subspace.rank",
    "headstart.transfer.algebra",
    "headstart.transfer.base",
    "headstart.transfer.bias",
    "headstart.transfer.estimates",
    "headstart.transfer.gaussian",
    "headstart.transfer.independent",
    "headstart.transfer.noise",
    "headstart.transfer.oracle",
    "headstart.transfer.subspace",
)


class Arrays:
    """NumPy's names: each call goes to JAX if an argument is JAX's, else to NumPy."""

    def __init__(self, ours: Any = np, theirs: Any = jnp) -> None:
        self._ours = ours
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        ours = getattr(self._ours, name)
        theirs = getattr(self._theirs, name, None)
        if isinstance(ours, ModuleType):
            return ours if theirs is None else Arrays(ours, theirs)
        if isinstance(ours, type) or not callable(ours) or theirs is None:
            return ours

        def either(*arguments: Any, **options: Any) -> Any:
            if not any(is_traced(value) for value in (*arguments, *options.values())):
                return ours(*arguments, **options)
            if name == "argsort":  # JAX's is always stable and has no word for it
                options.pop("kind", None)
            return theirs(*arguments, **options)

        self.__dict__[name] = either
        return either


def is_traced(value: Any) -> bool:
    """Whether a value is JAX's, or a list that holds one."""
    if isinstance(value, (list, tuple)):
        return any(is_traced(part) for part in value)
    return isinstance(value, jax.Array)


class Mirror:
    """The mirrored modules, loaded as they are asked for."""

    def __init__(self) -> None:
        self.arrays = Arrays()
        self.modules: dict[str, ModuleType] = {}
        self.checks = SimpleNamespace(**vars(importlib.import_module("headstart.checks")))
        self.checks.finite_array = lambda name, value, *_, **__: self.arrays.asarray(value)

    def transfer(self, transfer: Transfer) -> Any:
        """The mirrored twin of a transfer, with the same settings."""
        kind = type(transfer)
        if kind.__module__ not in MODULES:
            raise InputError(f"{transfer!r} cannot be compiled for a GPU")
        twin = getattr(self.load(kind.__module__), kind.__name__)
        fields = [field.name for field in dataclasses.fields(transfer)]  # type: ignore[arg-type]
        return twin(**{name: getattr(transfer, name) for name in fields})

    def evidence(self, picked: Any, earned: Any, forced: Any = None) -> Any:
        """The evidence of rounds that JAX holds."""
        module = self.load("headstart.model.evidence")
        gram = jnp.einsum("...ni,...nj->...ij", picked, picked)
        rounds = jnp.full(earned.shape[:-1], float(earned.shape[-1]))
        moment = jnp.einsum("...n,...ni->...i", earned, picked)
        return module.unchecked(gram, moment, rounds, (earned**2).sum(-1), forced)

    def load(self, name: str) -> ModuleType:
        """A mirrored module."""
        if name not in self.modules:
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.origin is not None
            source = spec.loader.get_source(name)  # type: ignore[union-attr]
            module = ModuleType(name)
            module.__dict__.update(
                __package__=name.rpartition(".")[0],
                __file__=spec.origin,
                __builtins__={**vars(builtins), "__import__": self.find},
            )
            self.modules[name] = module
            exec(compile(source, spec.origin, "exec"), module.__dict__)
            self.prepare(module)
        return self.modules[name]

    def find(
        self, name: str, ours: Any = None, here: Any = None, wanted: Any = (), level: int = 0
    ) -> Any:
        """What an import statement of a mirrored module gets."""
        if name.partition(".")[0] == "numpy":
            return self.arrays
        if name == "headstart" and "checks" in (wanted or ()):
            return SimpleNamespace(checks=self.checks)
        if name in MODULES:
            return self.load(name)
        return builtins.__import__(name, ours, here, wanted, level)

    def prepare(self, module: ModuleType) -> None:
        """Make a module's records ones that JAX can take apart, and that are not checked."""
        records = self.load("headstart.records")
        for kind in list(vars(module).values()):
            if not isinstance(kind, type) or kind.__module__ != module.__name__:
                continue
            if issubclass(kind, records.Record) and dataclasses.is_dataclass(kind):
                jax.tree_util.register_pytree_node(kind, *pytree(kind, records.rebuild))
            if kind.__name__ == "Prior":
                kind.__post_init__ = take_as_given
        if module.__name__ == "headstart.transfer.estimates":
            # Decided by values, which are not known yet. Contexts here are no longer than 1, so
            # that a gram's trace is at most the number of rounds: not above 100,000.
            module.__dict__["lost_in_rounding"] = lambda gram, ridge: np.asarray(ridge < 1e-4)


def take_as_given(prior: Any) -> None:
    """A prior's fields, as they are."""
    if prior.printed_bias is None:
        object.__setattr__(prior, "printed_bias", prior.bias)


def pytree(kind: Any, rebuild: Callable[..., Any]) -> tuple[Any, Any]:
    """How JAX takes a record apart and puts it together; given numbers stay as they are."""
    names = [field.name for field in dataclasses.fields(kind)]

    def apart(record: Any) -> tuple[list[Any], tuple[Any, ...]]:
        values = {name: getattr(record, name) for name in names}
        still = {name: value for name, value in values.items() if is_setting(value)}
        moving = [name for name in names if name not in still]
        return [values[name] for name in moving], (tuple(moving), tuple(still.items()))

    def together(outline: Any, children: Any) -> Any:
        moving, still = outline
        return rebuild(kind, dict(still) | dict(zip(moving, children, strict=True)))

    return apart, together


def is_setting(value: Any) -> bool:
    """Whether a field is a plain number or text, fixed for good."""
    return value is None or isinstance(value, (bool, int, float, str))
