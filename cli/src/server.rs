//! `nagaya server`: the node server of a job whose tasks start through `nagaya exec`. The first
//! stub starts it, with the listening socket as standard input.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use crate::delegatee::Place;
use nagaya_server::Failure;
use nagaya_server::serve::{refuse, serve_job};
use nagaya_server::server::Server;
use pvas::{Protection, SpaceOptions};

/// Serve a job (started by `nagaya exec`)
#[derive(Debug, clap::Args)]
pub struct Options {
    #[arg(long)]
    job: String,
    #[arg(long)]
    socket: PathBuf,
    #[arg(long)]
    lock: PathBuf,
    #[arg(long)]
    segment_size: u64,
    #[arg(long)]
    tasks: u32,
    #[arg(long)]
    shared: bool,
    #[arg(long)]
    fixed_addresses: bool,
    #[arg(long, value_parser = crate::program::protection)]
    protect: Option<Protection>,
    #[arg(long)]
    delegatee: Option<Place>,
    #[arg(long)]
    apart_is_known: bool,
    #[arg(long)]
    identity: Option<u64>,
}

/// Serves until the last task has ended and the last stub has disconnected.
pub fn server(options: Options) -> Result<i32, Failure> {
    let listener: OwnedFd = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|e| Failure::ours(format!("no socket on standard input: {e}")))?;
    detach(&listener);
    crate::limits::raise_open_files();
    let for_stub = listener.try_clone();
    let space = SpaceOptions {
        segment_size: Some(options.segment_size),
        tasks_min: options.tasks,
        shared: options.shared,
        fixed_addresses: options.fixed_addresses,
        protection: options.protect,
        ..SpaceOptions::default()
    };
    let created = Server::new(&options.job, listener, space, 0);
    let created = created.and_then(|mut server| {
        server.set_identity(options.identity);
        if options.apart_is_known {
            server.set_apart_known();
        }
        if let Some(place) = &options.delegatee {
            let place = place.found()?;
            server.start_delegatee(place.mask(), place.tasks)?;
        }
        Ok(server)
    });
    let mut server = created.inspect_err(|failure| {
        if let Ok(listener) = for_stub {
            refuse(listener, &options.lock, &options.socket, failure);
        }
    })?;
    serve_job(&mut server, &options.lock, &options.socket);
    server.close();
    Ok(0)
}

/// Releases everything inherited from the stub that started this process. Open descriptors would
/// keep their readers waiting. The server also leaves the stub's directory, process group and
/// processors.
fn detach(listener: &OwnedFd) {
    use std::os::fd::AsRawFd;
    let keep = listener.as_raw_fd();
    let cpus = [0xffu8; 1024];
    // SAFETY: this process owns no descriptors except the listener and the standard ones. `cpus`
    // has the size that the call reads, and the name is a static C string.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, keep - 1, 0);
        libc::syscall(libc::SYS_close_range, keep + 1, u32::MAX, 0);
        libc::setpgid(0, 0);
        libc::syscall(libc::SYS_sched_setaffinity, 0, cpus.len(), cpus.as_ptr());
        // Signals of the terminal and the launcher are for stubs. The server ends after the last
        // stub.
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"nagaya-server".as_ptr());
    }
    let _ = std::env::set_current_dir("/");
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null);
    }
}
