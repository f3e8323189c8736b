# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds and loads Nagaya's C libraries, and declares the calls of pvas.h for ctypes.

A library is searched in this order: where the environment variable PVAS_LIBRARY says, which names
the file of libpvas; in the directory `lib` of this package, which a wheel brings; where the dynamic
linker searches. The libraries of one installation belong together, so PVAS_LIBRARY also selects
those that lie beside libpvas.
"""

import ctypes
import math
import os
import time
from collections.abc import Callable, Iterator
from ctypes import POINTER, Structure, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, Optional

from ._errors import Error, InterruptedCallError, error

SELF = -1  # as a space descriptor: the space that the calling task lives in
ANY_ID = -1  # as an ID for pvas_spawn: the lowest free one

WAIT_MS_MAX = 2**31 - 1


def _paths(stem: str) -> Iterator[str]:
    """The paths and names under which lib`stem` may be found, in order."""
    names = [f"lib{stem}.so.0", f"lib{stem}.so"]
    chosen = os.environ.get("PVAS_LIBRARY")
    if chosen and stem == "pvas":
        yield chosen
        return  # a wrong value is an error: another version must not take its place
    directories = [os.path.dirname(chosen)] if chosen else [str(Path(__file__).parent / "lib")]
    for directory in filter(None, directories):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.exists(path):
                yield path
    yield names[0]


def load(stem: str) -> ctypes.CDLL:
    """Loads lib`stem`. Raises ImportError with the remedy."""
    reason = ""
    for path in _paths(stem):
        try:
            return ctypes.CDLL(path, use_errno=True)
        except OSError as failed:
            reason = reason or str(failed)
    raise ImportError(
        f"nagaya: cannot load lib{stem}.so.0: {reason}. "
        "Install Nagaya's libraries, or set PVAS_LIBRARY to the path of libpvas.so.0"
    )


class Binder:
    """Declares functions of a library. A result of -1 or NULL raises the library's error."""

    def __init__(self, library: ctypes.CDLL, error_function: str) -> None:
        self._library = library
        self._text = getattr(library, error_function)
        self._text.restype = c_char_p
        self._text.argtypes = []

    def last_error(self) -> Error:
        """The exception for this thread's last failure."""
        text: bytes = self._text()
        return error(ctypes.get_errno(), text.decode(errors="replace"))

    def _check(self, result: Any, _function: Any, _arguments: Any) -> Any:
        if result is None or result == -1:
            raise self.last_error()
        return result

    def __call__(self, name: str, restype: Any, *argtypes: Any) -> Callable[..., Any]:
        function = getattr(self._library, name)
        function.restype = restype
        function.argtypes = argtypes
        function.errcheck = self._check
        return function  # type: ignore[no-any-return]

    def plain(self, name: str, restype: Any, *argtypes: Any) -> Callable[..., Any]:
        """The same for a function that cannot fail, or whose caller checks the result."""
        function = getattr(self._library, name)
        function.restype = restype
        function.argtypes = argtypes
        return function  # type: ignore[no-any-return]


class SpaceAttr(Structure):
    """struct pvas_space_attr."""

    _fields_ = [
        ("fields", c_uint64),
        ("segment_size", c_size_t),
        ("max_tasks", c_int),
        ("shared", c_int),
    ]
    SEGMENT_SIZE, MAX_TASKS, SHARED = 1, 2, 4


class SpawnAttr(Structure):
    """struct pvas_spawn_attr."""

    _fields_ = [
        ("fields", c_uint64),
        ("fd_map", c_void_p),
        ("n_fds", c_size_t),
        ("cwd", c_char_p),
        ("cpus", c_void_p),
        ("cpus_size", c_size_t),
        ("pdeathsig", c_int),
        ("pgid", c_int),
        ("segment_size", c_size_t),
        ("id", POINTER(c_int)),
    ]
    FDS, CWD, CPUS, PDEATHSIG, PGID, SEGMENT_SIZE, ID = 1, 2, 4, 8, 16, 32, 64


class SpaceInfoStruct(Structure):
    """struct pvas_space_info."""

    _fields_ = [
        ("fields", c_uint64),
        ("base", c_size_t),
        ("segment_size", c_size_t),
        ("max_tasks", c_int),
        ("tasks", c_int),
        ("owner", c_int),
    ]


_bind = Binder(load("pvas"), "pvas_error")

create_attr = _bind("pvas_create_attr", c_int, POINTER(SpaceAttr))
destroy = _bind("pvas_destroy", c_int, c_int)
add_domain = _bind("pvas_add_domain", c_int, c_int, c_int, c_int, c_void_p, c_size_t)
domain_of = _bind("pvas_domain_of", c_int, c_int, c_int)
spawn = _bind(
    "pvas_spawn",
    c_int,
    c_int,
    c_int,
    c_char_p,
    POINTER(c_char_p),
    POINTER(c_char_p),
    POINTER(SpawnAttr),
)
getid = _bind("pvas_getid", c_int)
ntasks = _bind("pvas_ntasks", c_int, c_int)
getspace = _bind("pvas_getspace", c_int, c_int, POINTER(SpaceInfoStruct))
getpid = _bind("pvas_getpid", c_int, c_int, c_int)
id_of_pid = _bind("pvas_id_of_pid", c_int, c_int, c_int)
segment = _bind("pvas_segment", c_void_p, c_int, c_int)
export_area = _bind("pvas_export_area", c_void_p, c_int, c_int)
id_of = _bind("pvas_id_of", c_int, c_int, c_void_p)
export = _bind("pvas_export", c_int, c_char_p, c_void_p, c_size_t)
unexport = _bind("pvas_unexport", c_int, c_char_p)
import_ = _bind(
    "pvas_import", c_int, c_int, c_int, c_char_p, POINTER(c_void_p), POINTER(c_size_t), c_int
)


class Deadline:
    """The end of a time limit in seconds; None is no limit, 0 does not wait."""

    def __init__(self, timeout: Optional[float]) -> None:
        if timeout is not None and math.isnan(timeout):
            raise ValueError("the time limit is not a number")
        self._waits = timeout is None or timeout > 0
        self._end = None if timeout is None else time.monotonic() + max(timeout, 0)

    def left(self) -> Optional[float]:
        """Seconds left, at least 0; None without limit."""
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def left_ms(self, most: int = WAIT_MS_MAX) -> int:
        """The time left as C calls take it: ms, -1 without limit. `most` bounds it, and is
        the answer where there is no limit, unless it is WAIT_MS_MAX."""
        left = self.left()
        if left is None:
            return -1 if most == WAIT_MS_MAX else most
        return math.ceil(min(left * 1000, most))

    def is_over(self) -> bool:
        """True if the time is over."""
        left = self.left()
        return left is not None and left <= 0


def encode_name(name: str) -> bytes:
    """A name as the library takes it."""
    if "\0" in name:
        raise ValueError("embedded null character")
    return name.encode()


def lookup(pvd: int, pvid: int, name: bytes, deadline: Deadline) -> tuple[int, int]:
    """pvas_import: returns (address, size). The error's text names what was looked for."""
    address, size = c_void_p(), c_size_t()
    while True:
        try:
            import_(pvd, pvid, name, ctypes.byref(address), ctypes.byref(size), deadline.left_ms())
        except InterruptedCallError:
            continue  # Python has run the signal's handler, which did not raise
        except Error as failed:
            wanted = f"'{name.decode(errors='replace')}' of task {pvid}"
            raise error(failed.errno or 0, f"{wanted}: {failed.strerror}") from None
        return address.value or 0, size.value
