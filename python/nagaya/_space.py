# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Spaces: what every process with a descriptor of a space can ask, and what a task can do.

The owner's part is in `_owner`.
"""

import ctypes
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from . import _library, _memory
from ._barrier import barrier
from ._library import SELF
from ._memory import Export, Memory, Shape

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Buffer

EXPORT_USER = 32768
"""Bytes at the head of each export area that are the program's own."""


@dataclass(frozen=True)
class SpaceInfo:
    """The properties of a space. Addresses are the same for all its tasks."""

    base: int
    """The address of segment 0."""
    segment_size: int
    """Bytes of a segment."""
    max_tasks: int
    """IDs are below this."""
    tasks: int
    """The number of tasks that live now."""
    owner: int
    """The PID of the process that made the space."""


class View:
    """A space, as its owner and its tasks see it. IDs name tasks; times are in seconds."""

    _pvd: int

    def import_(
        self, task: int, name: str, timeout: Optional[float] = None, *, readonly: bool = False
    ) -> Memory:
        """Finds the memory that task `task` exports under `name`. Nothing is copied.

        Waits up to `timeout` seconds for the name, also if no such task has started yet: None waits
        without limit, 0 does not wait. The exporting task's earlier writes are visible afterwards.
        Raises NotFoundError (not there, `timeout` is 0), TimedOutError, TaskEndedError.
        """
        return _memory.find(self._pvd, task, name, timeout, readonly)

    def import_array(
        self,
        task: int,
        name: str,
        timeout: Optional[float] = None,
        *,
        dtype: "Optional[npt.DTypeLike]" = None,
        shape: Optional[Shape] = None,
        readonly: bool = False,
    ) -> "npt.NDArray[Any]":
        """Finds exported memory as :meth:`import_` does, and returns an array of NumPy over it.

        An array that this package exported keeps its type and shape. For memory that a program in
        another language exports, give them. The array is valid as long as the exporting task lives
        and keeps the memory (see :class:`Memory`).
        """
        return self.import_(task, name, timeout, readonly=readonly).array(dtype, shape)

    def export_area(self, task: int) -> Memory:
        """The part of the task's export area that is the program's own, 32 KiB.

        It is zero at the first start of a task with this ID, and zeroed when a task ends.
        """
        address = _library.export_area(self._pvd, task)
        return Memory(self._pvd, task, address, EXPORT_USER, name="export area")

    def info(self) -> SpaceInfo:
        """Describes the space."""
        found = _library.SpaceInfoStruct()
        _library.getspace(self._pvd, ctypes.byref(found))
        return SpaceInfo(found.base, found.segment_size, found.max_tasks, found.tasks, found.owner)

    def ntasks(self) -> int:
        """The number of tasks that live in the space now."""
        return int(_library.ntasks(self._pvd))

    def pid(self, task: int) -> int:
        """The PID of a living task."""
        return int(_library.getpid(self._pvd, task))

    def id_of_pid(self, pid: int) -> int:
        """The ID of the living task with this PID."""
        return int(_library.id_of_pid(self._pvd, pid))

    def segment(self, task: int) -> int:
        """The address at which the segment of this ID begins."""
        return int(_library.segment(self._pvd, task))

    def id_of(self, address: int) -> int:
        """The ID of the segment that the address lies in."""
        return int(_library.id_of(self._pvd, address))

    def domain_of(self, task: int) -> int:
        """The domain of this ID; 0 is the owner's."""
        return int(_library.domain_of(self._pvd, task))


class Here(View):
    """The space that the calling process lives in, as a task. See :func:`here`."""

    def __init__(self) -> None:
        self._pvd = SELF
        self.id: int = _library.getid()
        """The ID of this task."""

    @property
    def rank(self) -> int:
        """The ID of this task: 0 to size-1 under nagaya run and MPI's launchers."""
        return self.id

    @property
    def size(self) -> int:
        """The number of tasks that the job was started with on this node.

        nagaya run, Open MPI and MPICH put it into the environment. Raises RuntimeError if it is
        not there; set NAGAYA_TASKS then.
        """
        for variable in ("NAGAYA_TASKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"):
            text = os.environ.get(variable, "")
            if text.isdecimal() and int(text) > 0:
                return int(text)
        raise RuntimeError(
            "the number of tasks is not in the environment: start the job by nagaya run, "
            "or set NAGAYA_TASKS"
        )

    def export(self, name: str, thing: "Buffer") -> Export:
        """Publishes the memory of an array or a buffer under `name`, for :meth:`import_`.

        Nothing is copied. The object stays alive and keeps its size until the name is taken back,
        exported again, or this task ends. Other languages find the same memory by pvas_import.
        A name has at most 95 bytes of UTF-8, 89 if the elements have a type, and a task at most
        255 names, of which typed memory takes two.
        """
        return _memory.export(name, thing)

    def unexport(self, name: str) -> None:
        """Takes a name back. Raises NotFoundError if it is not exported."""
        _memory.unexport(name)

    def barrier(self, timeout: Optional[float] = None, *, size: Optional[int] = None) -> None:
        """Returns when the tasks 0 to size-1 of this space have all called it.

        `size` is :attr:`size` by default. A task's memory goes when the task ends, so tasks that
        read each other's memory call this before they end. Each task calls it as often as the
        others, from one thread at a time. Raises TaskEndedError if a task ends instead.
        """
        barrier(self.id, self.size if size is None else size, timeout)


def here() -> Here:
    """The space of this task. Raises TaskEndedError (ESRCH) if this process is no task.

    Children by os.fork, and so by multiprocessing, are no tasks.
    """
    return Here()
