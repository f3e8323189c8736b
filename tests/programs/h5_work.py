"""Parallel HDF5: every rank writes its part of a file, which MPI-IO puts together."""
import sys

import h5py
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as file:
    rows = file.create_dataset("rows", (size, 300_000))
    rows[rank] = np.arange(300_000) * (rank + 1)
    columns = file.create_dataset("columns", (1000, 10 * size))
    with columns.collective:
        columns[:, 10 * rank : 10 * (rank + 1)] = rank + 1
with h5py.File(sys.argv[1], "r", driver="mpio", comm=comm) as file:
    sums = [float(row.sum()) for row in file["rows"]], float(file["columns"][:].sum())
if rank == 0:
    print(sums)
