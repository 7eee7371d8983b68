"""Python functions that are called from functions compiled by JAX.

XLA calls them by its interface for foreign functions (``xla/ffi/api/c_api.h``); the structures
below have the fields that are read. XLA keeps this interface compatible for at least a year, and
ctypes implements it: nothing is compiled here.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, ClassVar

import jax
import numpy as np

EXECUTE = 3  # the stage of a call in which something is computed
METADATA = 1  # the kind of an extension that asks for the version of the interface


class Extensible(Structure):
    """What most structures begin with: their size, and extensions, which are not read."""

    _fields_: ClassVar[Sequence[tuple[str, Any]]] = (("size", c_size_t), ("extension", c_void_p))


class Version(Extensible):
    """The version of the interface."""

    _fields_ = (("major", c_int), ("minor", c_int))


class Metadata(Structure):
    """Metadata of a foreign function, which XLA asks for."""

    _fields_ = (("size", c_size_t), ("version", Version), ("traits", c_uint32))


class Extension(Structure):
    """A request of XLA for more than a call."""

    _fields_ = (
        ("size", c_size_t),
        ("kind", c_int),
        ("following", c_void_p),
        ("metadata", POINTER(Metadata)),
    )


class Buffer(Extensible):
    """An array, of which only the address is read."""

    _fields_ = (("kind", c_int), ("data", c_void_p))


class Text(Structure):
    """Characters."""

    _fields_ = (("start", c_void_p), ("length", c_size_t))


class Buffers(Extensible):
    """Arrays that come in or go out."""

    _fields_ = (("number", c_int64), ("kinds", c_void_p), ("items", POINTER(POINTER(Buffer))))


class Attributes(Extensible):
    """Constants of a call, sorted by name: there is one, a text."""

    _fields_ = (
        ("number", c_int64),
        ("kinds", c_void_p),
        ("names", c_void_p),
        ("items", POINTER(POINTER(Text))),
    )


class StreamQuery(Extensible):
    """Which stream to use."""

    _fields_ = (("context", c_void_p), ("stream", c_void_p))


class ErrorReport(Extensible):
    """An error message with its code."""

    _fields_ = (("message", ctypes.c_char_p), ("code", c_int))


class Interface(Extensible):
    """XLA's own functions, as far as they are called."""

    _fields_ = (
        ("version", Version),
        ("internal", c_void_p),
        ("create_error", CFUNCTYPE(c_void_p, POINTER(ErrorReport))),
        ("error_message", c_void_p),
        ("destroy_error", c_void_p),
        ("register", c_void_p),
        ("stream", CFUNCTYPE(c_void_p, POINTER(StreamQuery))),
    )


class Frame(Structure):
    """A call."""

    _fields_ = (
        ("size", c_size_t),
        ("extension", POINTER(Extension)),
        ("interface", POINTER(Interface)),
        ("context", c_void_p),
        ("stage", c_int),
        ("inputs", Buffers),
        ("outputs", Buffers),
        ("attributes", Attributes),
    )


INTERNAL_ERROR = 13
HANDLERS: dict[str, Any] = {}  # which XLA calls as long as the process lives


def register(target: str, run: Callable[[str, int, list[int]], None], platform: str) -> None:
    """Let ``run(key, stream, addresses)`` be called where a compiled function calls the target.

    ``key`` is the text that the call has been given, and the addresses are those of its arrays,
    inputs first. On a GPU they may be read and written by what is launched on the stream; elsewhere
    the stream is 0. An exception is one of the compiled function.
    """
    if target not in HANDLERS:
        HANDLERS[target] = HANDLER(functools.partial(handle, run, platform == "CUDA"))
        ffi: Any = jax.ffi
        ffi.register_ffi_target(target, ffi.pycapsule(HANDLERS[target]), platform=platform)


def call(target: str, key: str, shapes: Sequence[Sequence[int]], *arrays: Any) -> list[Any]:
    """The results of a target: arrays of these shapes in double precision."""
    library: Any = jax
    results = [library.ShapeDtypeStruct(tuple(shape), np.float64) for shape in shapes]
    return library.ffi.ffi_call(target, results)(*arrays, key=key)


def handle(run: Callable[[str, int, list[int]], None], on_gpu: bool, call: Any) -> int | None:
    """The function that XLA calls; returns the address of an error, or ``None``."""
    frame = call.contents
    if frame.extension and frame.extension.contents.kind == METADATA:
        version = frame.extension.contents.metadata.contents.version
        own = frame.interface.contents.version if frame.interface else FIRST_VERSION
        version.major, version.minor = own.major, own.minor
        return None
    if frame.stage != EXECUTE:
        return None
    interface = frame.interface.contents
    try:
        text = frame.attributes.items[0].contents
        query = StreamQuery(ctypes.sizeof(StreamQuery), None, frame.context, None)
        if on_gpu:
            interface.stream(ctypes.byref(query))
        addresses = [
            side.items[at].contents.data
            for side in (frame.inputs, frame.outputs)
            for at in range(side.number)
        ]
        run(ctypes.string_at(text.start, text.length).decode(), query.stream or 0, addresses)
    except Exception as error:
        message = f"{type(error).__name__}: {error}".encode()
        report = ErrorReport(ctypes.sizeof(ErrorReport), None, message, INTERNAL_ERROR)
        return interface.create_error(ctypes.byref(report))
    return None


HANDLER = CFUNCTYPE(c_void_p, POINTER(Frame))
FIRST_VERSION = Version(0, None, 0, 1)  # with these structures
