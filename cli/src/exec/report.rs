//! `nagaya exec --report`: the messages that the ranks of this run have counted.
//!
//! Each rank leaves its record in a directory beside the file. When its task has ended, each stub
//! writes the file anew from all records, so the last one's is complete. On nodes without a common
//! file system each has a file with its own ranks.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nagaya_server::Failure;
use nagaya_server::job::Job;
use paths::choice;
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;

use crate::messages::{self, PRELOAD, preload};

/// The version of the form of the JSON.
const FORMAT: u32 = 1;

/// A report that is to come.
pub struct Wanted {
    file: PathBuf,
    directory: PathBuf,
    job: String,
    transport: String,
    collectives: String,
}

/// The report, as JSON.
#[derive(Serialize)]
struct Report<'a> {
    format: u32,
    nagaya: &'static str,
    job: &'a str,
    transport: &'a str,
    collectives: &'a str,
    #[serde(flatten)]
    counts: &'a messages::Job,
}

impl Wanted {
    /// Prepares the report, and adds the variables to the path's settings that make the rank count.
    ///
    /// # Errors
    /// The counting library is not installed, or the file's directory cannot be written.
    pub fn new(file: &Path, job: &Job, path: &mut choice::Path) -> Result<Self, Failure> {
        let failed = |file: &Path, why: std::io::Error| {
            Failure::ours(format!("--report {}: {why}", file.display()))
        };
        let file = std::path::absolute(file).map_err(|why| failed(file, why))?;
        let Some(library) = choice::counting_library() else {
            return Err(Failure::ours(
                "--report: libnagaya-traffic.so is not installed with this nagaya",
            ));
        };
        let mut directory = file.clone().into_os_string();
        directory.push(format!(".ranks-{:016x}", control::fnv1a(job.name.as_bytes())));
        let directory = PathBuf::from(directory);
        match fs::create_dir(&directory) {
            Err(why) if why.kind() != ErrorKind::AlreadyExists => return Err(failed(&file, why)),
            _ => {}
        }
        let before = path.settings.iter().position(|(name, _)| *name == PRELOAD);
        let before: Option<OsString> = match before {
            Some(index) => Some(path.settings.remove(index).1),
            None => std::env::var_os(PRELOAD),
        };
        path.settings.push((PRELOAD, preload(&library, before.as_deref())));
        path.settings.push((traffic::DIRECTORY, directory.clone().into_os_string()));
        let (transport, collectives) = (path.transport.to_string(), path.collectives.to_string());
        Ok(Self { file, directory, job: job.name.clone(), transport, collectives })
    }

    /// Writes the file from the records that exist now, after the end of a task.
    pub fn write(&self) {
        // Another stub that has seen all records has removed the directory.
        let Ok(directory) = File::open(&self.directory) else { return };
        let written = self.write_alone(&directory);
        if let Err(why) = written {
            proc::error_line!("nagaya: --report {}: {why}", self.file.display());
        }
    }

    /// Removes what [`Wanted::new`] has made, since the program does not run as a task.
    pub fn discard(&self) {
        // It stays if another rank has left its record.
        let _ = fs::remove_dir(&self.directory);
    }

    fn write_alone(&self, directory: &File) -> std::io::Result<()> {
        flock(directory, FlockOperation::LockExclusive)?;
        let records = messages::read(&self.directory);
        let Some(counts) = messages::Job::of(&records) else {
            fs::remove_dir(&self.directory)?;
            proc::log_line!(
                Warn,
                "exec",
                "--report {}: not written, since no rank has called MPI_Finalize; programs without \
                 MPI, or linked statically with it, are not counted",
                self.file.display()
            );
            return Ok(());
        };
        let Self { job, transport, collectives, .. } = self;
        let nagaya = env!("CARGO_PKG_VERSION");
        let text = format!(
            "job {job}\ntransport: {transport}\ncollective operations: {collectives}\n{}",
            counts.text()
        );
        let report =
            Report { format: FORMAT, nagaya, job, transport, collectives, counts: &counts };
        messages::write(&self.file, &report, &text)?;
        if counts.is_complete() {
            fs::remove_dir_all(&self.directory)?;
        }
        Ok(())
    }
}
