//! An installation of the tested build, as `make install` arranges it, made of links.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nagaya_tests::{bin_dir, program};

use crate::root;

/// A directory with `bin`, `lib` and `include`.
#[derive(Debug)]
pub struct Prefix(PathBuf);

impl Prefix {
    /// Makes it, or returns the one that an earlier test has made.
    pub fn new() -> Self {
        let inputs = (bin_dir(), include_str!("prefix.rs"));
        Self(program::made_once("prefix", &inputs, |path| {
            // The links are absolute; `path` gets another name when it is complete.
            fs::create_dir_all(path.join("bin")).expect("make a directory");
            link(&bin_dir().join("nagaya"), &path.join("bin/nagaya"));
            link(&program::libraries(), &path.join("lib-links"));
            libraries(&path.join("lib"));
            headers(&path.join("include"));
        }))
    }

    /// A path in it.
    pub fn join(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Writes the files of pkg-config, which name the prefix, into a directory.
    pub fn write_pkg_config(&self, directory: &Path) {
        fs::create_dir_all(directory).expect("make a directory");
        let templates = fs::read_dir(root().join("pkgconfig")).expect("pkgconfig/");
        for template in templates.map(|entry| entry.expect("an entry").path()) {
            let text = fs::read_to_string(&template).expect("a template");
            // PVM's and OpenSHMEM's libraries and headers have directories of their own.
            let base = self.join(match template.file_name().and_then(|name| name.to_str()) {
                Some("pvm3.pc.in") => "lib/nagaya/pvm",
                Some("nagaya-shmem.pc.in") => "lib/nagaya/shmem",
                _ => "",
            });
            let text = text.replace("@PREFIX@", &self.0.to_string_lossy());
            let text = text.replace("@LIBDIR@", &base.join("lib").to_string_lossy());
            let text = text.replace("@INCLUDEDIR@", &base.join("include").to_string_lossy());
            let text = text.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
            // NAME.pc.in becomes NAME.pc.
            let name = template.file_stem().expect("a name");
            fs::write(directory.join(name), text).expect("write a file");
        }
    }
}

fn link(from: &Path, to: &Path) {
    symlink(from, to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
}

/// The libraries with the names for the linker and the dynamic linker, and the directories of PVM
/// and OpenSHMEM.
fn libraries(directory: &Path) {
    let pvm = directory.join("nagaya/pvm");
    fs::create_dir_all(pvm.join("bin")).expect("make a directory");
    for entry in fs::read_dir(program::libraries()).expect("libraries") {
        let path = entry.expect("an entry").path();
        link(&path, &directory.join(path.file_name().expect("a name")));
    }
    link(&program::pvm_libraries(), &pvm.join("lib"));
    link(&root().join("include/pvm3"), &pvm.join("include"));
    link(&bin_dir().join("nagaya"), &pvm.join("bin/pvm"));
    link(&bin_dir().join("shmem"), &directory.join("nagaya/shmem"));
}

/// The headers that are installed for everybody: not XPMEM's and OpenSHMEM's.
fn headers(directory: &Path) {
    fs::create_dir(directory).expect("make a directory");
    for entry in fs::read_dir(root().join("include")).expect("include/") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_owned();
        let is_private = name == "xpmem.h" || name.to_string_lossy().contains("shmem");
        if path.extension().is_some_and(|it| it == "h") && !is_private {
            link(&path, &directory.join(name));
        }
    }
}
