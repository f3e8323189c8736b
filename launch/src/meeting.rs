//! The meeting of a job's nodes, without I/O. Each node greets, gets its order, and answers when it
//! is ready. When all are ready, each gets the addresses of all, and begins.
//!
//! The caller reports the bytes that have arrived, and the channels that are closed, to a
//! [`Meeting`], and sends the bytes that this has for the nodes. The meeting decides if the job
//! begins, or which node prevents that.

use std::io::{Error as IoError, ErrorKind};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::hosts::Host;
use crate::messages::{self, Answer, Begun, Kind, Refusal};
use crate::ssh::{self, OUTPUT_MAX};

/// Time that the kernel may take to report the end of a process, after its connections have closed.
const NOTICE_MAX: Duration = Duration::from_millis(100);
/// Time that a command on another host has for its last line, after its channel has closed.
const LAST_LINE_MAX: Duration = Duration::from_secs(5);

/// A job over several nodes, and the messages to its nodes. A node is a process `nagaya NAME
/// --control DESCRIPTOR` on this host and `nagaya NAME --join` on others, with the kind's name.
pub trait Job {
    /// The greeting of its nodes.
    const KIND: Kind;
    /// The first message to a node.
    type Order: Serialize + Send + 'static;
    /// The answer of a node that is ready.
    type Ready: DeserializeOwned + Clone + Send + 'static;
    /// The message to all nodes when all are ready: their addresses.
    type Everybody: Serialize + Clone + Send + 'static;

    /// Returns the order for a node.
    fn order(&self, to: Addressee<'_>) -> Self::Order;

    /// Returns the message to all nodes.
    ///
    /// # Errors
    /// One line with the reason why these nodes cannot work together.
    fn everybody(&self, ready: Vec<Self::Ready>) -> Result<Self::Everybody, String>;
}

/// The node that an order is for.
pub struct Addressee<'a> {
    /// Its number.
    pub node: u32,
    /// The number of nodes.
    pub nodes: u32,
    /// Its host.
    pub host: &'a Host,
    /// The host is this one.
    pub is_here: bool,
    /// All nodes are on this host.
    pub all_are_here: bool,
    /// The job's secret.
    pub secret: [u8; 32],
    /// Seconds without a message after which a node counts as lost; 0 means never.
    pub timeout: u32,
}

impl Addressee<'_> {
    /// Returns the settings that all nodes share, for the environment of a node on another host.
    pub fn variables(&self) -> Vec<(String, String)> {
        if self.is_here { Vec::new() } else { common_settings() }
    }
}

/// The progress of a node.
#[derive(Debug)]
enum State {
    /// Its greeting is expected, after so many bytes of other text.
    Greeting(usize),
    /// It has its order, and is to be ready.
    Ordered,
    Ready,
    /// It has the addresses of all, and is to begin.
    Introduced,
    Begun,
    /// Its channel is closed or of no use. The last line of its command is expected.
    Lost {
        why: IoError,
        output: Vec<u8>,
        until: Instant,
    },
    Refused,
}

/// A node that is expected.
struct Guest<J: Job> {
    /// Its name in messages.
    name: String,
    order: J::Order,
    /// Its command has a standard error, which reports why the node does not begin.
    has_errors: bool,
    state: State,
    /// Bytes that have arrived, and are no whole message yet.
    input: Vec<u8>,
    /// Bytes to send.
    output: Vec<u8>,
    ready: Option<J::Ready>,
}

/// The meeting of the nodes, the origin first.
pub struct Meeting<J: Job> {
    guests: Vec<Guest<J>>,
    /// Time limit for the nodes to be ready, and then for them to begin.
    timeout: Option<Duration>,
    /// The beginning of the time limit.
    since: Instant,
    /// The first refusal, and the time until which the program may turn out to have ended.
    refused: Option<(Error, Instant)>,
}

impl<J: Job> Meeting<J> {
    /// Begins without nodes. A timeout of 0 seconds means none.
    pub fn new(timeout: u32, now: Instant) -> Self {
        let timeout = (timeout > 0).then(|| Duration::from_secs(timeout.into()));
        Self { guests: Vec::new(), timeout, since: now, refused: None }
    }

    /// Expects one more node.
    pub fn expect(&mut self, name: String, order: J::Order, has_errors: bool) {
        let state = State::Greeting(0);
        let (input, output, ready) = (Vec::new(), Vec::new(), None);
        self.guests.push(Guest { name, order, has_errors, state, input, output, ready });
    }

    /// Returns the bytes to send to a node.
    pub fn output(&self, node: usize) -> &[u8] {
        &self.guests[node].output
    }

    /// Records that the first `bytes` of the output are sent.
    pub fn sent(&mut self, node: usize, bytes: usize) {
        self.guests[node].output.drain(..bytes);
    }

    /// Returns true if bytes of a node are expected, or the end of its channel.
    pub fn reads(&self, node: usize) -> bool {
        let guest = &self.guests[node];
        match guest.state {
            State::Greeting(_) | State::Ordered | State::Introduced => true,
            State::Ready => guest.input.is_empty(),
            State::Begun | State::Lost { .. } | State::Refused => false,
        }
    }

    /// Returns true if the standard error of a node's command is to be read.
    pub fn reads_errors(&self, node: usize) -> bool {
        matches!(self.guests[node].state, State::Lost { .. })
    }

    /// Returns true if a node has begun.
    pub fn has_begun(&self, node: usize) -> bool {
        matches!(self.guests[node].state, State::Begun)
    }

    /// Returns true if a node will not begin. That is no error if the program has ended: other
    /// nodes may notice the end before they have begun.
    pub fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Handles bytes of a node.
    pub fn received(&mut self, node: usize, bytes: &[u8], now: Instant) {
        self.guests[node].input.extend_from_slice(bytes);
        loop {
            match self.guests[node].advance() {
                Ok(true) => {}
                Ok(false) => return,
                Err(Lost::Refused(refusal)) => return self.refuse(node, refusal, now),
                Err(Lost::Failed(why)) => return self.lost(node, why, now),
            }
        }
    }

    /// Records that a node's channel is closed, or of no use.
    pub fn lost(&mut self, node: usize, why: IoError, now: Instant) {
        let guest = &mut self.guests[node];
        if matches!(guest.state, State::Begun | State::Lost { .. } | State::Refused) {
            return;
        }
        guest.output.clear();
        let why = messages::closed(why);
        if guest.has_errors {
            guest.state = State::Lost { why, output: Vec::new(), until: now + LAST_LINE_MAX };
        } else {
            self.refuse(node, format!("it does not begin: {why}").into(), now);
        }
    }

    /// Handles bytes of the standard error of a lost node's command; none mean its end.
    pub fn printed(&mut self, node: usize, bytes: &[u8], now: Instant) {
        let State::Lost { output, .. } = &mut self.guests[node].state else { return };
        output.extend_from_slice(bytes);
        if bytes.is_empty() || output.len() as u64 >= OUTPUT_MAX {
            self.refuse_lost(node, now);
        }
    }

    /// Refuses with the last line that a lost node's command printed.
    fn refuse_lost(&mut self, node: usize, now: Instant) {
        let State::Lost { why, output, .. } = &self.guests[node].state else { return };
        let line = ssh::last_line(&output[..]).unwrap_or_else(|| {
            format!(
                "nagaya did not begin there: {why}, without an error message; check that ssh (or \
                 the command in NAGAYA_RSH) runs commands on that host"
            )
        });
        self.refuse(node, line.strip_prefix("nagaya: ").unwrap_or(&line).into(), now);
    }

    fn refuse(&mut self, node: usize, refusal: Refusal, now: Instant) {
        let is_only = self.guests.len() == 1;
        let guest = &mut self.guests[node];
        guest.state = State::Refused;
        guest.output.clear();
        let Refusal { mut line, is_of_program } = refusal;
        if !is_of_program && !is_only {
            line = format!("{}: {line}", guest.name);
        }
        let status = if is_of_program { 126 } else { 125 };
        let error = Error { status, ..J::KIND.failed(&line) };
        let until = if self.has_begun(0) { now + NOTICE_MAX } else { now };
        self.refused.get_or_insert((error, until));
    }

    /// Lets time pass. Returns the result once there is one. The addresses are sent when all nodes
    /// are ready.
    ///
    /// # Errors
    /// One line about the first node that refuses or is late.
    pub fn turn(&mut self, job: &J, now: Instant) -> Option<Result<(), Error>> {
        for node in 0..self.guests.len() {
            if matches!(self.guests[node].state, State::Lost { until, .. } if until <= now) {
                self.refuse_lost(node, now);
            }
        }
        if let Some((error, until)) = &self.refused {
            return (*until <= now).then(|| Err(error.clone()));
        }
        let is_ready = |guest: &Guest<J>| matches!(guest.state, State::Ready);
        if self.guests.iter().all(is_ready) {
            let ready = self.guests.iter().filter_map(|guest| guest.ready.clone()).collect();
            let sent = job.everybody(ready);
            let sent = sent.and_then(|all| messages::encode(&all).map_err(|why| why.to_string()));
            let bytes = match sent {
                Ok(bytes) => bytes,
                Err(line) => return Some(Err(J::KIND.failed(&line))),
            };
            for guest in &mut self.guests {
                (guest.state, guest.output) = (State::Introduced, bytes.clone());
            }
            self.since = now;
        }
        let is_late = self.timeout.is_some_and(|timeout| now - self.since > timeout);
        let silent = |guest: &&Guest<J>| !matches!(guest.state, State::Ready | State::Begun);
        match self.guests.iter().find(silent) {
            None if self.guests.iter().any(is_ready) => None,
            None => Some(Ok(())),
            Some(guest) if is_late => {
                let seconds = self.timeout.unwrap_or_default().as_secs();
                let line = format!("{} does not begin within {seconds} s", guest.name);
                Some(Err(J::KIND.failed(&line)))
            }
            Some(_) => None,
        }
    }
}

/// The reason why a node is lost.
enum Lost {
    Refused(Refusal),
    Failed(IoError),
}

impl From<IoError> for Lost {
    fn from(why: IoError) -> Self {
        Self::Failed(why)
    }
}

impl<J: Job> Guest<J> {
    /// Handles the next message that has arrived. Returns false if none is expected or complete.
    fn advance(&mut self) -> Result<bool, Lost> {
        self.state = match &mut self.state {
            State::Greeting(skipped) => {
                match J::KIND.greeted(&mut self.input, skipped)? {
                    None => return Ok(false),
                    Some(version) if version != J::KIND.version => {
                        let ours = J::KIND.version;
                        let line = format!(
                            "its nagaya is {version}, and here is {ours}: install the same"
                        );
                        return Err(Lost::Refused(line.into()));
                    }
                    Some(_) => {}
                }
                let order = messages::encode(&self.order);
                let too_long = |why: IoError| format!("it does not begin: {why}").into();
                self.output = order.map_err(|why| Lost::Refused(too_long(why)))?;
                State::Ordered
            }
            State::Ordered => match messages::take::<Answer<J::Ready>>(&mut self.input)? {
                None => return Ok(false),
                Some(answer) => {
                    self.ready = Some(answer.map_err(Lost::Refused)?);
                    State::Ready
                }
            },
            State::Introduced => match messages::take::<Answer<Begun>>(&mut self.input)? {
                None => return Ok(false),
                Some(answer) => {
                    let Begun = answer.map_err(Lost::Refused)?;
                    State::Begun
                }
            },
            State::Ready | State::Begun | State::Lost { .. } | State::Refused => return Ok(false),
        };
        Ok(true)
    }
}

/// Returns the error of a channel whose other end is closed.
pub fn end_of_channel() -> IoError {
    ErrorKind::UnexpectedEof.into()
}

/// Returns the variables that must be alike on all hosts: those that choose the network, and the
/// permission to give up rights.
fn common_settings() -> Vec<(String, String)> {
    let all = std::env::vars_os().filter_map(|(name, value)| {
        let pair = (name.into_string().ok()?, value.into_string().ok()?);
        ["UCX_", "NAGAYA_NET", "NAGAYA_KEEP_ACCESS", "NAGAYA_LOG"]
            .iter()
            .any(|own| pair.0.starts_with(own))
            .then_some(pair)
    });
    all.collect()
}
