//! The conversation with one node over its control channel until the node has begun. Each
//! conversation has a thread, because one host may be slower than others.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::hosts::Host;
use crate::messages::{self, Answer, Begun, Kind, Refusal};
use crate::ssh;

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

/// A control channel.
pub struct Channel {
    /// Messages from the node.
    pub from: Box<dyn Read + Send>,
    /// Messages to the node.
    pub to: Box<dyn Write + Send>,
    /// Standard error of the command that started the node, on another host.
    pub errors: Option<Box<dyn Read + Send>>,
}

/// The progress of a node.
pub enum Said<R> {
    /// The node is ready.
    Ready(R),
    /// The node has begun. The channel must be kept while the program runs, because the node ends
    /// when it is closed.
    Begun(Channel),
    /// The node will not begin. The line is empty if the node has printed the reason itself.
    Refused(Refusal),
}

/// Sends a node its order, receives its address, and sends it the addresses of all nodes.
pub fn converse<J: Job>(
    mut channel: Channel,
    node: usize,
    order: &J::Order,
    everybody: &Receiver<J::Everybody>,
    said: &Sender<(usize, Said<J::Ready>)>,
) {
    let ready = match begin::<J>(&mut channel, order) {
        Ok(ready) => ready,
        Err(refusal) => return drop(said.send((node, Said::Refused(refusal)))),
    };
    let _ = said.send((node, Said::Ready(ready)));
    // The sender is dropped if another node does not begin.
    let Ok(everybody) = everybody.recv() else { return };
    let begun = messages::send(&mut channel.to, &everybody)
        .and_then(|()| messages::receive::<Answer<Begun>>(&mut channel.from))
        .unwrap_or_else(|why| Err(last_words(&mut channel, &why)));
    let last = match begun {
        Ok(Begun) => Said::Begun(channel),
        Err(refusal) => Said::Refused(refusal),
    };
    let _ = said.send((node, last));
}

fn begin<J: Job>(channel: &mut Channel, order: &J::Order) -> Answer<J::Ready> {
    let version = match J::KIND.greeted(&mut channel.from) {
        Ok(version) => version,
        Err(why) => return Err(last_words(channel, &why)),
    };
    if version != J::KIND.version {
        let ours = J::KIND.version;
        let line = format!("its nagaya is {version}, and here is {ours}: install the same");
        return Err(line.into());
    }
    messages::send(&mut channel.to, order)
        .and_then(|()| messages::receive::<Answer<J::Ready>>(&mut channel.from))
        .unwrap_or_else(|why| Err(last_words(channel, &why)))
}

/// Returns the reason why no message arrived: the last line that the command printed.
fn last_words(channel: &mut Channel, why: &std::io::Error) -> Refusal {
    let line = match &mut channel.errors {
        Some(errors) => ssh::last_line(errors).unwrap_or_else(|| {
            format!(
                "nagaya did not begin there: {why}, without an error message; check that ssh (or \
                 the command in NAGAYA_RSH) runs commands on that host"
            )
        }),
        None => format!("it does not begin: {why}"),
    };
    line.strip_prefix("nagaya: ").unwrap_or(&line).into()
}

/// Returns the variables that must be alike on all hosts: those that choose the network, and the
/// permission to give up rights.
fn common_settings() -> Vec<(String, String)> {
    let all = std::env::vars_os().filter_map(|(name, value)| {
        let pair = (name.into_string().ok()?, value.into_string().ok()?);
        ["UCX_", "NAGAYA_NET", "NAGAYA_KEEP_ACCESS"]
            .iter()
            .any(|own| pair.0.starts_with(own))
            .then_some(pair)
    });
    all.collect()
}
