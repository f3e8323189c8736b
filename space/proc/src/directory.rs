//! The user's directories for sockets, which only this user can enter.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

/// Returns the directory `$XDG_RUNTIME_DIR/NAME`, or `/tmp/NAME-UID`. Only this user has access
/// (0700). It is created if it does not exist.
///
/// # Errors
/// One line if it cannot be created, or if another user owns it or has access.
pub fn private(name: &str) -> Result<PathBuf, String> {
    let uid = rustix::process::geteuid().as_raw();
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_dir());
    let directory = match base {
        Some(base) => base.join(name),
        None => PathBuf::from(format!("/tmp/{name}-{uid}")),
    };
    let wrong =
        |what: &str| format!("{}: {what} (remove it, or set XDG_RUNTIME_DIR)", directory.display());
    match fs::DirBuilder::new().mode(0o700).create(&directory) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err(wrong(&format!("cannot make the directory for sockets: {error}")));
        }
    }
    let data = fs::symlink_metadata(&directory).map_err(|e| wrong(&e.to_string()))?;
    if !data.is_dir() {
        return Err(wrong("not a directory"));
    }
    if data.uid() != uid {
        return Err(wrong("belongs to another user"));
    }
    if data.permissions().mode() & 0o077 != 0 {
        return Err(wrong("others have access to it (should be mode 0700)"));
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let name = format!("nagaya-test-{}", std::process::id());
        let directory = private(&name).expect("a new directory");
        assert_eq!(private(&name), Ok(directory.clone()));
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("our own");
        assert!(private(&name).is_err_and(|line| line.contains("others have access")));
        fs::remove_dir(&directory).expect("our own");
        std::os::unix::fs::symlink("/", &directory).expect("a link");
        assert!(private(&name).is_err_and(|line| line.contains("not a directory")));
        fs::remove_file(&directory).expect("our own");
    }
}
