//! The functions of `pvm3.h`, all but those on groups (libgpvm3), with libpvm 3.4.6's results,
//! error codes and messages.
//!
//! [`state`] is the library's state, and [`library`] has the lock and the steps that each function
//! takes. [`errors`] reports errors. PVM's manual pages and `include/pvm3/pvm3.h` document the
//! functions; comments here add only what these leave out.

mod buffers;
mod catchout;
mod control;
mod descriptors;
mod errors;
mod handlers;
mod internal;
mod kept;
mod library;
mod lock;
mod machine;
mod mailboxes;
mod memory;
mod messages;
mod notify;
mod options;
mod plugins;
mod private;
mod processes;
mod settings;
mod start;
mod state;
mod tracing;
mod variadic;
