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
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use net::hex;
use net::secret::{Domain, Nonce, Secret, Token, random};
use rustix::event::Timespec;
use serde::{Deserialize, Serialize};

use crate::callers::Callers;
use crate::invitation::{Acceptance, Invitation, LINE_MAX, Line};
use crate::timed_read::TimedReader;

/// Time limit for a hoster. (Stock hosters give up after 100 s.)
pub const CALL_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for a whole line of a call, after the hello.
const LINE_TIMEOUT: Duration = Duration::from_secs(60);
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
    stream: BufReader<TimedReader<TcpStream>>,
    ticket: &'a Secret,
}

impl<'a> Call<'a> {
    fn new(stream: TcpStream, ticket: &'a Secret) -> Self {
        Call { stream: BufReader::new(TimedReader::new(stream, LINE_TIMEOUT)), ticket }
    }

    fn send(&mut self, domain: Domain, nonce: &Nonce, text: Vec<u8>) -> Result<(), String> {
        let proof = self.ticket.token(domain, &[nonce, &text]).bytes();
        let line = SignedLine { text, proof }.to_line();
        // The socket's buffer has room for a line, so this does not block.
        let mut to = self.stream.get_ref().inner();
        to.write_all(line.as_bytes()).map_err(|error| error.to_string())
    }

    fn receive(&mut self) -> Result<SignedLine, String> {
        self.stream.get_mut().restart(LINE_TIMEOUT);
        let mut line = String::new();
        let read = (&mut self.stream).take(2 * LINE_MAX as u64).read_line(&mut line);
        read.map_err(|error| error.to_string())?;
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
    /// The host part of the address to call.
    here: String,
    ticket: Secret,
    /// Set to stop the wait for the call.
    pub(crate) cancelled: Arc<AtomicBool>,
}

impl Expected {
    /// Listens for a call from the daemon on `host`, with a new ticket. The port is open only on
    /// the interface that leads to that host, if the host can be resolved.
    pub(crate) fn new(host: &str) -> std::io::Result<Expected> {
        let here = seen_from(host);
        let listener = match here.and_then(|here| TcpListener::bind((here, 0)).ok()) {
            Some(listener) => listener,
            None => TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?,
        };
        listener.set_nonblocking(true)?;
        let here = match here {
            Some(IpAddr::V4(here)) => here.to_string(),
            Some(IpAddr::V6(here)) => format!("[{here}]"),
            None => crate::identity::host_name(),
        };
        Ok(Expected { listener, here, ticket: Secret::random(), cancelled: Arc::default() })
    }

    /// Returns the address to call and the ticket, for the daemon of the host with this number.
    pub(crate) fn call_address(&self, guest: u16) -> std::io::Result<String> {
        let port = self.listener.local_addr()?.port();
        let digits = hex::encode(self.ticket.bytes());
        Ok(format!("{guest}@{}:{port}/{digits}", self.here))
    }

    /// Waits for the call and answers it with the invitation.
    pub(crate) fn answer(&self, invitation: &Invitation) -> Acceptance {
        let end = Instant::now() + CALL_TIMEOUT;
        let mut callers = Callers::default();
        while Instant::now() < end && !self.cancelled.load(Relaxed) {
            for (stream, line) in callers.next(&self.listener, &POLL_INTERVAL) {
                let mut call = Call::new(stream, &self.ticket);
                // Other callers are ignored.
                if let Ok(nonce) = hello(&call, &line, invitation.host) {
                    return accept(&mut call, invitation, &nonce);
                }
            }
        }
        Err("the hoster has not started it".into())
    }
}

/// Checks the first line of a caller.
fn hello(call: &Call, line: &str, host: u16) -> Result<Nonce, String> {
    let said = SignedLine::parse(line).ok_or("the peer sent an unknown message")?;
    let said = call.verified(said, Domain::Hello, &Nonce::default())?;
    let hello: Hello = postcard::from_bytes(&said).map_err(|error| error.to_string())?;
    call.stream.get_ref().inner().set_nonblocking(false).map_err(|error| error.to_string())?;
    (hello.host == host).then_some(hello.nonce).ok_or_else(|| "another host calls".into())
}

fn accept(call: &mut Call, invitation: &Invitation, nonce: &Nonce) -> Acceptance {
    let line = masked(invitation.clone(), call.ticket, nonce).to_line();
    call.send(Domain::Welcome, nonce, line.into_bytes())?;
    let said = call.receive()?;
    let said = call.verified(said, Domain::Address, nonce)?;
    let acceptance = Acceptance::parse(&String::from_utf8_lossy(&said));
    acceptance.unwrap_or_else(|| Err("it sent an unknown answer".into()))
}

/// Returns the address under which `host` sees this host, if `host` can be resolved.
fn seen_from(host: &str) -> Option<IpAddr> {
    let to = (host, 9).to_socket_addrs().ok()?.next()?;
    let socket = UdpSocket::bind(if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" }).ok()?;
    // This sends nothing; the kernel only chooses a route.
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Reads a line of a call (see `fuzz`). Returns true if it is one.
pub(crate) fn fuzz(line: &str) -> bool {
    let said = SignedLine::parse(line);
    if let Some(said) = &said {
        let _ = postcard::from_bytes::<Hello>(&said.text);
    }
    said.is_some()
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
        let mut call = Call::new(copy, &ticket);
        let hello = Hello { host, nonce };
        let hello = postcard::to_allocvec(&hello).map_err(|error| error.to_string())?;
        call.send(Domain::Hello, &Nonce::default(), hello)?;
        let said = call.receive()?;
        let said = call.verified(said, Domain::Welcome, &nonce)?;
        let invitation = Invitation::parse(&String::from_utf8_lossy(&said)).ok_or_else(odd)?;
        let invitation = masked(invitation, &ticket, &nonce);
        Ok((Calling { stream, ticket, nonce }, invitation))
    }

    /// Sends the acceptance.
    pub(crate) fn end(self, acceptance: &Acceptance) -> Result<(), String> {
        let mut call = Call::new(self.stream, &self.ticket);
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
        let expected = Expected::new("127.0.0.1").expect("a port");
        let number = expected.call_address(2).expect("an address");
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
        let expected = Expected::new("127.0.0.1").expect("a port");
        expected.cancelled.store(true, Relaxed);
        let invitation = Invitation::new(place(1), [9; 32], 2, "two".into());
        assert!(expected.answer(&invitation).is_err());
    }

    /// Fetches an invitation while `others` connections to the port run `disturb`, each in a
    /// thread. Returns those connections.
    fn fetch_beside(others: usize, disturb: fn(&mut TcpStream, &AtomicBool)) -> Vec<TcpStream> {
        let invitation = Invitation::new(place(1), [9; 32], 2, "two".into());
        let expected = Expected::new("127.0.0.1").expect("a port");
        let number = expected.call_address(2).expect("an address");
        let port = expected.listener.local_addr().expect("an address");
        let done = AtomicBool::new(false);
        let answer = || expected.answer(&invitation);
        std::thread::scope(|scope| {
            let host = scope.spawn(answer);
            let others: Vec<_> = (0..others)
                .map(|_| {
                    let other = TcpStream::connect(port).expect("it listens");
                    let kept = other.try_clone().expect("a descriptor");
                    scope.spawn(|| {
                        let mut other = other;
                        disturb(&mut other, &done)
                    });
                    kept
                })
                .collect();
            let fetched = Calling::begin(&number);
            done.store(true, Relaxed);
            let (call, got) = fetched.expect("answered beside the others");
            assert_eq!(got, invitation);
            call.end(&Ok(place(2))).expect("heard");
            assert_eq!(host.join().expect("no panic"), Ok(place(2)));
            others
        })
    }

    #[test]
    fn a_caller_that_drips_bytes_does_not_keep_the_guest_waiting() {
        fetch_beside(1, |other, done| {
            while !done.load(Relaxed) && other.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
    }

    #[test]
    fn many_silent_callers_do_not_keep_the_guest_waiting() {
        fetch_beside(100, |_, _| {});
    }

    #[test]
    fn the_port_is_open_only_where_the_guest_calls() {
        let expected = Expected::new("127.0.0.1").expect("a port");
        let address = expected.listener.local_addr().expect("an address");
        assert_eq!(address.ip(), IpAddr::from([127, 0, 0, 1]));
    }
}
