# SPDX-License-Identifier: Apache-2.0 OR MIT
"""pvas - the calls of libpvas that a task needs, for Python. See pvas(7).

A call that fails raises OSError: its errno is the call's, its text that of pvas_error(3).

The library is the file that the environment variable PVAS_LIBRARY names, or libpvas.so.0
where the dynamic linker finds it.

pvas_fork(3) is not here: its child borrows the parent's memory, which an interpreter
cannot stand.
"""

import ctypes
import ctypes.util
import math
import os
import time
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p

SELF = -1  # as a space descriptor: the space that the calling task lives in


def _load():
    name = os.environ.get("PVAS_LIBRARY")
    if name:
        return ctypes.CDLL(name, use_errno=True)
    try:
        return ctypes.CDLL("libpvas.so.0", use_errno=True)
    except OSError:
        found = ctypes.util.find_library("pvas")
        if found is None:
            raise
        return ctypes.CDLL(found, use_errno=True)


_lib = _load()
_lib.pvas_error.restype = c_char_p
_lib.pvas_error.argtypes = []


def _check(result, function, arguments):
    """Turns -1 (or NULL) into OSError."""
    if result is None or result == -1:
        raise OSError(ctypes.get_errno(), _lib.pvas_error().decode(errors="replace"))
    return result


def _bind(name, restype, *argtypes):
    function = getattr(_lib, name)
    function.restype = restype
    function.argtypes = argtypes
    function.errcheck = _check
    return function


_getid = _bind("pvas_getid", c_int)
_ntasks = _bind("pvas_ntasks", c_int, c_int)
_export_area = _bind("pvas_export_area", c_void_p, c_int, c_int)
_export = _bind("pvas_export", c_int, c_char_p, c_void_p, c_size_t)
_unexport = _bind("pvas_unexport", c_int, c_char_p)
_import = _bind(
    "pvas_import", c_int, c_int, c_int, c_char_p, POINTER(c_void_p), POINTER(c_size_t), c_int
)


def getid():
    """The ID of this task."""
    return _getid()


def ntasks(pvd=SELF):
    """The number of tasks that live in the space now."""
    return _ntasks(pvd)


def export_area(pvid, pvd=SELF):
    """The address of the task's export area."""
    return _export_area(pvd, pvid)


def export(name, addr, size):
    """Publishes `size` bytes at address `addr` under `name`. The caller must keep the
    object that owns this memory alive, and at its place, as long as others use it."""
    _export(name.encode(), addr, size)


def unexport(name):
    """Takes the name back."""
    _unexport(name.encode())


def import_(pvid, name, timeout=None, pvd=SELF):
    """Returns (address, size) of what task `pvid` exported under `name`. Waits up to
    `timeout` seconds for it; None waits without limit, 0 does not wait."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        if deadline is None:
            wait_ms = -1
        elif timeout <= 0:
            wait_ms = 0
        else:
            left_ms = math.ceil((deadline - time.monotonic()) * 1000)
            wait_ms = min(max(left_ms, 1), 2**31 - 1)
        addr, size = c_void_p(), c_size_t()
        try:
            _import(pvd, pvid, name.encode(), byref(addr), byref(size), wait_ms)
        except InterruptedError:
            continue  # Python has run the signal's handler, which did not raise
        return addr.value, size.value
