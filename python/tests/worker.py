# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The tasks of the tests: ``nagaya run -n N PYTHON worker.py CASE``. Each case is a function."""

import array
import errno
import os
import signal
import struct
import sys
import tempfile
import threading
import time

import nagaya

LIMIT = 60  # seconds to wait for another task


def arrays():
    """Arrays keep type, shape and order, and are the exporter's memory."""
    import numpy

    me = nagaya.here()
    record = numpy.dtype([("x", "<f8"), ("n", "<i4", (2,))])
    mine = {
        "doubles": numpy.arange(600.0).reshape(20, 30) + me.id,
        "fortran": numpy.asfortranarray(numpy.arange(12, dtype="i4").reshape(3, 4)),
        "records": numpy.zeros(5, record),
        "dates": numpy.array(["2026-01-01", "2026-01-02"], "M8[D]"),
        "empty": numpy.zeros((0, 3)),
        "scalar": numpy.array(7.5),
        "large": numpy.full(1_000_000, me.id, "f4"),
    }
    for name, one in mine.items():
        me.export(name, one)
    for task in range(me.size):
        for name, one in mine.items():
            other = me.import_array(task, name, LIMIT)
            assert (other.shape, other.dtype) == (one.shape, one.dtype), (name, other)
            assert other.flags.f_contiguous == one.flags.f_contiguous, name
        assert me.import_array(task, "doubles")[19, 29] == 599 + task
        assert (me.import_array(task, "large") == task).all()
        assert me.import_array(task, "large", dtype="u1", shape=(1000, 4000)).nbytes == 4_000_000
    me.barrier(LIMIT)
    # A store into the import is a store into the exported array.
    me.import_array((me.id + 1) % me.size, "doubles")[3, 4] = 1000 + me.id
    me.barrier(LIMIT)
    assert mine["doubles"][3, 4] == 1000 + (me.id - 1) % me.size
    readonly = me.import_array(me.id, "doubles", readonly=True)
    try:
        readonly[0, 0] = 1
    except ValueError:
        pass
    else:
        raise AssertionError("a read-only array was written")
    # A new export of the same name replaces memory and type.
    me.export("doubles", numpy.arange(3, dtype="u2"))
    me.barrier(LIMIT)
    other = me.import_array((me.id + 1) % me.size, "doubles")
    assert other.tolist() == [0, 1, 2] and other.dtype == "u2", other
    for wrong, kind in ((numpy.zeros((9, 9))[::2, ::2], ValueError), ([1], TypeError)):
        try:
            me.export("wrong", wrong)
        except kind:
            continue
        raise AssertionError(wrong)
    me.barrier(LIMIT)


def buffers():
    """Without NumPy, memoryviews show the same."""
    sys.modules["numpy"] = None  # as if it were not installed
    me = nagaya.here()
    mine = bytearray(b"task %d" % me.id)
    numbers = array.array("d", [0.5, 1.5, me.id])
    me.export("text", mine)
    me.export("numbers", numbers)
    me.export("constant", b"cannot change")
    other = (me.id + 1) % me.size
    memory = me.import_(other, "text", LIMIT)
    assert bytes(memory.view()) == b"task %d" % other and len(memory) == 6
    view = me.import_(other, "numbers", LIMIT).view()
    assert view.tolist() == [0.5, 1.5, float(other)] and view.format == "d"
    assert me.import_(other, "numbers").view("B").nbytes == 24
    assert bytes(me.import_(other, "constant", LIMIT, readonly=True).view()) == b"cannot change"
    assert me.import_(other, "text", readonly=True).view().readonly
    me.barrier(LIMIT)
    view[0] = 100 + me.id
    memory.view()[:4] = b"TASK"
    me.barrier(LIMIT)
    assert numbers[0] == 100 + (me.id - 1) % me.size
    assert mine[:4] == b"TASK", mine
    try:
        mine += b"more"
    except BufferError:
        pass
    else:
        raise AssertionError("exported memory moved")
    me.unexport("text")
    mine += b"more"
    with me.import_(other, "numbers") as found:
        inside = found.view()
    for use in (lambda: inside[0], found.view):
        try:
            use()
        except ValueError:
            continue
        raise AssertionError("closed memory was used")
    me.barrier(LIMIT)


def names():
    """Names that are missing, late, taken back, too long or too many."""
    from nagaya import _library

    me = nagaya.here()

    def fails(kind, number, words, call, *arguments):
        try:
            call(*arguments)
        except kind as failed:
            if kind is ValueError:
                return
            assert isinstance(failed, nagaya.Error) and isinstance(failed, OSError)
            assert failed.errno == number, repr(failed)
            for word in words:
                assert word in failed.strerror, repr(failed)
            return
        raise AssertionError(f"{call} did not fail")

    fails(FileNotFoundError, errno.ENOENT, ["'no'", "task 0"], me.import_, 0, "no", 0)
    fails(TimeoutError, errno.ETIMEDOUT, ["'no'"], me.import_, me.id, "no", 0.05)
    fails(nagaya.Error, errno.EINVAL, [], me.import_, 10**6, "no", 0)
    fails(nagaya.NotFoundError, errno.ENOENT, [], me.unexport, "no")
    fails(nagaya.Error, errno.ENAMETOOLONG, ["95"], me.export, "x" * 96, b"data")
    fails(nagaya.Error, errno.EINVAL, [], me.export, "", b"data")
    if me.id == 0:
        time.sleep(0.2)
        me.export("late", b"data")
    assert me.import_(0, "late", LIMIT).size == 4
    me.barrier(LIMIT)
    with me.export("short", b"data") as made:
        assert made.size == 4 and me.import_(me.id, "short", 0).address == made.address
    fails(FileNotFoundError, errno.ENOENT, [], me.import_, me.id, "short", 0)
    fails(ValueError, None, [], me.export, "a\0b", b"data")
    # A directory that is full keeps nothing of a name that found no room, whichever part failed.
    for others in range(2):
        made = []
        with nagaya.pin(bytearray(1)) as place:
            for i in range(others):
                _library.export(b"other%d" % i, place.address, place.size)
            while True:
                try:
                    made.append(me.export(f"many{len(made)}", b"data"))
                except nagaya.Error as failed:
                    assert failed.errno == errno.ENOSPC, failed
                    break
            assert 100 < len(made) < 128
            for name in (f"many{len(made)}", f".type.many{len(made)}"):
                fails(FileNotFoundError, errno.ENOENT, [], me.import_, me.id, name, 0)
            for one in made:
                one.close()
            for i in range(others):
                _library.unexport(b"other%d" % i)
    # An old handle does not take back what was exported again.
    first = me.export("again", b"one")
    me.export("again", b"three")
    first.close()
    assert me.import_(me.id, "again", 0).size == 5
    assert me.ntasks() == me.size and me.pid(me.id) == os.getpid()
    assert me.id_of_pid(os.getpid()) == me.id and me.domain_of(me.id) >= 0
    info = me.info()
    assert me.segment(me.id) == info.base + me.id * info.segment_size
    assert me.id_of(me.segment(me.id)) == me.id
    area = me.export_area(me.id)
    assert area.size == nagaya.EXPORT_USER and not any(area.view())
    me.barrier(LIMIT)


def replaced():
    """While a name is exported again with other types, an import gets memory and type of one."""
    me = nagaya.here()
    if me.id == 0:
        kinds = [array.array("d", [1.0] * 8), array.array("B", [1] * 64), array.array("i", [1] * 9)]
        me.export("turns", kinds[0])
        me.barrier(LIMIT)
        end = time.monotonic() + 1
        while time.monotonic() < end:
            for one in kinds:
                me.export("turns", one)
    else:
        me.import_(0, "turns", LIMIT)
        me.barrier(LIMIT)
        end = time.monotonic() + 1
        seen = set()
        while time.monotonic() < end:
            view = me.import_(0, "turns", LIMIT).view()
            assert set(view) == {1}, (view.format, view.tolist())
            seen.add((view.format, len(view)))
        assert seen <= {("d", 8), ("B", 64), ("i", 9)}, seen
    me.barrier(LIMIT)


def replaced_twice():
    """A type that was replaced, and then replaced by an equal one, is not taken for the same."""
    from nagaya import _library

    me = nagaya.here()
    doubles, bytes_ = array.array("d", [1.0] * 8), array.array("B", [1] * 64)
    lookup, calls = _library.lookup, []

    def disturbed(*arguments):
        result = lookup(*arguments)
        calls.append(arguments[2])
        if len(calls) == 2:  # the type has been read
            me.export("turns", bytes_)
        elif len(calls) == 3:  # the memory has been read
            me.export("turns", doubles)
        return result

    me.export("turns", doubles)
    _library.lookup = disturbed
    memory = me.import_(me.id, "turns", LIMIT)
    assert memory.address == nagaya.pin(doubles).address and memory.view().tolist() == [1.0] * 8
    assert calls[:3] == [b"turns", b".type.turns", b"turns"] and len(calls) > 4, calls


def barriers():
    """No task leaves a barrier before all have come to it."""
    me = nagaya.here()
    count = array.array("q", [0])
    me.export("count", count)
    others = [me.import_(task, "count", LIMIT).view() for task in range(me.size)]
    for turn in range(200):
        count[0] = turn
        me.barrier(LIMIT)
        assert all(other[0] == turn for other in others), turn
        me.barrier(LIMIT)
    if me.id == me.size - 1:
        os._exit(0)  # ends instead of coming to the next one
    try:
        me.barrier(LIMIT)
    except nagaya.TaskEndedError:
        return
    raise AssertionError("a task that had ended was waited for")


def leaves():
    """Task 0 stays until the others have seen that they may leave."""
    me = nagaya.here()
    if me.id == 1:
        # In the middle of the wait, this task is late by half a second.
        signal.signal(signal.SIGALRM, lambda _signal, _frame: time.sleep(0.5))
        signal.setitimer(signal.ITIMER_REAL, 0.2)
    else:
        me.import_(1, ".arrived.1", LIMIT)
        time.sleep(0.4)
    me.barrier(LIMIT)
    os._exit(0)


def ended():
    """The memory of a task that ended is refused before it is touched."""
    me = nagaya.here()
    if me.id == 1:
        me.export("field", bytearray(8))
        me.import_(0, "seen", LIMIT)
        return
    memory = me.import_(1, "field", LIMIT)
    assert memory.alive()
    me.export("seen", b"1")
    while memory.alive():
        time.sleep(0.001)
    for use in (memory.check, memory.view):
        try:
            use()
        except ProcessLookupError as failed:
            assert failed.errno == errno.ESRCH and "task 1 has ended" in failed.strerror
            continue
        raise AssertionError(use)


def forked():
    """A child by fork is no task."""
    me = nagaya.here()
    child = os.fork()
    if child == 0:
        try:
            nagaya.here()
        except nagaya.TaskEndedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    me.barrier(LIMIT)


def delegated():
    """Task 0 works on the memory of the others."""
    from nagaya import delegate

    me = nagaya.here()
    if me.id == 0:
        _serve(delegate, me.size - 1)
        return
    with delegate.find(0, LIMIT) as server:
        mine = array.array("d", [1.0, 2.0, me.id])
        with nagaya.pin(mine) as memory:
            place = struct.pack("QQ", memory.address, memory.size)
            assert server.call(1, place) == 3
            assert mine.tolist() == [2.0, 4.0, 2.0 * me.id]
            assert server.call(2, place) == int(sum(mine)) and mine[0] == -1.0
            requests = [server.submit(3, struct.pack("i", n), keep=(memory,)) for n in range(5)]
            assert [request.wait(LIMIT) for request in reversed(requests)] == [8, 6, 4, 2, 0]
        for operation, payload, number, kind in (
            (1, struct.pack("QQ", 8, 8), errno.EFAULT, nagaya.Error),
            (4, b"", errno.EDOM, nagaya.Error),
            (5, b"", errno.EIO, nagaya.Error),
            (99, b"", errno.ENOSYS, nagaya.Error),
            (1, bytes(1001), errno.EMSGSIZE, nagaya.Error),
            (4, struct.pack("i", errno.ETIMEDOUT), errno.ETIMEDOUT, TimeoutError),
        ):
            try:
                server.call(operation, payload)
            except kind as failed:
                assert failed.errno == number, (operation, failed)
                continue
            raise AssertionError(operation)
        try:
            server.submit(6).wait(0.05)
        except nagaya.TimedOutError:
            pass
        else:
            raise AssertionError("operation 6 takes longer")
        server.call(0)


def _serve(delegate, clients):
    server = delegate.Delegatee()
    kept, failures = [], []

    @server.operation(1)
    def double(job):
        address, size = struct.unpack("QQ", job.payload)
        view = job.memory(address, size).view("d")
        for i, value in enumerate(view):
            view[i] = 2 * value
        return len(view)

    @server.operation(2)
    def copy(job):
        address, size = struct.unpack("QQ", job.payload)
        job.write(address, struct.pack("d", -1.0))
        data = struct.unpack(f"{size // 8}d", job.read(address, size))
        return int(sum(data))

    @server.operation(3)
    def later(job):
        kept.append((job.defer(), struct.unpack("i", job.payload)[0]))
        if len(kept) == 5 * clients:
            thread = threading.Thread(target=lambda: [one.answer(2 * n) for one, n in kept])
            thread.start()

    @server.operation(4)
    def refuse(job):
        number = struct.unpack("i", job.payload)[0] if job.payload else errno.EDOM
        raise OSError(number, "refused")

    @server.operation(5)
    def fail(job):
        failures.append(job)
        raise KeyError("a bug")

    @server.operation(6)
    def slow(job):
        time.sleep(0.3)

    @server.operation(0)
    def leave(job):
        nonlocal clients_left
        clients_left -= 1

    clients_left, raised = clients, 0
    while clients_left:
        try:
            server.serve(LIMIT)
        except KeyError:
            raised += 1
    assert raised == clients
    server.close()
    server.serve_forever()  # returns, since the queue is closed
    assert len(failures) == clients
    try:
        failures[0].read(0, 1)
    except ValueError:
        return
    raise AssertionError("an answered request was used")


def interrupted():
    """A signal handler that raises ends a wait."""
    from nagaya import delegate

    class Stop(Exception):
        pass

    def stop(_signal, _frame):
        raise Stop

    me = nagaya.here()
    server = delegate.Delegatee()
    signal.signal(signal.SIGALRM, stop)
    for wait in (
        lambda: me.import_(me.id, "never"),
        lambda: server.serve(),
        lambda: delegate.find(me.id).submit(1).wait(),
    ):
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            wait()
        except Stop:
            continue
        raise AssertionError("not interrupted")


def node_server():
    """The job's delegatee writes and reads a file of this task."""
    from nagaya import delegate

    with tempfile.TemporaryFile() as file, delegate.find(delegate.SERVER, LIMIT) as server:
        number = server.pass_fd(file.fileno())
        assert server.submit_pwritev(number, [b"hello ", b"world"], 3).wait(LIMIT) == 11
        first, rest = bytearray(4), bytearray(100)
        assert server.submit_preadv(number, [first, rest], 0).wait(LIMIT) == 14
        assert first == b"\0\0\0h" and rest[:10] == b"ello world", (first, rest)
        try:
            server.submit_preadv(number, [b"constant"], 0)
        except TypeError:
            pass
        else:
            raise AssertionError("a constant was read into")
        server.close_fd(number)


def child():
    """A task of a space that the test owns: exports, waits for standard input, and shows it."""
    me = nagaya.here()
    mine = array.array("q", range(1000))
    me.export("field", mine)
    sys.stdin.read()
    print(f"task {me.id}: {mine[1]} {os.environ.get('WORD')} {os.getcwd()}")
    sys.exit(mine[0])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
