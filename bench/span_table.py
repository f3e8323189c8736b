#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compares programs of others on one processor and under `nagaya span --nodes 2`, worst first.

Each program runs with two threads: pinned to one processor, and on two nodes with a processor each
(the same machine), in turns. Both runs must print the same. The programs are packages of the
distribution, small ones in Python, Java, Go, JavaScript and C++ that this script writes, NPB in
OpenMP, and Splash-3, which it clones and builds. A program that is not installed is left out, and
named at the end. Inputs are made in a directory in memory, so that no disk disturbs.
"""

import argparse
import csv
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NPB = "https://github.com/benchmark-subsetting/NPB3.0-omp-C"
SPLASH = "https://github.com/SakalisC/Splash-3"
TARGET = 0.97
LIMIT_S = 180

SOURCES = {
    "hashes.py": """
from concurrent.futures import ThreadPoolExecutor
import hashlib
def chain(i):
    h = b""
    for _ in range(8): h = hashlib.sha256(bytes([i]) * 20000000 + h).digest()
    return h.hex()
with ThreadPoolExecutor(2) as pool: print(list(pool.map(chain, range(4))))
""",
    "gil.py": """
import threading
def count():
    s = 0
    for i in range(12000000): s += i * i
    print(s)
threads = [threading.Thread(target=count) for _ in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
""",
    "product.py": """
import numpy
a = numpy.random.default_rng(1).random((1400, 1400)); b = a.copy()
for _ in range(8): b = a @ b; b /= b.max()
print("%.6f" % b.sum())
""",
    "loop.py": """
import numba, numpy
@numba.njit(parallel=True)
def loop(n):
    s = 0.0
    for i in numba.prange(n): s += numpy.sin(i * 1e-3) * numpy.cos(i * 2e-3)
    return s
print(round(loop(60000000), 3))
""",
    "workers.js": """
const {Worker, isMainThread, parentPort} = require("worker_threads");
if (isMainThread) { let s = 0, n = 0; for (let i = 0; i < 2; i++)
    new Worker(__filename).on("message", m => { s += m; if (++n == 2) console.log(s); }); }
else { let c = 0; for (let i = 2; i < 1800000; i++) { let p = 1;
    for (let j = 2; j * j <= i; j++) if (i % j == 0) { p = 0; break; } c += p; }
    parentPort.postMessage(c); }
""",
    "Streams.java": """
import java.util.stream.*;
public class Streams { public static void main(String[] a) {
    System.out.println(LongStream.range(2, 4000000).parallel().filter(n -> {
        for (long i = 2; i * i <= n; i++) if (n % i == 0) return false; return true; }).count());
    long[] x = new java.util.Random(1).longs(6000000).toArray();
    java.util.Arrays.parallelSort(x); System.out.println(x[77]); } }
""",
    "sums.go": """
package main
import ("crypto/sha256"; "fmt"; "sync")
func main() { var w sync.WaitGroup; r := make([][32]byte, 8)
    for i := range r { w.Add(1); go func(i int) { defer w.Done(); h := sha256.Sum256([]byte{byte(i)})
        for k := 0; k < 3000000; k++ { h = sha256.Sum256(h[:]) }; r[i] = h }(i) }
    w.Wait(); fmt.Printf("%x\\n", r) }
""",
    "channels.go": """
package main
import "fmt"
func main() { c, d := make(chan int, 64), make(chan int, 64)
    go func() { for i := 0; i < 12000000; i++ { c <- i }; close(c) }()
    go func() { for x := range c { d <- x * 2 }; close(d) }()
    s := 0; for x := range d { s += x }; fmt.Println(s) }
""",
    "sort.cpp": """
#include <cstdio>
#include <parallel/algorithm>
#include <random>
#include <vector>
int main() { std::mt19937_64 r(1); std::vector<unsigned long> v(16000000); for (auto &x : v) x = r();
    __gnu_parallel::sort(v.begin(), v.end()); printf("%lu\\n", v[777]); }
""",
    "scene.pov": """
#include "colors.inc"
camera { location <0,2,-5> look_at 0 } light_source { <10,10,-10> White }
plane { y,-1 pigment { checker Red,White } finish { reflection 0.3 } }
#declare I = 0; #while (I < 40) sphere { <sin(I)*2, cos(I*1.7), cos(I)*2>, 0.4
    pigment { rgb <I/40,0.5,1-I/40> } finish { reflection 0.4 phong 1 } } #declare I = I + 1; #end
""",
}

# Each makes an input. A failure leaves out the programs that need it.
INPUTS = [
    "ffmpeg -v error -f lavfi -i testsrc2=size=640x360:rate=25:duration=6 -pix_fmt yuv420p v.y4m",
    "ffmpeg -v error -f lavfi -i mandelbrot=size=3000x2200 -frames:v 1 p.png",
    "bwa index g.fa 2>/dev/null; bowtie2-build -q g.fa g; bwa mem g.fa reads.fq 2>/dev/null >m.sam",
    "mafft --quiet s.fa >aln.fa; hmmbuild h.hmm aln.fa >/dev/null; for i in $(seq 60); do cat s.fa; done >big.fa",
    "HOME=$PWD GO111MODULE=off go build -o sums sums.go; HOME=$PWD GO111MODULE=off go build -o channels channels.go",
    "javac Streams.java", "g++ -O2 -fopenmp sort.cpp -o sort",
    "gcc -O2 -pthread $SOURCE/montecarlo.c -o montecarlo -lm; gcc -O3 -fopenmp $SOURCE/matrix.c -o matrix -lm",
]

# A name, the command that must be installed, and a script, whose $RUN stands before the program.
PROGRAMS = [
    ("montecarlo", "gcc", "$RUN ./montecarlo 2 1000000000"),
    ("matrix", "gcc", "$RUN ./matrix 1800"),
    ("xz", "xz", "$RUN xz -T2 -1 -c text | md5sum"),
    ("pixz", "pixz", "$RUN pixz -1 -p 2 -i text -o /dev/stdout | md5sum"),
    ("plzip", "plzip", "$RUN plzip -n2 -1 -c part | md5sum"),
    ("pigz", "pigz", "$RUN pigz -p2 -n -T -c text | md5sum"),
    ("pbzip2", "pbzip2", "$RUN pbzip2 -p2 -c -k part | md5sum"),
    ("lbzip2", "lbzip2", "$RUN lbzip2 -n2 -c -k part | md5sum"),
    ("zstd", "zstd", "$RUN zstd -q -T2 -9 -c text | md5sum"),
    ("7z a", "7z", "rm -f o.7z; $RUN 7z a -mmt2 -mx3 -bd o.7z part | grep -c Ok"),
    ("sysbench cpu", "sysbench",
     "$RUN sysbench cpu --threads=2 --time=0 --events=8000 run | grep 'total number'"),
    ("sysbench cpu 6 ms", "sysbench", "$RUN sysbench cpu --cpu-max-prime=100000 --threads=2 --time=0 "
     "--events=400 run | grep 'total number'"),
    ("sysbench threads", "sysbench",
     "$RUN sysbench threads --threads=2 --time=0 --events=2000 run | grep 'total number'"),
    ("sysbench mutex", "sysbench",
     "$RUN sysbench mutex --threads=2 --mutex-locks=400000 run | grep 'total number'"),
    ("sysbench memory", "sysbench", "$RUN sysbench memory --threads=2 --memory-total-size=16G "
     "--time=0 run | grep -c transferred"),
    ("x264", "x264", "$RUN x264 --quiet --threads 2 v.y4m -o o.264 2>/dev/null; md5sum <o.264"),
    ("x265", "x265", "$RUN x265 --log-level none --pools 2 --preset fast v.y4m -o o.265 2>/dev/null; "
     "md5sum <o.265"),
    ("ffmpeg", "ffmpeg", "$RUN ffmpeg -y -v error -threads 2 -i v.y4m -threads 2 -vf scale=1280:720 "
     "-c:v mpeg2video -q:v 3 -f mpeg2video o.m2v; md5sum <o.m2v"),
    ("aomenc", "aomenc", "$RUN aomenc --quiet --threads=2 --row-mt=1 --cpu-used=8 --limit=20 --ivf "
     "-o o.ivf v.y4m 2>/dev/null; md5sum <o.ivf"),
    ("svt-av1", "SvtAv1EncApp", "$RUN SvtAv1EncApp --lp 2 --preset 10 -i v.y4m -b o.ivf >/dev/null "
     "2>&1; md5sum <o.ivf"),
    ("cwebp", "cwebp", "$RUN cwebp -quiet -mt -m 6 -q 90 p.png -o o.webp; md5sum <o.webp"),
    ("imagemagick", "convert", "MAGICK_THREAD_LIMIT=2 $RUN convert p.png -resize 60% -blur 0x8 rgb:- "
     "| md5sum"),
    ("graphicsmagick", "gm", "$RUN gm convert p.png -resize 60% -blur 0x8 rgb:- | md5sum"),
    ("povray", "povray", "$RUN povray +Iscene.pov +Oo.ppm +FP +W480 +H360 +A0.1 -D +WT2 >/dev/null "
     "2>&1; md5sum <o.ppm"),
    ("bwa mem", "bwa", "$RUN bwa mem -t2 g.fa reads.fq 2>/dev/null | md5sum"),
    ("minimap2", "minimap2",
     "$RUN minimap2 -t2 -a -x sr g.fa reads.fq 2>/dev/null | grep -v ^@PG | md5sum"),
    ("bowtie2", "bowtie2-align-s", "$RUN $(command -v bowtie2-align-s) -p2 --reorder -x g -U reads.fq "
     "2>/dev/null | grep -v ^@PG | md5sum"),
    ("samtools sort", "samtools", "$RUN samtools sort -@2 -O bam --no-PG m.sam | samtools view | md5sum"),
    ("mafft", "mafft", "$RUN mafft --quiet --thread 2 --maxiterate 20 s.fa | md5sum"),
    ("clustalo", "clustalo", "$RUN clustalo --threads=2 -i s.fa | md5sum"),
    ("fasttree", "fasttreeMP", "$RUN fasttreeMP -quiet <aln.fa 2>/dev/null | md5sum"),
    ("hmmsearch", "hmmsearch", "$RUN hmmsearch --cpu 2 h.hmm big.fa | grep -v '^#' | md5sum"),
    ("primesieve", "primesieve", "$RUN primesieve -t2 -q 2e10"),
    ("python, hashes", "python3", "$RUN /usr/bin/python3 hashes.py"),
    ("python, GIL", "python3", "$RUN /usr/bin/python3 gil.py"),
    ("numpy", "python3", "$RUN /usr/bin/python3 product.py"),
    ("numba", "python3", "$RUN /usr/bin/python3 loop.py"),
    ("node workers", "node", "$RUN node workers.js"),
    ("java streams", "java", "$RUN java -XX:ActiveProcessorCount=2 Streams"),
    ("javac", "javac", "$RUN javac -d classes Streams.java; md5sum <classes/Streams.class"),
    ("go hashes", "go", "$RUN ./sums | md5sum"),
    ("go channels", "go", "$RUN ./channels"),
    ("parallel sort", "g++", "$RUN ./sort"),
]

NPB_RUNS = ["bt.W", "cg.A", "ep.W", "ft.A", "is.A", "lu.S", "mg.A", "sp.S", "sp.W"]

SPLASH_RUNS = [
    ("barnes", "apps/barnes", "./BARNES <inputs/n16384-p2"),
    ("fmm", "apps/fmm", "./FMM <inputs/input.2.16384"),
    ("ocean", "apps/ocean/contiguous_partitions", "./OCEAN -p2 -n514"),
    ("radiosity", "apps/radiosity", "./RADIOSITY -p 2 -ae 5000 -bf 0.1 -en 0.05 -room -batch"),
    ("raytrace", "apps/raytrace", "./RAYTRACE -p2 -m64 inputs/car.env"),
    ("volrend", "apps/volrend", "./VOLREND 2 inputs/head 8"),
    ("water-nsquared", "apps/water-nsquared", "./WATER-NSQUARED <inputs/n512-p2"),
    ("water-spatial", "apps/water-spatial", "./WATER-SPATIAL <inputs/n512-p2"),
    ("cholesky", "kernels/cholesky", "./CHOLESKY -p2 <inputs/tk29.O"),
    ("fft", "kernels/fft", "./FFT -p2 -m22"),
    ("lu", "kernels/lu/contiguous_blocks", "./LU -p2 -n1536"),
    ("radix", "kernels/radix", "./RADIX -p2 -n8388608"),
]


def shell(script, where, **variables):
    environment = dict(os.environ, SOURCE=str(ROOT / "bench/programs"), **variables)
    return subprocess.run(script, shell=True, cwd=where, env=environment, executable="/bin/bash",
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT_S,
                          check=False)


def text(count):
    """Words that repeat, the same each time."""
    draw = random.Random(1)
    words = ["".join(draw.choice("etaoinshrdlu") for _ in range(draw.randint(2, 9)))
             for _ in range(4000)]
    parts = [" ".join(draw.choice(words) for _ in range(40000)) for _ in range(24)]
    return "\n".join(draw.choice(parts)[draw.randint(0, 200):] for _ in range(200))[:count]


def write_inputs(where):
    for name, source in SOURCES.items():
        (where / name).write_text(source)
    (where / "classes").mkdir()
    (where / "text").write_text(text(48_000_000))
    (where / "part").write_text(text(12_000_000))
    draw = random.Random(2)
    genome = "".join(draw.choice("ACGT") for _ in range(400_000))
    (where / "g.fa").write_text(">g\n" + genome + "\n")
    with open(where / "reads.fq", "w", encoding="ascii") as reads:
        for number in range(60_000):
            at = draw.randrange(len(genome) - 150)
            read = list(genome[at:at + 150])
            for _ in range(3):
                read[draw.randrange(150)] = draw.choice("ACGT")
            reads.write(f"@{number}\n{''.join(read)}\n+\n{'I' * 150}\n")
    base = [draw.choice("ACDEFGHIKLMNPQRSTVWY") for _ in range(250)]
    with open(where / "s.fa", "w", encoding="ascii") as proteins:
        for number in range(120):
            one = list(base)
            for _ in range(60):
                one[draw.randrange(250)] = draw.choice("ACDEFGHIKLMNPQRSTVWY")
            proteins.write(f">{number}\n{''.join(one)}\n")
    for script in INPUTS:
        shell(script, where)


def clone(url, given, to):
    if given:
        shutil.copytree(given, to)
    elif subprocess.run(["git", "clone", "-q", "--depth", "1", url, to], check=False).returncode:
        return False
    return True


def npb(given, where):
    """Builds NPB. Returns its programs."""
    to = where / "npb"
    if not clone(NPB, given, to):
        return []
    template = (to / "config/make.def.template").read_text().splitlines()
    values = {"F77": "gfortran", "FLINK": "gfortran", "CC": "gcc", "CLINK": "gcc -fopenmp",
              "CFLAGS": "-O3 -fopenmp -mcmodel=medium -w -fcommon", "C_LIB": "-lm", "UCC": "cc -O -w"}
    lines = []
    for line in template:
        name = line.split("=")[0].strip()
        lines.append(f"{name} = {values[name]}" if name in values else line)
    (to / "config/make.def").write_text("\n".join(lines) + "\n")
    shutil.copy(to / "config/suite.def.template", to / "config/suite.def")
    (to / "bin").mkdir(exist_ok=True)
    programs = []
    for run in NPB_RUNS:
        name, size = run.split(".")
        shell(f"make -s {name.upper()} CLASS={size}", to)
        if (to / "bin" / run).exists():
            programs.append((f"npb {run}", "gcc", f"$RUN npb/bin/{run} | grep -c SUCC"))
    return programs


def splash(given, where):
    """Builds Splash-3. Returns its programs, whose output is compared without times."""
    to = where / "splash"
    if not clone(SPLASH, given, to):
        return []
    shell("make -s", to / "codes")
    # Tables of times have lines of numbers only.
    plain = "grep -v -i -E 'time|sec|proc|[0-9]{5}|^[-+.0-9e[:space:]]*$' | md5sum"
    return [(f"splash {name}", "m4", f"cd splash/codes/{folder}; $RUN {command} | {plain}")
            for name, folder, command in SPLASH_RUNS]


def one_run(script, prefix, where):
    """Returns the seconds that the program took, and what the script printed."""
    clock = where / "clock"
    clock.write_text("")
    timed = f"{sys.executable} {Path(__file__).resolve()} --time {clock} {prefix}"
    try:
        done = shell(script, where, RUN=timed, OMP_NUM_THREADS="2")
    except subprocess.TimeoutExpired:
        return float(LIMIT_S), b"does not end"
    seconds, status = (clock.read_text().split() + ["nan", "1"])[:2]
    return float(seconds), done.stdout + (b"" if status == "0" else done.stderr[-200:] + b" fails")


def measure(program, options, where):
    """Returns the row of a program."""
    name, _, script = program
    cpu = min(os.sched_getaffinity(0))
    prefixes = [f"taskset -c {cpu}", f"{options.nagaya} span --nodes 2"]
    times, printed = ([], []), [set(), set()]
    for number in range(options.rounds):
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            seconds, output = one_run(script, prefixes[which], where)
            times[which].append(seconds)
            printed[which].add(output)
    one, two = (sorted(series)[len(series) // 2] for series in times)
    same = printed[0] == printed[1] and len(printed[0]) == 1
    return name, one, two, one / two, same


def run_timed(arguments):
    """Runs a command and writes its time and status to a file."""
    begin = time.monotonic()
    status = subprocess.call(arguments[1:])
    Path(arguments[0]).write_text(f"{time.monotonic() - begin:.4f} {status}\n")
    return status


def report(rows, missing, out):
    rows.sort(key=lambda row: row[3])
    with open(out, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["program", "one_s", "two_s", "ratio", "same"])
        writer.writerows(rows)
    print(f"\n{'worst first':24} {'one, s':>8} {'two, s':>8} {'ratio':>6}")
    for name, one, two, ratio, same in rows:
        short = "  (under 1 s)" if one < 1 else "" if ratio >= TARGET else "  MISSED"
        print(f"{name:24} {one:8.2f} {two:8.2f} {ratio:6.2f}{short}{'' if same else '  DIFFERS'}")
    long = [row for row in rows if row[1] >= 1]
    met = sum(row[3] >= TARGET for row in long)
    print(f"{len(rows)} programs; of {len(long)} that take 1 s or more, {met} reach {TARGET}")
    if missing:
        print(f"not installed: {', '.join(missing)}")
    return all(row[4] for row in rows)


def main():
    if sys.argv[1:2] == ["--time"]:
        return run_timed(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", help="only programs whose names begin so")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program (default: 3)")
    parser.add_argument("--nagaya", default=ROOT / "target/release/nagaya", help="the command to test")
    parser.add_argument("--npb", metavar="DIR", help="a copy of NPB in OpenMP, instead of a clone")
    parser.add_argument("--splash", metavar="DIR", help="a copy of Splash-3, instead of a clone")
    parser.add_argument("--out", default=ROOT / "out/span-table.csv", help="the CSV file to write")
    options = parser.parse_args()
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=base, prefix="nagaya-span-") as where:
        where = Path(where)
        write_inputs(where)
        every = PROGRAMS + npb(options.npb, where) + splash(options.splash, where)
        wanted = [it for it in every if not options.programs
                  or any(it[0].startswith(name) for name in options.programs)]
        there = [it for it in wanted if shutil.which(it[1])]
        missing = [it[0] for it in wanted if it not in there]
        rows = []
        for number, program in enumerate(there):
            print(f"{number + 1} of {len(there)}: {program[0]}", file=sys.stderr)
            rows.append(measure(program, options, where))
        Path(options.out).parent.mkdir(parents=True, exist_ok=True)
        return 0 if report(rows, missing, options.out) else 1


if __name__ == "__main__":
    sys.exit(main())
