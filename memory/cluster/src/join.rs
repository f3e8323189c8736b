//! How a machine begins: it is told what it is to do, says where it is, and meets the others. In
//! the terms of [`launch::messages`]: first an [`Order`], then [`Ready`] and [`Everybody`].

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::Duration;

use launch::control::{self, Control};
use launch::messages::{Begun, Kind, Refusal};
use nagaya_layout::REGION_START;
use net::mesh::{Mesh, Received};
use net::secret::Secret;
use pvas::Space;
use serde::{Deserialize, Serialize};

use crate::frame::{Frame, Word};
use crate::pool::Memory;
use crate::{Cluster, Plan};

/// Both sides must be of one kind: the number rises with every change here and of frames.
pub const KIND: Kind = Kind { name: "run", version: concat!(env!("CARGO_PKG_VERSION"), "-2") };

/// To a machine, at first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Which it is.
    pub machine: u32,
    /// The job's.
    pub secret: [u8; 32],
    /// Seconds after which a silent machine is lost; 0: never.
    pub timeout: u32,
    /// The hosts' names, of all machines.
    pub names: Vec<String>,
    /// The IDs of each machine's tasks.
    pub ids: Vec<Range<u32>>,
    /// What machines have in common as memory, by its path, and the mark by which they know it.
    pub pool: Option<(Vec<u8>, u64)>,
    /// The arguments of `nagaya run` there.
    pub arguments: Vec<Vec<u8>>,
    /// The environment of tasks.
    pub environment: Vec<Vec<u8>>,
    /// The directory that relative paths mean.
    pub directory: Vec<u8>,
    /// The network's settings, where they are not those of the machine's own environment.
    pub variables: Vec<(String, String)>,
}

/// From a machine: it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Where others find it.
    pub address: Vec<u8>,
}

/// To each machine: where all are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Everybody {
    /// In order.
    pub machines: Vec<Ready>,
}

/// A machine that has met all others.
pub struct Joined {
    /// What it is to do.
    pub order: Order,
    /// The way to the others, and what those have said already.
    met: Option<(Mesh, Vec<Received>)>,
    control: Control,
    /// Written when who has started us goes.
    bell: OwnedFd,
}

/// Hears what this machine is to do. Nothing else of this process may have begun: the order has
/// variables for its environment.
pub fn order(control: &mut Control) -> Result<Order, String> {
    control.greet(KIND)?;
    let order: Order = control.receive()?;
    for (name, value) in &order.variables {
        // SAFETY: there is no other thread yet.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(order)
}

/// Meets the others. Whatever goes wrong is told to who has started us.
pub fn meet(mut control: Control, order: Order) -> Result<Joined, String> {
    let met = find(&mut control, &order);
    match met {
        Ok((mesh, early, bell)) => Ok(Joined { order, met: Some((mesh, early)), control, bell }),
        Err(why) => Err(refuse(&mut control, why)),
    }
}

/// Says that this machine does not begin; the line.
pub fn refuse(control: &mut Control, line: String) -> String {
    let _ = control.answer::<Begun>(Err(Refusal { line: line.clone(), is_of_program: false }));
    line
}

fn find(control: &mut Control, order: &Order) -> Result<(Mesh, Vec<Received>, OwnedFd), String> {
    let timeout = (order.timeout > 0).then(|| Duration::from_secs(order.timeout.into()));
    let alive = Frame::Word(Word::Alive).bytes();
    let mesh = Mesh::new(order.machine, &Secret::new(order.secret), timeout, alive);
    let mut mesh = mesh.map_err(|why| why.to_string())?;
    control.answer(Ok(Ready { address: mesh.address().to_vec() }))?;
    let Everybody { machines } = control.receive()?;
    let count = machines.len();
    if [order.names.len(), order.ids.len()] != [count; 2] || order.machine as usize >= count {
        return Err("the order makes no sense".into());
    }
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
    let bell = bell.map_err(|why| format!("cannot make an eventfd: {why}"))?;
    control.watch(&bell).map_err(|why| format!("cannot start a thread: {why}"))?;
    let addresses: Vec<&[u8]> = machines.iter().map(|it| &it.address[..]).collect();
    mesh.connect(&addresses).map_err(|why| why.to_string())?;
    let names: Vec<&str> = order.names.iter().map(|name| &name[..]).collect();
    let early = mesh.meet(&names, control::is_closed)?;
    Ok((mesh, early, bell))
}

impl Joined {
    /// Makes the space, which nobody has used yet, one with those of the others. Once.
    pub fn begin(&mut self, space: &Space, pool: Option<Memory>) -> Result<Cluster, String> {
        let Order { machine, names, ids, .. } = self.order.clone();
        if space.layout().window() != REGION_START {
            return Err("the addresses of the space are in use here".into());
        }
        let (mesh, early) = self.met.take().ok_or("it has begun already")?;
        Cluster::begin(space, Plan { me: machine, names, ids }, pool, mesh, early)
    }

    /// The IDs of this machine's tasks.
    pub fn ids(&self) -> Range<u32> {
        self.order.ids[self.order.machine as usize].clone()
    }

    /// How many tasks all machines have.
    pub fn tasks(&self) -> u32 {
        self.order.ids.iter().map(|ids| ids.len() as u32).sum()
    }

    /// Its tasks run.
    pub fn begun(&mut self) -> Result<(), String> {
        let _ = &self.bell;
        self.control.answer(Ok(Begun))
    }

    /// It does not begin, for this reason.
    pub fn refuse(&mut self, line: String) -> String {
        refuse(&mut self.control, line)
    }
}
