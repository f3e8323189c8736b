# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The owner's part: makes spaces and starts tasks in them.

pvas_fork(3) is not here: its child borrows the parent's memory, which an interpreter cannot stand.
"""

import ctypes
import errno
import itertools
import os
import select
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from ctypes import byref, c_char_p, c_int
from typing import IO, Any, Optional, Union

from . import _library
from ._closing import Closing
from ._errors import Error, error
from ._library import ANY_ID, Deadline
from ._memory import Memory
from ._space import View

PathLike = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
Stream = Union[None, int, IO[Any]]


_OWN_PROGRAM = b"/proc/self/exe"


def _is_fixed(program: bytes) -> bool:
    """True for a program that is linked to fixed addresses (ET_EXEC)."""
    try:
        with open(program, "rb") as file:
            head = file.read(18)
    except OSError:
        return False
    return head[:4] == b"\x7fELF" and head[16:] == b"\x02\0"


def _cpu_mask(cpus: Iterable[int]) -> "ctypes.Array[ctypes.c_ubyte]":
    """A mask as for sched_setaffinity(2)."""
    numbers = sorted(set(cpus))
    if not numbers or numbers[0] < 0 or numbers[-1] >= 8192:
        raise ValueError("cpus must name processors from 0 to 8191, at least one")
    mask = (ctypes.c_ubyte * (numbers[-1] // 64 * 8 + 8))()
    for number in numbers:
        mask[number // 8] |= 1 << number % 8
    return mask


class Task:
    """A task that this process has started. It is a child process, too."""

    def __init__(self, space: "Space", id: int, pid: int, args: Sequence[PathLike]) -> None:
        self._space = space
        self._lock = threading.Lock()
        self.id = id
        """Its ID in the space."""
        self.pid = pid
        """Its PID."""
        self.args = args
        """The command line that it was started with."""
        self.returncode: Optional[int] = None
        """Its exit status, or the negative number of the signal that ended it; None before."""
        self.stdin: Optional[IO[bytes]] = None
        """The pipe to its standard input, if it was started with stdin=PIPE."""
        self.stdout: Optional[IO[bytes]] = None
        """The pipe from its standard output, likewise."""
        self.stderr: Optional[IO[bytes]] = None
        """The pipe from its standard error, likewise."""

    def _reap(self, flags: int) -> Optional[int]:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, flags)
            except ChildProcessError:
                # Somebody else has waited for it, so its status is lost, as in subprocess.
                pid, status = self.pid, 0
            if pid == self.pid:
                self.returncode = os.waitstatus_to_exitcode(status)
                self._space._ended(self)
        return self.returncode

    def poll(self) -> Optional[int]:
        """Returns the status if the task has ended, else None."""
        with self._lock:
            return self._reap(os.WNOHANG)

    def wait(self, timeout: Optional[float] = None) -> int:
        """Waits for the end of the task, and returns its status (see :attr:`returncode`).

        Raises TimedOutError after `timeout` seconds.
        """
        deadline = Deadline(timeout)
        while True:
            status = self.poll()
            if status is not None:
                return status
            if deadline.is_over():
                text = f"task {self.id} has not ended within {timeout} seconds"
                raise error(errno.ETIMEDOUT, text)
            try:
                pidfd = os.pidfd_open(self.pid)
            except ProcessLookupError:
                continue
            try:
                poller = select.poll()
                poller.register(pidfd, select.POLLIN)
                wait_ms = deadline.left_ms()
                poller.poll(None if wait_ms < 0 else wait_ms)
            finally:
                os.close(pidfd)

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the task has ended."""
        with self._lock:
            if self._reap(os.WNOHANG) is None:
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Sends SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def import_(
        self, name: str, timeout: Optional[float] = None, *, readonly: bool = False
    ) -> Memory:
        """Finds what this task exports under `name`: see :meth:`Space.import_`."""
        return self._space.import_(self.id, name, timeout, readonly=readonly)

    def import_array(self, name: str, timeout: Optional[float] = None, **options: Any) -> Any:
        """The same as an array of NumPy: see :meth:`Space.import_array`."""
        return self._space.import_array(self.id, name, timeout, **options)

    def __repr__(self) -> str:
        return f"<nagaya.Task {self.id}: PID {self.pid}, status {self.returncode}>"


class _Streams:
    """The three standard streams of a task, and the pipes that they need."""

    def __init__(self, wanted: Sequence[Stream]) -> None:
        self._to_close: list[int] = []
        self.ours: list[Optional[int]] = [None, None, None]
        self.theirs: list[tuple[int, int]] = []
        try:
            for number, stream in enumerate(wanted):
                found = self._one(number, stream)
                if found is not None:
                    self.theirs.append((found, number))
        except BaseException:
            self.close(failed=True)
            raise

    def _one(self, number: int, stream: Stream) -> Optional[int]:
        if stream is None:
            try:
                os.fstat(number)
            except OSError:
                return None
            return number
        if not isinstance(stream, int):
            return stream.fileno()
        if stream == subprocess.PIPE:
            ends = os.pipe()
            here, there = ends if number else ends[::-1]
            self.ours[number] = here
            self._to_close.append(there)
            return there
        if stream == subprocess.DEVNULL:
            there = os.open(os.devnull, os.O_RDWR)
            self._to_close.append(there)
            return there
        if stream == subprocess.STDOUT:
            if number != 2:
                raise ValueError("STDOUT is for stderr")
            output = [there for there, number in self.theirs if number == 1]
            return output[0] if output else None
        if stream < 0:
            raise ValueError(f"{stream} is no descriptor")
        return stream

    def close(self, failed: bool) -> None:
        """Closes the task's ends here; and ours, if there is no task."""
        for fd in self._to_close + ([fd for fd in self.ours if fd is not None] if failed else []):
            os.close(fd)


class Space(Closing, View):
    """A partitioned virtual address space that this process makes and owns.

    ``with`` or :meth:`close` removes it. Tasks that still run then are killed: call :meth:`wait`
    before if they shall end by themselves. IDs name tasks; times are in seconds.
    """

    _pvd = -1

    def __init__(
        self,
        *,
        segment_size: Optional[int] = None,
        max_tasks: Optional[int] = None,
        shared: Optional[bool] = None,
    ) -> None:
        """Makes a space.

        `segment_size` is in bytes, a power of two from 64 MiB to 16 TiB. With `shared` the tasks'
        memory is shared memory: then the space can have domains, and a task may run a program that
        is linked to fixed addresses, such as Debian's /usr/bin/python3. The default is True if this
        interpreter is such a program, since its tasks are likely to be, too; otherwise False.
        """
        if shared is None and _is_fixed(_OWN_PROGRAM):
            shared = True
        attr = _library.SpaceAttr()
        for flag, member, value in (
            (attr.SEGMENT_SIZE, "segment_size", segment_size),
            (attr.MAX_TASKS, "max_tasks", max_tasks),
            (attr.SHARED, "shared", shared),
        ):
            if value is not None:
                attr.fields |= flag
                setattr(attr, member, int(value))
        self._maker = os.getpid()
        self._tasks: dict[int, Task] = {}
        self._lock = threading.Lock()
        self._pvd = _library.create_attr(byref(attr))

    def add_domain(self, first: int, count: int, cpus: Optional[Iterable[int]] = None) -> int:
        """Makes a domain of the IDs `first` to `first`+`count`-1, and returns its number.

        Their tasks have page tables of their own and run on these processors, by default on the
        owner's. The space must be shared (pvas_add_domain(3)).
        """
        mask = None if cpus is None else _cpu_mask(cpus)
        size = 0 if mask is None else ctypes.sizeof(mask)
        return int(_library.add_domain(self._pvd, first, count, mask, size))

    def spawn(
        self,
        args: Union[PathLike, Sequence[PathLike]],
        *,
        id: int = ANY_ID,
        executable: Optional[PathLike] = None,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[PathLike] = None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        pass_fds: Iterable[int] = (),
        cpus: Optional[Iterable[int]] = None,
        process_group: Optional[int] = None,
        pdeathsig: Optional[int] = None,
        segment_size: Optional[int] = None,
    ) -> Task:
        """Starts a program as a task: ``space.spawn([sys.executable, "worker.py"])``.

        The arguments are as those of subprocess.Popen: a name without a slash is searched in PATH,
        and the task gets the three standard streams and the descriptors `pass_fds`, no others.
        `id` is by default the lowest free one. `cpus` are the processors that it may run on.
        `pdeathsig` is the signal that it gets when the calling *thread* ends. `segment_size` limits
        the part of its segment that it uses. A task inherits signals that this process ignores, in
        Python SIGPIPE.

        Returns when the program has been loaded. A program that executes another one, such as
        /usr/bin/env or a shell script with exec, does not stay a task. Raises Error with the
        library's reason, which names the file: not found, linked to fixed addresses, ...
        """
        if isinstance(args, (str, bytes, os.PathLike)):
            args = [args]
        if not args:
            raise ValueError("args is empty")
        words = [os.fsencode(word) for word in args]
        environment = dict(os.environ) if env is None else dict(env)
        program = _program(words[0] if executable is None else os.fsencode(executable), environment)
        attr = _library.SpawnAttr()
        number = c_int(-1)
        attr.fields, attr.id = attr.ID, ctypes.pointer(number)
        mask = None if cpus is None else _cpu_mask(cpus)
        if mask is not None:
            attr.fields |= attr.CPUS
            attr.cpus, attr.cpus_size = ctypes.addressof(mask), ctypes.sizeof(mask)
        for flag, member, value in (
            (attr.CWD, "cwd", None if cwd is None else os.fsencode(cwd)),
            (attr.PDEATHSIG, "pdeathsig", pdeathsig),
            (attr.PGID, "pgid", process_group),
            (attr.SEGMENT_SIZE, "segment_size", segment_size),
        ):
            if value is not None:
                attr.fields |= flag
                setattr(attr, member, value)
        settings = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
        streams = _Streams((stdin, stdout, stderr))
        task = None
        try:
            pairs = streams.theirs + [(fd, fd) for fd in pass_fds if fd > 2]
            table = (c_int * (2 * len(pairs)))(*itertools.chain.from_iterable(pairs))
            attr.fields |= attr.FDS
            attr.fd_map, attr.n_fds = ctypes.addressof(table), len(pairs)
            with self._lock:
                pid = _library.spawn(
                    self._pvd, id, program, _strings(words), _strings(settings), byref(attr)
                )
                task = Task(self, number.value, pid, list(args))
                self._tasks[pid] = task
        finally:
            streams.close(failed=task is None)
        here = [
            None if fd is None else open(fd, "rb" if stream else "wb", buffering=-1)
            for stream, fd in enumerate(streams.ours)
        ]
        task.stdin, task.stdout, task.stderr = here
        return task

    @property
    def tasks(self) -> list[Task]:
        """The tasks that were started here and not waited for, by ID."""
        with self._lock:
            return sorted(self._tasks.values(), key=lambda task: task.id)

    def wait(self, timeout: Optional[float] = None) -> dict[int, int]:
        """Waits for all tasks, and returns their statuses by ID. Raises TimedOutError."""
        deadline = Deadline(timeout)
        return {task.id: task.wait(deadline.left()) for task in self.tasks}

    def _ended(self, task: Task) -> None:
        with self._lock:
            self._tasks.pop(task.pid, None)

    def close(self) -> None:
        """Removes the space. Tasks that still run are killed, and waited for."""
        pvd, self._pvd = self._pvd, -1
        # A child by os.fork has this object, too, but does not own the space.
        if pvd < 0 or self._maker != os.getpid():
            return
        _library.destroy(pvd)
        for task in self.tasks:
            task.wait()

    def __repr__(self) -> str:
        return f"<nagaya.Space {self._pvd} with {len(self._tasks)} tasks>"


def _program(name: bytes, environment: Mapping[str, str]) -> bytes:
    """The path of a program, as execvp(3) finds it."""
    if b"/" in name:
        return name
    found = shutil.which(os.fsdecode(name), path=environment.get("PATH", os.defpath))
    if found is None:
        raise error(errno.ENOENT, f"{os.fsdecode(name)}: not found in PATH")
    return os.fsencode(found)


def _strings(words: Sequence[bytes]) -> "ctypes.Array[c_char_p]":
    """A list as execve(2) takes it."""
    if any(b"\0" in word for word in words):
        raise ValueError("embedded null byte")
    return (c_char_p * (len(words) + 1))(*words, None)
