# SPDX-License-Identifier: Apache-2.0 OR MIT
"""peersum.py - peersum.c in Python: NumPy sums the arrays of other tasks in place.

    nagaya run -K -n N python3 peersum.py [ELEMENTS]

Each task exports an array and adds up those of all tasks. Nothing is copied. A task's memory goes
with the task, so all meet at a barrier before they end.
"""

import sys

import numpy as np

import nagaya

TIMEOUT = 60.0  # seconds to wait for another task
ELEMENTS = 1_000_000
ELEMENTS_MAX = 100_000_000  # up to here every partial sum is exact in a float64


def main():
    me = nagaya.here()
    n = int(sys.argv[1]) if len(sys.argv) > 1 else ELEMENTS
    if not 1 <= n <= ELEMENTS_MAX:
        sys.exit(f"peersum.py: the number of elements must be 1 to {ELEMENTS_MAX}")

    me.export("peersum", np.arange(n, dtype=np.float64) + me.id)

    wrong = 0
    for k in range(me.size):
        peer = (me.id + k) % me.size  # they do not all read the same one
        array = me.import_array(peer, "peersum", TIMEOUT, readonly=True)
        expected = peer * n + n * (n - 1) // 2
        if array.size != n or array.sum() != expected:
            print(
                f"peersum.py: the array of task {peer} has {array.size} elements and "
                f"sums to {array.sum()}, not {n} and {expected}",
                file=sys.stderr,
            )
            wrong += 1

    me.barrier(TIMEOUT)
    if wrong == 0:
        print(f"task {me.id}: the arrays of {me.size} tasks, {n} doubles each, add up as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (nagaya.Error, RuntimeError) as error:
        sys.exit(f"peersum.py: {getattr(error, 'strerror', None) or error}")
