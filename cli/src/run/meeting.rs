//! The place where the tasks of one machine meet that share memory by libjia.

use dsm::rendezvous::Host;
use nagaya_server::Failure;

/// Opens the place for so many tasks.
pub fn meeting(tasks: u32) -> Result<Host, Failure> {
    // As Ctrl-C does: who does not mind that is killed after a while.
    let ends = || {
        // SAFETY: kill touches no memory; the signal is for this process, whose loop takes it.
        unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
    };
    Host::new(tasks, ends).map_err(|error| {
        Failure::ours(match error.raw_os_error() {
            Some(libc::EAGAIN) => {
                "thread: too many, or no memory for it (raise ulimit -u or -v)".into()
            }
            _ => format!("a socket for the job: {error}"),
        })
    })
}
