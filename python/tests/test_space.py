# SPDX-License-Identifier: Apache-2.0 OR MIT
"""A process that owns a space: starts tasks, and uses their memory. Also: finding the library."""

import errno
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import nagaya

WORKER = str(Path(__file__).with_name("worker.py"))
CHILD = [sys.executable, WORKER, "child"]


def is_fixed(path: str) -> bool:
    """True if the program is linked to fixed addresses: its tasks need a shared space."""
    with open(path, "rb") as file:
        return file.read(18)[16:18] == b"\x02\0"  # e_type is ET_EXEC


FIXED = is_fixed(sys.executable)


class Spawn(unittest.TestCase):
    """Tasks that are this interpreter."""

    def test_the_owner_uses_a_tasks_memory_in_place(self) -> None:
        with nagaya.Space() as space, tempfile.TemporaryDirectory() as directory:
            task = space.spawn(
                CHILD,
                id=5,
                env={**os.environ, "WORD": "given"},
                cwd=directory,
                stdin=nagaya.PIPE,
                stdout=nagaya.PIPE,
            )
            self.assertEqual((task.id, space.pid(5), space.ntasks()), (5, task.pid, 1))
            field = task.import_("field", 60).view()
            self.assertEqual((field.format, sum(field)), ("l", 499500))
            field[0], field[1] = 3, 77
            assert task.stdin and task.stdout
            task.stdin.close()
            self.assertEqual(task.wait(60), 3)
            where = os.path.realpath(directory)
            self.assertEqual(task.stdout.read().decode(), f"task 5: 77 given {where}\n")
            task.stdout.close()
            self.assertEqual((space.ntasks(), space.tasks), (0, []))
            with self.assertRaises(ProcessLookupError):
                task.import_("field", 0)

    def test_domains_and_programs_of_fixed_addresses_are_tasks_of_a_shared_space(self) -> None:
        debians = "/usr/bin/python3"
        if not os.path.exists(debians) or not is_fixed(debians):
            self.skipTest(f"{debians} is not linked to fixed addresses")
        with nagaya.Space(shared=True) as space:
            cpus = os.sched_getaffinity(0)
            self.assertEqual(space.add_domain(8, 2, cpus), 1)
            for program, id in ((sys.executable, 9), (debians, 3)):
                task = space.spawn(
                    [program, *CHILD[1:]], id=id, stdin=nagaya.PIPE, stdout=nagaya.DEVNULL
                )
                field = task.import_("field", 60).view()
                self.assertEqual(sum(field), 499500)
                field[0] = id
                assert task.stdin
                task.stdin.close()
                self.assertEqual(task.wait(60), id)
            self.assertEqual((space.domain_of(9), space.domain_of(0)), (1, 0))

    def test_statuses_of_many_tasks(self) -> None:
        with nagaya.Space() as space:
            for id in range(3):
                space.spawn([sys.executable, "-c", f"import sys; sys.exit({id})"], id=id)
            self.assertEqual(space.wait(60), {0: 0, 1: 1, 2: 2})

    def test_signals_and_time_limits(self) -> None:
        with nagaya.Space() as space:
            task = space.spawn(CHILD, stdin=nagaya.PIPE)
            self.assertIsNone(task.poll())
            with self.assertRaises(nagaya.TimedOutError):
                task.wait(0.05)
            task.kill()
            self.assertEqual(task.wait(60), -signal.SIGKILL)
            task.kill()  # of an ended task: nothing
            assert task.stdin
            task.stdin.close()

    def test_memory_of_an_earlier_task_with_the_same_id_is_refused(self) -> None:
        with nagaya.Space() as space:
            first = space.spawn(CHILD, id=1, stdin=nagaya.PIPE)
            memory = first.import_("field", 60)
            first.kill()
            first.wait(60)
            second = space.spawn(CHILD, id=1, stdin=nagaya.PIPE)
            second.import_("field", 60).check()
            with self.assertRaises(nagaya.TaskEndedError):
                memory.view()
            for task in (first, second):
                assert task.stdin
                task.stdin.close()

    def test_close_kills_what_runs(self) -> None:
        space = nagaya.Space()
        task = space.spawn([sys.executable, "-c", "import time; time.sleep(600)"])
        space.close()
        self.assertEqual(task.returncode, -signal.SIGKILL)
        space.close()

    def test_streams_and_descriptors(self) -> None:
        script = (
            "import os, sys; print('out'); print('err', file=sys.stderr); os.write({}, b'more')"
        )
        read, write = os.pipe()
        with nagaya.Space() as space, tempfile.TemporaryFile() as file:
            task = space.spawn(
                [sys.executable, "-c", script.format(write)],
                stdin=nagaya.DEVNULL,
                stdout=file,
                stderr=nagaya.STDOUT,
                pass_fds=[write],
            )
            self.assertEqual(task.wait(60), 0)
            file.seek(0)
            self.assertEqual(sorted(file.read().split()), [b"err", b"out"])
            os.close(write)
            self.assertEqual(os.read(read, 10), b"more")
            os.close(read)

    def test_no_other_descriptor_is_passed(self) -> None:
        script = "import os; print(sorted(map(int, os.listdir('/proc/self/fd')))[:-1])"
        read, write = os.pipe()
        os.set_inheritable(write, True)
        with nagaya.Space() as space:
            task = space.spawn([sys.executable, "-c", script], stdout=nagaya.PIPE)
            assert task.stdout
            self.assertEqual(task.stdout.read(), b"[0, 1, 2]\n")
            task.stdout.close()
        os.close(read)
        os.close(write)

    def test_processors(self) -> None:
        cpu = min(os.sched_getaffinity(0))
        script = "import os; print(os.sched_getaffinity(0))"
        with nagaya.Space() as space:
            task = space.spawn([sys.executable, "-c", script], cpus=[cpu], stdout=nagaya.PIPE)
            assert task.stdout
            self.assertEqual(task.stdout.read(), b"{%d}\n" % cpu)
            task.stdout.close()


class Owner(unittest.TestCase):
    """What does not depend on the interpreter."""

    def test_a_task_that_is_another_program(self) -> None:
        with nagaya.Space() as space:
            task = space.spawn(["sleep", "0"])
            self.assertEqual(task.wait(60), 0)

    def test_sizes_of_a_space(self) -> None:
        with nagaya.Space(segment_size=1 << 30, max_tasks=3) as space:
            info = space.info()
            self.assertEqual((info.segment_size, info.max_tasks), (1 << 30, 3))
            self.assertEqual(info.owner, os.getpid())
            self.assertEqual(space.segment(2), info.base + (2 << 30))

    def test_errors(self) -> None:
        with nagaya.Space(max_tasks=2) as space:
            with self.assertRaises(FileNotFoundError) as caught:
                space.spawn(["./not-there"])
            self.assertIn("not-there", caught.exception.strerror)
            with self.assertRaises(nagaya.NotFoundError):
                space.spawn(["nagaya-has-no-such-program"])
            with self.assertRaises(nagaya.Error) as caught_error:
                space.spawn(["sleep", "0"], id=2)
            self.assertEqual(caught_error.exception.errno, errno.EINVAL)
            with self.assertRaises(ValueError):
                space.spawn(["sleep", "0\0"])
        with self.assertRaises(nagaya.Error) as caught_error:
            space.ntasks()
        with self.assertRaises(nagaya.Error) as caught_error:
            nagaya.Space(segment_size=12345)
        self.assertEqual(caught_error.exception.errno, errno.EINVAL)
        with self.assertRaises(nagaya.TaskEndedError):
            nagaya.here()

    @unittest.skipUnless(FIXED, "this interpreter is position-independent")
    def test_tasks_of_a_fixed_interpreter_are_domains_of_a_shared_space(self) -> None:
        with nagaya.Space() as space:
            tasks = [space.spawn(["sleep", "60"])]
            for _ in range(2):
                tasks.append(space.spawn([sys.executable, "-c", "import time; time.sleep(60)"]))
            self.assertEqual([space.domain_of(task.id) for task in tasks], [0, 1, 2])
        with nagaya.Space(shared=False) as space:
            with self.assertRaises(nagaya.Error) as caught:
                space.spawn(CHILD)
            self.assertIn("fixed addresses", caught.exception.strerror)


class Library(unittest.TestCase):
    """Where libpvas is searched."""

    def load(self, **variables: str) -> "subprocess.CompletedProcess[str]":
        script = "import nagaya; print(nagaya.__version__)"
        environment = {**os.environ, **variables}
        return subprocess.run(
            [sys.executable, "-c", script],
            env={name: value for name, value in environment.items() if value},
            cwd="/",  # whose modules come first
            capture_output=True,
            text=True,
        )

    def test_a_wrong_variable_is_an_error_that_names_the_remedy(self) -> None:
        done = self.load(PVAS_LIBRARY="/nowhere/libpvas.so.0")
        self.assertNotEqual(done.returncode, 0)
        for word in ("ImportError", "/nowhere/libpvas.so.0", "set PVAS_LIBRARY"):
            self.assertIn(word, done.stderr)

    def test_the_library_beside_the_package_is_used(self) -> None:
        chosen = os.environ.get("PVAS_LIBRARY")
        if not chosen:
            self.skipTest("PVAS_LIBRARY is not set")
        package = Path(nagaya.__file__).parent
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / "nagaya"
            (copy / "lib").mkdir(parents=True)
            for source in package.glob("*.py"):
                (copy / source.name).symlink_to(source)
            # A module resolves no links of its own path.
            (copy / "lib" / "libpvas.so.0").symlink_to(os.path.realpath(chosen))
            done = self.load(PVAS_LIBRARY="", PYTHONPATH=directory)
            self.assertEqual((done.stdout, done.stderr), (f"{nagaya.__version__}\n", ""))


if __name__ == "__main__":
    unittest.main()
