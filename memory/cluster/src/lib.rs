//! A space over several machines: each machine has a domain with its own tasks, and all segments
//! have the same addresses everywhere (Shimada et al., Multiple PVAS). Between the domains of one
//! machine the kernel shares memory. Between machines an *agent* on each moves pages, as
//! `coherence::sequential` says. A pointer from a task of another machine is valid, and every read
//! returns the last write.
//!
//! Memory that no other machine touches costs nothing: the kernel alone handles it. When another
//! machine first touches a *block* of it, the block is **published**. userfaultfd watches its
//! mappings from then on, the protocol learns which pages are in use, and a bit tells the gate to
//! ask the agent before memory there changes (`space/gate/c/machines.c`).
//!
//! Machines that also share memory, such as virtual machines of one host, have a [`pool`].
//! Published blocks lie there, and all machines map them.
//!
//! | module | topic |
//! |---|---|
//! | `agent`, `driver` | the agent's thread, as a user of the page engine |
//! | `faults` | threads that are stopped at a page |
//! | `publish`, `blocks` | published blocks, and the pages that are mapped there |
//! | `reset`, `changes` | memory that is reset on all machines |
//! | `lifecycle`, `requests`, `tasks` | the start and end of tasks, and their requests |
//! | `orders` | orders of the owner's other threads to the agent |
//! | `pooling`, `pooled`, `sleepers` | blocks that lie in a pool |
//! | [`join`], [`plan`], `frame` | how a machine joins, and the messages between agents |
//!
//! # Limits
//! A task cannot sleep at a futex until a task of another machine wakes it; delegation forwards its
//! own wake-ups. Writes to text and constants of another machine's tasks are not seen there. PIDs,
//! descriptors and signals are local to a machine.

mod agent;
mod blocks;
mod changes;
mod driver;
mod faults;
mod frame;
#[doc(hidden)]
pub mod fuzz;
pub mod join;
mod lifecycle;
mod orders;
pub mod plan;
pub mod pool;
mod pooled;
mod pooling;
mod publish;
mod requests;
mod reset;
mod sleepers;
mod tasks;

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use coherence::message::NodeId;
use net::mesh::{Mesh, Received};
use pager::{Shared, Stops};
use pvas::{Control, Space};

use agent::{Agent, Parts};
use orders::{Order, Orders};
use plan::Plan;
use pool::Pool;

pub use orders::Outcome;

/// This machine as a part of the cluster.
pub struct Cluster {
    orders: Arc<Orders>,
    me: NodeId,
    control: Control,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Cluster {
    /// Starts the agent of a space that no task has used yet. `early` are messages that have
    /// arrived already.
    pub fn begin(
        space: &Space,
        plan: Plan,
        pool: Option<pool::Memory>,
        mesh: Mesh,
        early: Vec<Received>,
    ) -> Result<Self, String> {
        let line = |why: &dyn std::fmt::Display| why.to_string();
        let pool = pool.map(|it| Pool::meet(it, plan.me as usize, &plan.names)).transpose()?;
        if let Some(pool) = &pool {
            space.control().set_pool(pool.identity.0, pool.identity.1);
        }
        let divided = space.divide(plan.me, &plan.ids).map_err(|why| line(&why))?;
        let base = space.layout().base() as usize;
        let shared = Shared::new(std::os::fd::AsFd::as_fd(&divided.file), base, Stops::All);
        let shared = shared.map_err(|why| line(&why))?;
        for view in divided.views {
            shared.watch(view).map_err(|why| line(&why))?;
        }
        let me = plan.me;
        let orders = Arc::new(Orders::new());
        let (tell, told) = channel();
        let control = space.control();
        let parts = Parts { control, shared, pool, plan, mesh, orders: orders.clone() };
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        let failed = |why| format!("cannot start a thread: {why}");
        let agent = thread("nagaya-machine")
            .spawn(move || match Agent::new(parts) {
                Ok((agent, tid)) => {
                    let _ = tell.send(Ok(tid));
                    agent.run(early);
                }
                Err(why) => drop(tell.send(Err(why))),
            })
            .map_err(failed)?;
        let tid = told.recv().map_err(|_| "its agent has failed")??;
        space.set_agent(tid, orders.clone()).map_err(|why| line(&why))?;
        let watched = orders.clone();
        let events = thread("nagaya-events").spawn(move || watched.watch_events(control));
        let threads = Mutex::new(vec![agent, events.map_err(failed)?]);
        Ok(Self { orders, me, control, threads })
    }

    /// Returns the index of this machine.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Prints, on the first machine, what a task has written to its standard output (1) or error
    /// (2).
    pub fn print(&self, stream: u8, bytes: Vec<u8>) {
        self.orders.send(Order::Print(stream, bytes));
    }

    /// Forwards a signal to the tasks of all other machines.
    pub fn signal(&self, signal: i32) {
        self.orders.send(Order::Signal(signal));
    }

    /// Reports that all tasks of this machine have ended with this status.
    pub fn finish(&self, status: i32) {
        self.orders.send(Order::Finish(status));
    }

    /// Reports that a task has failed with this status, so that all others are killed.
    pub fn fail(&self, status: i32) {
        self.orders.send(Order::Fail(status));
    }

    /// Returns the state of the job so far.
    pub fn outcome(&self) -> Outcome {
        self.orders.outcome()
    }

    /// On the first machine, when all have finished: ends the job on the other machines. Returns
    /// when the messages have been sent.
    pub fn end(&self) {
        self.orders.send_and_wait(Order::End);
    }

    /// Stops the agent. The space can be destroyed afterwards.
    pub fn stop(&self) {
        self.orders.send(Order::Stop);
        let threads = std::mem::take(&mut *self.threads.lock().expect("no panic while held"));
        for thread in threads {
            self.control.announce();
            let _ = thread.join();
        }
    }
}
