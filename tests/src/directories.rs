//! The directories that the harness uses: of the tested programs, its own files, and sockets.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The directory with `nagaya` and its libraries.
pub fn bin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| match std::env::var_os("NAGAYA_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => profile_dir(),
    })
}

/// `target/debug` or `target/release`: two above the test executable in `deps/`.
fn profile_dir() -> PathBuf {
    let exe = std::env::current_exe().expect("the test's own path");
    exe.ancestors().nth(2).expect("test executables lie in target/PROFILE/deps").to_path_buf()
}

/// The directory for files of the harness, beside the profile directories: `cargo clean` removes
/// it.
pub fn scratch_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let target = profile_dir()
            .parent()
            .expect("a profile directory lies in a target directory")
            .to_path_buf();
        let dir = target.join("tmp").join("nagaya-tests");
        fs::create_dir_all(&dir).expect("make the scratch directory");
        dir
    })
}

/// The path of the `nagaya` executable.
pub fn nagaya_path() -> PathBuf {
    let path = bin_dir().join("nagaya");
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --workspace` first, or set NAGAYA_BIN_DIR",
        path.display()
    );
    path
}

/// Makes a directory that only this user can enter, or accepts one that this user owns.
fn private_dir(path: &Path) {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let owner = fs::symlink_metadata(path).expect("stat").uid();
            assert_eq!(
                owner,
                rustix::process::geteuid().as_raw(),
                "{} belongs to another user",
                path.display()
            );
        }
        Err(error) => panic!("{}: {error}", path.display()),
    }
}

/// The runtime directory (`XDG_RUNTIME_DIR`) that the tests' commands see. It is not the
/// user's own, and short, since socket paths end at 107 bytes.
pub fn runtime_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let uid = rustix::process::geteuid().as_raw();
        let dir = PathBuf::from(format!("/tmp/nagaya-tests-{uid}"));
        private_dir(&dir);
        dir
    })
}

/// Keeps the directory in which Open MPI 4 has those of its sessions. Each `mpirun` removes it if
/// it is empty, and another `mpirun` that creates a session there meanwhile fails.
pub fn keep_open_mpi_sessions() {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| {
        let uid = rustix::process::geteuid().as_raw();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let host = host.split('.').next().expect("a first part");
        let sessions = std::env::temp_dir().join(format!("ompi.{host}.{uid}"));
        let kept = sessions.join("nagaya-tests");
        while let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&kept) {
            let removed = error.kind() == std::io::ErrorKind::NotFound;
            assert!(removed, "{}: {error}", kept.display());
        }
    });
}

/// Returns a number that no other call in this process returns.
pub fn unique() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns a job name that is unique on this machine.
pub fn job() -> String {
    format!("t{}-{}", std::process::id(), unique())
}
