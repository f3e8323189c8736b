//! A space over several machines: on each a domain with tasks of its own, and all segments at the
//! same addresses everywhere (Shimada et al., Multiple PVAS). What the domains of one machine get
//! from the kernel, memory that all of them map, here an *agent* on each machine brings page by
//! page, as `coherence::sequential` says: a pointer that a task of one machine is given by one of
//! another just works, and every read sees the last write.
//!
//! Nothing is paid for what no other machine touches: a task's memory is the kernel's affair until
//! another machine first comes to a *block* of it. Only then is the block **published**: its
//! mappings are watched by userfaultfd, what is in use of it is told to the protocol, and a bit
//! tells the gate to ask the agent before memory there changes (`space/gate/c/machines.c`).
//!
//! Machines that share memory, too, say, virtual ones of one host, have a [`pool`]: published
//! blocks lie there, and all map them (`pooled`, `sleepers`).
//!
//! `agent` is the thread, `driver` how it uses the page engine, `faults` what tasks are stopped at,
//! `publish` which blocks others know, `changes` how memory begins
//! anew everywhere, `tasks` what tasks ask and what machines tell each other of them, `desk` what
//! other threads of the owner say to the agent. [`join`] begins a machine, `frame` is what agents
//! say to each other.
//!
//! # What does not work
//! Sleeping at a futex until a task of another machine wakes it; delegation passes its own on.
//! Writing to text and constants of another machine's tasks (it is not seen there). PIDs,
//! descriptors and signals are the machine's own.

mod agent;
mod changes;
mod desk;
mod driver;
mod faults;
mod frame;
pub mod join;
pub mod pool;
mod pooled;
mod publish;
mod sleepers;
mod tasks;

use std::ops::Range;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use coherence::message::NodeId;
use net::mesh::{Mesh, Received};
use pager::{Shared, Stops};
use pvas::{Control, Space};

use agent::{Agent, Parts};
use desk::Desk;
pub use desk::Outcome;
use pool::Pool;

/// Which machines there are, and which is this.
#[derive(Debug, Clone)]
pub struct Plan {
    /// This one.
    pub me: NodeId,
    /// What they are called.
    pub names: Vec<String>,
    /// The IDs of each one's tasks, without gaps from 0 on.
    pub ids: Vec<Range<u32>>,
}

/// This machine among the others.
pub struct Cluster {
    desk: Arc<Desk>,
    me: NodeId,
    control: Control,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Cluster {
    /// Begins to bring pages of a space that nobody has used yet, or to move them to a pool, if
    /// there is one. `early` is what others have said already.
    pub fn begin(
        space: &Space,
        plan: Plan,
        pool: Option<pool::Memory>,
        mesh: Mesh,
        early: Vec<Received>,
    ) -> Result<Self, String> {
        let words = |why: &dyn std::fmt::Display| why.to_string();
        let pool = pool.map(|it| Pool::meet(it, plan.me as usize, &plan.names)).transpose()?;
        if let Some(pool) = &pool {
            space.control().set_pool(pool.identity.0, pool.identity.1);
        }
        let divided = space.divide(plan.me, &plan.ids).map_err(|why| words(&why))?;
        let base = space.layout().base() as usize;
        let shared = Shared::new(std::os::fd::AsFd::as_fd(&divided.file), base, Stops::All);
        let shared = shared.map_err(|why| words(&why))?;
        for view in divided.views {
            shared.watch(view).map_err(|why| words(&why))?;
        }
        let me = plan.me;
        let desk = Arc::new(Desk::new());
        let (tell, told) = channel();
        let control = space.control();
        let parts = Parts { control, shared, pool, plan, mesh, desk: desk.clone() };
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
        space.set_agent(tid, desk.clone()).map_err(|why| words(&why))?;
        let watched = desk.clone();
        let events = thread("nagaya-events").spawn(move || watched.watch_events(control));
        let threads = Mutex::new(vec![agent, events.map_err(failed)?]);
        Ok(Self { desk, me, control, threads })
    }

    /// Which machine this is.
    pub fn me(&self) -> NodeId {
        self.me
    }

    /// Bytes that a task has written to its standard output (1) or error (2): the first machine
    /// prints them.
    pub fn print(&self, stream: u8, bytes: Vec<u8>) {
        self.desk.order(desk::Order::Print(stream, bytes));
    }

    /// Passes a signal on to the tasks of all other machines.
    pub fn signal(&self, signal: i32) {
        self.desk.order(desk::Order::Signal(signal));
    }

    /// All tasks of this machine have ended, and this is their status.
    pub fn finish(&self, status: i32) {
        self.desk.order(desk::Order::Finish(status));
    }

    /// A task has failed with this status, and all others are to be killed.
    pub fn fail(&self, status: i32) {
        self.desk.order(desk::Order::Fail(status));
    }

    /// What has become of the job so far.
    pub fn outcome(&self) -> Outcome {
        self.desk.outcome()
    }

    /// On the first machine, when all have finished: lets the others go, and returns when what
    /// was said is on its way.
    pub fn end(&self) {
        self.desk.ask(desk::Order::End);
    }

    /// Nobody brings pages any more, and nobody looks at the space, which can be destroyed.
    pub fn stop(&self) {
        self.desk.order(desk::Order::Stop);
        let threads = std::mem::take(&mut *self.threads.lock().expect("no panic while held"));
        for thread in threads {
            self.control.announce();
            let _ = thread.join();
        }
    }
}
