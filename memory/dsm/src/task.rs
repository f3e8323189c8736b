//! A task of a job: it joins, shares memory, synchronizes, exchanges messages, and leaves.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use net::mesh::Mesh;
use net::secret::Secret;
use serde::{Deserialize, Serialize};
use sync::wait::WaitPolicy;

use crate::agent::driver::Driver;
use crate::agent::{Agent, MaySpin, Parts};
use crate::caller;
use crate::error::{DsmError, say_last};
use crate::frame::Frame;
use crate::launch::Launch;
use crate::ledger::Allocation;
use crate::limits;
use crate::load::Shares;
use crate::neighbours::{Door, Handed, Invitation};
use crate::report::{OfLock, OfPage, RideCounts, Totals};
use crate::request_table::{ANY_TAG, Counted, Doorbell, Request, RequestTable, Setting};
use crate::settings::Settings;
use crate::signals::BlockedSignals;
use crate::world::{Card, World};

/// Tags of messages that are not the program's.
const BROADCAST: i32 = -2;
const REDUCE: i32 = -3;

/// A task of a job. One thread at a time may use it.
pub struct Task {
    world: Arc<World>,
    launch: Arc<Launch>,
    table: &'static RequestTable,
    doorbell: Doorbell,
    /// The agent's userfaultfd: see [`neighbours`](crate::neighbours).
    _keep: OwnedFd,
    /// The task's wait policy while others drive the agent, if it may spin before it sleeps.
    wait_policy: Option<WaitPolicy>,
    /// The agent, in the task whose process runs it.
    agent: Option<Agency>,
    page_bytes: usize,
    /// True if the settings enable a report, which names callers.
    reports: bool,
    /// Number of allocations by [`allocate_in_turns`](Self::allocate_in_turns).
    turns: u32,
    balance: Option<Balance>,
}

/// The agent, in the task whose process runs it.
struct Agency {
    driver: Arc<Driver>,
    thread: JoinHandle<()>,
    /// The task's wait policy while it drives the agent.
    wait_policy: WaitPolicy,
}

/// The parts that the first task of a node creates.
struct Seat {
    network: Option<Mesh>,
    door: Door,
    table: &'static RequestTable,
    doorbell: Doorbell,
}

/// The data that it sends to all tasks.
#[derive(Serialize, Deserialize)]
struct Told {
    /// Its network address.
    address: Vec<u8>,
    /// The invitation for tasks of its address space.
    invitation: Invitation,
}

impl Seat {
    fn new(world: &World, secret: &Secret, timeout: Option<Duration>) -> Result<Self, DsmError> {
        let network = match world.nodes.len() {
            1 => None,
            _ => Some(Mesh::new(world.own().node, secret, timeout, Frame::Alive.bytes())?),
        };
        let table = RequestTable::new(world.neighbours().len());
        Ok(Self { network, door: Door::new(table)?, table, doorbell: Doorbell::new()? })
    }

    fn bytes(&self) -> Vec<u8> {
        let address = self.network.as_ref().map_or(&[][..], Mesh::address).to_vec();
        let told = Told { address, invitation: self.door.invitation.clone() };
        postcard::to_allocvec(&told).expect("into memory")
    }
}

impl Told {
    fn parse(bytes: &[u8]) -> Result<Self, DsmError> {
        postcard::from_bytes(bytes).map_err(|_| {
            DsmError::System("another task of this job has another version of libjia".into())
        })
    }
}

/// Reads the data of another task (see `fuzz`).
pub(crate) fn fuzz(bytes: &[u8]) {
    let _ = Told::parse(bytes);
}

/// The division of iterations by speed.
struct Balance {
    shares: Shares,
    since: Instant,
}

/// The error of a task that could not join. Its job waits for it.
pub struct NotJoined {
    /// The cause.
    pub error: DsmError,
    launch: Option<Arc<Launch>>,
}

impl From<DsmError> for NotJoined {
    fn from(error: DsmError) -> Self {
        Self { error, launch: None }
    }
}

impl NotJoined {
    /// Ends the job with this line, or at least this process.
    pub fn end_all(&self, line: &str) -> ! {
        say_last(line);
        match &self.launch {
            Some(launch) => launch.abort(1, line),
            // SAFETY: _exit takes no pointer and never returns.
            None => unsafe { libc::_exit(1) },
        }
    }
}

impl Task {
    /// Joins the job of the launcher. Without a launcher, the job has one task.
    pub fn join() -> Result<Self, NotJoined> {
        let settings = Settings::of_environment()?;
        let launch = Arc::new(Launch::new()?);
        let joined = Self::join_of(launch.clone(), settings);
        joined.map_err(|error| NotJoined { error, launch: Some(launch) })
    }

    fn join_of(launch: Arc<Launch>, mut settings: Settings) -> Result<Self, DsmError> {
        let limit = settings.join;
        let cards = launch.exchange(&Card::new(settings.agreed.clone()).bytes(), limit)?;
        let cards = cards.iter().map(|bytes| Card::parse(bytes)).collect::<Result<Vec<_>, _>>()?;
        settings.agreed = Card::agree(&cards);
        let secret = Secret::new(cards[0].secret);
        let world = Arc::new(World::new(launch.rank(), &cards));
        let may_spin = may_spin(&world);
        let mut seat = match world.own().local {
            0 => {
                limits::check(world.nodes.len())?;
                Some(Seat::new(&world, &secret, settings.agreed.timeout)?)
            }
            _ => None,
        };
        let own = seat.as_ref().map_or_else(Vec::new, Seat::bytes);
        let told = launch.exchange(&own, limit)?;
        let told = world.nodes.iter().map(|tasks| Told::parse(&told[tasks[0] as usize]));
        let told = told.collect::<Result<Vec<_>, _>>()?;
        let (page_bytes, reports) = (settings.agreed.page_bytes, settings.report.is_some());
        let (handed, agent) = match seat.take() {
            None => (told[world.own().node as usize].invitation.accept()?, None),
            Some(Seat { mut network, door, table, doorbell, .. }) => {
                if let Some(network) = &mut network {
                    let addresses: Vec<_> = told.iter().map(|it| &it.address[..]).collect();
                    network.connect(&addresses)?;
                }
                let ring = doorbell.duplicate()?;
                let agent = Agent::new(Parts {
                    settings,
                    world: world.clone(),
                    launch: launch.clone(),
                    table,
                    doorbell,
                    network,
                    may_spin,
                })?;
                let keep = agent.faults();
                let keep = keep.try_clone_to_owned().map_err(|why| {
                    DsmError::System(format!("cannot duplicate a userfaultfd: {why}"))
                })?;
                door.hand_out(world.neighbours().len() - 1, &ring, keep.as_fd())?;
                (Handed { table, doorbell: ring, keep }, Some(start(agent)?))
            }
        };
        let Handed { table, doorbell, keep } = handed;
        let mut task = Self {
            world,
            launch,
            table,
            doorbell,
            _keep: keep,
            wait_policy: may_spin.agents_beside_tasks.then(WaitPolicy::default),
            agent,
            page_bytes,
            reports,
            turns: 0,
            balance: None,
        };
        task.ask(Request::Join)?;
        Ok(task)
    }

    /// Waits until all tasks leave. The shared memory ends then.
    pub fn leave(self) -> Result<(), DsmError> {
        self.leave_by(Request::Leave)
    }

    /// Leaves at the end of a process that has not left. If another task waits for this one for
    /// another reason, the job ends.
    pub fn exit(self) -> Result<(), DsmError> {
        self.leave_by(Request::Exit)
    }

    fn leave_by(mut self, request: Request) -> Result<(), DsmError> {
        self.ask(request)?;
        self.launch.leave();
        self.table.leave();
        // The agent's thread does the rest.
        self.doorbell.ring();
        if let Some(Agency { driver, thread, .. }) = self.agent.take() {
            let _ = thread.join();
            drop(driver);
            self.table.wait_for_others();
        }
        Ok(())
    }

    /// Returns the rank of this task.
    pub fn rank(&self) -> u32 {
        self.world.rank
    }

    /// Returns the number of tasks.
    pub fn size(&self) -> u32 {
        self.world.members.len() as u32
    }

    /// Returns the node of this task.
    pub fn node(&self) -> u32 {
        self.world.own().node
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.world.nodes.len() as u32
    }

    /// Returns the size of a page in bytes.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Allocates zeroed shared memory and returns its address. Blocks of `block` bytes have their
    /// homes at the tasks in turns, from `first` on. All tasks make the same calls, in the same
    /// order, between the same barriers.
    pub fn allocate(&mut self, bytes: u64, block: u64, first: u32) -> Result<usize, DsmError> {
        if bytes == 0 {
            return Err(DsmError::Argument("an allocation of 0 bytes; ask for more".into()));
        }
        self.check_task(first)?;
        let block = if block == 0 { bytes } else { block };
        let allocation = Allocation { bytes, block, first };
        let caller = if self.reports { caller::of_this_call() } else { 0 };
        self.ask(Request::Allocate { allocation, caller }).map(|answer| answer[0] as usize)
    }

    /// As [`allocate`](Self::allocate), with one task as the home of all pages: task 0 at the first
    /// call, then the next one.
    pub fn allocate_in_turns(&mut self, bytes: u64) -> Result<usize, DsmError> {
        let address = self.allocate(bytes, 0, self.turns % self.size())?;
        self.turns += 1;
        Ok(address)
    }

    /// Acquires a lock, and sees the writes made under it.
    pub fn acquire(&mut self, lock: u32) -> Result<(), DsmError> {
        self.ask(Request::Acquire(lock)).map(drop)
    }

    /// Releases a lock.
    pub fn release(&mut self, lock: u32) -> Result<(), DsmError> {
        self.ask(Request::Release(lock)).map(drop)
    }

    /// Waits for all tasks, and sees all their writes.
    pub fn barrier(&mut self) -> Result<(), DsmError> {
        self.ask(Request::Barrier).map(drop)
    }

    /// Waits for all tasks, without effect on memory.
    pub fn meet(&mut self) -> Result<(), DsmError> {
        self.ask(Request::Meet).map(drop)
    }

    /// Sets a condition variable.
    pub fn set(&mut self, variable: u32) -> Result<(), DsmError> {
        self.ask(Request::Set(variable)).map(drop)
    }

    /// Resets a condition variable.
    pub fn reset(&mut self, variable: u32) -> Result<(), DsmError> {
        self.ask(Request::Reset(variable)).map(drop)
    }

    /// Waits until a condition variable is set, and sees the writes made before that.
    pub fn wait(&mut self, variable: u32) -> Result<(), DsmError> {
        self.ask(Request::Wait(variable)).map(drop)
    }

    /// Sets an option of the protocol. All tasks set it alike between the same barriers.
    pub fn configure(&mut self, option: Setting, on: bool) -> Result<(), DsmError> {
        self.ask(Request::Configure { option, on }).map(drop)
    }

    /// Sends a message. Its text must not lie in shared memory.
    pub fn send(&mut self, text: &[u8], to: u32, tag: i32) -> Result<(), DsmError> {
        if tag < 0 {
            return Err(DsmError::Argument(format!("tag {tag}; give one that is not negative")));
        }
        self.post(text, to, tag)
    }

    /// Waits for a message with this sender and tag; `None` accepts any. The text is valid until
    /// the next call.
    pub fn receive(&mut self, from: Option<u32>, tag: Option<i32>) -> Result<&[u8], DsmError> {
        if let Some(from) = from {
            self.check_task(from)?;
        }
        let from = from.map_or(-1, i64::from);
        let answer = self.ask(Request::Receive { from, tag: tag.unwrap_or(ANY_TAG) })?;
        let at = std::ptr::with_exposed_provenance(answer[0] as usize);
        // SAFETY: the agent keeps the text until the task's next request, which needs `self`.
        Ok(unsafe { std::slice::from_raw_parts(at, answer[1] as usize) })
    }

    /// Sends the root's text to all tasks, along a tree of messages.
    pub fn broadcast(&mut self, text: &mut Vec<u8>, root: u32) -> Result<(), DsmError> {
        self.check_task(root)?;
        let (size, place) = (self.size(), self.place(root));
        // Without the highest bit, the place is that of the parent in the tree.
        let above = place.checked_ilog2().map(|bit| 1 << bit);
        if let Some(above) = above {
            *text = self.receive(Some((place - above + root) % size), Some(BROADCAST))?.to_vec();
        }
        let mut below = above.map_or(1, |above| above * 2);
        while place + below < size {
            self.post(text, (place + below + root) % size, BROADCAST)?;
            below *= 2;
        }
        Ok(())
    }

    /// Combines the texts of all tasks at the root, along a tree of messages. `join` combines a
    /// received text into the present one.
    pub fn reduce(
        &mut self,
        text: &mut [u8],
        root: u32,
        join: impl Fn(&mut [u8], &[u8]),
    ) -> Result<(), DsmError> {
        self.check_task(root)?;
        let (size, place) = (self.size(), self.place(root));
        let mut step = 1;
        while step < size {
            if place & step != 0 {
                return self.post(text, (place - step + root) % size, REDUCE);
            }
            if place + step < size {
                let from = (place + step + root) % size;
                let came = self.receive(Some(from), Some(REDUCE))?;
                if came.len() != text.len() {
                    return Err(DsmError::Argument(format!(
                        "a reduction of {} bytes here and {} at task {from}; give the same count",
                        text.len(),
                        came.len()
                    )));
                }
                join(text, came);
            }
            step *= 2;
        }
        Ok(())
    }

    /// Sets whether iterations are divided by speed from now on.
    pub fn balance(&mut self, on: bool) {
        let shares = Shares::even(self.world.members.len());
        self.balance = on.then(|| Balance { shares, since: Instant::now() });
    }

    /// Returns the first and last of the iterations `begin` to `end`, inclusive, that belong to
    /// this task.
    pub fn part(&self, begin: i64, end: i64) -> (i64, i64) {
        let even = || Shares::even(self.world.members.len());
        let shares = self.balance.as_ref().map_or_else(even, |balance| balance.shares.clone());
        shares.part(self.world.rank as usize, begin, end)
    }

    /// Collects the times that all tasks took since the last call.
    pub fn check_load(&mut self) -> Result<(), DsmError> {
        let Some(balance) = &self.balance else { return Ok(()) };
        let tasks = self.world.members.len();
        let mut seconds = vec![0.0; tasks];
        seconds[self.world.rank as usize] = balance.since.elapsed().as_secs_f64();
        let mut text: Vec<u8> = seconds.iter().flat_map(|s: &f64| s.to_ne_bytes()).collect();
        self.reduce(&mut text, 0, |there, came| {
            for (there, came) in there.chunks_exact_mut(8).zip(came.chunks_exact(8)) {
                if came != [0; 8] {
                    there.copy_from_slice(came);
                }
            }
        })?;
        self.broadcast(&mut text, 0)?;
        let number = |bytes: &[u8]| f64::from_ne_bytes(bytes.try_into().expect("eight"));
        let seconds: Vec<f64> = text.chunks_exact(8).map(number).collect();
        if let Some(balance) = &mut self.balance {
            balance.shares.learn(&seconds);
            balance.since = Instant::now();
        }
        Ok(())
    }

    /// Returns the counts of this node.
    pub fn totals(&mut self) -> Result<Totals, DsmError> {
        Ok(self.count(Counted::Node)?.expect("every node counts"))
    }

    /// Returns the counts of the page at an address, or `None` if there is no page.
    pub fn of_page(&mut self, address: usize) -> Result<Option<OfPage>, DsmError> {
        self.count(Counted::Page(address))
    }

    /// Returns the counts of a lock, or `None` if this node has not used it.
    pub fn of_lock(&mut self, lock: u32) -> Result<Option<OfLock>, DsmError> {
        self.count(Counted::Lock(lock))
    }

    /// Returns the counts of rides by the index of their carrier, or `None` if there is no such
    /// carrier.
    pub fn of_rides(&mut self, carrier: u32) -> Result<Option<RideCounts>, DsmError> {
        self.count(Counted::Rides(carrier))
    }

    /// Resets the counts.
    pub fn count_anew(&mut self) -> Result<(), DsmError> {
        self.ask(Request::ResetCounts).map(drop)
    }

    /// Writes the counts as NAGAYA_DSM_STATISTICS says.
    pub fn report(&mut self) -> Result<(), DsmError> {
        self.ask(Request::Report).map(drop)
    }

    /// Ends the job, on all nodes, with one line, if it is not empty.
    pub fn abort(&mut self, status: u8, line: &str) -> ! {
        let request =
            Request::Abort { status, at: line.as_ptr().expose_provenance(), bytes: line.len() };
        let _ = self.ask(request);
        self.launch.abort(status, line)
    }

    fn ask(&mut self, request: Request) -> Result<[u64; 2], DsmError> {
        let local = self.world.own().local;
        self.table.post(local, request);
        let drives = |it: &mut Agency| it.driver.drive(local, request, &mut it.wait_policy);
        if !self.agent.as_mut().is_some_and(drives) {
            self.table.wait(local, &self.doorbell, &mut self.wait_policy);
        }
        self.table.answer_to(local)
    }

    fn count<T>(&mut self, what: Counted) -> Result<Option<T>, DsmError> {
        let mut place = std::mem::MaybeUninit::<T>::uninit();
        let to = place.as_mut_ptr().expose_provenance();
        let answer = self.ask(Request::Count { what, to })?;
        // SAFETY: the agent has written a `T` if its answer is not 0. The callers above and
        // `Agent::count` agree on the type for each `what`.
        Ok((answer[0] != 0).then(|| unsafe { place.assume_init() }))
    }

    fn post(&mut self, text: &[u8], to: u32, tag: i32) -> Result<(), DsmError> {
        self.check_task(to)?;
        let at = text.as_ptr().expose_provenance();
        self.ask(Request::Send { to, tag, at, bytes: text.len() }).map(drop)
    }

    fn check_task(&self, task: u32) -> Result<(), DsmError> {
        let tasks = self.size();
        match task < tasks {
            true => Ok(()),
            false => Err(DsmError::Argument(format!(
                "task {task}: there are {tasks}, from 0 to {}",
                tasks - 1
            ))),
        }
    }

    /// Returns this task's place in a tree whose root is `root`.
    fn place(&self, root: u32) -> u32 {
        (self.world.rank + self.size() - root) % self.size()
    }
}

/// Starts the agent's thread, which blocks all signals.
fn start(agent: Agent) -> Result<Agency, DsmError> {
    proc::log_line!(Info, "dsm", "a node's agent starts: PID {}", std::process::id());
    let driver = Arc::new(Driver::new(agent));
    let drives = driver.clone();
    let _inherited = BlockedSignals::all();
    let thread = std::thread::Builder::new().name("nagaya-agent".into());
    let thread = thread
        .spawn(move || drives.run())
        .map_err(|why| DsmError::System(format!("cannot start the agent's thread: {why}")))?;
    Ok(Agency { driver, thread, wait_policy: WaitPolicy::default() })
}

/// Returns which threads may spin on the processors that this process may use.
fn may_spin(world: &World) -> MaySpin {
    let all = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize);
    let (tasks, nodes) = match all < processors() {
        true => (world.neighbours().len(), 1),
        false => world.on_machine,
    };
    MaySpin {
        agents_beside_tasks: all >= tasks + nodes,
        agents_instead_of_tasks: all >= nodes,
        tasks: all >= tasks,
    }
}

/// Returns the number of online processors of this machine.
fn processors() -> usize {
    // SAFETY: sysconf accesses no memory of the caller.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(online).unwrap_or(1)
}
