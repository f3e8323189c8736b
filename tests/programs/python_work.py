"""What Python programs live on: threads, sub-processes, forks, sockets, signals, mmap, ctypes.
Prints the same wherever it runs."""
import ctypes
import gc
import hashlib
import mmap
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time


def threads():
    work, done = queue.Queue(), queue.Queue()

    def run():
        while (item := work.get()) is not None:
            done.put((item, hashlib.sha256(b"%d" % item * 1000).hexdigest()[:8]))

    crew = [threading.Thread(target=run) for _ in range(8)]
    for thread in crew:
        thread.start()
    for item in range(400):
        work.put(item)
    for _ in crew:
        work.put(None)
    for thread in crew:
        thread.join()
    results = dict(done.get() for _ in range(400))
    print("threads", len(results), results[399])


def subprocesses():
    out = subprocess.run(["sort", "-r"], input="a\nc\nb\n", text=True, capture_output=True)
    print("sort", out.stdout.split())
    out = subprocess.run([sys.executable, "-c", "import sys; print(sys.argv); sys.exit(5)", "x"],
                         text=True, capture_output=True)
    print("python", out.stdout.strip(), out.returncode)
    print("shell", subprocess.check_output("echo $((6 * 7)) | cat", shell=True, text=True).strip())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cat:
        big = os.urandom(3 << 20)
        print("cat", cat.communicate(big)[0] == big)
    sleeper = subprocess.Popen(["sleep", "60"])
    sleeper.kill()
    print("killed", sleeper.wait())
    # With preexec_fn, Python must fork instead of posix_spawn or vfork.
    out = subprocess.run(["pwd"], preexec_fn=lambda: os.chdir("/"), text=True, capture_output=True)
    print("forked", out.stdout.strip())
    try:
        subprocess.run(["/nonexistent/program"])
    except FileNotFoundError as error:
        print("error", error.errno)


def square(x):
    return x * x


def forks():
    context = multiprocessing.get_context("fork")
    with context.Pool(3) as pool:
        print("pool", sum(pool.map(square, range(1000))))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        gc.collect()
        os.write(writer, b"hello from the child")
        os._exit(9)
    print("fork", os.read(reader, 100).decode(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    shared = multiprocessing.Array("i", 100)

    def fill(start):
        for i in range(start, 100, 2):
            shared[i] = i

    parts = [context.Process(target=fill, args=(start,)) for start in (0, 1)]
    for part in parts:
        part.start()
    for part in parts:
        part.join()
    print("shared", sum(shared))


def system():
    caught = []
    signal.signal(signal.SIGALRM, lambda number, frame: caught.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    deadline = time.monotonic() + 20
    while not caught and time.monotonic() < deadline:
        time.sleep(1)
    print("alarm", caught)
    with tempfile.TemporaryFile() as file:
        file.truncate(1 << 20)
        with mmap.mmap(file.fileno(), 1 << 20) as view:
            view[-5:] = b"mmap!"
        file.seek(-5, os.SEEK_END)
        print("mmap", file.read())
    libc = ctypes.CDLL(None)
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    numbers = (ctypes.c_int * 5)(5, 1, 4, 2, 3)
    libc.qsort(numbers, 5, 4, compare(lambda a, b: a[0] - b[0]))
    print("ctypes", list(numbers))
    left, right = socket.socketpair()
    left.sendall(b"x" * 100)
    print("socket", len(right.recv(1000)))
    print("where", os.path.realpath("/proc/self/exe") == os.path.realpath(sys.executable))


def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)


threads()
subprocesses()
forks()
system()
sys.setrecursionlimit(20000)
print("deep", deep(9000))
