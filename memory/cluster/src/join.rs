//! How a machine joins: it receives its order from the process that started it, replies with its
//! network address, and connects to the other machines. In the terms of [`launch::messages`]: an
//! [`Order`], then [`Ready`] and [`Everybody`].

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

use launch::control::{self, Control};
use launch::messages::{Begun, Kind, Refusal};
use net::mesh::{Mesh, Received};
use net::secret::Secret;
use pvas::Space;
use serde::{Deserialize, Serialize};

use crate::Cluster;
use crate::frame::{Frame, Message};
use crate::plan::Plan;
use crate::pool::Memory;

/// Version of the messages: both sides must have the same. The number rises with each change of
/// these types and of `frame`.
pub const KIND: Kind = Kind { name: "run", version: concat!(env!("CARGO_PKG_VERSION"), "-5") };

/// The first message to a machine: its part of the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The index of the machine.
    pub machine: u32,
    /// The secret of the job.
    pub secret: [u8; 32],
    /// Seconds after which a silent machine counts as lost; 0: never.
    pub timeout: u32,
    /// The names of all machines.
    pub names: Vec<String>,
    /// The IDs of each machine's tasks.
    pub ids: Vec<Range<u32>>,
    /// Start of the space, the same on all machines.
    pub window: u64,
    /// The path of the memory that the machines share, and the mark by which they recognize it.
    pub pool: Option<(Vec<u8>, u64)>,
    /// The arguments of `nagaya run` on the machine.
    pub arguments: Vec<Vec<u8>>,
    /// The environment of tasks.
    pub environment: Vec<Vec<u8>>,
    /// The working directory.
    pub directory: Vec<u8>,
    /// Environment variables of the network, which replace those of the machine.
    pub variables: Vec<(String, String)>,
    /// All machines are domains of this host.
    pub all_are_here: bool,
}

/// The reply of a machine: it is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Its network address.
    pub address: Vec<u8>,
}

/// To each machine: the addresses of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Everybody {
    /// All machines, by index.
    pub machines: Vec<Ready>,
}

/// A machine that is connected to all others.
pub struct Joined {
    /// Its part of the job.
    pub order: Order,
    /// The connections, and messages that have arrived already.
    connected: Option<(Mesh, Vec<Received>)>,
    control: Control,
    /// Readable when the process that started this one has ended.
    closed: OwnedFd,
}

/// Receives the order. It sets environment variables, so this process must have no other thread
/// yet.
pub fn order(control: &mut Control) -> Result<Order, String> {
    control.greet(KIND)?;
    let order: Order = control.receive()?;
    for (name, value) in &order.variables {
        // SAFETY: no other thread reads the environment: this function's callers have started none
        // yet.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(order)
}

/// Connects to the other machines. Errors are also sent to the process that started this one.
pub fn meet(mut control: Control, order: Order) -> Result<Joined, String> {
    let connected = connect(&mut control, &order);
    match connected {
        Ok((mesh, early, closed)) => {
            Ok(Joined { order, connected: Some((mesh, early)), control, closed })
        }
        Err(why) => Err(refuse(&mut control, why)),
    }
}

/// Sends the line that says why this machine does not start, and returns it.
pub fn refuse(control: &mut Control, line: String) -> String {
    let _ = control.answer::<Begun>(Err(Refusal { line: line.clone(), is_of_program: false }));
    line
}

fn connect(control: &mut Control, order: &Order) -> Result<(Mesh, Vec<Received>, OwnedFd), String> {
    let timeout = (order.timeout > 0).then(|| Duration::from_secs(order.timeout.into()));
    let alive = Frame::Word(Message::Alive).bytes();
    let new = if order.all_are_here { Mesh::within_host } else { Mesh::new };
    let mesh = new(order.machine, &Secret::new(order.secret), timeout, alive);
    let mut mesh = mesh.map_err(|why| why.to_string())?;
    control.answer(Ok(Ready { address: mesh.address().to_vec() }))?;
    let Everybody { machines } = control.receive()?;
    let count = machines.len();
    if [order.names.len(), order.ids.len()] != [count; 2] || order.machine as usize >= count {
        return Err("the order is inconsistent: install the same nagaya on all machines".into());
    }
    let closed = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    let closed = closed.map_err(|why| format!("cannot make an eventfd: {why}"))?;
    control.watch(&closed).map_err(|why| format!("cannot start a thread: {why}"))?;
    let addresses: Vec<&[u8]> = machines.iter().map(|it| &it.address[..]).collect();
    mesh.connect(&addresses).map_err(|why| why.to_string())?;
    let names: Vec<&str> = order.names.iter().map(|name| &name[..]).collect();
    let early = mesh.meet(&names, control::is_closed)?;
    Ok((mesh, early, closed))
}

impl Joined {
    /// Joins a space that no task has used yet with those of the other machines. May be called
    /// once.
    pub fn begin(&mut self, space: &Space, pool: Option<Memory>) -> Result<Cluster, String> {
        let Order { machine, names, ids, window, .. } = self.order.clone();
        // Pages keep their addresses on all machines.
        assert_eq!(space.layout().window(), window, "the space is where the order wants it");
        let (mesh, early) = self.connected.take().ok_or("the machine has joined already")?;
        Cluster::begin(space, Plan { me: machine, names, ids }, pool, mesh, early)
    }

    /// Returns the IDs of this machine's tasks.
    pub fn ids(&self) -> Range<u32> {
        self.order.ids[self.order.machine as usize].clone()
    }

    /// Returns the number of tasks on all machines.
    pub fn tasks(&self) -> u32 {
        self.order.ids.iter().map(|ids| ids.len() as u32).sum()
    }

    /// Reports that the tasks of this machine run.
    pub fn begun(&mut self) -> Result<(), String> {
        let _ = &self.closed;
        self.control.answer(Ok(Begun))
    }

    /// Sends the line that says why this machine does not start, and returns it.
    pub fn refuse(&mut self, line: String) -> String {
        refuse(&mut self.control, line)
    }
}
