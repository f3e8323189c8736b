#!/usr/bin/env python3
"""Makes a Python wheel of an installed tree.

    packaging/wheel.py PREFIX OUTPUT VERSION TAG

PREFIX is what `make install` made with RELOCATABLE=1; TAG is a platform such as
manylinux_2_28_x86_64. In a virtual environment the wheel puts the command into bin/, and libraries,
headers and manual pages into lib/, include/ and share/: as an installation with that prefix. The
Python module `nagaya` finds libpvas in its own directory `lib`.
"""

import base64
import hashlib
import os
import pathlib
import re
import sys
import time
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODULE = ROOT / "python/nagaya"
# What the Python module loads.
OF_MODULE = ["libpvas.so.0", "libpvas_delegate.so.0"]


class Wheel:
    """A zip file with the list of its files. All have the same date."""

    def __init__(self, path, when):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)
        self.date = time.gmtime(when)[:6]
        self.records = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, self.date)
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.records.append(f"{name},sha256={digest},{len(data)}\n")

    def close(self, record):
        info = zipfile.ZipInfo(record, self.date)
        info.external_attr = 0o100644 << 16
        self.zip.writestr(info, "".join(self.records) + f"{record},,\n")
        self.zip.close()


def module_files():
    """Yields the files of the Python module, as paths within it."""
    for folder, folders, names in os.walk(MODULE):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for name in sorted(names):
            if name.endswith((".py", ".pyi")) or name == "py.typed":
                path = pathlib.Path(folder, name)
                yield path, path.relative_to(MODULE)


def metadata(version):
    """Returns the wheel's METADATA: that of the module's pyproject.toml where there is one."""
    requires, keywords = ">=3.9", "HPC,MPI,shared memory"
    project = MODULE.parent / "pyproject.toml"
    if project.is_file():
        # Python 3.9 has no parser of this format. These lines are simple.
        text = project.read_text()
        if found := re.search(r'^requires-python = "(.*)"', text, re.MULTILINE):
            requires = found[1]
        if found := re.search(r"^keywords = \[(.*)\]", text, re.MULTILINE):
            keywords = ",".join(re.findall(r'"([^"]*)"', found[1]))
        found = re.search(r'^version = "(.*)"', text, re.MULTILINE)
        if found and found[1] != version:
            sys.exit(f"wheel: python/pyproject.toml has version {found[1]}, Cargo.toml {version}")
    readme = MODULE.parent / "README.md"
    description = readme.read_text() if readme.is_file() else (
        "The command `nagaya` and its libraries: one virtual address space for parallel "
        "programs.\n\n    mpirun -n 64 nagaya exec ./app\n"
    )  # fmt: skip
    return (
        "Metadata-Version: 2.4\n"
        "Name: nagaya\n"
        f"Version: {version}\n"
        "Summary: One virtual address space for parallel programs\n"
        f"Keywords: {keywords}\n"
        "License-Expression: Apache-2.0 OR MIT\n"
        "License-File: LICENSE\n"
        "License-File: LICENSE-APACHE\n"
        "License-File: LICENSE-MIT\n"
        "License-File: THIRD-PARTY.txt\n"
        "Classifier: Development Status :: 4 - Beta\n"
        "Classifier: Operating System :: POSIX :: Linux\n"
        "Classifier: Topic :: System :: Distributed Computing\n"
        f"Requires-Python: {requires}\n"
        "Provides-Extra: numpy\n"
        "Requires-Dist: numpy; extra == 'numpy'\n"
        "Description-Content-Type: text/markdown\n"
        f"\n{description}"
    )


# Names of the command, and what they stand for.
NAMES_OF_COMMAND = {"oshcc": "oshcc", "oshc++": "oshcc --c++", "oshrun": "oshrun"}
SCRIPT = """#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/{up}/bin/nagaya" {command} "$@"
"""


def main():
    if len(sys.argv) != 5:
        sys.exit("usage: packaging/wheel.py PREFIX OUTPUT VERSION TAG")
    prefix, output, version, tag = pathlib.Path(sys.argv[1]), sys.argv[2], *sys.argv[3:]
    when = max(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())), 315619200)
    wheel = Wheel(pathlib.Path(output, f"nagaya-{version}-py3-none-{tag}.whl"), when)
    info, data = f"nagaya-{version}.dist-info", f"nagaya-{version}.data"
    if MODULE.is_dir():
        for path, inside in module_files():
            wheel.add(f"nagaya/{inside}", path.read_bytes())
        for name in OF_MODULE:
            wheel.add(f"nagaya/lib/{name}", (prefix / "lib" / name).read_bytes(), 0o755)
    else:
        print("wheel: python/nagaya does not exist: the wheel has no Python module")
    wheel.add(f"{data}/scripts/nagaya", (prefix / "bin/nagaya").read_bytes(), 0o755)
    for folder, folders, names in os.walk(prefix):
        folders.sort()
        for name in sorted(names):
            path = pathlib.Path(folder, name)
            inside = path.relative_to(prefix)
            # A wheel has no symbolic links. Of a library and its links, programs need the soname,
            # and linkers the name without a number. A link to the command is a script.
            if inside.parts[0] == "bin" or inside.match("lib/lib*.so.*.*.*") or ".debug" in str(inside):
                continue
            if path.is_symlink() and name in NAMES_OF_COMMAND:
                up = "/".join([".."] * (len(inside.parts) - 1))
                script = SCRIPT.format(up=up, command=NAMES_OF_COMMAND[name])
                wheel.add(f"{data}/data/{inside}", script.encode(), 0o755)
                continue
            if path.is_symlink() and not re.search(r"\.so(\.0)?$", name):
                continue
            mode = 0o755 if ".so" in name else 0o644
            wheel.add(f"{data}/data/{inside}", path.read_bytes(), mode)
    wheel.add(f"{info}/METADATA", metadata(version).encode())
    wheel.add(
        f"{info}/WHEEL",
        f"Wheel-Version: 1.0\nGenerator: nagaya\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(),
    )
    for name in ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.txt"]:
        text = (prefix / "share/doc/nagaya" / name).read_bytes()
        wheel.add(f"{info}/licenses/{name}", text)
    bom = (prefix / "share/doc/nagaya/nagaya.cdx.json").read_bytes()
    wheel.add(f"{info}/sboms/nagaya.cdx.json", bom)
    wheel.close(f"{info}/RECORD")


main()
