//! Location of Nagaya's PVM libraries. A program finds them by `LD_LIBRARY_PATH`; otherwise it
//! loads those of another PVM, whose tasks cannot connect to our daemon.

use std::path::{Path, PathBuf};

/// The dynamic linker's variable for the search path of libraries.
pub const SEARCH_PATH: &str = "LD_LIBRARY_PATH";

/// Returns the directory of `libpvm3.so.3` in the installation or build tree of the running
/// `nagaya`.
pub fn directory() -> Option<PathBuf> {
    let executable = std::env::current_exe().ok()?;
    directory_beside(executable.parent()?)
}

/// Returns the directory for the `nagaya` in `bin`. In a build tree `libpvm3`'s build script
/// makes it.
fn directory_beside(bin: &Path) -> Option<PathBuf> {
    let candidates = [bin.join("../lib/nagaya/pvm/lib"), bin.join("pvm/lib")];
    let found = candidates.into_iter().find(|path| path.join("libpvm3.so.3").is_file())?;
    found.canonicalize().ok()
}

/// Returns the search path `others` with `directory` in front.
pub fn in_front(directory: &Path, others: Option<&str>) -> String {
    let directory = directory.display();
    match others.filter(|others| !others.is_empty()) {
        Some(others) => format!("{directory}:{others}"),
        None => directory.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_and_a_build_tree_have_their_own_directory() {
        let root = std::env::temp_dir().join(format!("nagaya-libraries-{}", std::process::id()));
        let (bin, installed) = (root.join("bin"), root.join("lib/nagaya/pvm/lib"));
        let built = bin.join("pvm/lib");
        std::fs::create_dir_all(&bin).expect("a directory");
        assert_eq!(directory_beside(&bin), None);
        for directory in [built, installed] {
            std::fs::create_dir_all(&directory).expect("a directory");
            std::fs::write(directory.join("libpvm3.so.3"), "").expect("a file");
            assert_eq!(directory_beside(&bin), directory.canonicalize().ok());
        }
        std::fs::remove_dir_all(root).expect("it is there");
    }

    #[test]
    fn our_directory_stands_before_all_others() {
        let ours = Path::new("/opt/lib");
        assert_eq!(in_front(ours, Some("/a:/b")), "/opt/lib:/a:/b");
        // An empty element would mean the working directory.
        assert_eq!(in_front(ours, Some("")), "/opt/lib");
        assert_eq!(in_front(ours, None), "/opt/lib");
    }
}
