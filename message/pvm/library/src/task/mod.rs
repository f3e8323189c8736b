//! This process as a PVM task, in safe Rust. The C functions build on it, and programs in Rust use
//! it directly.
//!
//! A [`Task`] enrolls with the [`daemon`] of its host, which gives it a tid and the host's
//! window. Messages to tasks of the same host go directly into their receive buffers (`send`).
//! Messages to other hosts go over the fabric (`far`) or through the daemon. [`intake`] processes
//! arriving messages, [`order`] restores their order, and [`parts`] assembles long ones.

pub mod daemon;
mod far;
pub mod handlers;
mod head;
pub mod intake;
mod managed;
mod manager;
mod neighbours;
pub mod order;
pub mod parts;
mod send;
pub mod threads;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

use fcp::bell::Bell;
use fcp::hold::Peer;
use fcp::member::{Card, Members};
use fcp::memory::Memory;
use fcp::port::Port;
use fcp::protocol::Protocol;
use fcp::window::Window;
use fcp_classic::port;
use pvm::buffers::Buffers;
use pvm::constants::PvmAllowDirect;
use pvm::error::Error;
use pvm::tid::{PVMD, Tid};
use pvm::wire::{Answer, Frame, Notice, Request, VERSION, Welcome};
use sync::wait;

use daemon::{Daemon, Refusal};
use far::{Came, Far};
use handlers::Handlers;
use intake::Intake;
pub use intake::message_of;
use manager::Manager;
use order::Numbers;

/// Interval at which a sleeping task checks that the daemon lives.
const DAEMON_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Polls of the receive buffer in a row. A poll takes some nanoseconds. (The number is small, since
/// wait policies learn how long to spin.)
const POLLS: u32 = 8;
/// Most messages that are processed in a row.
const BATCH: usize = 64;

/// This process, as a task or before it has enrolled.
#[derive(Debug)]
pub struct Task {
    /// Message buffers.
    pub buffers: Buffers,
    /// Routing of messages: `PvmDontRoute`, `PvmAllowDirect` or `PvmRouteDirect`.
    pub route: i32,
    /// The context of messages, as in pvm_setcontext.
    pub context: i32,
    /// The name that ps shows, if the daemon did not start the program.
    pub name: String,
    enrolled: Option<Enrolled>,
}

/// The state of an enrolled task.
#[derive(Debug)]
struct Enrolled {
    welcome: Welcome,
    daemon: Daemon,
    /// The daemon, as a member of the host's window.
    pvmd: Option<Peer>,
    /// The daemon has ended.
    orphan: bool,
    port: Port,
    intake: Intake,
    /// Tasks of other hosts.
    far: Far,
    /// The resource manager, which gets some requests instead of the daemon.
    manager: Manager,
    /// Sequence numbers of sent messages.
    sent: Numbers,
    next_request: u32,
    next_serial: u32,
    /// Bytes of one part of a long message.
    part_size: usize,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// A message has arrived.
    Came,
    /// The time limit passed, or another thread woke the waiter.
    Nothing,
}

impl Task {
    /// Returns a process that is no task yet. `clock` is that of [`Buffers::new`].
    pub fn new(clock: fn() -> (i32, i32)) -> Task {
        Task {
            buffers: Buffers::new(-1, clock),
            route: PvmAllowDirect,
            context: 0,
            name: String::new(),
            enrolled: None,
        }
    }

    /// Enrolls with this host's daemon, unless the process is a task already. `handlers` are the
    /// initial message handlers.
    pub fn enroll(&mut self, handlers: Handlers) -> Result<&Welcome, Refusal> {
        if self.enrolled.is_none() {
            let cookie = std::env::var("PVMEPID").ok().and_then(|text| text.trim().parse().ok());
            let request =
                Request::Enroll { version: VERSION, started_as: cookie, name: self.name.clone() };
            let (daemon, welcome, window) = Daemon::enroll(request)?;
            let refused = |error: fcp::error::WindowError| Refusal {
                error: Error::SysErr,
                lines: vec![format!("no place in the host's window: {error}")],
            };
            let protocol = Protocol::of_number(welcome.protocol).ok_or_else(|| Refusal {
                error: Error::SysErr,
                lines: vec!["the daemon is of another version".into()],
            })?;
            let window = Memory::received(window).map_err(refused)?;
            let window = Arc::new(Window::open(window, None).map_err(refused)?);
            let members = Arc::new(Members::of(window).map_err(refused)?);
            let card = Card { id: welcome.tid.0, group: 0 };
            let place = Some(welcome.tid.place());
            let port = port::join(protocol, &members, card, place).map_err(refused)?;
            let part_size = (port.capacity() / 8).max(4096);
            let host = welcome.tid.host();
            self.buffers.tid = welcome.tid.as_int();
            self.enrolled = Some(Enrolled {
                daemon,
                pvmd: members.entry(PVMD.place()).map(|entry| entry.peer),
                orphan: false,
                port,
                intake: Intake::new(host, handlers),
                far: Far::new(),
                manager: Manager::new(welcome.manager),
                sent: Numbers::new(host),
                next_request: 1,
                next_serial: 1,
                part_size,
                welcome,
            });
        }
        Ok(&self.enrolled.as_ref().expect("enrolled").welcome)
    }

    fn enrolled(&mut self) -> Result<&mut Enrolled, Error> {
        self.enrolled.as_mut().ok_or(Error::SysErr)
    }

    /// Returns true if the process is a task.
    #[inline]
    pub fn is_enrolled(&self) -> bool {
        self.enrolled.is_some()
    }

    /// Returns its tid, if it is a task.
    #[inline]
    pub fn tid(&self) -> Option<Tid> {
        self.enrolled.as_ref().map(|enrolled| enrolled.welcome.tid)
    }

    /// Returns the daemon's welcome.
    pub fn welcome(&self) -> Option<&Welcome> {
        self.enrolled.as_ref().map(|enrolled| &enrolled.welcome)
    }

    /// Returns the arrived messages. Errors: SysErr if the process is no task.
    pub fn intake(&mut self) -> Result<&mut Intake, Error> {
        Ok(&mut self.enrolled()?.intake)
    }

    /// Returns the arrived messages and the buffers.
    pub fn inside(&mut self) -> Result<(&mut Intake, &mut Buffers), Error> {
        let Task { enrolled, buffers, .. } = self;
        Ok((&mut enrolled.as_mut().ok_or(Error::SysErr)?.intake, buffers))
    }

    /// Returns the task's port into the host's window.
    pub fn port(&mut self) -> Result<&mut Port, Error> {
        Ok(&mut self.enrolled()?.port)
    }

    /// Returns the wake-up by which another thread ends a wait.
    pub fn bell(&self) -> Option<Bell> {
        self.enrolled.as_ref().map(|enrolled| enrolled.port.bell())
    }

    /// Ends the task without notifying the daemon: it has ended, or this process is a forked
    /// child. Messages that were not received are lost.
    pub fn leave(&mut self) -> Handlers {
        // A loan would keep the member index in the window in use.
        self.buffers.own();
        let left = self.enrolled.take();
        self.buffers.tid = -1;
        let Some(left) = left else { return Handlers::default() };
        left.far.abandon();
        left.intake.handlers
    }

    /// Flushes messages to tasks of other hosts, before this task ends.
    pub fn finish(&mut self) {
        if let Some(enrolled) = &mut self.enrolled {
            enrolled.far.close();
        }
    }

    /// Sends the daemon a request, and returns its number; [`Task::answer`] returns the answer
    /// later.
    ///
    /// Errors: SysErr if the daemon has ended.
    pub fn post(&mut self, request: Request) -> Result<u32, Error> {
        let enrolled = self.enrolled()?;
        let id = enrolled.next_request;
        enrolled.next_request = id.checked_add(1).unwrap_or(1);
        self.tell(id, request)?;
        Ok(id)
    }

    /// Sends the daemon a request with this number; 0 requests no answer.
    pub fn tell(&mut self, id: u32, request: Request) -> Result<(), Error> {
        if self.ask_manager(id, &request)? {
            return Ok(());
        }
        let Task { enrolled, buffers, .. } = self;
        enrolled.as_mut().ok_or(Error::SysErr)?.tell(id, request, buffers)
    }

    /// Returns the daemon's answer, once it has arrived. Errors: those of the answer.
    pub fn answer(&mut self, id: u32) -> Option<Result<Answer, Error>> {
        let answer = match self.enrolled.as_mut()?.intake.answers.remove(&id) {
            Some(answer) => answer,
            None => return self.managed_answer(id),
        };
        Some(answer.map_err(|code| Error::from_code(code).unwrap_or(Error::DSysErr)))
    }

    /// Sends the daemon a request, and waits for the answer.
    ///
    /// Errors: those of the answer; SysErr if the daemon has ended.
    pub fn ask(&mut self, request: Request) -> Result<Answer, Error> {
        let id = self.post(request)?;
        loop {
            if let Some(answer) = self.answer(id) {
                return answer;
            }
            self.wait(None)?;
        }
    }

    /// Processes arrived messages. Returns true if there were some.
    ///
    /// Errors: SysErr if the process is no task, its receive buffer was destroyed, or the daemon
    /// has ended and no message is left.
    #[inline]
    pub fn take_in(&mut self) -> Result<bool, Error> {
        let Task { enrolled, buffers, .. } = self;
        let Enrolled { port, intake, .. } = enrolled.as_mut().ok_or(Error::SysErr)?;
        let mut came = false;
        for _ in 0..BATCH {
            match port.try_receive() {
                Ok(Some(mut arrived)) => intake.take(&mut arrived, buffers),
                Ok(None) => break,
                Err(_) => return Err(Error::SysErr),
            }
            came = true;
        }
        let enrolled = self.enrolled.as_mut().ok_or(Error::SysErr)?;
        if enrolled.far.is_open() {
            came |= enrolled.take_far(&mut self.buffers)?;
        }
        if enrolled.orphan && !came {
            return Err(Error::SysErr);
        }
        if !enrolled.intake.notices.is_empty() {
            self.heed();
        }
        Ok(came)
    }

    /// Checks that the daemon lives. Errors: SysErr if it has ended.
    pub fn check_daemon(&mut self) -> Result<(), Error> {
        let enrolled = self.enrolled()?;
        enrolled.orphan |= enrolled.daemon.has_gone();
        if enrolled.orphan { Err(Error::SysErr) } else { Ok(()) }
    }

    /// Waits until a message has arrived and processes it. Returns earlier at the given time, or
    /// when another thread wakes it.
    ///
    /// Errors: SysErr if the daemon has ended.
    #[inline]
    pub fn wait(&mut self, until: Option<Instant>) -> Result<Waited, Error> {
        let Task { enrolled, buffers, .. } = self;
        let enrolled = enrolled.as_mut().ok_or(Error::SysErr)?;
        let came = loop {
            if enrolled.poll(buffers)? {
                break true;
            }
            if !enrolled.far.is_open() || enrolled.far.policy.must_sleep() {
                break false;
            }
        };
        if came {
            enrolled.far.policy.found();
        } else {
            return self.wait_long(until, None);
        }
        if !enrolled.intake.notices.is_empty() {
            self.heed();
        }
        Ok(Waited::Came)
    }

    /// Does the same as [`Task::wait`], but also ends once the word differs from `is`. A thread
    /// that changes the word wakes the sleepers on it.
    pub fn wait_while(&mut self, word: &AtomicU32, is: u32) -> Result<Waited, Error> {
        self.wait_long(None, Some((word, is)))
    }

    #[cold]
    fn wait_long(
        &mut self,
        until: Option<Instant>,
        word: Option<(&AtomicU32, u32)>,
    ) -> Result<Waited, Error> {
        let Task { enrolled, buffers, .. } = self;
        let enrolled = enrolled.as_mut().ok_or(Error::SysErr)?;
        if !enrolled.far.arm() {
            return match enrolled.take_far(buffers)? {
                true => {
                    self.heed();
                    Ok(Waited::Came)
                }
                false => Ok(Waited::Nothing),
            };
        }
        let Enrolled { port, intake, .. } = enrolled;
        let doubt = Instant::now() + DAEMON_CHECK_INTERVAL;
        let at_most = until.map_or(doubt, |until| until.min(doubt));
        let came = {
            let received = match word {
                None => port.receive(Some(at_most)),
                Some((word, is)) => port.receive_while(word, is, Some(at_most)),
            };
            match received {
                Ok(Some(mut arrived)) => {
                    intake.take(&mut arrived, buffers);
                    true
                }
                Ok(None) => false,
                Err(_) => return Err(Error::SysErr),
            }
        };
        if came {
            self.heed();
            return Ok(Waited::Came);
        }
        if Instant::now() >= doubt {
            self.check_daemon()?;
        }
        Ok(Waited::Nothing)
    }

    /// Executes the notices that concern messages, and keeps the others.
    #[cold]
    fn heed(&mut self) {
        let Task { enrolled, buffers, .. } = self;
        let Some(enrolled) = enrolled else { return };
        let mut kept = std::collections::VecDeque::new();
        while let Some(notice) = enrolled.intake.notices.pop_front() {
            match notice {
                Notice::Gone(gone) => {
                    enrolled.intake.gone(|tid| tid == gone, buffers);
                    enrolled.sent.forget(gone);
                    enrolled.far.forget(|tid| tid == gone);
                    for (id, request) in enrolled.manager_gone(gone) {
                        // If the daemon has ended, the next wait reports it.
                        let _ = enrolled.tell(id, request, buffers);
                    }
                }
                Notice::HostGone(host) => {
                    enrolled.intake.gone(|tid| tid.host() == host, buffers);
                    enrolled.sent.forget_host(host);
                    enrolled.far.forget(|tid| tid.host() == host);
                }
                Notice::Open => {
                    // If the daemon has ended, the next wait reports it.
                    let _ = enrolled.open_far(buffers);
                }
                notice => kept.push_back(notice),
            }
        }
        enrolled.intake.notices = kept;
    }

    /// Delivers the message in this buffer, which the library made itself.
    pub fn deliver(&mut self, id: i32) -> Result<(), Error> {
        let (intake, buffers) = self.inside()?;
        intake.deliver_buffer(id, buffers)
    }

    /// Drops the message in this buffer if its sender ended before all data arrived. Returns true
    /// if it did.
    pub fn drop_lost(&mut self, id: i32) -> Result<bool, Error> {
        let message = self.buffers.message(id)?;
        let is_lost = message.is_uncertain() && message.settle().is_err();
        if is_lost {
            let (intake, buffers) = self.inside()?;
            intake.arrived.retain(|arrived| *arrived != id);
            buffers.freebuf(id)?;
        }
        Ok(is_lost)
    }

    /// Encodes the message in this buffer, to be stored elsewhere.
    pub fn parcel(&mut self, id: i32) -> Result<Vec<u8>, Error> {
        let tid = self.tid().ok_or(Error::SysErr)?;
        let message = self.buffers.message(id)?;
        message.settle()?;
        message.address(message.header.destination, message.header.tag);
        Ok(head::whole(message, tid, 0))
    }
}

impl Enrolled {
    /// Looks a few times whether a message has come, and takes it.
    #[inline]
    fn poll(&mut self, buffers: &mut Buffers) -> Result<bool, Error> {
        let polled = wait::poll_times(POLLS, || match self.try_take(buffers) {
            Ok(false) => None,
            taken => Some(taken),
        });
        polled.unwrap_or(Ok(false))
    }

    /// Takes a message that has come. Returns false if there is none.
    #[inline]
    fn try_take(&mut self, buffers: &mut Buffers) -> Result<bool, Error> {
        if let Some(mut arrived) = self.port.try_receive().map_err(|_| Error::SysErr)? {
            self.intake.take(&mut arrived, buffers);
            return Ok(true);
        }
        Ok(self.far.is_open() && self.take_far(buffers)?)
    }

    fn tell(&mut self, id: u32, request: Request, buffers: &mut Buffers) -> Result<(), Error> {
        let Enrolled { daemon, port, intake, .. } = self;
        daemon.send(&Frame { id, request }, || {
            let mut came = false;
            while let Ok(Some(mut arrived)) = port.try_receive() {
                intake.take(&mut arrived, buffers);
                came = true;
            }
            came
        })
    }

    fn post(&mut self, request: Request, buffers: &mut Buffers) -> Result<u32, Error> {
        let id = self.next_request;
        self.next_request = id.checked_add(1).unwrap_or(1);
        self.tell(id, request, buffers)?;
        Ok(id)
    }

    /// Opens the fabric, unless it is open, and publishes this task's address.
    fn open_far(&mut self, buffers: &mut Buffers) -> Result<(), Error> {
        if self.far.is_open() {
            return Ok(());
        }
        let Welcome { tid, secret, .. } = &self.welcome;
        let address = self.far.open(*tid, secret, self.port.bell());
        self.tell(0, Request::Publish(address.unwrap_or_default()), buffers)
    }

    /// Requests a direct route to a task of another host, unless that was tried before.
    fn find_far(&mut self, to: Tid, buffers: &mut Buffers) -> Result<(), Error> {
        if !self.far.is_unknown(to) {
            return Ok(());
        }
        self.open_far(buffers)?;
        let id = self.post(Request::Address(to), buffers)?;
        self.far.asked(to, id);
        Ok(())
    }

    /// Processes messages that arrived over the fabric. Returns true if there were some.
    fn take_far(&mut self, buffers: &mut Buffers) -> Result<bool, Error> {
        for (tid, id) in self.far.address_requests() {
            if let Some(answer) = self.intake.answers.remove(&id) {
                let address = match &answer {
                    Ok(Answer::Address(address)) => Some(&address[..]),
                    _ => None,
                };
                self.far.answered(tid, address);
            }
        }
        let mut came = false;
        for _ in 0..BATCH {
            let Some(Came { from, head, data }) = self.far.poll() else { break };
            self.intake.take_far(from, &head, data, buffers);
            came = true;
        }
        Ok(came)
    }
}
