"""Linear algebra with numpy and its OpenBLAS threads; checks its own results."""
import concurrent.futures
import os
import sys

import numpy as np

rng = np.random.default_rng(int(os.environ.get("NAGAYA_TASK_ID", 0)))
n = 300
a = rng.standard_normal((n, n))
b = rng.standard_normal(n)
x = np.linalg.solve(a, b)
assert np.allclose(a @ x, b), "solve"
u, s, vt = np.linalg.svd(a)
assert np.allclose(u * s @ vt, a), "svd"
q, r = np.linalg.qr(a)
assert np.allclose(q.T @ q, np.eye(n)), "qr"
signal = rng.standard_normal(1 << 16)
assert np.allclose(np.fft.ifft(np.fft.fft(signal)).real, signal), "fft"
big = np.arange(20_000_000, dtype=np.float64)  # 160 MB, straight from mmap
assert big.sum() == 19_999_999 * 10_000_000, "sum"
del big
keys = rng.integers(0, 1 << 40, 500_000)
order = np.argsort(keys, kind="stable")
assert (np.diff(keys[order]) >= 0).all(), "sort"


def product(seed):
    m = np.random.default_rng(seed).standard_normal((200, 200))
    return float(np.trace(m @ m.T) - (m * m).sum())


with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert all(abs(error) < 1e-6 for error in pool.map(product, range(16))), "threads"
sys.stdout.write("numpy is right\n")
