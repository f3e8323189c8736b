"""mpi4py's pool of workers, which MPI_Comm_spawn starts."""
from mpi4py.futures import MPIPoolExecutor


def square(number):
    return number * number


if __name__ == "__main__":
    with MPIPoolExecutor(max_workers=2) as pool:
        print(sum(pool.map(square, range(1000))), end=" ")
        print(sum(len(block) for block in pool.map(bytes, [1_000_000] * 20)))
