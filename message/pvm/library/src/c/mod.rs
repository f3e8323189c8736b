//! The functions of `pvm3.h`, all but those on groups (libgpvm3), with libpvm 3.4.6's results,
//! error codes and messages.
//!
//! [`library`] is what they are made of: the lock and the state; [`errors`] how errors are
//! told. What they mean is in PVM's manual pages and in `include/pvm3/pvm3.h`; here stands
//! only what is not said there.

mod buffers;
mod catchout;
mod control;
mod descriptors;
mod errors;
mod handlers;
mod internal;
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
mod start;
mod tracing;
mod variadic;
