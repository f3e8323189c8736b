# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Spack's recipe for Nagaya, for Spack 1.0 and newer.

    spack repo add packaging/spack/spack_repo/nagaya
    cd dist && spack install --no-checksum nagaya    # reads nagaya-VERSION.tar.gz in this directory

or, from a checkout, `spack dev-build nagaya@main`. The recipe has no checksum, since each commit
makes another archive. dist/SHA256SUMS has that of `make dist`.
"""

import os

from spack_repo.builtin.build_systems.makefile import MakefilePackage

from spack.package import *


class Nagaya(MakefilePackage):
    """One virtual address space for parallel programs: the ranks of a stock MPI job run as
    processes in one address space, so that a large message is one memory copy."""

    # The archive is made by `make dist`.
    manual_download = True

    license("Apache-2.0 OR MIT", checked_by="nagaya")

    version("main", branch="main", git="file://" + os.getcwd())
    version("0.1.0", url="file://{0}/nagaya-0.1.0.tar.gz".format(os.getcwd()), expand=True)

    variant("python", default=True, description="Install the Python module")
    variant("debuginfo", default=False, description="Install debug information")

    requires("platform=linux target=x86_64:", msg="Nagaya needs Linux on x86-64")

    depends_on("c", type="build")
    depends_on("rust@1.88:", type="build")
    depends_on("gmake", type="build")
    depends_on("binutils", type="build")
    extends("python@3.9:", when="+python")

    # Cargo fetches the crates of Cargo.lock, whose checksums it has.
    def setup_build_environment(self, env):
        env.set("CARGO_HOME", join_path(self.stage.path, "cargo"))

    def install_arguments(self, spec, prefix):
        arguments = ["PREFIX={0}".format(prefix)]
        if spec.satisfies("+python"):
            arguments.append("PYTHONDIR={0}".format(python_platlib))
        return arguments

    def install(self, spec, prefix):
        targets = ["install"] + (["install-debug"] if spec.satisfies("+debuginfo") else [])
        make(*targets, *self.install_arguments(spec, prefix), parallel=False)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_command(self):
        nagaya = Executable(self.prefix.bin.nagaya)
        nagaya("--version")
