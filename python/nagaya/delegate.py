# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Delegation: a task asks another one, the delegatee, to work on its memory (pvas_delegate(3)).

Addresses go between them, not data. The delegatee registers an operation for each number, and
serves requests with any number of threads::

    server = delegate.Delegatee()

    @server.operation(1)
    def double(job):
        address, size = struct.unpack("QQ", job.payload)
        job.memory(address, size).array("f8")[:] *= 2

    server.serve_forever()

Any task of the space may call it::

    with delegate.find(0) as server, nagaya.pin(array) as memory:
        server.call(1, struct.pack("QQ", memory.address, memory.size))

While the delegatee works on a request, the requester's memory stays mapped, even if the requester
ends. If the delegatee ends, requesters get ConnectionLostError. Times are in seconds: None waits
without limit, 0 does not wait. Python handles its signals while it waits.

The delegatee of the job, which ``nagaya run --delegatee`` starts, is ``find(SERVER)``: it reads and
writes files and sockets of the requester, on processors of its own.
"""

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Callable, Iterable, Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_long,
    c_size_t,
    c_uint,
    c_void_p,
)
from types import TracebackType
from typing import TYPE_CHECKING, Any, Optional

from . import _library
from ._closing import Closing
from ._errors import Error, InterruptedCallError, WouldBlockError, error
from ._library import Binder, Deadline
from ._memory import Memory, Pin, at

if TYPE_CHECKING:
    from typing_extensions import Buffer, Self

SERVER = -2
"""As the task of :func:`find`: the job's ready-made delegatee."""
PAYLOAD_MAX = 1000
"""The largest payload in bytes."""
OPERATIONS = 256
"""Numbers of operations are below this."""

FILES = 1
"""For Delegatee: the ready-made operations on files."""
SOCKETS = 2
"""For Delegatee: the ready-made operations on sockets."""
PASSED = 4
"""With these: on descriptors that requesters pass, not on the delegatee's own."""

PREADV = OPERATIONS
"""The number of the ready-made preadv2(2)."""
PWRITEV = OPERATIONS + 1
"""The number of the ready-made pwritev2(2)."""

_PROT_READ, _PROT_WRITE = 1, 2
_SLICE_MS = 100  # the longest wait in the library, after which Python looks for signals
_ERRNO_MAX = 4095


class _JobStruct(Structure):
    """struct pvas_delegate_job."""

    _fields_ = [
        ("requester", c_int),
        ("operation", c_uint),
        ("payload", c_void_p),
        ("length", c_size_t),
        ("job", c_void_p),
    ]


_Job = POINTER(_JobStruct)
_Operation = CFUNCTYPE(c_long, c_void_p, c_void_p)

_bind = Binder(_library.load("pvas_delegate"), "pvas_delegate_error")
_open = _bind("pvas_delegate_open", c_int, c_size_t, c_uint)
_register = _bind("pvas_delegate_register", c_int, c_uint, _Operation, c_void_p)
_serve = _bind("pvas_delegate_serve", c_int, c_int)
_close = _bind("pvas_delegate_close", c_int)
_read = _bind("pvas_delegate_read", c_int, c_void_p, c_void_p, c_void_p, c_size_t)
_write = _bind("pvas_delegate_write", c_int, c_void_p, c_void_p, c_void_p, c_size_t)
_check = _bind("pvas_delegate_check", c_int, c_void_p, c_void_p, c_size_t, c_int)
_cancelled = _bind.plain("pvas_delegate_cancelled", c_int, c_void_p)
_keep = _bind("pvas_delegate_keep", c_void_p, c_void_p)
_answer = _bind("pvas_delegate_answer", c_int, c_void_p, c_long)
_find = _bind("pvas_delegate_find", c_void_p, c_int, c_int)
_release = _bind.plain("pvas_delegate_release", None, c_void_p)
_call = _bind.plain("pvas_delegate_call", c_long, c_void_p, c_uint, c_char_p, c_size_t)
_submit = _bind("pvas_delegate_submit", c_void_p, c_void_p, c_uint, c_char_p, c_size_t, c_int)
_test = _bind("pvas_delegate_test", c_int, c_void_p, POINTER(c_long))
_wait = _bind("pvas_delegate_wait", c_int, c_void_p, POINTER(c_long), c_int)
_cancel = _bind("pvas_delegate_cancel", c_int, c_void_p)
_pass_fd = _bind("pvas_delegate_pass_fd", c_int, c_void_p, c_int)
_close_fd = _bind("pvas_delegate_close_fd", c_int, c_void_p, c_int)


# ---- the delegatee ---------------------------------------------------------------------


class Job:
    """A request, as its operation gets it. Valid until the operation returns, or if the operation
    has called :meth:`defer`, until :meth:`answer`."""

    def __init__(self, pointer: int) -> None:
        self._pointer: Optional[int] = pointer
        found = _JobStruct.from_address(pointer)
        self.requester: int = found.requester
        """The ID of the requesting task."""
        self.operation: int = found.operation
        """The number of the operation."""
        self.payload: bytes = ctypes.string_at(found.payload, found.length) if found.length else b""
        """The payload of the request."""
        self.deferred = False
        """True after :meth:`defer`."""

    def _valid(self) -> int:
        if self._pointer is None:
            raise ValueError("the request has been answered")
        return self._pointer

    def memory(self, address: int, size: int, *, readonly: bool = False) -> Memory:
        """The requester's memory at an address of the payload, in place. Nothing is copied.

        Raises Error (EFAULT) unless all bytes are in the requester's segment, and can be read, and
        without `readonly` written. They stay mapped until the answer: do not use objects over
        them afterwards.
        """
        access = _PROT_READ if readonly else _PROT_WRITE
        _check(self._valid(), address, size, access)
        return at(self.requester, address, size, readonly)

    def read(self, address: int, size: int) -> bytes:
        """A copy of the requester's memory. Raises Error (EFAULT)."""
        copy = ctypes.create_string_buffer(size)
        _read(self._valid(), copy, address, size)
        return copy.raw

    def write(self, address: int, data: "Buffer") -> None:
        """Copies `data` to the requester's memory. Raises Error (EFAULT)."""
        with Pin(data) as pinned:
            _write(self._valid(), address, pinned.address, pinned.size)

    def cancelled(self) -> bool:
        """True if the requester has cancelled the request or has ended: a long operation asks."""
        return bool(_cancelled(self._valid()))

    def defer(self) -> "Job":
        """Leaves the answer to :meth:`answer`; the operation's own result is then ignored."""
        self._pointer = _keep(self._valid())
        self.deferred = True
        return self

    def answer(self, result: Optional[int] = None) -> None:
        """Answers a deferred request, from any thread. The result is as that of an operation."""
        if not self.deferred:
            raise ValueError("only a deferred request is answered by this call: return the result")
        pointer, number = self._valid(), _result(result)
        self._pointer = None
        _answer(pointer, number)

    def __repr__(self) -> str:
        return f"<nagaya.delegate.Job: operation {self.operation} of task {self.requester}>"


def _result(result: Optional[int]) -> int:
    """The answer for what an operation returned."""
    number = 0 if result is None else int(result)
    if not -_ERRNO_MAX <= number < 2**63:
        raise ValueError(f"{number} is neither a result that is not negative nor an errno")
    return number


Operation = Callable[[Job], Optional[int]]


class Delegatee(Closing):
    """The queue of this task, through which others call its operations. A task has one."""

    # The library calls operations from any serving thread, so they are never freed.
    _callbacks: list[Any] = []

    def __init__(self, requests: int = 0, flags: int = 0) -> None:
        """Opens the queue, with room for `requests` small requests (0: 256). `flags` selects
        ready-made operations: FILES, SOCKETS, PASSED."""
        self._raised = threading.local()
        _open(requests, flags)

    def register(self, number: int, operation: Operation) -> None:
        """Sets the operation for requests with this number, 0 to 255.

        It gets a :class:`Job` and returns an int that is not negative, or None for 0. It answers an
        errno to the requester by raising an OSError with it. If another exception ends it, the
        requester gets EIO, and the exception goes on in the thread that serves.
        """

        def perform(pointer: int, _context: Any) -> int:
            job = None
            try:
                job = Job(pointer)
                return _result(operation(job))
            except OSError as failed:
                return -failed.errno if failed.errno else -errno.EIO
            except BaseException as failed:
                self._raised.exception = failed
                return -errno.EIO
            finally:
                if job is not None and not job.deferred:
                    job._pointer = None

        callback = _Operation(perform)
        Delegatee._callbacks.append(callback)
        _register(number, callback, None)

    def operation(self, number: int) -> Callable[[Operation], Operation]:
        """Registers a function as an operation: ``@server.operation(1)``."""

        def register(function: Operation) -> Operation:
            self.register(number, function)
            return function

        return register

    def serve(self, timeout: Optional[float] = None) -> bool:
        """Waits for one request and serves it. False if the time was over before.

        Any number of threads may serve; 11 may be at work. Raises Error (EBADF) if the queue is
        closed, and the exception of the operation if that is no OSError.
        """
        deadline = Deadline(timeout)
        while True:
            served = bool(_serve(deadline.left_ms(_SLICE_MS)))
            raised = self._raised.__dict__.pop("exception", None)
            if raised is not None:
                raise raised
            if served or deadline.is_over():
                return served

    def serve_forever(self) -> None:
        """Serves requests until :meth:`close`, which an operation or another thread calls."""
        while True:
            try:
                self.serve()
            except Error as failed:
                if failed.errno == errno.EBADF:
                    return
                raise

    def close(self) -> None:
        """Closes the queue. Requests that have not started get ECANCELED; deferred ones must still
        be answered. Does nothing if it is closed."""
        try:
            _close()
        except Error as failed:
            if failed.errno != errno.EBADF:
                raise


# ---- the requester ---------------------------------------------------------------------


# What is pinned for a request must outlive it, also if the program has dropped the request.
_in_progress: "set[Request]" = set()


class Request:
    """A submitted request. The objects that it keeps stay alive until its answer was seen, by
    :meth:`done` or :meth:`wait`."""

    def __init__(self, pointer: int, route: "Route", operation: int, keep: Sequence[Any]) -> None:
        self._lock = threading.Lock()
        self._pointer: Optional[int] = pointer
        self._route = route
        self._operation = operation
        self._keep = keep
        self._result = 0
        _in_progress.add(self)

    def _finish(self, done: int, result: c_long) -> bool:
        if done == 1:
            self._pointer, self._keep, self._result = None, (), result.value
            _in_progress.discard(self)
        return bool(done == 1)

    def done(self) -> bool:
        """True if the answer is there, so that :meth:`wait` returns at once."""
        result = c_long()
        with self._lock:
            if self._pointer is None:
                return True
            return self._finish(_test(self._pointer, byref(result)), result)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the answer and returns it. Raises TimedOutError if it is not there in time,
        and else the error of the operation."""
        deadline, result = Deadline(timeout), c_long()
        while not self.done():
            with self._lock:
                if self._pointer is not None:
                    self._finish(
                        _wait(self._pointer, byref(result), deadline.left_ms(_SLICE_MS)), result
                    )
            if deadline.is_over() and not self.done():
                raise error(errno.ETIMEDOUT, f"{self._what()}: no answer within {timeout} seconds")
        if self._result < 0:
            raise error(-self._result, f"{self._what()}: {os.strerror(-self._result)}")
        return self._result

    def _what(self) -> str:
        return f"operation {self._operation} of {self._route._name()}"

    def cancel(self) -> None:
        """Asks that the request be not started. It is answered all the same: by ECANCELED if it had
        not started, else by its result."""
        with self._lock:
            if self._pointer is not None:
                _cancel(self._pointer)


class Route:
    """The route to a delegatee (see :func:`find`). All threads may use it."""

    def __init__(self, pointer: int, task: int) -> None:
        self._pointer: Optional[int] = pointer
        self.task = task
        """The ID of the delegatee, or SERVER."""

    def _name(self) -> str:
        return "the node server" if self.task == SERVER else f"task {self.task}"

    def _valid(self) -> int:
        if self._pointer is None:
            raise ValueError("this route was released")
        return self._pointer

    def call(self, operation: int, payload: "Buffer" = b"") -> int:
        """Sends a request, waits for its answer, and returns it.

        `payload` has at most PAYLOAD_MAX bytes: pass the addresses of larger data (nagaya.pin).
        Raises Error with the operation's errno, and ConnectionLostError (the delegatee ended
        before it answered), TaskEndedError (before the call), ConnectionNotOpenError, ENOSYS (no
        such operation), ECANCELED (it closed its queue).
        """
        try:
            return self.submit(operation, payload).wait()
        except WouldBlockError:
            pass  # This task's requests fill their share of the queue: the call waits for room.
        data = bytes(memoryview(payload))
        result = int(_call(self._valid(), operation, data, len(data)))
        if result < 0:
            raise _bind.last_error()
        return result

    def submit(
        self,
        operation: int,
        payload: "Buffer" = b"",
        timeout: Optional[float] = None,
        *,
        keep: Sequence[Any] = (),
    ) -> Request:
        """Sends a request without waiting for the answer; waits up to `timeout` for room.

        The objects in `keep`, such as pins, stay alive until the answer. Raises as :meth:`call`,
        and WouldBlockError (no room in time, or this route's requests fill their share of the
        queue).
        """
        data = bytes(memoryview(payload))
        pointer = _submit(self._valid(), operation, data, len(data), Deadline(timeout).left_ms())
        return Request(pointer, self, operation, (self, *keep))

    def pass_fd(self, fd: int) -> int:
        """Passes a copy of a descriptor, and returns its number for ready-made operations."""
        return int(_pass_fd(self._valid(), fd))

    def close_fd(self, number: int) -> None:
        """Closes a passed descriptor after the requests that use it."""
        _close_fd(self._valid(), number)

    def submit_preadv(
        self, fd: int, buffers: Iterable["Buffer"], offset: int, flags: int = 0
    ) -> Request:
        """Reads from a file into these buffers as preadv2(2) does; the answer is the number of
        bytes. `fd` is the delegatee's number (:meth:`pass_fd`)."""
        return self._submit_file_io(PREADV, fd, buffers, offset, flags)

    def submit_pwritev(
        self, fd: int, buffers: Iterable["Buffer"], offset: int, flags: int = 0
    ) -> Request:
        """Writes these buffers to a file as pwritev2(2) does; the answer is the number of bytes."""
        return self._submit_file_io(PWRITEV, fd, buffers, offset, flags)

    def _submit_file_io(
        self, operation: int, fd: int, buffers: Iterable["Buffer"], offset: int, flags: int
    ) -> Request:
        pins = [Pin(one) for one in buffers]
        if operation == PREADV and any(pin.readonly for pin in pins):
            raise TypeError("a buffer to read into is read-only")
        vectors = b"".join(struct.pack("QQ", pin.address, pin.size) for pin in pins)
        table = Pin(bytearray(vectors))
        # struct pvas_delegate_file_io
        payload = struct.pack("iiqQQ", fd, flags, offset, table.address, len(pins))
        return self.submit(operation, payload, keep=(table, *pins))

    def release(self) -> None:
        """Releases the route, and closes the descriptors that were passed on it. Requests in
        progress remain valid."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            _release(pointer)

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        _kind: Optional[type[BaseException]],
        _value: Optional[BaseException],
        _trace: Optional[TracebackType],
    ) -> None:
        self.release()


def find(task: int, timeout: Optional[float] = None) -> Route:
    """Finds the queue of a task, or SERVER's. Waits until it is opened, also if the task has not
    started yet. Raises TimedOutError, ConnectionNotOpenError (not open, `timeout` is 0),
    TaskEndedError (ended, or the job has no server)."""
    deadline = Deadline(timeout)
    while True:
        try:
            return Route(_find(task, deadline.left_ms()), task)
        except InterruptedCallError:
            continue  # Python has run the signal's handler, which did not raise
