"""mpi4py: objects, buffers of numpy arrays, collectives."""
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
right, left = (rank + 1) % size, (rank - 1) % size

thing = comm.sendrecv({"from": rank, "data": list(range(1000))}, dest=right, source=left)
assert thing == {"from": left, "data": list(range(1000))}
assert comm.allgather(rank**2) == [r**2 for r in range(size)]
for count in (1, 1000, 100_000, 2_000_000):
    out = np.arange(count, dtype=np.float64) + rank
    into = np.zeros(count)
    comm.Sendrecv(out, right, recvbuf=into, source=left)
    assert (into == np.arange(count) + left).all()
    total = np.zeros(count)
    comm.Allreduce(out, total)
    assert (total == size * np.arange(count) + size * (size - 1) / 2).all()
version = MPI.get_vendor()[0]
comm.Barrier()
if rank == 0:
    print(f"{version}: {size} ranks agree")
