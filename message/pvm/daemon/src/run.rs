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
use crate::options::Options;
use crate::plugin;
use crate::processes::read_output;
use crate::program::{self, ProgramSpec};
use crate::running::{RETRY_MIN, Running, Startup, system};
use crate::socket::{self, Refused};
use crate::source::Source;
use crate::space::StubEvent;
use crate::task_message::TaskMessage;
use crate::tasks::Link;

/// Longest retry interval for messages that found no room.
const RETRY_MAX: Duration = Duration::from_millis(20);
/// Time that tasks have to end when the virtual machine is halted.
const HALT_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the daemon of a new virtual machine until it is halted. Calls `ready` once tasks can
/// connect.
pub fn run(options: &Options, ready: impl FnOnce(&Path)) -> Result<(), Refused> {
    begin(options, Startup::First, |running| ready(&running.path))
}

/// Runs a daemon. Calls `ready` once tasks can connect.
pub(crate) fn begin(
    options: &Options,
    startup: Startup,
    ready: impl FnOnce(&Running),
) -> Result<(), Refused> {
    let (listener, path) = socket::listen(options)?;
    let (startup, acceptances) = match startup {
        Startup::Leader { secret, peers, acceptances } => {
            (Startup::Leader { secret, peers, acceptances: Vec::new() }, acceptances)
        }
        startup => (startup, Vec::new()),
    };
    let made = Running::new(options, startup, listener, path.clone());
    let mut running = made.map_err(|failure| {
        socket::remove(&path);
        Refused::System(failure)
    })?;
    ready(&running);
    proc::log_line!(Info, "pvmd", "PID {}: the daemon is ready", std::process::id());
    if options.quiet {
        running.log.stop_stderr();
    }
    if !acceptances.is_empty() {
        running.handle(Event::Launched(acceptances));
    }
    running.handle(Event::Begin);
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
            let retry = self.delivery.has_queued().then_some(self.retry);
            let nap = retry.into_iter().chain(nap).min();
            let events = self.poll.wait(nap).map_err(system("wait for events"))?;
            for number in events {
                self.handle_source(number);
            }
            if self.delivery.has_queued() {
                let delivered = self.delivery.retry();
                self.retry = if delivered { RETRY_MIN } else { (self.retry * 2).min(RETRY_MAX) };
            }
            let Running { pressure, delivery, network, poll, daemon, .. } = self;
            pressure.resume(daemon.host, delivery, network, poll);
            self.delivery.release_ended();
        }
        if !self.network.close() {
            self.log.report("some hosts did not receive their last messages");
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

    fn handle_source(&mut self, number: u64) {
        match self.poll.get(number) {
            Some(Source::Listener(_)) => self.accept(number),
            Some(Source::Signals(_)) => self.handle(Event::Terminate),
            Some(Source::Connection(_)) => self.read(number),
            Some(Source::Process(tid, _)) => {
                let tid = *tid;
                self.poll.remove(number);
                self.processes.process_ended(tid);
                self.read_all(tid);
                self.handle(Event::Ended(tid));
            }
            Some(Source::Child(tid, _)) => {
                let tid = *tid;
                self.child_ended(number, tid, 0);
            }
            Some(Source::Stub(tid, stub)) => {
                let (tid, events) = (*tid, stub.read());
                events.into_iter().for_each(|event| self.handle_space_event(number, tid, event));
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
        self.delivery.process_ended();
        self.handle(Event::Reaped(tid, usage));
        if !self.processes.has_enrolled(tid) {
            self.handle(Event::Ended(tid));
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
        let received = connection.read();
        let pid = connection.pid;
        for frame in received.frames {
            self.handle(Event::Frame(number, pid, frame));
            self.pressure.hold_back(&self.poll, number);
        }
        if let Some(why) = received.end {
            if let Some(why) = why {
                self.log.report(&format!("process {pid} sent {why}"));
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
        self.handle(Event::Closed(link));
    }

    fn read_output(&mut self, number: u64) {
        let Some(Source::Output(tid, fd)) = self.poll.get(number) else { return };
        let tid = *tid;
        let (bytes, more) = read_output(fd);
        if !bytes.is_empty() {
            self.handle(Event::Output(tid, bytes));
            self.pressure.hold_back(&self.poll, number);
        }
        if !more {
            self.poll.remove(number);
            self.processes.output_ended(tid);
            self.handle(Event::OutputEnd(tid));
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
                    self.log.report(&format!("a task cannot connect: {error}"));
                    std::thread::sleep(RETRY_MAX);
                    return;
                }
            };
            match job::check_peer(&stream) {
                Ok(pid) => {
                    let _ = stream.set_nonblocking(true);
                    let connection = Connection::new(stream, pid as u32);
                    if let Err(error) = self.poll.add(Source::Connection(connection)) {
                        self.log.report(&format!("process {pid} cannot connect: {error}"));
                    }
                }
                Err(failure) => self.log.report(&failure.message),
            }
        }
    }

    /// Passes an event to the daemon and executes its actions. Events caused by an action wait
    /// until all actions are executed, so that messages keep the order in which the daemon sends
    /// them.
    pub(crate) fn handle(&mut self, event: Event) {
        self.events.push_back(event);
        if std::mem::replace(&mut self.handling, true) {
            return;
        }
        self.pressure.begin();
        while let Some(event) = self.events.pop_front() {
            for action in self.daemon.step(now(), event) {
                self.execute(action);
            }
        }
        self.handling = false;
    }

    fn execute(&mut self, action: Action) {
        match action {
            Action::Welcome(link, welcome) => self.welcome(link, &welcome),
            Action::Deliver(tid, message) => self.deliver(tid, message),
            Action::Drop(message) => {
                if let TaskMessage::Exposed(_, terms) = message {
                    drop(self.delivery.loan(terms));
                }
            }
            Action::Forget(tid) => {
                self.delivery.forget(tid);
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
                        self.deliver(tasker, TaskMessage::Whole(message));
                        0
                    });
                    return self.handle(Event::TaskStarted(tid, told));
                }
                match ProgramSpec::new(&self.settings, &self.path, &program) {
                    Ok(spec) => self.start(Box::new(spec)),
                    Err(error) => self.handle(Event::TaskStarted(tid, Err(error))),
                }
            }
            Action::Signal(tid, signal) => self.processes.signal(tid, signal, &mut self.poll),
            Action::Slot(slot, change) => {
                if let Some((closing, count)) = self.delivery.change_slot(slot, change) {
                    self.handle(Event::Counted(closing, count));
                }
            }
            Action::Log(line) => self.log.report(&line),
            Action::LogOutput(line) => self.log.write(&line),
            Action::Halt(asker) => self.halt(asker),
            remote @ (Action::OpenFabric(..)
            | Action::Start(_)
            | Action::StartBy(..)
            | Action::GiveUp(_)
            | Action::Connect(..)
            | Action::Disconnect(_)
            | Action::Send(..)
            | Action::Forward(..)) => self.execute_remote(remote),
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
                Ok(number) => self.processes.started_in_space(tid, number),
                Err(_) => self.handle(Event::TaskStarted(tid, Err(Error::OutOfRes.into()))),
            },
            Err((spec, why)) => self.start_outside(&spec, &why),
        }
    }

    /// Starts as a process a program that cannot run in the space.
    fn start_outside(&mut self, spec: &ProgramSpec, why: &str) {
        let tid = spec.tid;
        self.log
            .report(&format!("[{tid}] {why}; it runs as an ordinary process, not in the space"));
        self.start_process(spec);
    }

    fn start_process(&mut self, spec: &ProgramSpec) {
        let watched = spec.start().and_then(|(child, output)| {
            self.processes.started(spec.tid, child, output, &mut self.poll)
        });
        self.handle(Event::TaskStarted(spec.tid, watched.map_err(Into::into)));
    }

    /// Handles a report of the node server on a task.
    fn handle_space_event(&mut self, number: u64, tid: Tid, event: StubEvent) {
        match event {
            StubEvent::Started(pid, output) => {
                self.processes.has_output(tid, output, &mut self.poll);
                self.handle(Event::TaskStarted(tid, Ok(pid)));
            }
            StubEvent::Refused(spec, why) => {
                self.poll.remove(number);
                self.processes.refused(tid);
                self.start_outside(&spec, &why);
            }
            StubEvent::Ended(status) => self.child_ended(number, tid, status),
        }
    }

    pub(crate) fn deliver(&mut self, tid: Tid, message: TaskMessage) {
        self.retry = RETRY_MIN;
        self.delivery.deliver(tid, message);
        self.pressure.delivered(&self.delivery, tid);
    }

    fn welcome(&mut self, link: Link, welcome: &Result<Box<Welcome>, i32>) {
        let Some(Source::Connection(connection)) = self.poll.get(link) else { return };
        let pid = connection.pid;
        if connection.welcome(welcome, self.delivery.window()).is_err() {
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
            self.halting = Some(Instant::now() + HALT_TIMEOUT);
        }
    }
}

fn now() -> Clock {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Clock { seconds: since.as_secs() as i64, microseconds: since.subsec_micros() as i32 }
}
