# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Nagaya: many programs in one address space, for Python.

A *task* is a process whose memory lies in the same address space as that of the other tasks. So an
array of one task is an array of another, without a copy::

    import nagaya

    me = nagaya.here()                            # nagaya run -n 2 python3 program.py
    me.export("field", numpy.arange(1e6) + me.id)
    other = me.import_array(1 - me.id, "field")   # the other's memory itself
    print(other.sum())
    me.barrier()                                  # a task's memory ends with the task

A program can also start tasks itself::

    with nagaya.Space() as space:
        task = space.spawn([sys.executable, "worker.py"], stdin=nagaya.PIPE)
        field = task.import_array("field", timeout=60)

`nagaya.delegate` asks another task to work on this one's memory.

Lifetime: memory is valid as long as its task lives and keeps it. The exporting side pins what it
exports. An access after the end of the exporting task ends the accessing process by SIGSEGV, as
with any pointer to memory that was unmapped: let tasks meet (`Here.barrier`) before they end, and
ask `Memory.check` where a task may have died. Memoryviews of a closed `Memory` raise ValueError.

Tasks use each other's memory as threads do: where one writes, order the accesses. An import sees
what the other wrote before its export; a barrier orders all.

Failures are OSErrors with the library's text (see `Error`). NumPy is needed by the functions that
return arrays, and by no other. The C library is described in pvas(7).
"""

from subprocess import DEVNULL, PIPE, STDOUT

from ._errors import (
    ConnectionLostError,
    ConnectionNotOpenError,
    Error,
    InterruptedCallError,
    NotFoundError,
    NotPermittedError,
    TaskEndedError,
    TimedOutError,
    WouldBlockError,
)
from ._library import ANY_ID
from ._memory import Export, Memory, Pin, pin
from ._owner import Space, Task
from ._space import EXPORT_USER, Here, SpaceInfo, here

__version__ = "0.1.0"

__all__ = [
    "ANY_ID",
    "DEVNULL",
    "EXPORT_USER",
    "PIPE",
    "STDOUT",
    "ConnectionLostError",
    "ConnectionNotOpenError",
    "Error",
    "Export",
    "Here",
    "InterruptedCallError",
    "Memory",
    "NotFoundError",
    "NotPermittedError",
    "Pin",
    "Space",
    "SpaceInfo",
    "Task",
    "TaskEndedError",
    "TimedOutError",
    "WouldBlockError",
    "here",
    "pin",
]
