//! The Noise session of a TCP connection, by the library `snow`.
//!
//! The pattern is `NNpsk0`: both sides prove that they hold the job's secret, and an earlier
//! session cannot be read by a later holder of the secret. The prologue has the random name of the
//! side that was called, so that a connection to another process at the same address fails.

use snow::{Builder, HandshakeState, TransportState};

use crate::secret::{Domain, Secret};

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// First part of the prologue: the protocol and its version.
const PROTOCOL: &[u8] = b"nagaya tcp 1";

/// The random name of a carrier, which it has until it ends.
pub type Instance = [u8; 16];

/// Length of either handshake message: a public key, and the tag of an empty payload.
pub const HANDSHAKE_BYTES: usize = 48;
/// Maximum length of a sealed record (Noise, section 3).
pub const SEALED_BYTES_MAX: usize = 65535;
/// Bytes that sealing adds.
pub const TAG_BYTES: usize = 16;
/// Maximum length of a record before it is sealed.
pub const PLAIN_BYTES_MAX: usize = SEALED_BYTES_MAX - TAG_BYTES;

/// The other side does not hold the secret, or bytes were changed on the way.
#[derive(Debug, PartialEq, Eq)]
pub struct Unauthentic;

/// A session that begins.
pub struct Handshake(Box<HandshakeState>);

impl Handshake {
    /// Calls the carrier with that name.
    pub fn initiator(secret: &Secret, called: &Instance) -> Self {
        Self::new(secret, called, |builder| builder.build_initiator())
    }

    /// Is called, by the name `own`.
    pub fn responder(secret: &Secret, own: &Instance) -> Self {
        Self::new(secret, own, |builder| builder.build_responder())
    }

    fn new(
        secret: &Secret,
        called: &Instance,
        build: impl FnOnce(Builder<'_>) -> Result<HandshakeState, snow::Error>,
    ) -> Self {
        let pattern = PATTERN.parse().expect("a pattern of the Noise specification");
        let prologue = [PROTOCOL, called].concat();
        let key = secret.key(Domain::Noise);
        let builder = Builder::new(pattern).prologue(&prologue).and_then(|b| b.psk(0, &key));
        Self(Box::new(builder.and_then(build).expect("the pattern needs one key of 32 bytes")))
    }

    /// Returns the next message to send.
    pub fn write(&mut self) -> [u8; HANDSHAKE_BYTES] {
        let mut message = [0; HANDSHAKE_BYTES];
        let bytes = self.0.write_message(&[], &mut message).expect("it is this side's turn");
        assert_eq!(bytes, HANDSHAKE_BYTES, "a key and a tag");
        message
    }

    /// Handles the next message from the other side.
    pub fn read(&mut self, message: &[u8; HANDSHAKE_BYTES]) -> Result<(), Unauthentic> {
        let mut payload = [0; HANDSHAKE_BYTES];
        self.0.read_message(message, &mut payload).map(|_| ()).map_err(|_| Unauthentic)
    }

    /// Returns the session, after both messages.
    pub fn finish(self) -> Session {
        Session(Box::new(self.0.into_transport_mode().expect("both messages are exchanged")))
    }
}

/// A session that both sides have agreed on. Records are opened in the order in which they were
/// sealed.
pub struct Session(Box<TransportState>);

impl Session {
    /// Seals a record of at most [`PLAIN_BYTES_MAX`] bytes into `sealed`, which is [`TAG_BYTES`]
    /// longer.
    pub fn seal(&mut self, plain: &[u8], sealed: &mut [u8]) {
        let bytes = self.0.write_message(plain, sealed).expect("the lengths fit");
        assert_eq!(bytes, sealed.len(), "sealing adds a tag");
    }

    /// Opens a record into `plain`; returns its length. If `plain` is as long as `sealed`, nothing
    /// is copied twice.
    pub fn open(&mut self, sealed: &[u8], plain: &mut [u8]) -> Result<usize, Unauthentic> {
        self.0.read_message(sealed, plain).map_err(|_| Unauthentic)
    }
}
