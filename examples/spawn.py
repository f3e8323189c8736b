# SPDX-License-Identifier: Apache-2.0 OR MIT
"""spawn.py - a Python program that starts tasks, and works on one array together with them.

    PYTHON spawn.py [TASKS]

The program owns a space and starts itself as each task. Each task makes an array and exports it.
The program sees all arrays in place, writes to them, and lets the tasks go on by closing their
standard input. PYTHON is any interpreter. The tasks of one that is linked to fixed addresses, such
as Debian's /usr/bin/python3, have page tables of their own.
"""

import sys

import numpy as np

import nagaya

TIMEOUT = 60.0  # seconds to wait for a task
COLUMNS = 1000


def task():
    me = nagaya.here()
    row = np.full(COLUMNS, float(me.id))
    me.export("row", row)
    sys.stdin.read()  # until the owner closes it
    expected = me.id + 0.5
    return 0 if (row == expected).all() else f"task {me.id}: the row is {row[0]}, not {expected}"


def owner(tasks):
    with nagaya.Space() as space:
        children = [
            space.spawn([sys.executable, __file__, "task"], id=id, stdin=nagaya.PIPE)
            for id in range(tasks)
        ]
        rows = [child.import_array("row", TIMEOUT) for child in children]
        print("sums:", *(int(row.sum()) for row in rows))
        for row in rows:
            row += 0.5  # in the task's own memory
        for child in children:
            child.stdin.close()
        statuses = space.wait(TIMEOUT)
    print("statuses:", statuses)
    return 1 if any(statuses.values()) else 0


if __name__ == "__main__":
    if sys.argv[1:] == ["task"]:
        sys.exit(task())
    try:
        sys.exit(owner(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
    except nagaya.Error as error:
        sys.exit(f"spawn.py: {error.strerror}")
