//! What is said when a host is added: the daemon that adds it writes an invitation to the
//! standard input of a `nagaya pvmd --join` that it has started there, and reads an acceptance
//! from its standard output. The secret goes this way, never on a command line.
//!
//! Each is one line: a word that tells it from what a login shell prints, and hexadecimal
//! digits of the thing in postcard's encoding.

use fcp::protocol::Protocol;
use pvm::wire::HostInfo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Longest line, in bytes: addresses on the fabric have some hundred.
pub const LINE_MAX: usize = 64 << 10;

/// After how many milliseconds of silence hosts count as lost, if nobody says.
pub const SILENCE_MS: u32 = 30_000;

/// Of these lines.
const VERSION: u32 = 4;

/// A place on the fabric.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The host.
    pub info: HostInfo,
    /// Where its daemon is found.
    #[serde(with = "serde_bytes")]
    pub address: Vec<u8>,
}

/// To a daemon that is to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    version: u32,
    /// The virtual machine's secret.
    pub secret: [u8; 32],
    /// The number that the host gets.
    pub host: u16,
    /// Its name in the virtual machine.
    pub name: String,
    /// Its speed, as the host file says.
    pub speed: i32,
    /// Where programs are searched (`ep=`), if the host file says.
    pub programs: Option<String>,
    /// Where they run (`wd=`), if the host file says.
    pub directory: Option<String>,
    /// What starts them under a debugger (`bx=`), if the host file says.
    pub debugger: Option<String>,
    /// After how many milliseconds of silence hosts count as lost.
    pub silence_ms: u32,
    /// Whether tasks live in one space.
    pub space: bool,
    /// The number of the protocol by which messages go inside a host.
    pub protocol: u8,
    /// Who invites.
    pub by: Place,
}

/// A line.
pub trait Line: Serialize + DeserializeOwned {
    /// The word that it begins with.
    const WORD: &'static str;

    /// As it is written, with its end.
    fn to_line(&self) -> String {
        // Postcard refuses only what has no length.
        let bytes = postcard::to_allocvec(self).expect("it has a length");
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {digits}\n", Self::WORD)
    }

    /// Reads a line; nothing if it is another.
    fn parse(line: &str) -> Option<Self> {
        let digits = line.trim_end().strip_prefix(Self::WORD)?.strip_prefix(' ')?.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let byte = |two: &[u8]| match *two {
            [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
            _ => None,
        };
        let bytes = digits.chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
        let (this, rest) = postcard::take_from_bytes(&bytes).ok()?;
        rest.is_empty().then_some(this)
    }
}

impl Line for Invitation {
    const WORD: &'static str = "nagaya-pvmd-invitation";
}

/// A daemon's answer: where it is, or in a line why it does not join.
pub type Acceptance = Result<Place, String>;

impl Line for Acceptance {
    const WORD: &'static str = "nagaya-pvmd-acceptance";
}

impl Invitation {
    /// An invitation to be the host with this number and name.
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

    /// Why it cannot be accepted, if it cannot.
    pub fn fault(&self) -> Option<String> {
        if self.version != VERSION {
            let other = self.version;
            return Some(format!("invitations of version {other}, not {VERSION}: update both"));
        };
        if Protocol::of_number(self.protocol).is_none() {
            return Some(format!("no protocol has number {}: update both", self.protocol));
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
