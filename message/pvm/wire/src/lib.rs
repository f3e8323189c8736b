//! PVM 3.4's message buffers and encodings, byte for byte, without a system call.
//!
//! A program packs typed items into its active send buffer and unpacks them from its active
//! receive buffer. [`buffers`] is the table of message buffers. [`message`] is one of them: a
//! header and a chain of [`fragment`]s. A message's encoding converts items to bytes: `raw`,
//! `xdr`, `in_place`, `trace`. Only [`items`] accesses the caller's memory. [`mod@format`]
//! parses the format strings of pvm_packf and pvm_unpackf; [`nested`] packs messages into
//! messages.
//!
//! [`event`] defines trace events. [`wire`] defines the protocol between tasks and their daemon.
//!
//! Results, positions after errors and fragment boundaries are those of libpvm 3.4.6 on 64-bit
//! Linux (`tests/conformance.rs` compares them). Where libpvm would read outside its own memory
//! we do not; comments there say so.

// Constants keep the names that pvm3.h gives them.
#![allow(non_upper_case_globals)]

pub mod buffers;
mod codec;
pub mod constants;
pub mod envelope;
pub mod error;
pub mod event;
pub mod format;
pub mod fragment;
mod in_place;
pub mod items;
pub mod message;
pub mod nested;
pub mod parcel;
pub mod protocol;
mod raw;
pub mod signature;
pub mod slots;
pub mod tid;
mod trace;
pub mod wire;
mod xdr;
