//! libgpvm3: PVM's groups for programs in C, `libgpvm3.so.3`.
//!
//! There is no group server. The daemons know the groups; a task asks its own, and
//! remembers (`known`) what it was told until the group's version in the host's window
//! says otherwise. At a `barrier` tasks of one host meet in the window, without a daemon.
//! `calls` are the functions on groups, `collective` those in which members send to each
//! other, `reducers` what pvm_reduce can do to their data; `traced` tells tracers of them.
//! `server` is what is left of the group server.
//!
//! Results, error codes, and in which of two wrong arguments a function finds fault first,
//! are those of libgpvm3 3.4.6. Messages are libpvm3's: `pvm3` is what is used of it.

mod barrier;
mod calls;
mod collective;
mod known;
mod pvm3;
mod reducers;
mod server;
mod traced;
