//! PVM 3.4's message buffers and encodings, byte for byte, without a system call.
//!
//! A program packs typed items into its active send buffer and unpacks them from its active
//! receive buffer. [`buffers`] is the table of these; [`message`] is one of them: a header
//! and a chain of [`fragment`]s. How items become bytes is the message's encoding: `raw`,
//! `xdr`, `in_place`, `trace`. [`items`] is the only way to the caller's memory. [`mod@format`]
//! reads the strings of pvm_packf and pvm_unpackf, [`nested`] puts messages into messages.
//!
//! [`event`] is what tracers are told.
//!
//! Results, positions after errors and fragment boundaries are those of libpvm 3.4.6 on
//! 64-bit Linux (`tests/conformance.rs` asks it); where it would read memory that is not its
//! own, we do not, and say so there.

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
