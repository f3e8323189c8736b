# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The exceptions of this package.

Each is an :class:`Error`, which is an :class:`OSError`: `errno` is that of the C call, `strerror`
the library's own text (pvas_error(3)). Where Python has a class for the errno, the exception is
also of that class, so that ``except TimeoutError`` works.
"""

import errno
import os


class Error(OSError):
    """A call of Nagaya's library failed."""


class NotFoundError(Error, FileNotFoundError):
    """No such name is exported, or no such program exists (ENOENT)."""


class TaskEndedError(Error, ProcessLookupError):
    """The task has ended, or the caller is no task (ESRCH)."""


class TimedOutError(Error, TimeoutError):
    """The time limit is over (ETIMEDOUT)."""


class NotPermittedError(Error, PermissionError):
    """The caller may not do this (EPERM, EACCES)."""


class WouldBlockError(Error, BlockingIOError):
    """There is no room at present (EAGAIN)."""


class InterruptedCallError(Error, InterruptedError):
    """A signal handler interrupted the call (EINTR)."""


class ConnectionLostError(Error, ConnectionResetError):
    """The delegatee ended before it answered (ECONNRESET)."""


class ConnectionNotOpenError(Error, ConnectionRefusedError):
    """The task is no delegatee, or no longer (ECONNREFUSED)."""


_CLASSES: dict[int, type[Error]] = {
    errno.ENOENT: NotFoundError,
    errno.ESRCH: TaskEndedError,
    errno.ETIMEDOUT: TimedOutError,
    errno.EPERM: NotPermittedError,
    errno.EACCES: NotPermittedError,
    errno.EAGAIN: WouldBlockError,
    errno.EINTR: InterruptedCallError,
    errno.ECONNRESET: ConnectionLostError,
    errno.ECONNREFUSED: ConnectionNotOpenError,
}


def error(number: int, text: str = "") -> Error:
    """Returns the exception for this errno, with this text or the system's."""
    return _CLASSES.get(number, Error)(number, text or os.strerror(number))
