//! Authentication. All hosts of a job or of a PVM share a secret, and every message proves that its
//! sender holds it.
//!
//! Two sides that connect prove this to each other with fresh random numbers ([`Nonce`]). A
//! *hello* and its *welcome* carry an HMAC-SHA-256 of their content under the secret, and the
//! welcome answers the hello's number. From both numbers each side computes a [`Token`] for each
//! direction, which is part of every message of this connection. It is computed once, compared in
//! constant time, and useless for any other sender, receiver or connection.
//!
//! Over TCP all this happens inside a Noise session, whose key is also derived from the secret.
//!
//! **Over UCX** it is the only authentication. It protects against other users and programs that
//! reach the port: they cannot join, send a message, impersonate a peer, or replay an earlier
//! connection. It does not protect against an attacker with access to the network traffic, since
//! nothing is encrypted. Nor does it protect UCX below this layer, which parses its wire format
//! before this code sees a message, trusts it, and accepts remote memory writes. As with MPI over
//! UCX, the network must be trusted.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// The secret that all hosts share: 32 random bytes.
#[derive(Clone)]
pub struct Secret([u8; Self::BYTES]);

/// A number used once: random, one a connection and side.
pub type Nonce = [u8; 16];

/// Stands in each message of one direction of one connection.
#[derive(Clone, Copy)]
pub struct Token([u8; Self::BYTES]);

/// The kind of an authenticated message. Each kind has its own domain of the HMAC.
#[derive(Clone, Copy)]
pub enum Domain {
    /// An address that one hands to others.
    Address,
    /// A connection's first message.
    Hello,
    /// Its answer.
    Welcome,
    /// All that follow.
    Token,
    /// The key of Noise sessions.
    Noise,
}

impl Secret {
    /// Length of a secret.
    pub const BYTES: usize = 32;

    /// These bytes, which should come from the system's random numbers.
    pub fn new(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// A new one. Panics where the kernel has no random numbers.
    pub fn random() -> Self {
        Self(random())
    }

    /// To hand to the other hosts, over a channel that others cannot read.
    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The first half of an HMAC-SHA-256 over the parts, whose lengths are fixed or last.
    pub fn token(&self, domain: Domain, parts: &[&[u8]]) -> Token {
        let full = self.mac(domain, parts);
        Token(full[..Token::BYTES].try_into().expect("half of 32 bytes"))
    }

    /// Returns a key for another protocol.
    pub fn key(&self, domain: Domain) -> [u8; 32] {
        self.mac(domain, &[])
    }

    fn mac(&self, domain: Domain, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("any key length");
        mac.update(match domain {
            Domain::Address => b"nagaya fabric 1 address",
            Domain::Hello => b"nagaya fabric 1 hello  ",
            Domain::Welcome => b"nagaya fabric 1 welcome",
            Domain::Token => b"nagaya fabric 1 token  ",
            Domain::Noise => b"nagaya fabric 1 noise  ",
        });
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// Secrets do not appear in logs.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Token {
    /// Length of a token: 128 bits, more than anyone can guess in messages.
    pub const BYTES: usize = 16;

    /// To send.
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Compares received bytes with this token in constant time.
    pub fn matches(&self, came: &[u8; Self::BYTES]) -> bool {
        self.0.ct_eq(came).into()
    }
}

/// From the kernel's random numbers.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel has no random numbers: {error}"),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_depends_on_secret_domain_and_message() {
        let secret = Secret::new([7; 32]);
        let token = secret.token(Domain::Token, &[b"one", b"two"]);
        let same = secret.token(Domain::Token, &[b"onetwo"]);
        assert!(token.matches(&same.bytes()));
        let mut nearly = token.bytes();
        nearly[15] ^= 1;
        assert!(!token.matches(&nearly));
        for other in [
            Secret::new([8; 32]).token(Domain::Token, &[b"one", b"two"]),
            secret.token(Domain::Hello, &[b"one", b"two"]),
            secret.token(Domain::Welcome, &[b"one", b"two"]),
            secret.token(Domain::Token, &[b"one", b"tw"]),
        ] {
            assert!(!token.matches(&other.bytes()));
        }
    }

    #[test]
    fn secrets_stay_out_of_logs() {
        assert_eq!(format!("{:?}", Secret::new([65; 32])), "Secret(…)");
        assert_ne!(Secret::random().bytes(), Secret::random().bytes());
    }
}
