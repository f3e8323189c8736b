//! How nodes are started: what whoever starts them and each node say to each other, by a pipe
//! or socket that is theirs alone.

use std::io::{Error, ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Both sides must be of one kind: rises with every change here, of frames and of contexts.
const VERSION: u32 = 1;
/// Bytes of one message, at most: arguments and environment are in it.
const BYTES_MAX: u32 = 8 << 20;

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
    /// New threads are packed, and not spread.
    pub packs: bool,
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
}

/// To each node: where all are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Everybody {
    /// In order.
    pub nodes: Vec<Ready>,
}

/// Says something.
pub fn say<T: Serialize>(to: &mut impl Write, what: &T) -> std::io::Result<()> {
    let bytes = postcard::to_allocvec(what).map_err(Error::other)?;
    let length = u32::try_from(bytes.len()).ok().filter(|&length| length <= BYTES_MAX);
    let length = length.ok_or_else(|| Error::from(ErrorKind::ArgumentListTooLong))?;
    to.write_all(&[VERSION.to_le_bytes(), length.to_le_bytes()].concat())?;
    to.write_all(&bytes)?;
    to.flush()
}

/// What is said next.
pub fn hear<T: DeserializeOwned>(from: &mut impl Read) -> std::io::Result<T> {
    let mut head = [[0; 4]; 2];
    from.read_exact(head.as_flattened_mut())?;
    let [version, length] = head.map(u32::from_le_bytes);
    if version != VERSION || length > BYTES_MAX {
        return Err(Error::other("another version of nagaya, or none"));
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
        Ready { address: vec![1, 2], processors: 3, features, name: "a".into(), start: 0 }
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
        pipe[0] += 1;
        assert!(hear::<Ready>(&mut &pipe[..]).is_err());
    }

    #[test]
    fn features_that_lack_are_named() {
        assert_eq!(lacking(&ready(&["avx", "avx512f"]), &ready(&["avx", "sha"])), ["avx512f"]);
    }
}
