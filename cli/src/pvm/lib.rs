//! `nagaya pvm`: the console of a virtual machine. It is a task as others are (`machine`),
//! which reads commands (`input`, `words`, `aliases`, `commands`) and prints what stock
//! PVM's console prints.

mod aliases;
mod commands;
mod console;
mod environment;
mod events;
mod exec;
mod hosts;
mod input;
mod job;
mod jobs;
mod machine;
mod mailboxes;
mod options;
mod session;
mod spawn;
mod tasks;
mod traces;
mod tracing;
mod words;

pub use session::{Options, run};
