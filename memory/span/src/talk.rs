//! How nodes are started: what whoever starts them and each node say to each other, by a socket
//! or by ssh, that is theirs alone. The node greets with its version; then comes an [`Order`],
//! [`Ready`], [`Everybody`] and, when the node is connected with all others, [`Begun`].

use std::io::{Error, ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::place::Policy;

/// Both sides must be of one kind: the number rises with every change here, of frames and of
/// contexts.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "-6");
/// What a greeting begins with.
const GREETING: &str = "nagaya-span ";
/// Bytes of one message, at most: arguments and environment are in it.
const BYTES_MAX: u32 = 8 << 20;
/// Bytes that a login may print before the greeting.
const LOGIN_MAX: usize = 64 << 10;

/// To a node, at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which it is.
    pub node: u32,
    /// How many there are.
    pub nodes: u32,
    /// The job's.
    pub secret: [u8; 32],
    /// Seconds after which a silent node is lost; 0: never.
    pub timeout: u32,
    /// The host's name, if it was named.
    pub host: Option<String>,
    /// How many of its processors are used, if that was said.
    pub processors: Option<u32>,
    /// For another host's environment, where it has not its own: the network's settings.
    pub variables: Vec<(String, String)>,
    /// To the origin: what is to run.
    pub program: Option<Program>,
}

/// What is to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Its path.
    pub path: Vec<u8>,
    /// Its arguments, the first of which is its name.
    pub arguments: Vec<Vec<u8>>,
    /// Where its threads go.
    pub place: Policy,
    /// Bytes of memory that a node's pages may take.
    pub memory: Option<u64>,
    /// A file for what is counted, if that is wanted.
    pub report: Option<Vec<u8>>,
}

/// From a node: it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Where others find it.
    pub address: Vec<u8>,
    /// The processors that it may use.
    pub processors: u32,
    /// What its processors can do, as programs see it.
    pub features: Vec<String>,
    /// What it is called.
    pub name: String,
    /// At the origin: where the program's segment begins.
    pub start: u64,
    /// Nodes for which this is the same, and not empty, have the same clocks.
    pub clocks: String,
}

/// A node's answer.
pub type Answer<T> = Result<T, Refusal>;

/// Why a node does not begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// In a line.
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

/// From a node: it is connected with all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun;

/// To each node: where all are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Everybody {
    /// In order.
    pub nodes: Vec<Ready>,
}

/// Says which version this is.
pub fn greet(to: &mut impl Write) -> std::io::Result<()> {
    to.write_all(format!("{GREETING}{VERSION}\n").as_bytes())?;
    to.flush()
}

/// The version of a node that greets, after whatever a login prints.
pub fn greeted(from: &mut impl Read) -> std::io::Result<String> {
    let mut line = Vec::new();
    for _ in 0..LOGIN_MAX {
        let mut byte = [0];
        from.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => {
                let text = String::from_utf8_lossy(&line);
                if let Some(version) = text.strip_prefix(GREETING) {
                    return Ok(version.trim_end().to_owned());
                }
                line.clear();
            }
            [byte] => line.push(byte),
        }
    }
    Err(Error::other("no node of nagaya span, but much text"))
}

/// Says something.
pub fn say<T: Serialize>(to: &mut impl Write, what: &T) -> std::io::Result<()> {
    let bytes = postcard::to_allocvec(what).map_err(Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|&length| length <= BYTES_MAX);
    let length = length.ok_or_else(|| Error::from(ErrorKind::ArgumentListTooLong))?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&bytes)?;
    to.flush()
}

/// What is said next.
pub fn hear<T: DeserializeOwned>(from: &mut impl Read) -> std::io::Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > BYTES_MAX {
        return Err(Error::other("something that makes no sense"));
    }
    let mut bytes = vec![0; length as usize];
    from.read_exact(&mut bytes)?;
    postcard::from_bytes(&bytes).map_err(Error::other)
}

/// Which features of the origin's processors another node's lack: there the program could not
/// go on.
pub fn lacking<'a>(origin: &'a Ready, other: &Ready) -> Vec<&'a str> {
    let has = |feature: &&String| other.features.contains(feature);
    origin.features.iter().filter(|feature| !has(feature)).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(features: &[&str]) -> Ready {
        let features = features.iter().map(|&feature| feature.to_owned()).collect();
        Ready {
            address: vec![1, 2],
            processors: 3,
            features,
            name: "a".into(),
            start: 0,
            clocks: String::new(),
        }
    }

    #[test]
    fn what_is_said_is_heard() {
        let mut pipe = Vec::new();
        let said = ready(&["avx", "avx2"]);
        say(&mut pipe, &said).unwrap();
        assert_eq!(hear::<Ready>(&mut &pipe[..]).unwrap(), said);
        for cut in 0..pipe.len() {
            assert!(hear::<Ready>(&mut &pipe[..cut]).is_err());
        }
        pipe[3] = 0xff;
        assert!(hear::<Ready>(&mut &pipe[..]).is_err());
    }

    #[test]
    fn a_greeting_is_found_after_what_a_login_prints() {
        let mut pipe = b"Welcome to nagaya-span\n\nDisk quota: \n".to_vec();
        assert!(greeted(&mut &pipe[..]).is_err());
        greet(&mut pipe).unwrap();
        pipe.extend(b"more");
        let mut rest = &pipe[..];
        assert_eq!(greeted(&mut rest).unwrap(), VERSION);
        assert_eq!(rest, b"more");
        assert!(greeted(&mut std::io::repeat(b'.')).is_err());
    }

    #[test]
    fn features_that_lack_are_named() {
        assert_eq!(lacking(&ready(&["avx", "avx512f"]), &ready(&["avx", "sha"])), ["avx512f"]);
    }
}
