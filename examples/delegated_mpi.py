# SPDX-License-Identifier: Apache-2.0 OR MIT
"""delegated_mpi.py - one task of each node makes the MPI calls of all others, in Python.

    mpirun -n NODES --map-by ppr:1:node nagaya run -n TASKS python3 delegated_mpi.py

Task 0 of each space is the MPI rank, by mpi4py. Each other task fills an array and asks task 0 to
add it up over all nodes. Task 0 reduces the requester's own array in place: the request carries its
address, and no data. The others need no MPI, and MPI sees one rank a node.
"""

import struct
import sys

import nagaya
from nagaya import delegate

TIMEOUT = 60.0  # seconds to wait for task 0
ELEMENTS = 100_000
ADD_UP, LEAVE = 1, 2


def rank(tasks):
    from mpi4py import MPI

    server = delegate.Delegatee()
    # Tasks of different nodes with the same ID reduce together, each pair on its communicator.
    communicators = [MPI.COMM_WORLD.Dup() for _ in range(tasks)]
    requests = []
    left = tasks - 1

    @server.operation(ADD_UP)
    def add_up(job):
        address, size = struct.unpack("QQ", job.payload)
        array = job.memory(address, size).array("f8")
        communicator = communicators[job.requester]
        requests.append((communicator.Iallreduce(MPI.IN_PLACE, array), job.defer(), array))

    @server.operation(LEAVE)
    def leave(job):
        nonlocal left
        left -= 1

    while left > 0:
        server.serve(0 if requests else None)
        for entry in list(requests):
            reduction, job, _array = entry
            if reduction.Test():
                requests.remove(entry)
                job.answer()
    server.close()


def computer(me):
    import numpy as np

    array = np.arange(ELEMENTS, dtype=np.float64) * me.id
    with delegate.find(0, TIMEOUT) as server, nagaya.pin(array) as memory:
        server.call(ADD_UP, struct.pack("QQ", memory.address, memory.size))
        print(f"task {me.id}: the last element of the sum is {array[-1]:.0f}")
        server.call(LEAVE)


if __name__ == "__main__":
    try:
        me = nagaya.here()
        rank(me.size) if me.id == 0 else computer(me)
    except (nagaya.Error, RuntimeError) as error:
        sys.exit(f"delegated_mpi.py: {getattr(error, 'strerror', None) or error}")
