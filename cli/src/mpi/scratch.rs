//! A temporary directory, in which programs for an MPI are compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nagaya_server::Failure;

use super::library::{Library, beside};

/// A directory that is removed at the end.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates the directory in TMPDIR.
    ///
    /// # Errors
    /// No directory can be created there.
    pub fn new() -> Result<Self, Failure> {
        Self::within(&std::env::temp_dir(), "nagaya-try-XXXXXX")
    }

    /// Creates a directory for files from all nodes of a job.
    ///
    /// It is in TMPDIR if the user has set that. Else it is in the working directory, which
    /// clusters usually share, unless that is not writable.
    ///
    /// # Errors
    /// No directory can be created in TMPDIR.
    pub fn of_all_nodes() -> Result<Self, Failure> {
        let here = match std::env::var_os("TMPDIR") {
            Some(directory) if !directory.is_empty() => None,
            _ => std::env::current_dir().ok(),
        };
        let here = here.and_then(|here| Self::within(&here, ".nagaya-try-XXXXXX").ok());
        here.map_or_else(Self::new, Ok)
    }

    /// Creates a directory with the name `template`, whose Xs are replaced.
    fn within(place: &Path, template: &str) -> Result<Self, Failure> {
        let template = place.join(template);
        let fail = |e: std::io::Error| Failure::ours(format!("{}: {e}", template.display()));
        let mut name = template.clone().into_os_string().into_encoded_bytes();
        name.push(0);
        // SAFETY: a string with its terminating zero, in which mkdtemp replaces the Xs.
        if unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) }.is_null() {
            return Err(fail(std::io::Error::last_os_error()));
        }
        name.pop();
        // SAFETY: it came from an OsString, and mkdtemp writes letters and digits.
        let name = unsafe { std::ffi::OsString::from_encoded_bytes_unchecked(name) };
        Ok(Self(name.into()))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Compiles a C program with the MPI's mpicc.
    ///
    /// # Errors
    /// There is no mpicc, or it fails.
    pub fn compile(&self, library: &Library, source: &str, name: &str) -> Result<PathBuf, Failure> {
        let Some(compiler) = library.tool("mpicc") else {
            let launcher = library.launcher.display();
            return Err(Failure::ours(format!(
                "a trial needs the mpicc of {library}, which is not beside {launcher}"
            )));
        };
        let (file, program) = (self.0.join(name).with_extension("c"), self.0.join(name));
        let failed = |path: &Path, why: String| Failure::ours(format!("{}: {why}", path.display()));
        fs::write(&file, source).map_err(|e| failed(&file, e.to_string()))?;
        let compiled = beside(&library.launcher, Command::new(&compiler))
            .args(["-O1", "-fPIE", "-pie", "-o"])
            .arg(&program)
            .arg(&file)
            .output();
        match compiled {
            Ok(output) if output.status.success() => Ok(program),
            Ok(output) => {
                let error = String::from_utf8_lossy(&output.stderr);
                let error = error.lines().next().unwrap_or("it failed").to_string();
                Err(failed(&compiler, error))
            }
            Err(error) => Err(failed(&compiler, error.to_string())),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
