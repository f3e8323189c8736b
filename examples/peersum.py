# SPDX-License-Identifier: Apache-2.0 OR MIT
"""peersum.py - peersum.c in Python: numpy sums the arrays of other tasks in place.

    nagaya run -K -n N PYTHON peersum.py [ELEMENTS]

Each task exports a numpy array and then looks at every other task's array through a
numpy array over the same memory. Nothing is copied.

A task's memory goes away with the task. So nobody leaves before all have read. The
barrier needs no shared counter, only names: each task exports "done", task 0 waits for
all of these and exports "go", and leaves as the last one.
"""

import ctypes
import os
import sys
import time

import numpy as np

import pvas

TIMEOUT = 60.0  # seconds to wait for another task
ELEMENTS = 1_000_000
ELEMENTS_MAX = 100_000_000  # up to here every partial sum is exact in a float64
SIGN = ctypes.c_char()  # what "done" and "go" point to; nobody reads it


def peer_array(peer, name):
    """A read-only numpy array over the memory that `peer` exported under `name`."""
    addr, size = pvas.import_(peer, name, TIMEOUT)
    memory = (ctypes.c_char * size).from_address(addr)
    array = np.frombuffer(memory, dtype=np.float64)
    array.flags.writeable = False
    return array


def barrier(me, tasks):
    """Returns when every task has come here. Raises OSError where one ends before."""
    pvas.export("done", ctypes.addressof(SIGN), 1)
    if me != 0:
        pvas.import_(0, "go", TIMEOUT)
        return
    for peer in range(tasks):
        pvas.import_(peer, "done", TIMEOUT)
    pvas.export("go", ctypes.addressof(SIGN), 1)
    while pvas.ntasks() > 1:  # the others look for "go" in our segment
        time.sleep(0.001)


def main():
    me = pvas.getid()
    tasks = int(os.environ.get("NAGAYA_TASKS", "0"))  # nagaya run sets it
    if tasks < 1:
        sys.exit("peersum.py: NAGAYA_TASKS is not set; start me with 'nagaya run'")
    n = int(sys.argv[1]) if len(sys.argv) > 1 else ELEMENTS
    if not 1 <= n <= ELEMENTS_MAX:
        sys.exit(f"peersum.py: the number of elements must be 1 to {ELEMENTS_MAX}")

    mine = np.arange(n, dtype=np.float64) + me
    pvas.export("peersum", mine.ctypes.data, mine.nbytes)

    wrong = 0
    for k in range(tasks):
        peer = (me + k) % tasks
        array = peer_array(peer, "peersum")
        expected = peer * n + n * (n - 1) // 2
        if array.size != n or array.sum() != expected:
            print(f"peersum.py: the array of task {peer} has {array.size} elements and "
                  f"sums to {array.sum()}, not {n} and {expected}", file=sys.stderr)
            wrong += 1

    barrier(me, tasks)
    if wrong == 0:
        print(f"task {me}: the arrays of {tasks} tasks, {n} doubles each, add up as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        sys.exit(f"peersum.py: {error.strerror or error}")
