# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A barrier of the tasks of a space, by exported names alone.

Round n: each task exports "arrived"; task 0 waits for all of these and exports "go"; the others
see "go" and export "seen"; task 0 waits for all of these. So task 0 leaves last, and no task looks
for a name of a task that has left. A task takes the names of a round back when it has passed the
next one: all tasks have then left the former round.
"""

import errno
from typing import Optional

from . import _library, _memory
from ._errors import Error
from ._library import SELF, Deadline

_ROUND_NAMES = (".arrived.", ".go.", ".seen.")

_passed = 0  # rounds that this task has passed
_sign = _memory.Pin(bytearray(1))  # what the names point to; nobody reads it


def _post(kind: str, number: int) -> None:
    _library.export(f"{kind}{number}".encode(), _sign.address, _sign.size)


def _await(task: int, kind: str, number: int, deadline: Deadline) -> None:
    _library.lookup(SELF, task, f"{kind}{number}".encode(), deadline)


def _clear(number: int) -> None:
    for kind in _ROUND_NAMES:
        try:
            _library.unexport(f"{kind}{number}".encode())
        except Error as failed:
            if failed.errno != errno.ENOENT:
                raise


def barrier(me: int, size: int, timeout: Optional[float]) -> None:
    """Returns when the tasks 0 to size-1 have called it."""
    global _passed
    if not 0 <= me < size:
        raise ValueError(f"task {me} is not one of the {size} tasks of this barrier")
    number, deadline = _passed + 1, Deadline(timeout)
    _post(".arrived.", number)
    if me == 0:
        for task in range(1, size):
            _await(task, ".arrived.", number, deadline)
        _post(".go.", number)
        for task in range(1, size):
            try:
                _await(task, ".seen.", number, deadline)
            except Error as failed:
                # A task that had arrived may see "go", and end before this task looks.
                if failed.errno != errno.ESRCH:
                    raise
    else:
        _await(0, ".go.", number, deadline)
        _post(".seen.", number)
    _passed = number
    _clear(number - 1)
