//! libgpvm3: PVM's groups for programs in C, `libgpvm3.so.3`.
//!
//! There is no group server: the daemons replicate the groups. A task asks its own daemon, and
//! caches the answer (`known`) until the group's version in the host's window changes. At a
//! `barrier`, tasks of one host synchronize in the window, without a daemon. `calls` has the
//! functions on groups. `collective` has those in which members send messages to each other, and
//! `reducers` the operations of pvm_reduce. `traced` reports the calls to tracers, and `server`
//! has the remaining functions of the group server.
//!
//! Results and error codes are those of libgpvm3 3.4.6, and so is the order in which arguments
//! are checked. Messages are sent by libpvm3, whose functions `pvm3` declares.

mod barrier;
mod calls;
mod collective;
mod known;
mod pvm3;
mod reducers;
mod server;
mod traced;
