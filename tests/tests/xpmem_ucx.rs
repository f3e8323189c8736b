//! Users of libxpmem that are not ours: UCX's transport over XPMEM, compiled from the source
//! of the distribution's UCX (whose packages leave it out), under UCX's own tools and stock
//! MPIs. `programs/xpmem_witness.c` looks on.

use std::fs;
use std::path::{Path, PathBuf};

use nagaya_tests::program::{build, include_dir, libraries, made_once};
use nagaya_tests::{Cmd, nagaya, scratch_dir, task, tool};

/// What scripts/deps has fetched.
fn ucx() -> PathBuf {
    let ucx = scratch_dir().join("../../ucx");
    assert!(ucx.join("installed").exists(), "no source of UCX: run scripts/deps");
    ucx
}

/// `libuct_xpmem.so`. Preloaded, since the distribution's UCX does not ask for it.
fn transport() -> PathBuf {
    let source = ucx().join("source");
    let version = fs::read_to_string(ucx().join("installed")).expect("read the version");
    let header = fs::read(include_dir().join("xpmem.h")).expect("read xpmem.h");
    made_once("libuct_xpmem.so", &(version, header, libraries()), |output| {
        let dir = output.parent().expect("a directory of its own");
        // As the installed UCX was configured.
        let config = Cmd::new(tool("ucx_info")).arg("-b").run().ok();
        fs::write(dir.join("config.h"), config).expect("write config.h");
        let include = |dir: &Path| format!("-I{}", dir.display());
        let libraries = libraries();
        Cmd::new("gcc")
            .args(["-shared", "-fPIC", "-O2", "-w", "-DHAVE_CONFIG_H"])
            .args([include(dir), include(&include_dir())])
            .args([include(&source), include(&source.join("src"))])
            .arg("-o")
            .arg(output)
            .arg(source.join("src/uct/sm/mm/xpmem/mm_xpmem.c"))
            .args(["-l:libuct.so.0", "-l:libucs.so.0", "-lxpmem"])
            .arg(format!("-L{}", libraries.display()))
            .arg(format!("-Wl,-rpath,{}", libraries.display()))
            .run()
            .ok();
    })
}

fn witness() -> PathBuf {
    let include = format!("-I{}", include_dir().display());
    build("gcc", "xpmem_witness.c", &["-shared", "-fPIC", &include])
}

fn preloads() -> String {
    format!("{} {}", witness().display(), transport().display())
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

/// Messages of all sizes arrive, through `launcher` with these settings; the buffers of the
/// large ones were attached, at the addresses that they have in the sender.
#[track_caller]
fn messages_are_attached(suffix: &str, launcher: &[&str], set: impl Fn(&str, &str) -> Vec<String>) {
    let compiler = format!("mpicc.{suffix}");
    tool(&compiler);
    let program = build(&compiler, "mpi_messages.c", &["-Wno-stringop-overflow"]);
    let output = Cmd::new(tool(&format!("mpirun.{suffix}")))
        .args(["-n", "2"])
        .args(launcher)
        .args(set("LD_PRELOAD", &preloads()))
        .args(set("UCX_TLS", "xpmem,self,tcp"))
        .command(nagaya("exec").arg(program))
        .run();
    assert!(output.stdout.contains("messages arrived\n"), "{output}");
    let reports: Vec<_> = output.stderr.lines().filter_map(report).collect();
    assert_eq!(reports.len(), 2, "one report a rank: {output}");
    for (times, largest) in reports {
        assert!(times > 1 && largest >= 4 << 20, "{output}");
    }
}

/// The numbers in a line of the witness.
fn report(line: &str) -> Option<(usize, usize)> {
    let (times, largest) = line.strip_prefix("attached ")?.split_once(" times, at most ")?;
    Some((times.parse().ok()?, largest.strip_suffix(" bytes")?.parse().ok()?))
}

#[test]
fn mpich_attaches_its_messages() {
    messages_are_attached("mpich", &[], |name, value| {
        vec!["-genv".to_owned(), name.to_owned(), value.to_owned()]
    });
}

#[test]
fn open_mpi_attaches_its_messages() {
    let settings = [
        ["--mca", "pml", "ucx"],
        ["--mca", "opal_common_ucx_tls", "any"],
        ["--mca", "opal_common_ucx_devices", "any"],
    ];
    let mut launcher = vec!["--oversubscribe"];
    launcher.extend(settings.iter().flatten());
    messages_are_attached("openmpi", &launcher, |name, value| {
        vec!["-x".to_owned(), format!("{name}={value}")]
    });
}
