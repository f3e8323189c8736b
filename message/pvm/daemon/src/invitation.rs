//! Messages between the daemon that adds a host and the daemon that it starts there. The first
//! writes an invitation to the standard input of `nagaya pvmd --join`, and reads an acceptance
//! from its standard output. So the secret never appears on a command line.
//!
//! Each message is one line: a word that distinguishes it from the output of a login shell, and
//! the message in postcard's encoding, in hexadecimal digits.

use fcp::protocol::Protocol;
use net::hex;
use pvm::wire::HostInfo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest line, in bytes. Fabric addresses have some hundred bytes.
pub const LINE_MAX: usize = 64 << 10;

/// Default silence in milliseconds after which a host counts as lost.
pub const SILENCE_MS: u32 = 30_000;

/// Version of the format of these lines.
const VERSION: u32 = 4;

/// A host and its fabric address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The host.
    pub info: HostInfo,
    /// The fabric address of its daemon.
    #[serde(with = "serde_bytes")]
    pub address: Vec<u8>,
}

/// The invitation of a daemon that is to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    version: u32,
    /// The virtual machine's secret.
    pub secret: [u8; 32],
    /// The number of the new host.
    pub host: u16,
    /// Its name in the virtual machine.
    pub name: String,
    /// Its speed according to the host file.
    pub speed: i32,
    /// Directories searched for programs (`ep=`), if the host file has them.
    pub programs: Option<String>,
    /// Working directory of programs (`wd=`), if the host file has it.
    pub directory: Option<String>,
    /// The program that runs tasks under a debugger (`bx=`), if the host file has it.
    pub debugger: Option<String>,
    /// Silence in milliseconds after which hosts count as lost.
    pub silence_ms: u32,
    /// True if tasks share one address space on each host.
    pub space: bool,
    /// Number of the protocol for messages inside a host.
    pub protocol: u8,
    /// The host that invites.
    pub by: Place,
}

/// A message that is sent as one line.
pub trait Line: Serialize + DeserializeOwned {
    /// The first word of the line.
    const WORD: &'static str;

    /// Returns the line, with its newline.
    fn to_line(&self) -> String {
        // Postcard fails only on data of unknown length; every message has a length.
        let bytes = postcard::to_allocvec(self).expect("it has a length");
        format!("{} {}\n", Self::WORD, hex::encode(&bytes))
    }

    /// Parses a line. Returns `None` if it is no such message.
    fn parse(line: &str) -> Option<Self> {
        let digits = line.trim_end().strip_prefix(Self::WORD)?.strip_prefix(' ')?;
        let bytes = hex::decode(digits)?;
        let (this, rest) = postcard::take_from_bytes(&bytes).ok()?;
        rest.is_empty().then_some(this)
    }
}

impl Line for Invitation {
    const WORD: &'static str = "nagaya-pvmd-invitation";
}

/// A daemon's answer: its address, or the reason why it does not join, in one line.
pub type Acceptance = Result<Place, String>;

impl Line for Acceptance {
    const WORD: &'static str = "nagaya-pvmd-acceptance";
}

impl Invitation {
    /// Returns an invitation for the host with this number and name.
    pub fn new(by: Place, secret: [u8; 32], host: u16, name: String) -> Invitation {
        let version = VERSION;
        let (speed, programs, directory, silence_ms) = (1000, None, None, SILENCE_MS);
        Invitation {
            version,
            secret,
            host,
            name,
            speed,
            programs,
            directory,
            debugger: None,
            silence_ms,
            space: false,
            protocol: Protocol::default() as u8,
            by,
        }
    }

    /// Returns the reason why the invitation cannot be accepted, if there is one.
    pub fn fault(&self) -> Option<String> {
        if self.version != VERSION {
            let other = self.version;
            return Some(format!(
                "invitation of version {other}, not {VERSION}: install the same nagaya on both"
            ));
        };
        if Protocol::of_number(self.protocol).is_none() {
            return Some(format!(
                "unknown protocol {}: install the same nagaya on both",
                self.protocol
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use pvm::tid::Tid;

    fn place() -> Place {
        let info = HostInfo {
            tid: Tid::of_host(1),
            name: "one".into(),
            architecture: "LINUX64".into(),
            speed: 1000,
            signature: 7,
        };
        Place { info, address: vec![0, 255, 16] }
    }

    #[test]
    fn lines_come_back() {
        let invitation = Invitation::new(place(), [9; 32], 2, "two".into());
        assert_eq!(Invitation::parse(&invitation.to_line()), Some(invitation.clone()));
        let no: Acceptance = Err("no UCX".into());
        assert_eq!(Acceptance::parse(&no.to_line()), Some(no));
        assert_eq!(Acceptance::parse(&invitation.to_line()), None);
        assert_eq!(invitation.fault(), None);
        let newer = Invitation { version: VERSION + 1, ..invitation.clone() };
        assert!(newer.fault().is_some());
        let unknown = Invitation { protocol: 9, ..invitation };
        assert!(unknown.fault().is_some());
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(text in "(nagaya-pvmd-acceptance )?[0-9a-f ]{0,200}é?") {
            let _ = Acceptance::parse(&text);
            let _ = Invitation::parse(&text);
        }
    }
}
