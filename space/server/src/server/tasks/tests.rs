//! The server and its stubs over a model of the kernel's job control, in one thread. A seed selects
//! the order of all steps, and when a launcher, or another process, stops, continues or ends the
//! stubs, the tasks and the server.

mod kernel;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fastrand::Rng;
use pvas::connection::Connection;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use sync::clock;
use sync::inject::{self, Injected};

use self::kernel::{Calls, Path, State, is_readable};
use super::{Running, Tasks};
use crate::inherit::Inheritance;
use crate::protocol::{Reply, Request, Start, connection};
use crate::represent::{News, Representative};
use crate::server::peers::tests::listener;
use crate::server::peers::{Event, Peers};
use crate::server::stops::INTERVAL;

/// Number of seeds in an ordinary run.
const SEEDS: u64 = 1000;
/// Steps of a run until it counts as hanging.
const STEPS_MAX: usize = 200_000;
/// Maximum time between two steps of a process that is slow.
const SLOW_NS: u64 = 20_000_000;
/// The same of one that is not.
const FAST_NS: u64 = 30_000;
/// Maximum time of a wrong state: the interval of the checks, and the steps until it is corrected.
const WRONG_MAX: Duration = Duration::from_nanos(INTERVAL.as_nanos() as u64 + 15 * SLOW_NS);
/// Time after which an action has no effects any more.
const SETTLED: Duration = Duration::from_secs(1);

/// The progress of a stub.
enum Phase {
    /// It has not sent its request.
    Begins(Connection),
    /// It waits for the reply.
    Asks(Connection),
    Represents(Representative<Calls>),
    /// It has ended by itself.
    Ended(News),
    /// It was killed, or has no task.
    Gone,
}

/// A stub and its task.
struct Pair {
    stub: i32,
    task: Option<i32>,
    outlives: bool,
    phase: Phase,
    resumes: Duration,
    /// The stub may have something to do.
    may_be_ready: bool,
    /// The launcher has stopped the stub, and has not continued it.
    is_held: bool,
    /// The last action of others: true if it was to continue the pair.
    wanted: Option<bool>,
    /// Times of that action, and of the previous one.
    acted: [Duration; 2],
    /// Time at which its state became wrong, and the reason.
    wrong: Option<(Duration, &'static str)>,
}

struct Job {
    random: Rng,
    start: Instant,
    now: Duration,
    calls: Calls,
    children: OwnedFd,
    address: SocketAddrUnix,
    /// `None` if it is dead.
    server: Option<Tasks<Calls>>,
    server_resumes: Duration,
    /// The server's state has changed since [`Job::server_wakes`] was set.
    server_may_be_ready: bool,
    /// Time at which the server wakes if nothing changes.
    server_wakes: Option<Duration>,
    /// Others have stopped the server until this time.
    server_stopped: Option<Duration>,
    /// The time since which the server has run.
    server_since: Duration,
    pairs: Vec<Pair>,
    /// A process is slow with probability 1/n, or never if this is 0.
    slow: u32,
    injected: Option<Injected>,
    /// The request of the next stub.
    request: Request,
    steps: usize,
}

/// The effect of one step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver(i32),
    Stub(usize),
    Server,
    /// The next action of others.
    Act,
}

impl Job {
    fn new(seed: u64, request: Request) -> Self {
        let mut random = Rng::with_seed(seed);
        let start = Instant::now();
        clock::simulate(Some(start));
        let (socket, address) = listener();
        let children = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let children = children.expect("a descriptor");
        let peers = Peers::new(socket, &children).expect("an epoll instance");
        let calls = Calls::of_server(children.try_clone().expect("a descriptor"));
        let injected = (random.u32(0..3) == 0).then(|| Injected::new(seed, random.u64(4..30)));
        Self {
            start,
            now: Duration::ZERO,
            server: Some(Tasks::new(calls.clone(), peers)),
            calls,
            children,
            address,
            server_resumes: Duration::ZERO,
            server_may_be_ready: true,
            server_wakes: None,
            server_stopped: None,
            server_since: Duration::ZERO,
            pairs: Vec::new(),
            slow: if random.bool() { 0 } else { random.u32(3..40) },
            injected,
            request,
            steps: 0,
            random,
        }
    }

    /// Adds a stub, which connects.
    fn begin(&mut self) {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.expect("a socket");
        // A dead server has no address any more.
        if connect(&socket, &self.address).is_err() {
            return;
        }
        let phase = Phase::Begins(connection(socket));
        let stub = self.calls.model().add(false);
        self.pairs.push(Pair {
            stub,
            task: None,
            outlives: self.random.u32(0..8) == 0,
            phase,
            resumes: self.now,
            may_be_ready: true,
            is_held: false,
            wanted: None,
            acted: [Duration::ZERO; 2],
            wrong: None,
        });
    }

    /// Returns the time of a process's next step.
    fn pause(&mut self) -> Duration {
        let is_slow = self.slow > 0 && self.random.u32(0..self.slow) == 0;
        if is_slow {
            self.calls.model().count(Path::Slow);
        }
        let most = if is_slow { SLOW_NS } else { FAST_NS };
        self.now + Duration::from_nanos(self.random.u64(0..most))
    }

    /// Takes steps until the time `until`, at which others act or the job is over.
    fn run(&mut self, until: Duration) {
        loop {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "the server and its stubs go on for ever");
            self.check();
            if let Some(end) = self.server_stopped.filter(|&end| end <= self.now) {
                (self.server_stopped, self.server_since) = (None, end);
            }
            let mut due: Vec<Step> = self.calls.model().deliverable().map(Step::Deliver).collect();
            let mut next = until;
            for (at, pair) in self.pairs.iter().enumerate() {
                let is_over = matches!(pair.phase, Phase::Ended(_) | Phase::Gone);
                if is_over || self.calls.model().state(pair.stub) != State::Running {
                    continue;
                }
                // A stub without a task leaves its signals pending.
                let represents = matches!(pair.phase, Phase::Represents(_));
                let has_signals = represents && self.calls.model().has_signals(pair.stub);
                if pair.may_be_ready || has_signals {
                    next = next.min(pair.resumes);
                    if pair.resumes <= self.now {
                        due.push(Step::Stub(at));
                    }
                }
            }
            if let Some(server) = &self.server {
                if std::mem::take(&mut self.server_may_be_ready) {
                    let sleeps = server.peers.sleep_time(server.stops.timeout());
                    self.server_wakes = sleeps.map(|time| self.now + time);
                }
                let stopped = self.server_stopped.unwrap_or_default();
                let wakes = self.server_wakes.map(|it| it.max(self.server_resumes).max(stopped));
                next = next.min(wakes.unwrap_or(until));
                if wakes.is_some_and(|wakes| wakes <= self.now) {
                    due.push(Step::Server);
                }
            }
            if until <= self.now {
                due.push(Step::Act);
            }
            if due.is_empty() {
                self.now = next.max(self.now);
            } else {
                match due[self.random.usize(0..due.len())] {
                    Step::Deliver(pid) => self.deliver(pid),
                    Step::Stub(at) => self.stub(at),
                    Step::Server => self.serve(),
                    Step::Act => return,
                }
                self.now += Duration::from_nanos(self.random.u64(0..2_000));
            }
            clock::simulate(Some(self.start + self.now));
        }
    }

    fn deliver(&mut self, pid: i32) {
        self.calls.model().deliver(pid);
        if let Some(pair) = self.pairs.iter_mut().find(|pair| pair.stub == pid)
            && matches!(self.calls.model().state(pid), State::Dead(_))
        {
            pair.phase = Phase::Gone; // closes the connection
        }
        self.server_may_be_ready = true;
    }

    /// Takes a step of a stub.
    fn stub(&mut self, at: usize) {
        let resumes = self.pause();
        let pair = &mut self.pairs[at];
        pair.resumes = resumes;
        self.server_may_be_ready = true;
        inject::set(self.injected.take());
        pair.phase = match std::mem::replace(&mut pair.phase, Phase::Gone) {
            Phase::Begins(connection) => {
                let Request::Start(start) = &mut self.request else { unreachable!() };
                (start.id, start.outlives_stub) = (Some(at as u32), pair.outlives);
                let _ = connection.send(&self.request, &[]);
                Phase::Asks(connection)
            }
            Phase::Asks(mut connection) => match connection.take::<Reply>() {
                Ok(Some((Reply::Started { .. }, _))) => {
                    let calls = self.calls.of_stub(pair.stub);
                    Phase::Represents(Representative::new(connection, calls, false))
                }
                Ok(Some(_)) => Phase::Gone,
                Ok(None) if !is_readable(&connection) => {
                    pair.may_be_ready = false;
                    Phase::Asks(connection)
                }
                Ok(None) => match connection.fill() {
                    Ok(true) => Phase::Asks(connection),
                    _ => Phase::Gone,
                },
                Err(error) => panic!("{error}"),
            },
            Phase::Represents(mut it) => {
                pair.may_be_ready = !it.sleeps();
                let discarded = || self.calls.model().paths[Path::ContinueDiscarded as usize];
                let before = discarded();
                let news = if pair.may_be_ready { it.step() } else { None };
                if discarded() > before {
                    pair.wanted = None; // the stub stopped itself after the SIGCONT
                }
                match news {
                    None => Phase::Represents(it),
                    Some(news) => Phase::Ended(news),
                }
            }
            over => over,
        };
        let is_over = matches!(pair.phase, Phase::Ended(_) | Phase::Gone);
        if let Phase::Ended(news) = pair.phase {
            let task = pair.task.expect("it was started");
            let state = self.calls.model().state(task);
            match news {
                News::Ended(status) => assert_eq!(state, State::Dead(status), "another status"),
                News::ServerLost => assert!(self.server.is_none(), "the server runs"),
                News::RanksMissing { .. } => unreachable!("there are no ranks"),
            }
            let path = if news == News::ServerLost { Path::ServerLost } else { Path::EndReported };
            self.calls.model().count(path);
        }
        if is_over {
            self.calls.model().end(pair.stub, 0);
        }
        self.injected = inject::set(None);
    }

    /// Gives the server a turn, as `Server::turn` does.
    fn serve(&mut self) {
        self.server_resumes = self.pause();
        let Some(mut server) = self.server.take() else { return };
        inject::set(self.injected.take());
        let (events, lost) = server.peers.wait(Some(Duration::ZERO));
        self.server_may_be_ready = true;
        // A turn without events may accept a connection, or close it at once.
        self.pairs.iter_mut().for_each(|pair| pair.may_be_ready = true);
        lost.into_iter().for_each(|key| server.disconnect(key));
        for event in events {
            match event {
                Event::Signals => {
                    let _ = rustix::io::read(&self.children, &mut [0; 8]);
                    server.reap();
                }
                Event::Peer(key) => {
                    match server.next("job", key) {
                        Some((Request::Start(start), _)) => self.start(&mut server, key, &start),
                        Some((request, _)) => panic!("{request:?}"),
                        None => {}
                    }
                    server.watch(key);
                }
            }
        }
        server.check_stops();
        self.server = Some(server);
        self.injected = inject::set(None);
    }

    /// Starts the task of a stub.
    fn start(&mut self, server: &mut Tasks<Calls>, key: u64, start: &Start) {
        let id = start.id.expect("set in the request");
        if self.random.u32(0..20) == 0 {
            self.calls.model().count(Path::Refused);
            return server.reply(key, &Reply::Refused("ENOMEM".into(), 125));
        }
        let task = self.calls.model().add(true);
        let pair = &mut self.pairs[id as usize];
        pair.task = Some(task);
        let pid = task.cast_unsigned();
        // The kernel says that this process is the peer.
        server.peers.get_mut(key).expect("it has asked").pid = pair.stub;
        let (path, arguments) = (String::new(), Vec::new());
        server.add(pid, Running { id, stub: None, path, arguments, _placeholder: None });
        server.represent(pid, key, start.outlives_stub);
        server.reply(key, &Reply::Started { id, pid, in_group: false, present: 1 });
    }

    /// Checks the state of each pair. A wrong one must be corrected within a limit.
    fn check(&mut self) {
        let model = self.calls.model();
        for pair in &mut self.pairs {
            let Some(task) = pair.task else { continue };
            let (stub, task) = (model.state(pair.stub), model.state(task));
            let is_settled = pair.acted[0] > pair.acted[1] + SETTLED;
            let wrong = match (stub, task) {
                (State::Dead(_), State::Dead(_)) => None,
                (State::Stopped, _) if pair.is_held && self.server.is_none() => None,
                // The stub had stopped for its task: the launcher continues it.
                (State::Stopped, State::Dead(_)) if self.server.is_none() => None,
                (State::Stopped, State::Dead(_)) if pair.is_held => None,
                (_, State::Dead(_)) => Some("its task has ended"),
                (State::Dead(_), _) if self.server.is_none() => Some("the server is dead"),
                (State::Dead(_), _) if pair.outlives => None,
                (State::Dead(_), _) => Some("its stub is dead"),
                (State::Stopped, State::Running) if !pair.is_held => {
                    Some("only the stub is stopped")
                }
                (State::Stopped, State::Running) => Some("the task of a stopped stub runs"),
                (State::Running, State::Stopped) => Some("only the task is stopped"),
                (State::Stopped, State::Stopped) => {
                    (pair.wanted == Some(true)).then_some("both were continued")
                }
                (State::Running, State::Running) => {
                    (pair.wanted == Some(false) && is_settled).then_some("it was stopped")
                }
            };
            pair.wrong = match (wrong, pair.wrong) {
                (Some(reason), Some((since, before))) if reason == before => Some((since, reason)),
                (reason, _) => reason.map(|reason| (self.now, reason)),
            };
            if let (Some((since, reason)), None) = (pair.wrong, self.server_stopped) {
                let since = since.max(self.server_since).max(pair.acted[0]);
                let time = self.now.saturating_sub(since);
                assert!(time < WRONG_MAX, "{reason}, for {time:?}: stub {stub:?}, task {task:?}");
            }
        }
    }

    /// Another process acts: a launcher on a stub, another on a task, or both on the server.
    fn act(&mut self) {
        let most = if self.random.u32(0..20) == 0 { 16 } else { 14 };
        let action = self.random.u32(0..most);
        match action {
            0 => return self.begin(),
            14 => return self.kill_server(),
            15 if self.server.is_some() => {
                self.calls.model().count(Path::ServerStopped);
                let most = 1 << self.random.u32(10..32);
                let time = Duration::from_nanos(self.random.u64(0..most));
                self.server_stopped = Some(self.now + time);
                return;
            }
            _ if self.pairs.is_empty() => return,
            _ => {}
        }
        let at = self.random.usize(0..self.pairs.len());
        let (stub, task) = (self.pairs[at].stub, self.pairs[at].task);
        match (action, task) {
            (1 | 2, _) => self.signal(at, stub, libc::SIGSTOP, Path::StubStopped),
            (3 | 4, _) => self.signal(at, stub, libc::SIGCONT, Path::StubContinued),
            (5, _) if self.random.bool() => self.signal(at, stub, libc::SIGKILL, Path::StubKilled),
            (5, _) => {
                let number = [libc::SIGTSTP, libc::SIGTERM][self.random.usize(0..2)];
                self.signal(at, stub, number, Path::StubSignalled);
            }
            (6 | 7, Some(task)) => {
                let number = [libc::SIGTSTP, libc::SIGSTOP][self.random.usize(0..2)];
                self.signal(at, task, number, Path::TaskStopped);
            }
            (8 | 9, Some(task)) => self.signal(at, task, libc::SIGCONT, Path::TaskContinued),
            (10, Some(task)) => {
                let number = [libc::SIGTERM, libc::SIGKILL][self.random.usize(0..2)];
                self.signal(at, task, number, Path::TaskKilled);
            }
            (11, Some(task)) if self.calls.model().state(task) == State::Running => {
                self.calls.model().count(Path::TaskEnded);
                let status = self.random.i32(0..3) << 8;
                self.calls.model().end(task, status);
                self.server_may_be_ready = true;
            }
            (12 | 13, Some(task)) => {
                let (number, path) = match action {
                    12 => (libc::SIGSTOP, Path::GroupStopped),
                    _ => (libc::SIGCONT, Path::GroupContinued),
                };
                let both = if self.random.bool() { [stub, task] } else { [task, stub] };
                self.signal(at, both[0], number, path);
                self.signal(at, both[1], number, path);
            }
            _ => {}
        }
    }

    fn signal(&mut self, at: usize, pid: i32, signal: i32, path: Path) {
        let pair = &mut self.pairs[at];
        let mut model = self.calls.model();
        model.count(path);
        model.kill(pid, signal);
        let is_stub = pid == pair.stub;
        match signal {
            libc::SIGCONT if is_stub => (pair.is_held, pair.wanted) = (false, Some(true)),
            libc::SIGCONT => {
                // A signal that the stub forwards may arrive later.
                let is_last = self.now > pair.acted[0] + SETTLED;
                pair.wanted = (is_last && !pair.is_held).then_some(true);
            }
            libc::SIGSTOP if is_stub => {
                (pair.is_held, pair.wanted) = (true, Some(false));
            }
            libc::SIGSTOP | libc::SIGTSTP => pair.wanted = Some(false),
            _ => {}
        }
        pair.acted = [self.now, pair.acted[0]];
        drop(model);
        self.server_may_be_ready = true;
    }

    fn kill_server(&mut self) {
        if self.server.take().is_some() {
            self.calls.model().count(Path::ServerKilled);
            self.calls.model().end_server();
            self.server_stopped = None;
            self.server_since = self.now;
            self.pairs.iter_mut().for_each(|pair| pair.may_be_ready = true);
        }
    }

    /// Continues everything, and ends all tasks.
    fn finish(&mut self) {
        self.server_stopped = None;
        self.server_since = self.now;
        let settle = 2 * WRONG_MAX;
        self.run(self.now + settle);
        // A stub may stop itself just after the first SIGCONT. Its launcher sees that.
        for _ in 0..2 {
            for at in 0..self.pairs.len() {
                self.signal(at, self.pairs[at].stub, libc::SIGCONT, Path::StubContinued);
            }
            self.run(self.now + settle);
        }
        for pair in &self.pairs {
            let model = self.calls.model();
            let states = pair.task.map(|task| (model.state(pair.stub), model.state(task)));
            let are_alike = match states {
                Some((State::Running, State::Running) | (State::Dead(_), State::Dead(_)))
                | None => true,
                Some((State::Dead(_), _)) => pair.outlives,
                _ => false,
            };
            assert!(are_alike, "after all were continued: {states:?}");
            drop(model);
            if let Some((State::Dead(_), State::Running)) = states {
                self.calls.model().count(Path::Outlived);
            }
        }
        for pair in &self.pairs {
            if let Some(task) = pair.task
                && !matches!(self.calls.model().state(task), State::Dead(_))
            {
                self.calls.model().end(task, self.random.i32(0..3) << 8);
            }
        }
        self.server_may_be_ready = true;
        self.run(self.now + settle);
        for pair in &self.pairs {
            let state = self.calls.model().state(pair.stub);
            assert!(matches!(state, State::Dead(_)), "a stub is left: {state:?}");
        }
        if let Some(server) = &self.server {
            let is_idle = server.peers.is_empty() && server.running().is_empty();
            assert!(is_idle, "the server has stubs or tasks");
        }
    }
}

/// Returns a request to start a task.
fn request() -> Request {
    Request::Start(Box::new(Start {
        path: b"program".to_vec(),
        arguments: vec![],
        environment: vec![],
        fds: vec![],
        expected_tasks: None,
        id: None,
        preferred_id: None,
        identity: None,
        mounts: false,
        protection: None,
        outlives_stub: false,
        inheritance: Inheritance::of_this_process(0),
    }))
}

/// Runs the job of a seed.
fn run(seed: u64, request: Request) -> Job {
    let mut job = Job::new(seed, request);
    (0..job.random.usize(1..4)).for_each(|_| job.begin());
    for _ in 0..job.random.u32(1..24) {
        let most = 1 << job.random.u32(8..31);
        let gap = job.random.u64(0..most);
        job.run(job.now + Duration::from_nanos(gap));
        job.act();
    }
    job.finish();
    clock::simulate(None);
    job
}

#[test]
fn stubs_and_tasks_stop_continue_and_end_together() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seeds = match number("NAGAYA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NAGAYA_SEEDS").unwrap_or(SEEDS),
    };
    let mut next = request();
    let mut paths = [0; Path::ALL.len()];
    let mut errors = Injected::new(0, 1);
    for seed in seeds {
        println!("NAGAYA_SEED={seed}");
        let Job { calls, injected, request, .. } = run(seed, next);
        next = request;
        paths.iter_mut().zip(calls.model().paths).for_each(|(all, one)| *all += one);
        injected.iter().for_each(|injected| errors.merge(injected));
    }
    let paths: Vec<_> = Path::ALL.into_iter().zip(paths).collect();
    println!("{paths:?}\n{:?}", errors.counts());
    if number("NAGAYA_SEED").is_none() {
        let never: Vec<_> = paths.iter().filter(|(_, count)| *count == 0).collect();
        assert!(never.is_empty(), "never: {never:?}");
        let never: Vec<_> = errors.counts().into_iter().filter(|it| it.2 == 0).collect();
        assert!(never.is_empty(), "never injected: {never:?}");
    }
}

/// Returns a job whose only task runs, and the PIDs of the stub and the task.
fn calm() -> (Job, i32, i32) {
    let mut job = Job::new(0, request());
    (job.slow, job.injected) = (0, None);
    job.begin();
    job.run(SETTLED);
    let Pair { stub, task, .. } = job.pairs[0];
    (job, stub, task.expect("it is started"))
}

/// The stub stopped for good: the server received its SIGCONT between the stop and the message.
#[test]
fn a_stop_that_is_reported_while_its_stub_continues_is_over() {
    let (mut job, stub, task) = calm();
    job.signal(0, task, libc::SIGSTOP, Path::TaskStopped);
    job.deliver(task);
    job.signal(0, stub, libc::SIGCONT, Path::StubContinued);
    (0..5).for_each(|_| job.stub(0));
    job.serve();
    job.finish();
}

/// The task ran on: the stub was stopped again before it read the SIGCONT.
#[test]
fn a_task_stops_with_a_stub_that_is_stopped_twice() {
    let (mut job, stub, task) = calm();
    job.signal(0, stub, libc::SIGSTOP, Path::GroupStopped);
    job.run(2 * SETTLED);
    job.signal(0, task, libc::SIGCONT, Path::GroupContinued);
    job.signal(0, stub, libc::SIGCONT, Path::GroupContinued);
    job.signal(0, stub, libc::SIGSTOP, Path::StubStopped);
    job.finish();
}

/// The stub ran on: the SIGTSTP discarded the SIGCONT, and its task was stopped already.
#[test]
fn a_stub_that_continues_and_gets_a_stop_signal_stops_with_its_task() {
    let (mut job, stub, _) = calm();
    job.signal(0, stub, libc::SIGSTOP, Path::StubStopped);
    job.run(2 * SETTLED);
    job.signal(0, stub, libc::SIGCONT, Path::StubContinued);
    job.signal(0, stub, libc::SIGTSTP, Path::StubSignalled);
    job.finish();
}

/// The stub read its messages only, and its stop discarded the SIGCONT.
#[test]
fn a_stub_reads_its_signals_before_it_stops() {
    let (mut job, stub, task) = calm();
    job.signal(0, task, libc::SIGSTOP, Path::TaskStopped);
    job.deliver(task);
    job.serve();
    (0..2).for_each(|_| job.stub(0)); // it reads the message
    job.signal(0, stub, libc::SIGCONT, Path::StubContinued);
    job.finish();
    assert_eq!(job.calls.model().paths[Path::ContinueDiscarded as usize], 0);
}
