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

    /// Sends the greeting.
    ///
    /// # Errors
    /// The channel is closed.
    pub fn greet(self, to: &mut impl Write) -> std::io::Result<()> {
        to.write_all(format!("{}{}\n", self.greeting(), self.version).as_bytes())?;
        to.flush()
    }

    /// Receives the greeting of a node of this kind, after any text that a login prints. Returns
    /// the node's version.
    ///
    /// # Errors
    /// The channel is closed, or no greeting comes within 64 KiB.
    pub fn greeted(self, from: &mut impl Read) -> std::io::Result<String> {
        let mut line = Vec::new();
        for _ in 0..LOGIN_MAX {
            let mut byte = [0];
            from.read_exact(&mut byte).map_err(closed)?;
            match byte {
                [b'\n'] => {
                    let text = String::from_utf8_lossy(&line);
                    if let Some(version) = text.strip_prefix(&self.greeting()) {
                        return Ok(version.trim_end().to_owned());
                    }
                    line.clear();
                }
                [byte] => line.push(byte),
            }
        }
        Err(Error::other(format!("no node of nagaya {}, but much text", self.name)))
    }
}

/// Sends a message.
///
/// # Errors
/// The channel is closed, or the message is longer than 8 MiB (E2BIG).
pub fn send<T: Serialize>(to: &mut impl Write, what: &T) -> std::io::Result<()> {
    let bytes = postcard::to_allocvec(what).map_err(Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|&length| length <= BYTES_MAX);
    let length = length.ok_or_else(|| Error::from(ErrorKind::ArgumentListTooLong))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&bytes)?;
    to.flush()
}

/// Receives the next message.
///
/// # Errors
/// The channel is closed, or the bytes are no such message.
pub fn receive<T: DeserializeOwned>(from: &mut impl Read) -> std::io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length).map_err(closed)?;
    let length = u32::from_le_bytes(length);
    if length > BYTES_MAX {
        return Err(Error::other("bytes that are no message of nagaya"));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes).map_err(closed)?;
    postcard::from_bytes(&bytes).map_err(Error::other)
}

/// Returns the same error, with a clear text for a closed connection.
fn closed(error: Error) -> Error {
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
        }
        pipe[3] = 0xff;
        assert!(receive::<(Vec<u8>, String)>(&mut &pipe[..]).is_err());
    }

    #[test]
    fn a_greeting_is_found_after_what_a_login_prints() {
        let mut pipe = b"Welcome to nagaya-test\n\nDisk quota: \n".to_vec();
        assert!(KIND.greeted(&mut &pipe[..]).is_err());
        KIND.greet(&mut pipe).unwrap();
        pipe.extend(b"more");
        let mut rest = &pipe[..];
        assert_eq!(KIND.greeted(&mut rest).unwrap(), KIND.version);
        assert_eq!(rest, b"more");
        assert!(KIND.greeted(&mut std::io::repeat(b'.')).is_err());
    }
}
