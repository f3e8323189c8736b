//! A daemon that a hoster has started calls the daemon that wants it.
//!
//! A hoster gets a command to run on the host, and reports the output of the command. Both are
//! short lines in PVM: stock hosters have room for 511 and 255 characters. Every user of the two
//! hosts can read the command. So it has neither invitation nor secret, only the address to call
//! and a *ticket*, which is valid for one call within [`CALL_TIMEOUT`]:
//! ```text
//! guest → host   hello        its number, a nonce
//! host → guest   invitation   with the secret masked
//! guest → host   acceptance
//! ```
//! Each message has an HMAC under the ticket ([`Secret::token`]); the mask is derived from ticket
//! and nonce. If another user reads the ticket off a command line, and calls first, that user
//! becomes a host of the machine. So the hoster's user has to trust the users of the two hosts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use net::hex;
use net::secret::{Domain, Nonce, Secret, Token, random};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use crate::invitation::{Acceptance, Invitation, LINE_MAX, Line};

/// Time limit for a hoster. (Stock hosters give up after 100 s.)
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for one line of a call.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit for a caller's hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which the wait for a call checks for cancellation.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// A line of a call: a message and its proof.
#[derive(Debug, Serialize, Deserialize)]
struct SignedLine {
    #[serde(with = "serde_bytes")]
    text: Vec<u8>,
    proof: [u8; Token::BYTES],
}

impl Line for SignedLine {
    const WORD: &'static str = "nagaya-pvmd-call";
}

/// A caller's first message.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    host: u16,
    nonce: Nonce,
}

/// Masks the invitation's secret, or unmasks it.
fn masked(mut invitation: Invitation, ticket: &Secret, nonce: &Nonce) -> Invitation {
    let half = |which: &[u8]| ticket.token(Domain::Token, &[which, nonce]).bytes();
    let mask = [half(b"first"), half(b"other")].concat();
    invitation.secret.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    invitation
}

/// A call between two sides that have the same ticket.
struct Call<'a> {
    stream: BufReader<TcpStream>,
    ticket: &'a Secret,
}

impl Call<'_> {
    fn send(&mut self, domain: Domain, nonce: &Nonce, text: Vec<u8>) -> Result<(), String> {
        let proof = self.ticket.token(domain, &[nonce, &text]).bytes();
        let line = SignedLine { text, proof }.to_line();
        self.stream.get_mut().write_all(line.as_bytes()).map_err(|error| error.to_string())
    }

    fn receive(&mut self, timeout: Duration) -> Result<SignedLine, String> {
        let set = self.stream.get_ref().set_read_timeout(Some(timeout));
        let mut line = String::new();
        let read = (&mut self.stream).take(2 * LINE_MAX as u64).read_line(&mut line);
        set.and(read).map_err(|error| error.to_string())?;
        SignedLine::parse(&line).ok_or_else(|| "the peer sent an unknown message".into())
    }

    fn verified(&self, said: SignedLine, domain: Domain, nonce: &Nonce) -> Result<Vec<u8>, String> {
        let right = self.ticket.token(domain, &[nonce, &said.text]).matches(&said.proof);
        right.then_some(said.text).ok_or_else(|| "the peer has a different ticket".into())
    }
}

/// The host's end of a call that a guest will make.
pub(crate) struct Expected {
    listener: TcpListener,
    ticket: Secret,
    /// Set to stop the wait for the call.
    pub(crate) cancelled: Arc<AtomicBool>,
}

impl Expected {
    /// Listens for a call with a new ticket.
    pub(crate) fn new() -> std::io::Result<Expected> {
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
        listener.set_nonblocking(true)?;
        Ok(Expected { listener, ticket: Secret::random(), cancelled: Arc::default() })
    }

    /// Returns the address to call and the ticket, for the daemon on `host`.
    pub(crate) fn call_address(&self, guest: u16, host: &str) -> std::io::Result<String> {
        let port = self.listener.local_addr()?.port();
        let here = seen_from(host).unwrap_or_else(crate::identity::host_name);
        let digits = hex::encode(self.ticket.bytes());
        Ok(format!("{guest}@{here}:{port}/{digits}"))
    }

    /// Waits for the call and answers it with the invitation.
    pub(crate) fn answer(&self, invitation: &Invitation) -> Acceptance {
        let end = Instant::now() + CALL_TIMEOUT;
        while Instant::now() < end && !self.cancelled.load(Relaxed) {
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&POLL_INTERVAL));
            let Ok((stream, _)) = self.listener.accept() else { continue };
            let mut call = Call { stream: BufReader::new(stream), ticket: &self.ticket };
            // Other callers are ignored.
            if let Ok(nonce) = hello(&mut call, invitation.host) {
                return accept(&mut call, invitation, &nonce);
            }
        }
        Err("the hoster has not started it".into())
    }
}

fn hello(call: &mut Call, host: u16) -> Result<Nonce, String> {
    call.stream.get_ref().set_nonblocking(false).map_err(|error| error.to_string())?;
    let said = call.receive(HELLO_TIMEOUT)?;
    let said = call.verified(said, Domain::Hello, &Nonce::default())?;
    let hello: Hello = postcard::from_bytes(&said).map_err(|error| error.to_string())?;
    (hello.host == host).then_some(hello.nonce).ok_or_else(|| "another host calls".into())
}

fn accept(call: &mut Call, invitation: &Invitation, nonce: &Nonce) -> Acceptance {
    let line = masked(invitation.clone(), call.ticket, nonce).to_line();
    call.send(Domain::Welcome, nonce, line.into_bytes())?;
    let said = call.receive(LINE_TIMEOUT)?;
    let said = call.verified(said, Domain::Address, nonce)?;
    let acceptance = Acceptance::parse(&String::from_utf8_lossy(&said));
    acceptance.unwrap_or_else(|| Err("it sent an unknown answer".into()))
}

/// Returns the address under which `host` sees this host, if `host` can be resolved.
fn seen_from(host: &str) -> Option<String> {
    let to = (host, 9).to_socket_addrs().ok()?.next()?;
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    // This sends nothing; the kernel only chooses a route.
    socket.connect(to).ok()?;
    let here = socket.local_addr().ok()?.ip();
    Some(if here.is_ipv4() { here.to_string() } else { format!("[{here}]") })
}

/// The guest's end of a call.
pub(crate) struct Calling {
    stream: TcpStream,
    ticket: Secret,
    nonce: Nonce,
}

impl Calling {
    /// Calls the address in `number` and returns the invitation.
    pub(crate) fn begin(number: &str) -> Result<(Calling, Invitation), String> {
        let odd = || {
            format!("--call={number:?} is not an address to call: a daemon makes these, not a user")
        };
        let (host, rest) = number.split_once('@').ok_or_else(odd)?;
        let host = host.parse().map_err(|_| odd())?;
        let (there, digits) = rest.split_once('/').ok_or_else(odd)?;
        let bytes = hex::decode(digits).and_then(|bytes| bytes.try_into().ok()).ok_or_else(odd)?;
        let (ticket, nonce) = (Secret::new(bytes), random());
        let failed = |error| format!("cannot call {there}: {error}");
        let stream = TcpStream::connect(there).map_err(failed)?;
        let copy = stream.try_clone().map_err(failed)?;
        let mut call = Call { stream: BufReader::new(copy), ticket: &ticket };
        let hello = Hello { host, nonce };
        let hello = postcard::to_allocvec(&hello).map_err(|error| error.to_string())?;
        call.send(Domain::Hello, &Nonce::default(), hello)?;
        let said = call.receive(LINE_TIMEOUT)?;
        let said = call.verified(said, Domain::Welcome, &nonce)?;
        let invitation = Invitation::parse(&String::from_utf8_lossy(&said)).ok_or_else(odd)?;
        let invitation = masked(invitation, &ticket, &nonce);
        Ok((Calling { stream, ticket, nonce }, invitation))
    }

    /// Sends the acceptance.
    pub(crate) fn end(self, acceptance: &Acceptance) -> Result<(), String> {
        let mut call = Call { stream: BufReader::new(self.stream), ticket: &self.ticket };
        call.send(Domain::Address, &self.nonce, acceptance.to_line().into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invitation::Place;
    use pvm::tid::Tid;
    use pvm::wire::HostInfo;

    fn place(host: u16) -> Place {
        let info = HostInfo {
            tid: Tid::of_host(host),
            name: "one".into(),
            architecture: "LINUX64".into(),
            speed: 1000,
            signature: 7,
        };
        Place { info, address: vec![1, 2, 3] }
    }

    #[test]
    fn only_the_holder_of_the_ticket_gets_the_invitation() {
        let invitation = Invitation::new(place(1), [9; 32], 2, "two".into());
        let expected = Expected::new().expect("a port");
        let number = expected.call_address(2, "127.0.0.1").expect("an address");
        assert!(number.len() < 120, "{number}");
        let sent = invitation.clone();
        let host = std::thread::spawn(move || expected.answer(&sent));
        let wrong = match number.strip_suffix('0') {
            Some(start) => format!("{start}1"),
            None => format!("{}0", &number[..number.len() - 1]),
        };
        assert!(Calling::begin(&wrong).is_err(), "another ticket");
        assert!(Calling::begin(&number.replacen('2', "3", 1)).is_err(), "another host");
        let (call, got) = Calling::begin(&number).expect("answered");
        assert_eq!(got, invitation);
        call.end(&Ok(place(2))).expect("heard");
        assert_eq!(host.join().expect("no panic"), Ok(place(2)));
        assert!(Calling::begin(&number).is_err(), "a ticket is good for one call");
    }

    #[test]
    fn the_secret_is_never_sent_as_it_is() {
        let invitation = Invitation::new(place(1), [9; 32], 2, "two".into());
        let ticket = Secret::new([1; 32]);
        let sent = masked(invitation.clone(), &ticket, &[3; 16]);
        let same = sent.secret.iter().zip(invitation.secret).filter(|(a, b)| *a == b).count();
        assert!(same < 8, "{same} bytes");
        assert_eq!(masked(sent, &ticket, &[3; 16]), invitation);
    }

    #[test]
    fn an_abandoned_call_is_not_waited_for() {
        let expected = Expected::new().expect("a port");
        expected.cancelled.store(true, Relaxed);
        let invitation = Invitation::new(place(1), [9; 32], 2, "two".into());
        assert!(expected.answer(&invitation).is_err());
    }
}
