//! The measuring programs in C. Their sources are part of this binary and are compiled when needed:
//! MPI programs depend on the MPI, and the others must be ordinary programs that know only `pvas.h`
//! of Nagaya.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, on_path, output_of};
use crate::mpi::Mpi;

/// Sources, by file name.
const SOURCES: [(&str, &str); 64] = [
    ("collectives.c", include_str!("../programs/collectives.c")),
    ("copy.c", include_str!("../programs/copy.c")),
    ("cores.h", include_str!("../programs/cores.h")),
    ("delegate.c", include_str!("../programs/delegate.c")),
    ("delegate_mpi.c", include_str!("../programs/delegate_mpi.c")),
    ("delegate_ucx.c", include_str!("../programs/delegate_ucx.c")),
    ("domains.c", include_str!("../programs/domains.c")),
    ("dsm_fault.c", include_str!("../programs/dsm_fault.c")),
    ("dsm_latency.c", include_str!("../programs/dsm_latency.c")),
    ("jia.h", include_str!("../../include/jia.h")),
    ("nagaya_dsm.h", include_str!("../../include/nagaya_dsm.h")),
    ("program.h", include_str!("../../examples/dsm/program.h")),
    ("mm.c", include_str!("../../examples/dsm/mm.c")),
    ("sor.c", include_str!("../../examples/dsm/sor.c")),
    ("lu.c", include_str!("../../examples/dsm/lu.c")),
    ("is.c", include_str!("../../examples/dsm/is.c")),
    ("ep.c", include_str!("../../examples/dsm/ep.c")),
    ("tsp.c", include_str!("../../examples/dsm/tsp.c")),
    ("water.c", include_str!("../../examples/dsm/water.c")),
    ("fcp.h", include_str!("../../include/fcp.h")),
    ("fcp_messages.c", include_str!("../programs/fcp_messages.c")),
    ("fcp_senders.c", include_str!("../programs/fcp_senders.c")),
    ("fcp_peers.c", include_str!("../programs/fcp_peers.c")),
    ("footprint.c", include_str!("../programs/footprint.c")),
    ("kernel.h", include_str!("../programs/kernel.h")),
    ("kernel_cg.c", include_str!("../programs/kernel_cg.c")),
    ("kernel_fft.c", include_str!("../programs/kernel_fft.c")),
    ("kernel_sort.c", include_str!("../programs/kernel_sort.c")),
    ("kernel_train.py", include_str!("../programs/kernel_train.py")),
    ("late.c", include_str!("../programs/late.c")),
    ("pair.h", include_str!("../programs/pair.h")),
    ("pingpong.c", include_str!("../programs/pingpong.c")),
    ("memop.h", include_str!("../../include/memop.h")),
    ("memop_fetch.c", include_str!("../programs/memop_fetch.c")),
    ("memop_pages.c", include_str!("../programs/memop_pages.c")),
    ("nagaya_span.h", include_str!("../../include/nagaya_span.h")),
    ("noop.c", include_str!("../programs/noop.c")),
    ("ofi_messages.c", include_str!("../programs/ofi_messages.c")),
    ("pvm_halt.c", include_str!("../programs/pvm_halt.c")),
    ("pvm_job.h", include_str!("../programs/pvm_job.h")),
    ("pvm_many.c", include_str!("../programs/pvm_many.c")),
    ("pvm_pingpong.c", include_str!("../programs/pvm_pingpong.c")),
    ("pvm_spawn.c", include_str!("../programs/pvm_spawn.c")),
    ("pvm_stream.c", include_str!("../programs/pvm_stream.c")),
    ("span_fetch.c", include_str!("../programs/span_fetch.c")),
    ("span_latency.c", include_str!("../programs/span_latency.c")),
    ("montecarlo.c", include_str!("../programs/montecarlo.c")),
    ("matrix.c", include_str!("../programs/matrix.c")),
    ("spawn.c", include_str!("../programs/spawn.c")),
    ("forks.c", include_str!("../programs/forks.c")),
    ("rma.c", include_str!("../programs/rma.c")),
    ("shmem.c", include_str!("../programs/shmem.c")),
    ("shmem_kernels.c", include_str!("../programs/shmem_kernels.c")),
    ("syscall.c", include_str!("../programs/syscall.c")),
    ("times.h", include_str!("../programs/times.h")),
    ("pagetables_tasks.c", include_str!("../programs/pagetables_tasks.c")),
    ("pagetables_processes.c", include_str!("../programs/pagetables_processes.c")),
    ("python.c", include_str!("../../examples/python.c")),
    ("pvas.h", include_str!("../../include/pvas.h")),
    ("pvas_delegate.h", include_str!("../../include/pvas_delegate.h")),
    ("pvas_delegate_mpi.h", include_str!("../../include/pvas_delegate_mpi.h")),
    ("pvas_delegate_mpi_serve.h", include_str!("../../include/pvas_delegate_mpi_serve.h")),
    ("pvas_delegate_ucx.h", include_str!("../../include/pvas_delegate_ucx.h")),
    ("pvas_delegate_ucx_serve.h", include_str!("../../include/pvas_delegate_ucx_serve.h")),
];

/// Position-independent executables, as distributions build their programs.
const FLAGS: [&str; 8] =
    ["-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-fPIE", "-pie", "-pthread"];

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Compiles `name`.c with the system's C compiler.
pub fn compile(name: &str, out: &Path) -> Result<PathBuf, Failure> {
    compile_with(&c_compiler()?, name, name, out, &[])
}

/// Compiles `name`.c with OpenMP.
pub fn compile_with_openmp(name: &str, out: &Path) -> Result<PathBuf, Failure> {
    compile_with(&c_compiler()?, name, name, out, &["-fopenmp".to_string()])
}

/// Compiles `name`.c and links it with libpvas.
pub fn compile_with_pvas(name: &str, nagaya: &Nagaya, out: &Path) -> Result<PathBuf, Failure> {
    compile_with_ours(name, "pvas", nagaya, out)
}

/// Compiles `name`.c and links it with libpvas_delegate.
pub fn compile_with_delegate(name: &str, nagaya: &Nagaya, out: &Path) -> Result<PathBuf, Failure> {
    compile_with_ours(name, "pvas_delegate", nagaya, out)
}

/// Compiles `name`.c and links it with libfcp.
pub fn compile_with_fcp(name: &str, nagaya: &Nagaya, out: &Path) -> Result<PathBuf, Failure> {
    compile_with_ours(name, "fcp", nagaya, out)
}

/// Compiles `name`.c and links it with libjia.
pub fn compile_with_jia(name: &str, nagaya: &Nagaya, out: &Path) -> Result<PathBuf, Failure> {
    compile_with_ours(name, "jia", nagaya, out)
}

/// Compiles `name`.c and links it with libmemop.
pub fn compile_with_memop(name: &str, nagaya: &Nagaya, out: &Path) -> Result<PathBuf, Failure> {
    compile_with_ours(name, "memop", nagaya, out)
}

/// Links `name`.c with a library of Nagaya. A directory of links has the library under the names
/// for the linker and for the dynamic linker; a build directory has only the first.
fn compile_with_ours(
    name: &str,
    library: &str,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<PathBuf, Failure> {
    let mut flags = flags_of(library, nagaya, out)?;
    flags.push("-lm".to_string());
    compile_with(&c_compiler()?, name, name, out, &flags)
}

/// Returns the flags that link a program with a library of Nagaya.
fn flags_of(library: &str, nagaya: &Nagaya, out: &Path) -> Result<Vec<String>, Failure> {
    let file = format!("lib{library}.so");
    let links = [(file.as_str(), file.as_str()), (&file, &format!("{file}.0"))];
    let place = linked(nagaya, &links, out, "lib")?;
    let place = place.display();
    Ok(vec![format!("-L{place}"), format!("-Wl,-rpath,{place}"), format!("-l{library}")])
}

/// Compiles `name`.c with the compiler driver of `mpi`, and links it with libpvas_delegate.
pub fn compile_with_delegate_mpi(
    name: &str,
    mpi: Mpi,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<PathBuf, Failure> {
    let flags = flags_of("pvas_delegate", nagaya, out)?;
    compile_with(&mpi.compiler()?, name, &format!("{name}-{}", mpi.key()), out, &flags)
}

/// Compiles `name`.c, and links it with UCX, libpvas and libpvas_delegate.
pub fn compile_with_delegate_ucx(
    name: &str,
    nagaya: &Nagaya,
    out: &Path,
) -> Result<PathBuf, Failure> {
    if !Path::new("/usr/include/ucp/api/ucp.h").exists() {
        return Err(Failure::new("ucp/api/ucp.h: not installed; apt-get install libucx-dev"));
    }
    let mut flags = flags_of("pvas_delegate", nagaya, out)?;
    flags.extend(flags_of("pvas", nagaya, out)?);
    flags.extend(["-lucp", "-lucs"].map(str::to_string));
    compile_with(&c_compiler()?, name, name, out, &flags)
}

/// Compiles `name`.c and links it with libfabric.
pub fn compile_with_libfabric(name: &str, out: &Path) -> Result<PathBuf, Failure> {
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        return Err(Failure::new("rdma/fabric.h: not installed; apt-get install libfabric-dev"));
    }
    compile_with(&c_compiler()?, name, name, out, &["-lfabric", "-lm"].map(str::to_string))
}

/// Compiles `name`.c and links it with Nagaya's OpenSHMEM library. Its header has a directory of
/// its own, since those of other libraries have the same name.
pub fn compile_with_shmem(name: &str, nagaya: &Nagaya, out: &Path) -> Result<PathBuf, Failure> {
    let headers = [
        ("nagaya_shmem_generic.h", include_str!("../../include/nagaya_shmem_generic.h")),
        ("nagaya_shmem_overloads.h", include_str!("../../include/nagaya_shmem_overloads.h")),
        ("pshmem.h", include_str!("../../include/pshmem.h")),
        ("shmem.h", include_str!("../../include/shmem.h")),
        ("shmemx.h", include_str!("../../include/shmemx.h")),
    ];
    let include = out.join("shmem-include");
    let written = fs::create_dir_all(&include).and_then(|()| {
        headers.iter().try_for_each(|(name, text)| fs::write(include.join(name), text))
    });
    written.map_err(|error| {
        Failure::new(format!("{}: cannot be written: {error}", include.display()))
    })?;
    let links = [
        ("libnagaya_shmem.so", "libnagaya-shmem.so"),
        ("libnagaya_shmem.so", "libnagaya-shmem.so.0"),
    ];
    let place = linked(nagaya, &links, out, "shmem")?;
    let flags = [
        format!("-I{}", include.display()),
        format!("-L{}", place.display()),
        "-lnagaya-shmem".to_owned(),
        format!("-Wl,-rpath,{}", place.display()),
    ];
    compile_with(&c_compiler()?, name, name, out, &flags)
}

/// Compiles `name`.c with a compiler driver, as `program`.
pub fn compile_by(
    name: &str,
    program: &str,
    compiler: &Path,
    out: &Path,
) -> Result<PathBuf, Failure> {
    compile_with(compiler, name, program, out, &[])
}

/// Returns a directory for LD_LIBRARY_PATH with Nagaya's libraries for PVM.
pub fn pvm_libraries(nagaya: &Nagaya, out: &Path) -> Result<PathBuf, Failure> {
    let links = [("libpvm3.so", "libpvm3.so.3"), ("libgpvm3.so", "libgpvm3.so.3")];
    linked(nagaya, &links, out, "pvm")
}

/// Makes links to libraries of Nagaya under other names, in the directory `place` of `out`.
fn linked(
    nagaya: &Nagaya,
    links: &[(&str, &str)],
    out: &Path,
    place: &str,
) -> Result<PathBuf, Failure> {
    let place = out.join(place);
    fs::create_dir_all(&place)
        .map_err(|error| Failure::new(format!("{}: {error}", place.display())))?;
    for (name, link) in links {
        let (library, link) = (nagaya.library()?.join(name), place.join(link));
        let _ = fs::remove_file(&link); // from an earlier run
        library.canonicalize().and_then(|library| symlink(library, link)).map_err(|error| {
            Failure::new(format!(
                "{}: {error}; build it with `cargo build --release`, or say where it is \
                     with --lib DIR",
                library.display()
            ))
        })?;
    }
    Ok(place)
}

/// Compiles `name`.c with the compiler driver of `mpi`.
pub fn compile_with_mpi(name: &str, mpi: Mpi, out: &Path) -> Result<PathBuf, Failure> {
    let flags = ["-lm".to_string()];
    compile_with(&mpi.compiler()?, name, &format!("{name}-{}", mpi.key()), out, &flags)
}

/// Compiles `name`.c with the compiler driver of `mpi` and links it with FFTW.
pub fn compile_with_fftw(name: &str, mpi: Mpi, out: &Path) -> Result<PathBuf, Failure> {
    if !Path::new("/usr/include/fftw3.h").exists() {
        return Err(Failure::new("fftw3.h: not installed; apt-get install libfftw3-dev"));
    }
    let flags = ["-lfftw3", "-lm"].map(str::to_string);
    compile_with(&mpi.compiler()?, name, &format!("{name}-{}", mpi.key()), out, &flags)
}

/// Returns the path of a source, which any compilation has written.
pub fn source(name: &str, out: &Path) -> PathBuf {
    out.join("programs").join(name)
}

/// Compiles `name`.c with the compiler driver of `mpi`, linked to fixed addresses.
pub fn compile_with_mpi_fixed(name: &str, mpi: Mpi, out: &Path) -> Result<PathBuf, Failure> {
    let program = format!("{name}-{}-fixed", mpi.key());
    compile_with(&mpi.compiler()?, name, &program, out, &["-no-pie".to_string()])
}

/// Compiles `name`.c against the header and libraries of stock PVM. At run time LD_LIBRARY_PATH may
/// select others.
pub fn compile_with_pvm(name: &str, out: &Path) -> Result<PathBuf, Failure> {
    if !Path::new("/usr/include/pvm3.h").exists() {
        return Err(Failure::new("pvm3.h: not installed; apt-get install pvm pvm-dev"));
    }
    let flags = ["-lgpvm3", "-lpvm3"].map(str::to_string);
    compile_with(&c_compiler()?, name, name, out, &flags)
}

/// Makes a position-independent Python interpreter; Debian's is not position-independent.
pub fn compile_python(out: &Path) -> Result<PathBuf, Failure> {
    let config = |option: &str| {
        // The distribution's own one, since its packages are used, whatever PATH has first.
        output_of(Command::new("/usr/bin/python3-config").args([option, "--embed"]), TIME_LIMIT)
    };
    let flags = config("--includes")? + " " + &config("--ldflags")?;
    let flags: Vec<String> = flags.split_whitespace().map(str::to_string).collect();
    compile_with(&c_compiler()?, "python", "python3", out, &flags)
}

fn c_compiler() -> Result<PathBuf, Failure> {
    on_path("cc").ok_or_else(|| Failure::new("cc: no C compiler; apt-get install gcc libc6-dev"))
}

fn compile_with(
    compiler: &Path,
    name: &str,
    program: &str,
    out: &Path,
    flags: &[String],
) -> Result<PathBuf, Failure> {
    let place = out.join("programs");
    let written = fs::create_dir_all(&place).and_then(|()| {
        SOURCES.iter().try_for_each(|(file, text)| fs::write(place.join(file), text))
    });
    written.map_err(|error| {
        Failure::new(format!("{}: cannot be written: {error}", place.display()))
    })?;
    let program = place.join(program);
    let mut command = Command::new(compiler);
    command.args(FLAGS).arg("-I").arg(&place).arg("-o").arg(&program);
    command.arg(place.join(name).with_extension("c")).args(flags);
    output_of(&mut command, TIME_LIMIT)?;
    Ok(program)
}
