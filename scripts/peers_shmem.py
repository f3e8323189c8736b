# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The OpenSHMEM programs of others that `scripts/peers shmem` builds and runs.

Each program is compiled by `oshcc` and started with 1, 2, 4 and 8 PEs on this machine, and on two
nodes, which are network namespaces connected by a virtual Ethernet device.
"""
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# The output of the mode `without`, which stands for a program without failures.
EXPECTED = "expected"
MODES = {"1 PE": (1, 1), "2 PEs": (2, 1), "4 PEs": (4, 1), "8 PEs": (8, 1),
         "2 PEs on 2 nodes": (2, 2), "4 PEs on 2 nodes": (4, 2), "8 PEs on 2 nodes": (8, 2)}
# Repositories: directory in the sources, address, commit.
SOURCES = {
    "tests-sos": ("https://github.com/openshmem-org/tests-sos", "ca9cb12"),
    "tests-uh": ("https://github.com/openshmem-org/tests-uh", "685d15d"),
    "tests-cray": ("https://github.com/openshmem-org/tests-cray", "fca777b"),
    "tests-mellanox": ("https://github.com/openshmem-org/tests-mellanox", "8a615c3"),
    "ISx": ("https://github.com/ParRes/ISx", "d31936a"),
    "Kernels": ("https://github.com/ParRes/Kernels", "04248b66"),
    "openshmem-npbs": ("https://github.com/openshmem-org/openshmem-npbs", "0028e8d"),
}


@dataclass
class Program:
    """A program: its sources and compiler flags, its arguments, and the runs that apply."""
    name: str
    sources: list
    flags: str = ""
    arguments: str = ""
    # Numbers of PEs with which the program runs; none: all.
    pes: tuple = ()
    status: int = 0
    # A text that the output must have, and one that it must not have.
    needs: str = ""
    fails: str = ""
    skip: str = ""
    # The name of the executable, if several programs share it.
    executable: str = ""


# Reasons to leave out programs. The keys are suites and file names.
SKIPPED = {
    "tests-sos": {
        "hybrid_mpi_mapping_id": "uses MPI: compiled by no MPI here",
        "hybrid_mpi_mapping_id_shmem_comm": "uses MPI: compiled by no MPI here",
        "perf_counter": "Sandia's extension shmemx_pcntr",
        "shmem_ct": "Sandia's extension shmemx_ct",
        "gettid_register": "Sandia's extension shmemx_register_gettid",
        "shmemx_team_node": "Sandia's extension SHMEMX_TEAM_NODE",
        "cxx_test_shmem_ibget": "Sandia's names shmemx_ibget; c11_test_shmem_ibget has the standard's",
        "cxx_test_shmem_ibput": "Sandia's names shmemx_ibput; c11_test_shmem_ibput has the standard's",
        "shmem_malloc_with_hints in shmemx": "Sandia's extension SHMEMX_MALLOC_NO_BARRIER",
        "mt_lock": "a part of mt_lock_test",
    },
    "Kernels": {
        "transpose_a2a": "passes memory of malloc, which is not symmetric, to shmem_double_alltoall",
    },
    "tests-cray": {
        **dict.fromkeys(["shmem_both_put_nb_size", "shmem_broadcast_all", "shmem_num_put_nb",
                         "shmem_num_put_nb_size", "shmem_type_put_nb"],
                        "Cray's extensions shmemx_put_nb, shmemx_broadcast"),
        "align": "wants memory for an alignment of 63, which the standard does not allow",
    },
}
# Programs that need more than one PE, or an even number.
AT_LEAST_TWO = (2, 4, 8)
NEEDS_PES = {}
# Programs of tests-sos that take longer than the limit by default: shorter arguments.
ARGUMENTS = {"mandelbrot": "-w 64 -h 64 -j 2", "gups": ""}


def stem(path):
    return path.name.rsplit(".", 1)[0]


def sos(root):
    test, skipped = root / "tests-sos/test", SKIPPED["tests-sos"]
    flags = f"-I{test}/include -DENABLE_THREADS -fopenmp -pthread"
    for part in ("unit", "spec-example", "apps", "shmemx"):
        for path in sorted([*(test / part).glob("*.c"), *(test / part).glob("*.cpp")]):
            name = stem(path)
            # Extensions of Sandia's that are functions of version 1.6.
            names = ("ibget", "ibput", "signal_add", "signal_set", "long_sum_exscan",
                     "long_sum_inscan") if part == "shmemx" else ()
            more = "-lm " + " ".join(f"-Dshmemx_{it}=shmem_{it}" for it in names)
            sources = [path]
            if name == "mt_lock_test":
                sources.append(path.with_name("mt_lock.c"))
            # Deprecated atomics exist for three types, and these tests use them for all.
            if "atomic" not in name:
                more += " -DENABLE_DEPRECATED_TESTS"
            yield Program(f"{part}/{path.name}", sources, f"{flags} {more}",
                          ARGUMENTS.get(name, ""), NEEDS_PES.get(name, ()),
                          skip=skipped.get(name) or skipped.get(f"{name} in {part}", ""))
    rma = test / "unit/rma_coverage.c"
    yield Program("unit/rma_coverage_pshmem", [rma], f"{flags} -DTEST_PSHMEM")


def uh(root):
    directory = root / "tests-uh/feature_tests/C"
    for path in sorted(directory.glob("*.c")):
        # It ends all PEs with this status.
        status = 99 if path.name == "test_shmem_global_exit.c" else 0
        yield Program(f"feature_tests/{path.name}", [path], "-lm", pes=AT_LEAST_TWO, status=status,
                      fails="Failed|FAILED")


def cray(root):
    for part in ("sma1", "sma2"):
        for path in sorted((root / "tests-cray" / part).glob("*.c*")):
            # The standard has no atomic operations on short.
            more = "" if "finc" in path.name or "swap" in path.name else "-DHAVE_SHORT"
            # PE 1 ends the job with status 1; without an argument the program only exits.
            ends = path.name == "shmem_global_exit.c"
            more += " -DONEPE" if ends else ""
            yield Program(f"{part}/{path.name}", [path],
                          f"{more} -DHAVE_LONG_LONG -DHAVE_LONG_DOUBLE -DHAVE_SET_CACHE_INV "
                          "-DNEEDS_FINALIZE -lm", "2" if ends else "", AT_LEAST_TWO,
                          status=1 if ends else 0, fails="FAIL|nagaya",
                          skip=SKIPPED["tests-cray"].get(stem(path), ""))


def mellanox(root):
    verifier = root / "tests-mellanox/verifier"
    if not verifier.exists():
        return
    sources = [path for path in sorted(verifier.rglob("*.c"))
               # The tests in mix use MPI, and those in nbi only include its header.
               if path.parent.name != "mix" and not path.name.endswith("_template.c")]
    declared = [f"-DHAVE_DECL_SHMEM_{kind}_ATOMIC_{op}=1" for kind in ("UINT", "ULONG", "ULONGLONG")
                for op in ("AND", "OR", "XOR", "FETCH_AND", "FETCH_OR", "FETCH_XOR")]
    flags = " ".join([f"-I{verifier} -I{verifier}/cmn -Iempty -DHAVE_UNISTD_H -DHAVE_NBI -DCHECK_ACTIVE_SET",
                      "-DHAVE_ALLTOALL -DQUICK_TEST -DPACKAGE_VERSION='\"0\"' -lm", *declared])
    # basic:shmalloc wants NULL from shrealloc for an object that was freed, where the standard leaves
    # the behaviour open.
    basic = ["start", "whoami", "get", "put", "barrier", "heap", "fence"]
    tasks = {"basic": " ".join(f"--task=basic:{it}" for it in basic)}
    for suite in ("data", "atomic", "coll", "lock", "reduce", "stride", "sync", "nbi", "misc"):
        tasks[suite] = f"--task={suite}"
    for suite, arguments in tasks.items():
        yield Program(f"verifier {suite}", sources, flags, f"exec {arguments}",
                      fails=r"FAILED|FAIL\b", executable="verifier")


def applications(root):
    isx = root / "ISx/SHMEM"
    if isx.exists():
        sources = [isx / name for name in ("isx.c", "timer.c", "pcg_basic.c")]
        for name, option in (("strong", "1"), ("weak", "2"), ("weak, equal buckets", "3")):
            yield Program(f"ISx {name}", sources, f"-std=gnu11 -DSCALING_OPTION={option} -lm",
                          "1000000 times", fails="[Ff]ailed|FAILED")
    kernels = root / "Kernels/SHMEM"
    for name, arguments in (("Stencil", "20 1000"), ("Transpose", "20 512"),
                            ("Synch_p2p", "20 1000 1000")):
        for path in sorted((kernels / name).glob("*.c")):
            sources = [path, root / "Kernels/common/SHMEM_bail_out.c",
                       root / "Kernels/common/wtime.c"]
            yield Program(f"Kernels {stem(path)}", sources,
                          f"-I{root}/Kernels/include -DPRKVERSION='\"0\"' -DRADIUS=2 -DDOUBLE=1 -DSTAR=1 "
                          "-DSPLITFRACTION=1 -lm",
                          arguments, needs="Solution validates",
                          skip=SKIPPED["Kernels"].get(stem(path), ""))


SUITES = {"sos": sos, "uh": uh, "cray": cray, "mellanox": mellanox, "programs": applications}

# Two nodes: a namespace each for the network, mounts and the host name. `mpiexec` starts its agents
# by a script that takes ssh's arguments.
TWO_NODES = r"""
set -e
dir=$XDG_RUNTIME_DIR
printf '127.0.0.1 localhost\n10.250.0.1 node1\n10.250.0.2 node2\n' >$dir/hosts
cat >$dir/agent <<'END'
#!/bin/sh
while :; do case $1 in -*) shift ;; *) break ;; esac; done
pid=$(cat "${0%/*}/$1.pid")
shift
exec nsenter -t "$pid" -m -u -n -- sh -c "$*"
END
chmod +x $dir/agent
for node in node1 node2; do
	mkfifo $dir/$node.ready
	unshare -m -u -n sh -ec "mount --make-rprivate /; hostname $node; mount --bind $dir/hosts /etc/hosts
		mount -t tmpfs tmpfs /dev/shm; mkdir -m 700 $dir/run.$node; export XDG_RUNTIME_DIR=$dir/run.$node
		ip link set lo up; echo >$dir/$node.ready; exec sleep 900" >/dev/null &
	echo $! >$dir/$node.pid
	read _ <$dir/$node.ready
done
on() { node=$1; shift; nsenter -t $(cat $dir/$node.pid) -m -u -n -- "$@"; }
on node1 ip link add eth0 type veth peer name eth0 netns $(cat $dir/node2.pid)
on node1 ip addr add 10.250.0.1/24 dev eth0; on node1 ip link set eth0 up
on node2 ip addr add 10.250.0.2/24 dev eth0; on node2 ip link set eth0 up
set +e
on node1 mpiexec.hydra -hosts node1:PER_NODE,node2:PER_NODE -launcher ssh -launcher-exec $dir/agent \
	-n PES COMMAND
status=$?
kill $(cat $dir/node1.pid $dir/node2.pid) 2>/dev/null
exit $status
"""


def fetch():
    """Shell commands that obtain the sources."""
    lines = [f"git clone -q {address} {name} && git -C {name} checkout -q {commit}"
             for name, (address, commit) in SOURCES.items()]
    return "\n".join(lines)


def judge(program):
    """Returns the function that turns a status and an output into a result."""
    def result(status, text):
        if text == EXPECTED:
            return "pass"
        if "peers: cannot compile" in text:
            return "not compiled"
        if status != program.status:
            last = next((line for line in reversed(text.splitlines()) if "nagaya" in line), "")
            return f"status {status}" + (f": {last[:100]}" if last else "")
        if program.fails and re.search(program.fails, text):
            return "fail"
        if program.needs and program.needs not in text:
            return "no result"
        return "pass"
    return result


def build(program, bin, place):
    """Compiles a program, unless that was done. Returns the executable, or none, and a log."""
    name = re.sub(r"[^\w.]+", "_", program.executable or program.name)
    executable, log = place / "bin" / name, place / "bin" / f"{name}.log"
    if not executable.exists() and not log.exists():
        is_cplusplus = any(source.suffix == ".cpp" for source in program.sources)
        compiler = bin / "shmem/bin" / ("oshc++" if is_cplusplus else "oshcc")
        sources = " ".join(map(str, program.sources))
        done = subprocess.run(f"{compiler} -w -O2 -o {executable} {sources} {program.flags}",
                              shell=True, cwd=place, capture_output=True, text=True, check=False)
        log.write_text(done.stdout + done.stderr)
    return executable if executable.exists() else None, log


def command(program, mode, bin, place):
    """Returns the command line of a run."""
    executable, log = build(program, bin, place)
    if executable is None:
        return ["sh", "-c", f"cat {log}; echo 'peers: cannot compile'"]
    pes, nodes = MODES[mode]
    run = f"{executable} {program.arguments}"
    if nodes == 1:
        return ["sh", "-c", f"cd $XDG_RUNTIME_DIR; exec {bin}/shmem/bin/oshrun -n {pes} {run}"]
    script = TWO_NODES.replace("PER_NODE", str(pes // nodes)).replace("PES", str(pes))
    return ["bash", "-c", script.replace("COMMAND", run)]


def cases(root, parts, bin, place, make):
    """Yields `make(suite, program, modes, command, judge)` for each program of the suites."""
    for directory in (place / "bin", place / "empty"):
        directory.mkdir(exist_ok=True)
    for header in ("config.h", "mpi.h"):
        (place / "empty" / header).touch()
    for suite in parts or SUITES:
        for program in SUITES[suite](root):
            modes = [mode for mode, (pes, _) in MODES.items() if not program.pes or pes in program.pes]

            def of_mode(mode, program=program):
                if mode == "without":
                    return ["printf", EXPECTED], {}
                return command(program, mode, bin, place), {}

            def of_output(status, text, program=program):
                return judge(program)(status, text)
            yield make(suite, program, ["without", *modes], of_mode, of_output)
