//! The messages between the starter of a job's nodes and each node. The control channel is a socket
//! or an ssh session between these two.
//!
//! The node greets with its [`Kind`]. The starter sends an order, and the node answers. The starter
//! sends the addresses of all nodes. When the node is connected with all others it answers
//! [`Begun`]. While the program runs, the starter sends the origin an [`Ended`] for each node that
//! ends.

use std::io::{Error, ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Limit of a message's size in bytes; it includes arguments and environment.
const BYTES_MAX: u32 = 8 << 20;
/// Size of a message's header in bytes: its length.
const HEADER_SIZE: usize = 4;
/// Limit of the bytes that a login prints before the greeting.
const LOGIN_MAX: usize = 64 << 10;

/// The subcommand that nodes belong to, and its version, which must be equal on both sides. Each is
/// one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// A subcommand's name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
}

/// A node's answer.
pub type Answer<T> = Result<T, Refusal>;

/// The reason why a node does not begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, in one line.
    pub line: String,
    /// The program cannot be executed.
    pub is_of_program: bool,
}

impl From<String> for Refusal {
    fn from(line: String) -> Self {
        Self { line, is_of_program: false }
    }
}

impl From<&str> for Refusal {
    fn from(line: &str) -> Self {
        line.to_owned().into()
    }
}

/// The answer of a node that is connected with all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun;

/// Notifies the origin that the process of another node has ended. Only children of the starter are
/// reported, because it sees no wait status of nodes on other hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The node's number.
    pub node: u32,
    /// Its wait status.
    pub status: i32,
}

impl Kind {
    fn greeting(self) -> String {
        format!("nagaya-{} ", self.name)
    }

    /// Returns a failure of the launcher to start such nodes.
    pub(crate) fn failed(self, line: &str) -> crate::Error {
        crate::Error::new(format!("{}: {line}", self.name))
    }

    /// Sends the greeting.
    ///
    /// # Errors
    /// The channel is closed.
    pub fn greet(self, to: &mut impl Write) -> std::io::Result<()> {
        to.write_all(format!("{}{}\n", self.greeting(), self.version).as_bytes())?;
        to.flush()
    }

    /// Takes the greeting of a node of this kind from the bytes that have arrived, after any text
    /// that a login prints. Returns the node's version, or `None` if the greeting is not complete.
    /// `skipped` counts the bytes of the text, and begins with 0.
    ///
    /// # Errors
    /// No greeting comes within 64 KiB.
    pub fn greeted(
        self,
        bytes: &mut Vec<u8>,
        skipped: &mut usize,
    ) -> std::io::Result<Option<String>> {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line);
            if let Some(version) = text.strip_prefix(&self.greeting()) {
                return Ok(Some(version.trim_end().to_owned()));
            }
            *skipped += line.len();
        }
        if *skipped + bytes.len() < LOGIN_MAX {
            return Ok(None);
        }
        Err(Error::other(format!("no node of nagaya {}, but much text", self.name)))
    }
}

/// Returns the bytes of a message.
///
/// # Errors
/// The message is longer than 8 MiB (E2BIG).
pub fn encode<T: Serialize>(what: &T) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER_SIZE];
    bytes = postcard::to_extend(what, bytes).map_err(Error::other)?;
    let length = u32::try_from(bytes.len() - HEADER_SIZE).ok();
    let length = length.filter(|&length| length <= BYTES_MAX);
    let length = length.ok_or_else(|| Error::from(ErrorKind::ArgumentListTooLong))?;
    bytes[..HEADER_SIZE].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Sends a message.
///
/// # Errors
/// The channel is closed, or the message is longer than 8 MiB (E2BIG).
pub fn send<T: Serialize>(to: &mut impl Write, what: &T) -> std::io::Result<()> {
    to.write_all(&encode(what)?)?;
    to.flush()
}

/// Returns the size of the message behind a header.
fn size(header: [u8; HEADER_SIZE]) -> std::io::Result<usize> {
    match u32::from_le_bytes(header) {
        length @ ..=BYTES_MAX => Ok(length as usize),
        _ => Err(Error::other("bytes that are no message of nagaya")),
    }
}

/// Receives the next message.
///
/// # Errors
/// The channel is closed, or the bytes are no such message.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> std::io::Result<T> {
    let mut header = [0; HEADER_SIZE];
    from.read_exact(&mut header).map_err(closed)?;
    let mut bytes = vec![0; size(header)?];
    from.read_exact(&mut bytes).map_err(closed)?;
    postcard::from_bytes(&bytes).map_err(Error::other)
}

/// Takes the next message from the bytes that have arrived, if it is complete.
///
/// # Errors
/// The bytes are no such message.
pub fn take<T: DeserializeOwned>(bytes: &mut Vec<u8>) -> std::io::Result<Option<T>> {
    let Some(header) = bytes.first_chunk() else { return Ok(None) };
    let end = HEADER_SIZE + size(*header)?;
    let Some(body) = bytes.get(HEADER_SIZE..end) else { return Ok(None) };
    let message = postcard::from_bytes(body).map_err(Error::other)?;
    bytes.drain(..end);
    Ok(Some(message))
}

/// Returns the same error, with a clear text for a closed connection.
pub(crate) fn closed(error: Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => Error::new(error.kind(), "the connection was closed"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { name: "test", version: "1.2-3" };

    #[test]
    fn a_message_is_received_as_it_was_sent() {
        let mut pipe = Vec::new();
        let said = (vec![1u8, 2], "avx".to_owned());
        send(&mut pipe, &said).unwrap();
        assert_eq!(receive::<(Vec<u8>, String)>(&mut &pipe[..]).unwrap(), said);
        for cut in 0..pipe.len() {
            assert!(receive::<(Vec<u8>, String)>(&mut &pipe[..cut]).is_err());
            assert!(take::<(Vec<u8>, String)>(&mut pipe[..cut].to_vec()).unwrap().is_none());
        }
        let mut two = [&pipe[..], b"more"].concat();
        assert_eq!(take::<(Vec<u8>, String)>(&mut two).unwrap(), Some(said));
        assert_eq!(two, b"more");
        pipe[3] = 0xff;
        assert!(receive::<(Vec<u8>, String)>(&mut &pipe[..]).is_err());
        assert!(take::<(Vec<u8>, String)>(&mut pipe).is_err());
    }

    #[test]
    fn a_greeting_is_found_after_what_a_login_prints() {
        let mut pipe = b"Welcome to nagaya-test\n\nDisk quota: \n".to_vec();
        let mut skipped = 0;
        assert_eq!(KIND.greeted(&mut pipe, &mut skipped).unwrap(), None);
        KIND.greet(&mut pipe).unwrap();
        pipe.extend(b"more");
        assert_eq!(KIND.greeted(&mut pipe, &mut skipped).unwrap().as_deref(), Some(KIND.version));
        assert_eq!(pipe, b"more");
        assert!(KIND.greeted(&mut vec![b'.'; LOGIN_MAX], &mut 0).is_err());
        let lines = b"so much to say\n".repeat(LOGIN_MAX / 10);
        assert!(KIND.greeted(&mut lines.clone(), &mut 0).is_err());
    }
}
