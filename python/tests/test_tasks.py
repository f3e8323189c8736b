# SPDX-License-Identifier: Apache-2.0 OR MIT
"""What tasks of `nagaya run` do with the package. The cases are functions of worker.py."""

import importlib.util
import os
import subprocess
import sys
import unittest
from pathlib import Path

NAGAYA = os.environ.get("NAGAYA", "nagaya")
WORKER = Path(__file__).with_name("worker.py")


def run(case: str, tasks: int, *options: str) -> None:
    """Runs one case in a number of tasks, which must all succeed."""
    run_with(["-n", str(tasks), *options], case)


def run_with(options: list[str], case: str) -> None:
    """The same in a job with these options."""
    command = [NAGAYA, "run", "-K", *options, sys.executable, str(WORKER), case]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    if done.returncode != 0:
        output = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
        raise AssertionError(f"{command} ended with {done.returncode}\n{output}")


class Tasks(unittest.TestCase):
    """Export, import, barrier."""

    @unittest.skipUnless(importlib.util.find_spec("numpy"), "numpy is not installed")
    def test_arrays_are_the_exporters_memory(self) -> None:
        run("arrays", 3)

    def test_buffers_work_without_numpy(self) -> None:
        run("buffers", 3)

    def test_errors_are_oserrors_that_name_the_cause(self) -> None:
        run("names", 2)

    def test_an_import_gets_memory_and_type_of_one_export(self) -> None:
        run("replaced", 2)
        run("replaced_twice", 1)

    def test_a_barrier_holds_all_and_fails_if_one_ends(self) -> None:
        run("barriers", 4)

    def test_task_0_leaves_a_barrier_last(self) -> None:
        run("leaves", 2)

    def test_memory_of_an_ended_task_is_refused(self) -> None:
        run("ended", 2)

    def test_a_forked_child_is_no_task(self) -> None:
        run("forked", 2)

    def test_protected_tasks_and_domains_share_what_they_export(self) -> None:
        run("buffers", 2, "--protect")
        run_with(["--domains", "all:2,all:1"], "buffers")


class Delegation(unittest.TestCase):
    """nagaya.delegate."""

    def test_a_task_works_on_the_memory_of_others(self) -> None:
        run("delegated", 3)

    def test_a_signal_handler_ends_a_wait(self) -> None:
        run("interrupted", 1)

    def test_the_node_server_reads_and_writes_files(self) -> None:
        run("node_server", 1, "--delegatee", "all:1")


if __name__ == "__main__":
    unittest.main()
