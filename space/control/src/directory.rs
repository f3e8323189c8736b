//! The user's directory for the sockets of node servers and daemons.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

/// Returns the directory for sockets: `$XDG_RUNTIME_DIR/nagaya`, or `/tmp/nagaya-UID`. Only this
/// user has access (0700). It is created if it does not exist.
pub fn directory() -> Result<PathBuf, String> {
    let uid = rustix::process::geteuid().as_raw();
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|d| d.is_dir());
    let directory = match base {
        Some(base) => base.join("nagaya"),
        None => PathBuf::from(format!("/tmp/nagaya-{uid}")),
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
