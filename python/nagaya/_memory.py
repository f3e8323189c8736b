# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Memory by address: pins own objects for others, and shows the memory of others as objects.

NumPy is used where the caller asks for arrays, and is not needed otherwise.
"""

import ast
import ctypes
import errno
import itertools
import json
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import TYPE_CHECKING, Any, Optional, Union

from . import _library
from ._closing import Closing
from ._errors import Error, error
from ._library import SELF, Deadline

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

Shape = Union[int, Sequence[int]]

# An export of typed memory has a second name, whose memory describes the type.
_TYPE_PREFIX = b".type."
_CHANGE_SECONDS = 1.0  # the least time that a reader grants an exporter between the two names

# memoryview's formats, and the type strings of NumPy that mean the same on x86-64.
_FORMATS = {
    "?": "|b1", "c": "|S1", "b": "|i1", "B": "|u1", "h": "<i2", "H": "<u2", "i": "<i4",
    "I": "<u4", "l": "<i8", "L": "<u8", "q": "<i8", "Q": "<u8", "n": "<i8", "N": "<u8",
    "e": "<f2", "f": "<f4", "d": "<f8", "P": "<u8",
}  # fmt: skip
_TYPES = {text: form for form, text in reversed(_FORMATS.items())}


class _PyBuffer(Structure):
    """Py_buffer, of Python's stable ABI."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [py_object, POINTER(_PyBuffer), c_int]
_get_buffer.restype = c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [POINTER(_PyBuffer)]
_release_buffer.restype = None


def _is_array(thing: object) -> bool:
    """True if it is an array of NumPy, which then has been imported."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(thing, numpy.ndarray)


class Pin(Closing):
    """Keeps an object's memory at its place, and has its address.

    The object is an array of NumPy or has the buffer protocol, and is contiguous. While it is
    pinned it cannot be resized. ``with pin(...)`` or :meth:`close` ends this.
    """

    address: int
    """The address of the first byte, for all tasks of the space."""
    size: int
    """The number of bytes."""
    readonly: bool
    """True if the object refuses to be written to."""
    layout: Optional[dict[str, Any]]
    """The type of the elements, the shape and the order, as exports describe it."""

    def __init__(self, thing: "Buffer") -> None:
        self._thing: object = thing
        self._buffer: Optional[_PyBuffer] = None
        if _is_array(thing):
            self._pin_array(thing)
        else:
            self._pin_buffer(thing)

    def _pin_array(self, array: Any) -> None:
        import numpy.lib.format

        if array.dtype.hasobject:
            raise TypeError("an array of Python objects is of no use to other tasks")
        flags = array.flags
        if not (flags.c_contiguous or flags.f_contiguous):
            raise ValueError("the array is not contiguous: use numpy.ascontiguousarray")
        # The reference keeps NumPy from resizing the array.
        self.address = array.__array_interface__["data"][0]
        self.size = array.nbytes
        self.readonly = not flags.writeable
        self.layout = {
            "descr": repr(numpy.lib.format.dtype_to_descr(array.dtype)),
            "shape": list(array.shape),
            "order": "C" if flags.c_contiguous else "F",
        }

    def _pin_buffer(self, thing: Any) -> None:
        with memoryview(thing) as view:
            if not view.contiguous:
                raise ValueError("the memory is not contiguous")
            text = _FORMATS.get(view.format.lstrip("@"))
            shape = list(view.shape or ())
            self.readonly = view.readonly
            order = "C" if view.c_contiguous else "F"
            self.layout = {"descr": repr(text), "shape": shape, "order": order} if text else None
        buffer = _PyBuffer()
        _get_buffer(thing, ctypes.byref(buffer), 0x98)  # PyBUF_ANY_CONTIGUOUS
        self._buffer = buffer
        self.address, self.size = buffer.buf or 0, buffer.len

    def close(self) -> None:
        """Lets the object go. Others must not use its memory any more."""
        buffer, self._buffer, self._thing = self._buffer, None, None
        if buffer is not None:
            _release_buffer(ctypes.byref(buffer))

    def __del__(self) -> None:
        if getattr(self, "_buffer", None) is not None:
            self.close()

    def __repr__(self) -> str:
        return f"<nagaya.Pin of {self.size} bytes at {self.address:#x}>"


def pin(thing: "Buffer") -> Pin:
    """Pins the memory of an array or a buffer, to pass its address to other tasks."""
    return Pin(thing)


def _decode_layout(text: bytes) -> Optional[dict[str, Any]]:
    """Reads a description of a type; None if it is none."""
    try:
        found = json.loads(text)
        descr, shape, order = found["descr"], found["shape"], found["order"]
        ast.literal_eval(descr)
    except (ValueError, TypeError, KeyError, SyntaxError):
        return None
    is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    return found if is_shape and order in ("C", "F") else None


class Memory(Closing):
    """Memory of a task, used in place: nothing is copied.

    :meth:`view` and :meth:`array` make objects over it. These are valid as long as the task
    lives and keeps the memory. Afterwards the addresses are unmapped, and an access ends the
    accessing process by SIGSEGV. :meth:`check` tells before. After :meth:`close`, or the end of a
    ``with`` block, the memoryviews and this object refuse further use by ValueError.
    """

    def __init__(
        self,
        pvd: int,
        task: int,
        address: int,
        size: int,
        *,
        name: str = "",
        layout: Optional[dict[str, Any]] = None,
        readonly: bool = False,
    ) -> None:
        self._pvd = pvd
        self._pid = 0
        try:
            self._pid = _library.getpid(pvd, task)
        except Error as failed:
            if failed.errno != errno.EREMOTE:
                raise
        self._views: list[memoryview] = []
        self._closed = False
        self._layout = layout
        self.task = task
        """The ID of the task that owns the memory."""
        self.name = name
        """The name by which it was found, or an empty string."""
        self.address = address
        """The address of the first byte."""
        self.size = size
        """The number of bytes."""
        self.readonly = readonly
        """True if the objects over it cannot be written through."""

    def alive(self) -> bool:
        """True if the task that exported the memory still lives.

        Of a task on another machine this is not known: the answer is True.
        """
        if self._pid == 0:
            return True
        try:
            return bool(_library.getpid(self._pvd, self.task) == self._pid)
        except Error as failed:
            if failed.errno == errno.ESRCH:
                return False
            raise

    def check(self) -> None:
        """Raises TaskEndedError if the task has ended, so that its memory is unmapped."""
        if not self.alive():
            what = f" '{self.name}'" if self.name else ""
            text = f"task {self.task} has ended, and its memory{what} with it"
            raise error(errno.ESRCH, text)

    def _usable(self) -> None:
        if self._closed:
            raise ValueError("this memory was closed")
        self.check()

    def _bytes(self) -> "ctypes.Array[c_char]":
        if self.size == 0:
            return (c_char * 0)()
        return (c_char * self.size).from_address(self.address)

    def view(self, format: Optional[str] = None) -> memoryview:
        """Returns a memoryview of the memory.

        `format` is that of the elements, as for memoryview.cast. Without it, elements and shape
        are those of the exported object if it was exported by this package, else bytes.
        """
        self._usable()
        view = memoryview(self._bytes()).cast("B")
        if self.readonly:
            view = view.toreadonly()
        if format is not None:
            view = view.cast(format)  # type: ignore[call-overload]
        elif self._layout is not None and self._layout["order"] == "C":
            known = _TYPES.get(ast.literal_eval(self._layout["descr"]))
            if known is not None and self.size > 0:
                view = view.cast(known, self._layout["shape"])  # type: ignore[call-overload]
        self._views.append(view)
        return view

    def array(
        self,
        dtype: "Optional[npt.DTypeLike]" = None,
        shape: Optional[Shape] = None,
    ) -> "npt.NDArray[Any]":
        """Returns an array of NumPy over the memory.

        Without `dtype` and `shape` they are those of the exported array if it was exported by this
        package; else the elements are bytes. With a `dtype` only, the array has one dimension.
        """
        import numpy
        import numpy.lib.format

        self._usable()
        order: Any = "C"
        if dtype is not None:
            kind = numpy.dtype(dtype)
        elif self._layout is not None:
            kind = numpy.lib.format.descr_to_dtype(ast.literal_eval(self._layout["descr"]))
            if shape is None:
                shape, order = self._layout["shape"], self._layout["order"]
        else:
            kind = numpy.dtype("u1")
        if shape is None:
            if kind.itemsize == 0 or self.size % kind.itemsize:
                raise ValueError(f"{self.size} bytes are no whole number of elements of {kind}")
            shape = self.size // kind.itemsize
        count = shape if isinstance(shape, int) else math.prod(shape)
        if count < 0 or count * kind.itemsize > self.size:
            raise ValueError(f"{count} elements of {kind} do not fit into {self.size} bytes")
        array: npt.NDArray[Any] = numpy.ndarray(shape, kind, memoryview(self._bytes()), order=order)
        if self.readonly:
            array.flags.writeable = False
        return array

    def close(self) -> None:
        """Releases the memoryviews. Arrays cannot be taken back: do not use them any more."""
        self._closed = True
        views, self._views = self._views, []
        for view in views:
            try:
                view.release()
            except BufferError:
                pass  # something else still uses it

    def __buffer__(self, _flags: int) -> memoryview:
        return self.view()

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        return f"<nagaya.Memory{name} of task {self.task}: {self.size} bytes at {self.address:#x}>"


def _described_by(pvd: int, task: int, name: bytes) -> Optional[bytes]:
    """The description of the type of what a task exports under this name."""
    try:
        place = _library.lookup(pvd, task, _TYPE_PREFIX + name, Deadline(0))
    except Error as failed:
        if failed.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return None
        raise
    return ctypes.string_at(*place)


def find(pvd: int, task: int, name: str, timeout: Optional[float], readonly: bool) -> Memory:
    """Finds what task `task` exports under `name`."""
    encoded, deadline = _library.encode_name(name), Deadline(timeout)
    _library.lookup(pvd, task, encoded, deadline)
    # An export with another type marks the type as changing, exports the memory, and then the type.
    # So memory and type are of one export if the type is the same before and after.
    grace = Deadline(_CHANGE_SECONDS)
    while True:
        before = _described_by(pvd, task, encoded)
        address, size = _library.lookup(pvd, task, encoded, deadline)
        if before != _CHANGING and before == _described_by(pvd, task, encoded):
            layout = None if before is None else _decode_layout(before)
            return Memory(pvd, task, address, size, name=name, layout=layout, readonly=readonly)
        if deadline.is_over() and grace.is_over():
            raise error(errno.ETIMEDOUT, f"'{name}' of task {task}: it is being exported again")
        time.sleep(0)


class Export(Closing):
    """An exported name. ``with`` or :meth:`close` takes the name back."""

    def __init__(self, name: str, pinned: Pin) -> None:
        self.name = name
        """The name."""
        self.address = pinned.address
        """The address of the exported memory."""
        self.size = pinned.size
        """The number of exported bytes."""
        self._pin = pinned

    def close(self) -> None:
        """Takes the name back, unless it was exported again or taken back since."""
        with _lock:
            if _exports.get(self.name) is self:
                unexport(self.name)

    def __repr__(self) -> str:
        return f"<nagaya.Export '{self.name}': {self.size} bytes at {self.address:#x}>"


_lock = threading.RLock()
_exports: dict[str, Export] = {}
# Descriptions of types, by name. Their memory is never freed, since a reader may be late, and is
# reused late. So each has a serial number, by which a reader sees that it was replaced.
_described: "dict[str, _Description]" = {}
_retired: "deque[ctypes.Array[c_char]]" = deque()
_RETIRED_MAX = 256
_serial = itertools.count()
_CHANGING = b"changing"
_changing = ctypes.create_string_buffer(_CHANGING)


class _Description:
    """The description of an exported type, in memory that others read."""

    def __init__(self, layout: Optional[dict[str, Any]]) -> None:
        self.layout = layout
        text = json.dumps({**(layout or {}), "serial": next(_serial)}).encode()
        self.size = len(text)
        if len(_retired) > _RETIRED_MAX and len(_retired[0]) >= self.size:
            self.block = _retired.popleft()
        else:
            self.block = ctypes.create_string_buffer(max(self.size, 256))
        ctypes.memmove(self.block, text, self.size)


def export(name: str, thing: "Buffer") -> Export:
    """Exports the memory of `thing`, which stays pinned until the name is taken back."""
    pinned = Pin(thing)
    encoded = _library.encode_name(name)
    described = _TYPE_PREFIX + encoded
    with _lock:
        old = _described.get(name)
        if pinned.layout == (None if old is None else old.layout):
            _library.export(encoded, pinned.address, pinned.size)
        else:
            # Readers do not take these for one export before all three are there.
            new = _Description(pinned.layout)
            _library.export(described, ctypes.addressof(_changing), len(_CHANGING))
            try:
                _library.export(encoded, pinned.address, pinned.size)
            except Error:  # no room for another name
                _library.unexport(described)
                raise
            _library.export(described, ctypes.addressof(new.block), new.size)
            _described[name] = new
            if old is not None:
                _retired.append(old.block)
        _exports[name] = made = Export(name, pinned)
    return made


def unexport(name: str) -> None:
    """Takes a name back. Raises NotFoundError if it is not exported."""
    with _lock:
        _library.unexport(_library.encode_name(name))
        _exports.pop(name, None)
        old = _described.pop(name, None)
        if old is not None:
            _library.unexport(_TYPE_PREFIX + name.encode())
            _retired.append(old.block)


def at(task: int, address: int, size: int, readonly: bool = False) -> Memory:
    """Memory of a task of the caller's space by its address."""
    return Memory(SELF, task, address, size, readonly=readonly)
