#!/usr/bin/env python3
"""Makes Debian packages of an installed tree.

    packaging/deb.py ROOT OUTPUT VERSION

ROOT is what `make install install-debug DESTDIR=ROOT PREFIX=/usr` made, with Debian's LIBDIR, and
with the licences in usr/share/doc/nagaya. Each file belongs to exactly one package: the first of
PACKAGES with a pattern that matches its path. `dpkg-deb` writes the packages to OUTPUT.
"""

import fnmatch
import gzip
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

MAINTAINER = "The Nagaya developers <nagaya@localhost>"
LIBC = "libc6 (>= 2.28), libgcc-s1 (>= 3.0) | libgcc1 (>= 1:3.0)"
# A `*` of a pattern matches slashes, too. So patterns name this directory.
LIBDIR = "usr/lib/x86_64-linux-gnu"
LIBRARIES = {
    "libpvas0": ("libpvas", "partitioned virtual address spaces"),
    "libpvas-delegate0": ("libpvas_delegate", "work in the memory of other tasks"),
    "libfcp0": ("libfcp", "messages through shared memory"),
    "libjia0": ("libjia", "software distributed shared memory"),
    "libmemop0": ("libmemop", "memory operations on another process"),
}
ABOUT = """\
 Nagaya runs the ranks of an MPI job, or other programs, as processes in one
 address space. A large message is then one memory copy. It needs no kernel
 module, no rebuilt MPI and no changed program."""

# Name, section, architecture, patterns, dependencies, synopsis, last paragraph.
PACKAGES = [
    (
        "nagaya-dbgsym", "debug", "amd64", ["*/.debug/*"],
        "nagaya (= {version})",
        "debug information of Nagaya",
        "Line numbers of the command and the libraries, for gdb and backtraces.",
    ),
    *[
        (
            name, "libs", "amd64", [f"{LIBDIR}/{stem}.so.*"],
            LIBC,
            f"{what}: library of Nagaya",
            f"This package has {stem}.so.0, with which programs are linked.",
        )
        for name, (stem, what) in LIBRARIES.items()
    ],
    (
        "python3-nagaya", "python", "all", ["usr/lib/python3/*"],
        "python3 (>= 3.9), libpvas0 (>= {version}), libpvas-delegate0 (>= {version})",
        "Python module of Nagaya",
        "This package has the module nagaya: NumPy arrays of other processes, without copies.",
    ),
    (
        "libnagaya-dev", "libdevel", "amd64",
        [
            "usr/include/*", f"{LIBDIR}/pkgconfig/*", f"{LIBDIR}/cmake/*", f"{LIBDIR}/lib*.so",
            "usr/lib/nagaya/*/include/*", "usr/lib/nagaya/*/lib/*.so", "usr/lib/nagaya/*/lib/*.a",
            "usr/lib/nagaya/*/lib/pkgconfig/*", "usr/share/man/man3/*",
        ],
        "nagaya (= {version}), " + ", ".join(f"{name} (= {{version}})" for name in LIBRARIES),
        "headers of Nagaya's libraries",
        "This package has the headers, the links for the linker, files for pkg-config and CMake, "
        "and the manual pages of the calls.",
    ),
    (
        "nagaya-doc", "doc", "all", ["usr/share/doc/nagaya/docs/*", "usr/share/doc/nagaya/*.md"],
        "",
        "documentation of Nagaya",
        "This package has the documents that explain design, protocols and results.",
    ),
    (
        "nagaya", "science", "amd64", ["usr/*"],
        LIBC,
        "one virtual address space for parallel programs",
        "This package has the command nagaya, and the libraries that it gives to MPI, libfabric "
        "and PVM.",
    ),
]  # fmt: skip


def split(root):
    """Returns the paths of each package."""
    owned = {package[0]: [] for package in PACKAGES}
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in sorted(files + links):
            path = os.path.relpath(os.path.join(folder, name), root)
            for package in PACKAGES:
                if any(fnmatch.fnmatchcase(path, pattern) for pattern in package[3]):
                    owned[package[0]].append(path)
                    break
            else:
                sys.exit(f"deb: no package has {path}")
    return owned


def compressed(source, target, when):
    with open(target, "wb") as out, gzip.GzipFile("", "wb", 9, out, when) as zipped:
        zipped.write(pathlib.Path(source).read_bytes())


def wrapped(paragraph, width=78):
    lines, line = [], ""
    for word in paragraph.split():
        if line and len(line) + len(word) + 1 > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}"
    return "\n".join([*lines, line])


def control(package, version, size_kib):
    name, section, architecture, _, depends, synopsis, text = package
    fields = [
        ("Package", name),
        ("Source", "nagaya"),
        ("Version", version),
        ("Architecture", architecture),
        ("Maintainer", MAINTAINER),
        ("Installed-Size", str(size_kib)),
        ("Depends", depends.format(version=version)),
        ("Section", section),
        ("Priority", "optional"),
        ("Multi-Arch", "same" if section == "libs" else ""),
        ("Suggests", "python3-numpy" if name == "python3-nagaya" else ""),
        ("Description", f"{synopsis}\n{ABOUT}\n .\n{wrapped(text)}"),
    ]
    return "".join(f"{field}: {value}\n" for field, value in fields if value)


def build(package, paths, root, output, version, when):
    name, section, architecture = package[:3]
    with tempfile.TemporaryDirectory() as scratch:
        tree = pathlib.Path(scratch, "tree")
        for path in paths:
            target = tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, target, follow_symlinks=False)
            if "/man/man" in path and not target.is_symlink():
                compressed(target, f"{target}.gz", when)
                target.unlink()
        # Debian asks for the licence and the history in each package.
        doc = tree / "usr/share/doc" / name
        doc.mkdir(parents=True, exist_ok=True)
        here = pathlib.Path(__file__).resolve().parent
        text = (here / "debian/copyright").read_text()
        third = root / "usr/share/doc/nagaya/THIRD-PARTY.txt"
        if architecture != "all":
            text += "\n" + third.read_text()
            if not (doc / "nagaya.cdx.json").exists():
                shutil.copy(root / "usr/share/doc/nagaya/nagaya.cdx.json", doc)
        (doc / "copyright").write_text(text)
        changes = pathlib.Path(scratch, "changes")
        date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(when))
        changes.write_text(
            f"nagaya ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n"
            f" -- {MAINTAINER}  {date}\n"
        )
        compressed(changes, doc / "changelog.gz", when)
        for folder, _, _ in os.walk(tree):
            os.chmod(folder, 0o755)
        files = sorted(p for p in tree.rglob("*") if p.is_file() and not p.is_symlink())
        size = sum((p.stat().st_size + 1023) // 1024 for p in files)
        sums = "".join(
            f"{hashlib.md5(p.read_bytes()).hexdigest()}  {p.relative_to(tree)}\n" for p in files
        )
        debian = tree / "DEBIAN"
        debian.mkdir()
        debian.chmod(0o755)
        (debian / "control").write_text(control(package, version, size))
        (debian / "md5sums").write_text(sums)
        if name in LIBRARIES:
            (debian / "shlibs").write_text(f"{LIBRARIES[name][0]} 0 {name} (>= {version})\n")
            (debian / "triggers").write_text("activate-noawait ldconfig\n")
        result = output / f"{name}_{version}_{architecture}.deb"
        # Debug information is compressed already.
        how = ["-Zgzip", "-z1"] if section == "debug" else ["-Zxz"]
        command = ["dpkg-deb", "--root-owner-group", *how, "--build", str(tree), str(result)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(when)}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


def main():
    if len(sys.argv) != 4:
        sys.exit("usage: packaging/deb.py ROOT OUTPUT VERSION")
    root, output, version = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    when = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    for name, paths in split(root).items():
        package = next(package for package in PACKAGES if package[0] == name)
        if paths:
            build(package, paths, root, output, version, when)


main()
