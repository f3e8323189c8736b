# SPDX-License-Identifier: Apache-2.0 OR MIT
"""kernel_train.py - data-parallel training: each rank computes gradients, MPI_Allreduce adds them.

    mpirun -n N PYTHON kernel_train.py WIDTH BATCH STEPS

A network of three layers learns a function of WIDTH inputs. In each step every rank computes the
gradients of its BATCH samples. They are added in buckets of at most 4 MB, as training frameworks
do, and divided by the number of ranks.

The first step compares the mean with that of all ranks' gradients, gathered at rank 0. At the end
all ranks must have the same weights, and the loss must have fallen.
"""

import sys
import time

import numpy as np
from mpi4py import MPI

BUCKET_BYTES = 4 << 20
RATE = 0.02
comm = MPI.COMM_WORLD
in_messages = 0.0


def timed(call, *arguments):
    """Makes an MPI call and adds its time to that in messages."""
    global in_messages
    begin = time.perf_counter()
    call(*arguments)
    in_messages += time.perf_counter() - begin


def fail(text):
    """Ends the job: a wrong result must not become a figure."""
    print(f"rank {comm.rank}: {text}", file=sys.stderr, flush=True)
    comm.Abort(1)


class Network:
    """Weights and gradients are one array each, so that buckets need no copies."""

    def __init__(self, width):
        shapes = [(width, width), (width, width), (width, 1)]
        sizes = [rows * columns for rows, columns in shapes]
        ends = np.cumsum([0] + sizes)
        self.weights = np.empty(ends[-1], dtype=np.float32)
        self.gradients = np.empty_like(self.weights)
        parts = [(begin, end, shape) for begin, end, shape in zip(ends, ends[1:], shapes)]
        self.layers = [self.weights[begin:end].reshape(shape) for begin, end, shape in parts]
        self.slopes = [self.gradients[begin:end].reshape(shape) for begin, end, shape in parts]
        random = np.random.default_rng(1)
        for layer in self.layers:
            layer[:] = random.standard_normal(layer.shape) / np.sqrt(layer.shape[0])

    def step(self, inputs, wanted):
        """Computes the gradients of these samples; returns their loss."""
        first = np.tanh(inputs @ self.layers[0])
        second = np.tanh(first @ self.layers[1])
        error = second @ self.layers[2] - wanted
        slope = error * np.float32(2 / len(inputs))
        np.matmul(second.T, slope, out=self.slopes[2])
        slope = (slope @ self.layers[2].T) * (1 - second * second)
        np.matmul(first.T, slope, out=self.slopes[1])
        slope = (slope @ self.layers[1].T) * (1 - first * first)
        np.matmul(inputs.T, slope, out=self.slopes[0])
        return float(np.mean(error * error))


def add_up(gradients):
    """Replaces the gradients by their mean over the ranks."""
    count = BUCKET_BYTES // gradients.itemsize
    for begin in range(0, len(gradients), count):
        timed(comm.Allreduce, MPI.IN_PLACE, gradients[begin:begin + count])
    gradients /= comm.size


def check_mean(mine, mean):
    """Compares the mean with that of the ranks' own gradients."""
    all_of_them = np.empty((comm.size, len(mine)), dtype=mine.dtype) if comm.rank == 0 else None
    comm.Gather(mine, all_of_them)
    if comm.rank == 0:
        expected = all_of_them.mean(axis=0, dtype=np.float64)
        off = float(np.max(np.abs(mean - expected)))
        if not off <= 1e-5 * float(np.max(np.abs(expected))):
            fail(f"the mean gradient is off by {off}")


def main():
    width, batch, steps = (int(word) for word in sys.argv[1:])
    network = Network(width)
    random = np.random.default_rng(100 + comm.rank)
    inputs = random.standard_normal((batch, width), dtype=np.float32)
    wanted = np.sin(inputs[:, :1] + inputs[:, 1:2])
    loss_at_first = network.step(inputs, wanted)
    mine = network.gradients.copy()
    add_up(network.gradients)
    check_mean(mine, network.gradients)

    global in_messages
    comm.Barrier()
    in_messages, begin = 0.0, time.perf_counter()
    for _ in range(steps):
        loss = network.step(inputs, wanted)
        add_up(network.gradients)
        network.weights -= np.float32(RATE) * network.gradients
    seconds = comm.reduce(time.perf_counter() - begin, MPI.MAX)
    messages = comm.reduce(in_messages)

    others = comm.bcast(network.weights)
    if not np.array_equal(others, network.weights):
        fail("the ranks have different weights")
    if not loss < loss_at_first:
        fail(f"the loss is {loss}, at first {loss_at_first}")
    if comm.rank == 0:
        print(f"seconds {seconds:.6f}\nmessages {messages / comm.size:.6f}")
        print(f"result gradients and weights as expected, {network.weights.size} of them")


main()
