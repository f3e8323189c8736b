//! `nagaya exec --report`: the messages that the ranks of this run have counted.
//!
//! Each rank leaves its record in a directory beside the file. The directory is named after the
//! file, because some launchers have no name for a job that is the same on all nodes. When its task
//! has ended, each stub writes the file anew from all records, so the last one's is complete. On
//! nodes without a common file system each has a file with its own ranks. Ranks of nodes that do
//! not even have the directory are not counted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nagaya_server::Failure;
use nagaya_server::job::Job;
use paths::choice;
use paths::launched::Launched;
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
    ranks: Option<u32>,
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
    /// Returns `None` if only other nodes of the job may have the file's directory. A line reports
    /// that the ranks of this node are not counted.
    ///
    /// # Errors
    /// The counting library is not installed, or the file's directory cannot be written.
    pub fn new(
        file: &Path,
        job: &Job,
        launched: &Launched,
        path: &mut choice::Path,
    ) -> Result<Option<Self>, Failure> {
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
        directory.push(".ranks");
        let directory = PathBuf::from(directory);
        match fs::create_dir(&directory) {
            Err(why) if why.kind() == ErrorKind::NotFound && launched.is_on_several_nodes() => {
                if job.local_rank.unwrap_or(0) == 0 {
                    proc::error_line!(
                        "nagaya: {}: the ranks of {} are not counted; name a file in a directory \
                         that all nodes share",
                        failed(&file, why),
                        rustix::system::uname().nodename().to_string_lossy()
                    );
                }
                return Ok(None);
            }
            Err(why) if why.kind() != ErrorKind::AlreadyExists => return Err(failed(&file, why)),
            _ => {}
        }
        // A job that was killed may have left records. No rank of this job has left one yet:
        // MPI_Init returns when all have called it.
        if let Some(rank) = launched.rank {
            let _ = fs::remove_file(directory.join(traffic::file_name(rank)));
        }
        let before = path.settings.iter().position(|(name, _)| *name == PRELOAD);
        let before: Option<OsString> = match before {
            Some(index) => Some(path.settings.remove(index).1),
            None => std::env::var_os(PRELOAD),
        };
        path.settings.push((PRELOAD, preload(&library, before.as_deref())));
        path.settings.push((traffic::DIRECTORY, directory.clone().into_os_string()));
        let (transport, collectives) = (path.transport.to_string(), path.collectives.to_string());
        let (job, ranks) = (job.name.clone(), launched.ranks);
        Ok(Some(Self { file, directory, job, ranks, transport, collectives }))
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
        let mut records = messages::read(&self.directory);
        // Others are of an earlier job with more ranks.
        records.retain(|record| self.ranks.is_none_or(|ranks| record.ranks == ranks));
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
