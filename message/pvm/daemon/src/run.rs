//! The daemon's event loop: waits for events, passes them to the state machine, and
//! executes its actions.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nagaya_server::{Failure, job};
use pvm::error::Error;
use pvm::protocol::SM_STTASK;
use pvm::tid::Tid;
use pvm::wire::Welcome;

use crate::connection::Connection;
use crate::event::{Action, Clock, Event};
use crate::load::Load;
use crate::options::Options;
use crate::plugin;
use crate::processes::read_output;
use crate::program::{self, ProgramSpec};
use crate::running::{Beginning, RETRY_MIN, Running, system};
use crate::socket::{self, Refused};
use crate::source::Source;
use crate::space::Fate;
use crate::tasks::Link;

/// Longest retry interval for messages that found no room.
const RETRY_MAX: Duration = Duration::from_millis(20);
/// Time that tasks have to end when the virtual machine is halted.
const HALT_PATIENCE: Duration = Duration::from_secs(2);

/// Runs the daemon of a new virtual machine until it is halted. Calls `ready` once tasks can
/// connect.
pub fn run(options: &Options, ready: impl FnOnce(&Path)) -> Result<(), Refused> {
    begin(options, Beginning::First, |running| ready(&running.path))
}

/// Runs a daemon. Calls `ready` once tasks can connect.
pub(crate) fn begin(
    options: &Options,
    beginning: Beginning,
    ready: impl FnOnce(&Running),
) -> Result<(), Refused> {
    let (listener, path) = socket::listen(options)?;
    let (beginning, acceptances) = match beginning {
        Beginning::Leader { secret, peers, acceptances } => {
            (Beginning::Leader { secret, peers, acceptances: Vec::new() }, acceptances)
        }
        beginning => (beginning, Vec::new()),
    };
    let made = Running::new(options, beginning, listener, path.clone());
    let mut running = made.map_err(|failure| {
        socket::remove(&path);
        Refused::System(failure)
    })?;
    ready(&running);
    if options.quiet {
        running.log.hush();
    }
    if !acceptances.is_empty() {
        running.tell(Event::Launched(acceptances));
    }
    running.tell(Event::Begin);
    let result = running.serve().map_err(Refused::System);
    socket::remove(&running.path);
    result
}

impl Running {
    fn serve(&mut self) -> Result<(), Failure> {
        while !self.is_over() {
            self.poll_fabric();
            let silence = self.network.deadline();
            let until = |time: Instant| time.saturating_duration_since(Instant::now());
            let nap = match self.network.may_sleep() {
                true => self.halting.into_iter().chain(silence).map(until).min(),
                false => Some(Duration::ZERO),
            };
            let retry = self.post.waits().then_some(self.retry);
            let nap = retry.into_iter().chain(nap).min();
            let events = self.poll.wait(nap).map_err(system("wait for events"))?;
            for number in events {
                self.happened(number);
            }
            if self.post.waits() {
                let went = self.post.try_again();
                self.retry = if went { RETRY_MIN } else { (self.retry * 2).min(RETRY_MAX) };
            }
            let Running { pressure, post, network, poll, daemon, .. } = self;
            pressure.resume(daemon.host, post, network, poll);
            self.post.give_back();
        }
        if !self.network.farewell() {
            self.log.say("some hosts did not take their last letters");
        }
        Ok(())
    }

    /// Returns true if the virtual machine has ended. Kills tasks that did not end in time.
    fn is_over(&mut self) -> bool {
        let Some(by) = self.halting else { return false };
        if Instant::now() < by {
            return !self.processes.are_there();
        }
        self.processes.kill_all(&mut self.poll);
        true
    }

    fn happened(&mut self, number: u64) {
        match self.poll.get(number) {
            Some(Source::Listener(_)) => self.accept(number),
            Some(Source::Signals(_)) => self.tell(Event::Terminate),
            Some(Source::Connection(_)) => self.read(number),
            Some(Source::Process(tid, _)) => {
                let tid = *tid;
                self.poll.remove(number);
                self.processes.left(tid);
                self.read_all(tid);
                self.tell(Event::Ended(tid));
            }
            Some(Source::Child(tid, _)) => {
                let tid = *tid;
                self.child_ended(number, tid, 0);
            }
            Some(Source::Stub(tid, stub)) => {
                let (tid, fates) = (*tid, stub.read());
                fates.into_iter().for_each(|fate| self.act_in_space(number, tid, fate));
            }
            Some(Source::Output(..)) => self.read_output(number),
            Some(Source::Fabric(_)) => self.poll_fabric(),
            Some(Source::Starts(_)) => self.take_started(),
            None => {}
        }
    }

    /// Handles the end of the program that the daemon had started for this task. `status` is the
    /// wait status of a program in the space.
    fn child_ended(&mut self, number: u64, tid: Tid, status: i32) {
        self.poll.remove(number);
        self.read_all(tid);
        let usage = self.processes.reap(tid, status);
        self.post.process_ended();
        self.tell(Event::Reaped(tid, usage));
        if !self.processes.has_enrolled(tid) {
            self.tell(Event::Ended(tid));
        }
    }

    /// Reads the requests and output that a task left at its end.
    fn read_all(&mut self, tid: Tid) {
        let (link, output) = self.processes.sources(tid);
        if let Some(number) = output {
            self.read_output(number);
        }
        if let Some(number) = link {
            self.read(number);
        }
    }

    fn read(&mut self, number: u64) {
        let Some(Source::Connection(connection)) = self.poll.get(number) else { return };
        let came = connection.read();
        let pid = connection.pid;
        for frame in came.frames {
            self.tell(Event::Frame(number, pid, frame));
            self.pressure.hold_back(&self.poll, number);
        }
        if let Some(why) = came.end {
            if let Some(why) = why {
                self.log.say(&format!("process {pid} sends {why}"));
            }
            self.close(number);
        }
    }

    /// Handles the end of a connection, or closes it.
    fn close(&mut self, link: Link) {
        if self.poll.remove(link).is_none() {
            return;
        }
        // The task's output is passed on before its end.
        let output = self.processes.at(link).and_then(|tid| self.processes.sources(tid).1);
        if let Some(number) = output {
            self.read_output(number);
        }
        self.tell(Event::Closed(link));
    }

    fn read_output(&mut self, number: u64) {
        let Some(Source::Output(tid, fd)) = self.poll.get(number) else { return };
        let tid = *tid;
        let (bytes, more) = read_output(fd);
        if !bytes.is_empty() {
            self.tell(Event::Output(tid, bytes));
            self.pressure.hold_back(&self.poll, number);
        }
        if !more {
            self.poll.remove(number);
            self.processes.output_ended(tid);
            self.tell(Event::OutputEnd(tid));
        }
    }

    fn accept(&mut self, number: u64) {
        loop {
            let Some(Source::Listener(listener)) = self.poll.get(number) else { return };
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // Probably out of descriptors: let the process wait until some are free.
                    self.log.say(&format!("a task cannot connect: {error}"));
                    std::thread::sleep(RETRY_MAX);
                    return;
                }
            };
            match job::check_peer(&stream) {
                Ok(pid) => {
                    let _ = stream.set_nonblocking(true);
                    let connection = Connection::new(stream, pid as u32);
                    if let Err(error) = self.poll.add(Source::Connection(connection)) {
                        self.log.say(&format!("process {pid} cannot connect: {error}"));
                    }
                }
                Err(failure) => self.log.say(&failure.message),
            }
        }
    }

    /// Passes an event to the daemon and executes its actions. Events caused by an action wait
    /// until all actions are executed, so that messages keep the order in which the daemon sends
    /// them.
    pub(crate) fn tell(&mut self, event: Event) {
        self.events.push_back(event);
        if std::mem::replace(&mut self.telling, true) {
            return;
        }
        self.pressure.begin();
        while let Some(event) = self.events.pop_front() {
            for action in self.daemon.step(now(), event) {
                self.act(action);
            }
        }
        self.telling = false;
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Welcome(link, welcome) => self.welcome(link, &welcome),
            Action::Deliver(tid, load) => self.deliver(tid, load),
            Action::Drop(load) => {
                if let Load::Lent(_, terms) = load {
                    drop(self.post.loan(terms));
                }
            }
            Action::Forget(tid) => {
                self.post.forget(tid);
                if let Some(number) = self.processes.forget(tid) {
                    self.poll.remove(number);
                }
            }
            Action::Close(link) => self.close(link),
            Action::StartTask(program) => {
                let tid = program.tid;
                if let Some(tasker) = program.tasker {
                    let message = program::describe(&self.settings, &self.path, &program);
                    let told = message.map(|message| {
                        let sink = plugin::to(tasker, SM_STTASK);
                        let message = message.message(sink, tid.as_int());
                        self.deliver(tasker, Load::Whole(message));
                        0
                    });
                    return self.tell(Event::TaskStarted(tid, told));
                }
                match ProgramSpec::new(&self.settings, &self.path, &program) {
                    Ok(spec) => self.start(Box::new(spec)),
                    Err(error) => self.tell(Event::TaskStarted(tid, Err(error))),
                }
            }
            Action::Signal(tid, signal) => self.processes.signal(tid, signal, &mut self.poll),
            Action::Slot(slot, change) => {
                if let Some((closing, count)) = self.post.change_slot(slot, change) {
                    self.tell(Event::Counted(closing, count));
                }
            }
            Action::Log(line) => self.log.say(&line),
            Action::LogOutput(line) => self.log.write(&line),
            Action::Halt(asker) => self.halt(asker),
            remote @ (Action::OpenFabric(..)
            | Action::Start(_)
            | Action::StartBy(..)
            | Action::GiveUp(_)
            | Action::Connect(..)
            | Action::Disconnect(_)
            | Action::Send(..)
            | Action::PassOn(..)) => self.act_remote(remote),
        }
    }

    /// Starts a program, in the space if there is one. A debugger starts its program as a
    /// process.
    fn start(&mut self, spec: Box<ProgramSpec>) {
        let space = self.space.as_mut().filter(|_| !spec.debugged);
        let Some(space) = space else { return self.start_process(&spec) };
        let tid = spec.tid;
        match space.start(spec) {
            Ok(stub) => match self.poll.add(Source::Stub(tid, stub)) {
                Ok(number) => self.processes.lodged(tid, number),
                Err(_) => self.tell(Event::TaskStarted(tid, Err(Error::OutOfRes.into()))),
            },
            Err((spec, why)) => self.start_outside(&spec, &why),
        }
    }

    /// Starts as a process a program that cannot run in the space.
    fn start_outside(&mut self, spec: &ProgramSpec, why: &str) {
        let tid = spec.tid;
        self.log.say(&format!("[{tid}] {why}; it runs as an ordinary process, not in the space"));
        self.start_process(spec);
    }

    fn start_process(&mut self, spec: &ProgramSpec) {
        let watched = spec.start().and_then(|(child, output)| {
            self.processes.started(spec.tid, child, output, &mut self.poll)
        });
        self.tell(Event::TaskStarted(spec.tid, watched.map_err(Into::into)));
    }

    /// Handles a report of the node server on a task.
    fn act_in_space(&mut self, number: u64, tid: Tid, fate: Fate) {
        match fate {
            Fate::Started(pid, output) => {
                self.processes.has_output(tid, output, &mut self.poll);
                self.tell(Event::TaskStarted(tid, Ok(pid)));
            }
            Fate::Refused(spec, why) => {
                self.poll.remove(number);
                self.processes.refused(tid);
                self.start_outside(&spec, &why);
            }
            Fate::Ended(status) => self.child_ended(number, tid, status),
        }
    }

    pub(crate) fn deliver(&mut self, tid: Tid, load: Load) {
        self.retry = RETRY_MIN;
        self.post.deliver(tid, load);
        self.pressure.delivered(&self.post, tid);
    }

    fn welcome(&mut self, link: Link, welcome: &Result<Box<Welcome>, i32>) {
        let Some(Source::Connection(connection)) = self.poll.get(link) else { return };
        let pid = connection.pid;
        if connection.welcome(welcome, self.post.window()).is_err() {
            return self.close(link);
        }
        if let Ok(welcome) = welcome {
            self.processes.enrolled(welcome.tid, link, pid, &mut self.poll);
        }
    }

    /// Ends all tasks but `asker`, which requested the halt and may continue.
    fn halt(&mut self, asker: Option<Tid>) {
        if self.halting.is_none() {
            self.processes.signal_all(asker, libc::SIGTERM, &mut self.poll);
            self.halting = Some(Instant::now() + HALT_PATIENCE);
        }
    }
}

fn now() -> Clock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { seconds: since.as_secs() as i64, microseconds: since.subsec_micros() as i32 }
}
