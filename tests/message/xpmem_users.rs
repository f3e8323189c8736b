//! Foreign users of libxpmem: UCX's transport over XPMEM, and Open MPI's transport for shared
//! memory. The distribution builds both without XPMEM, so the tests compile these two parts from
//! its sources, with Nagaya's header and library. The rest are the distribution's binaries.
//! `programs/xpmem_witness.c` observes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use nagaya_tests::program::{build, include_dir, libraries, made_once};
use nagaya_tests::{Cmd, nagaya, scratch_dir, task, tool, wait_until};
use rustix::process::Signal;

/// A source that scripts/deps has fetched.
fn source(name: &str) -> PathBuf {
    let source = scratch_dir().join("../../source").join(name);
    assert!(source.join("installed").exists(), "no source of {name}: run scripts/deps");
    source
}

/// Compiles a part of `name`'s source, as `library`: these files, with headers from these
/// directories and a configuration that is called `header`.
fn plug_in(
    name: &str,
    library: &str,
    (header, configuration): (&str, String),
    directories: &[&str],
    files: &[PathBuf],
    flags: &[&str],
) -> PathBuf {
    let root = source(name);
    let version = fs::read_to_string(root.join("installed")).expect("read the version");
    let ours = fs::read(include_dir().join("xpmem.h")).expect("read xpmem.h");
    let libraries = libraries();
    let key = (version, ours, &libraries, &configuration, flags);
    let made = made_once(&format!("{name}-with-xpmem"), &key, |dir| {
        fs::create_dir(dir).expect("make a directory");
        fs::write(dir.join(header), &configuration).expect("write the configuration");
        let include = |dir: &Path| format!("-I{}", dir.display());
        Cmd::new("gcc")
            .args(["-shared", "-fPIC", "-O2", "-w", "-DHAVE_CONFIG_H"])
            .args([include(dir), include(&include_dir())])
            // An absolute directory stays as it is.
            .args(directories.iter().map(|dir| include(&root.join(dir))))
            .arg("-o")
            .arg(dir.join(library))
            .args(files)
            .args(flags)
            .args([format!("-L{}", libraries.display()), "-lxpmem".to_owned()])
            .arg(format!("-Wl,-rpath,{}", libraries.display()))
            .run()
            .ok();
    });
    made.join(library)
}

/// UCX's transport. Preloaded, since the distribution's UCX does not ask for it.
fn transport() -> PathBuf {
    let configuration = Cmd::new(tool("ucx_info")).arg("-b").run().ok();
    plug_in(
        "ucx",
        "libuct_xpmem.so",
        ("config.h", configuration),
        &["src"],
        &[source("ucx").join("src/uct/sm/mm/xpmem/mm_xpmem.c")],
        &["-l:libuct.so.0", "-l:libucs.so.0"],
    )
}

/// Open MPI's component `vader` of the framework btl.
fn vader() -> PathBuf {
    let flags = Cmd::new(tool("mpicc.openmpi")).arg("--showme:incdirs").run().ok();
    let installed = flags
        .split_whitespace()
        .map(Path::new)
        .find(|dir| dir.join("opal_config.h").exists())
        .expect("opal_config.h is among Open MPI's headers");
    let configuration = fs::read_to_string(installed.join("opal_config.h")).expect("read");
    let without = "#define OPAL_BTL_VADER_HAVE_XPMEM 0\n";
    assert!(configuration.contains(without));
    let with = "#define OPAL_BTL_VADER_HAVE_XPMEM 1\n#define HAVE_XPMEM_H 1\n";
    let files = fs::read_dir(source("openmpi").join("opal/mca/btl/vader")).expect("a directory");
    let mut files: Vec<_> = files.map(|file| file.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "c"));
    plug_in(
        "openmpi",
        "mca_btl_vader.so",
        ("opal_config.h", configuration.replace(without, with)),
        &[installed.to_str().expect("UTF-8"), "", "opal/include"],
        &files,
        &[],
    )
}

fn witness() -> PathBuf {
    let include = format!("-I{}", include_dir().display());
    build("gcc", "xpmem_witness.c", &["-shared", "-fPIC", &include])
}

fn messages(suffix: &str) -> PathBuf {
    let compiler = format!("mpicc.{suffix}");
    tool(&compiler);
    build(&compiler, "mpi_messages.c", &["-Wno-stringop-overflow"])
}

/// Messages of all sizes arrive at two tasks that `launcher` starts. The buffers of the large ones
/// were attached, at the addresses that they have in the sender.
///
/// The end of the program is not checked: in MPI_Finalize, users of XPMEM may access or await a
/// peer that has ended (open-mpi/ompi#9868 and #11463, openucx/ucx#8183).
#[track_caller]
fn messages_are_attached(suffix: &str, launcher: &[&str]) {
    let mut job = Cmd::new(tool(&format!("mpirun.{suffix}")))
        .args(["-n", "2"])
        .args(launcher)
        // Then it says "ready" and waits for that file.
        .command(nagaya("exec").arg(messages(suffix)).arg("/never"))
        .spawn();
    job.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
    wait_until("both ranks attached 4 MiB at once", nagaya_tests::TIME_LIMIT, || {
        let stderr = job.stderr();
        let large = stderr.lines().filter_map(report).filter(|&(_, bytes)| bytes >= 4 << 20);
        large.map(|(pid, _)| pid).collect::<BTreeSet<_>>().len() == 2
    });
    job.signal(Signal::TERM);
    wait_until("the launcher ends", nagaya_tests::TIME_LIMIT, || !job.is_running());
}

/// PID and number of bytes in a line of the witness.
fn report(line: &str) -> Option<(u32, usize)> {
    let (pid, bytes) = line.strip_prefix("PID ")?.split_once(" attached ")?;
    Some((pid.parse().ok()?, bytes.strip_suffix(" bytes")?.parse().ok()?))
}

#[test]
fn ucx_finds_xpmem_in_a_space_and_nowhere_else() {
    let list = |command: Cmd| command.arg("-d").env("LD_PRELOAD", transport()).run().ok();
    let transport = "Transport: xpmem";
    let ucx_info = tool("ucx_info");
    let outside = list(Cmd::new(&ucx_info));
    assert!(!outside.contains(transport), "{outside}");
    let inside = list(task(&ucx_info));
    assert!(inside.contains(transport), "{inside}");
}

#[test]
fn mpich_over_ucx_attaches_its_messages() {
    let preloads = format!("{} {}", witness().display(), transport().display());
    let settings = ["-genv", "LD_PRELOAD", &preloads, "-genv", "UCX_TLS", "xpmem,self"];
    messages_are_attached("mpich", &settings);
}

#[test]
fn open_mpi_over_ucx_attaches_its_messages() {
    let preloads = format!("LD_PRELOAD={} {}", witness().display(), transport().display());
    let settings = [
        ["--mca", "pml", "ucx"],
        ["--mca", "opal_common_ucx_tls", "any"],
        ["--mca", "opal_common_ucx_devices", "any"],
    ];
    let mut launcher = vec!["--oversubscribe", "-x", &preloads, "-x", "UCX_TLS=xpmem,self"];
    launcher.extend(settings.iter().flatten());
    messages_are_attached("openmpi", &launcher);
}

/// It prefers XPMEM to all other ways where it is there, and goes on without where not.
#[test]
fn open_mpi_attaches_its_messages() {
    let component = vader();
    let own = component.parent().expect("a directory").display();
    let path = format!("{own}:{}", components());
    let settings = ["--oversubscribe", "--mca", "pml", "ob1", "--mca", "btl", "vader,self"];
    let path = ["--mca", "mca_base_component_path", &path];
    let preload = format!("LD_PRELOAD={}", witness().display());
    let launcher = [&settings[..], &path, &["-x", &preload]].concat();
    messages_are_attached("openmpi", &launcher);

    let output = Cmd::new(tool("mpirun.openmpi"))
        .args(["-n", "2"])
        .args(&launcher)
        .arg(messages("openmpi"))
        .run();
    assert!(output.stdout.contains("messages arrived\n"), "{output}");
    assert_eq!(output.stderr.lines().find_map(report), None, "{output}");
}

/// The directory of the installed Open MPI's components.
fn components() -> String {
    let info = Cmd::new(tool("ompi_info")).args(["--parsable", "--path", "pkglibdir"]).run().ok();
    let line = info.lines().find_map(|line| line.strip_prefix("path:pkglibdir:"));
    line.unwrap_or_else(|| panic!("no pkglibdir: {info}")).to_owned()
}
