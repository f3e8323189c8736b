//! The cost of single operations is the sum of the cluster's times.

use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

use coherence::ride::Policy;
use sim::cluster::{Cluster, Waking};
use sim::machine::Machine;
use sim::program::{Allocation, Program};
use sim::protocol::Consistency;
use sim::report::Outcome;
use sim::setup::Setup;
use sim::task::{Task, TaskFuture};
use sim::trace::Trace;

/// The second task reads a number of pages of the first one, one after the other. The first task
/// computes for some time, and waits.
struct Reads(u64, u64);

impl Program for Reads {
    fn allocations(&self, _: u64, page_bytes: u64) -> Vec<Allocation> {
        vec![Allocation::on(0, self.0 * page_bytes)]
    }

    fn task(&self, me: Task, bases: &[u64]) -> TaskFuture {
        let (base, pages, works) = (bases[0], self.0, self.1);
        Box::pin(async move {
            if me.task == 0 {
                me.compute(works, 1.0).await;
            }
            if me.task == 1 {
                me.start().await;
                for page in 0..pages {
                    me.read(base + page * me.page_bytes..base + page * me.page_bytes + 1).await;
                }
                me.stop().await;
            }
        })
    }
}

fn setup(cluster: &str, nodes: u32, tasks: u32) -> Setup {
    Setup {
        cluster: Cluster::known(cluster).expect("a known name"),
        nodes,
        tasks,
        page_bytes: 8192,
        consistency: Consistency::Scope,
        copies_max: u64::MAX,
        migrate: false,
        alone: true,
        rides: Policy::Normal,
        contention: true,
    }
}

fn run(setup: &Setup, program: &dyn Program) -> Outcome {
    Machine::new(setup, program).run().expect("no error")
}

#[test]
fn a_page_takes_a_quarter_of_a_millisecond_on_the_papers_cluster() {
    let outcome = run(&setup("paper", 2, 1), &Reads(100, 0));
    let each = outcome.time_ns / 100;
    assert!((237_000..=263_000).contains(&each), "{each} ns");
    assert_eq!(outcome.sent(coherence::message::Op::GetPageGrant), 100);
}

#[test]
fn tasks_of_a_node_fetch_a_page_once() {
    // Tasks 0 and 1 are on one node, which is the home of the page.
    let outcome = run(&setup("current", 2, 2), &Reads(100, 0));
    assert_eq!(outcome.sent(coherence::message::Op::GetPageGrant), 0);
}

#[test]
fn a_waiter_without_a_processor_must_be_woken() {
    let (waiting_ns, computing_ns) = (10_000, 300_000);
    let time = |cores: u32, works: u64| {
        let mut setup = setup("current", 2, 1);
        setup.cluster.cores = cores;
        setup.cluster.waking = Waking { waiting_ns, computing_ns };
        run(&setup, &Reads(100, works)).time_ns
    };
    let awake = time(2, 0);
    assert_eq!(time(2, 1_000_000_000), awake, "a processor is free for the protocol");
    // The reader's node must be woken at each fault. The other node spins, since its task waits.
    assert_eq!(time(1, 0), awake + 100 * waiting_ns);
    // The other node must be woken too, since its task computes. Then the answer must wake the
    // reader's node.
    assert_eq!(time(1, 1_000_000_000), awake + 100 * (2 * waiting_ns + computing_ns));
}

#[test]
fn a_lock_is_given_back_when_the_protocol_has_taken_it() {
    let setup = setup("current", 1, 1);
    let memory = &setup.cluster.memory;
    let outcome = run(&setup, &GivesBack(100));
    assert_eq!(outcome.time_ns, 100 * 2 * (memory.call_ns + memory.wake_ns));
}

#[test]
fn a_waiter_runs_the_protocol_without_another_processor() {
    let mut setup = setup("current", 1, 1);
    setup.cluster.cores = 1;
    setup.cluster.waking = Waking { waiting_ns: 10_000, computing_ns: 300_000 };
    assert_eq!(run(&setup, &GivesBack(100)).time_ns, 0);
}

/// Acquires and releases a lock, this number of times.
struct GivesBack(u64);

impl Program for GivesBack {
    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        Vec::new()
    }

    fn task(&self, me: Task, _: &[u64]) -> TaskFuture {
        let times = self.0;
        Box::pin(async move {
            me.start().await;
            for _ in 0..times {
                me.lock(0).await;
                me.unlock(0).await;
            }
            me.stop().await;
        })
    }
}

/// All tasks compute for this time, and meet.
struct Works(u64);

impl Program for Works {
    fn allocations(&self, _: u64, _: u64) -> Vec<Allocation> {
        Vec::new()
    }

    fn task(&self, me: Task, _: &[u64]) -> TaskFuture {
        let ns = self.0;
        Box::pin(async move {
            if me.task == 0 {
                me.start().await;
            }
            me.compute(ns, 1.0).await;
            me.barrier().await;
            if me.task == 0 {
                me.stop().await;
            }
        })
    }
}

#[test]
fn work_takes_its_time_and_a_barrier_some() {
    let alone = run(&setup("current", 1, 1), &Works(1_000_000));
    let many = run(&setup("current", 1024, 1), &Works(1_000_000));
    assert!((1_000_000..1_010_000).contains(&alone.time_ns), "{}", alone.time_ns);
    // Arrivals go up a tree of ten levels, and grants go down. No node receives 1,023 messages. The
    // first node does not wait for the grants.
    let network = Cluster::known("current").expect("a known name").network;
    let level = network.send_ns + network.latency_ns + network.receive_ns;
    let took = many.time_ns - alone.time_ns;
    assert!((10 * level..30 * level).contains(&took), "{took} ns, {level} ns a level");
    assert_eq!(many.computed_ns, 1024 * 1_000_000);
}

/// A writer whose text can be read after the run.
#[derive(Clone, Default)]
struct Text(Rc<RefCell<Vec<u8>>>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_trace_shows_each_ride_and_its_outcome() {
    let setup = Setup { rides: Policy::Ainori1, ..setup("paper", 2, 1) };
    let mut machine = Machine::new(&setup, &Reads(100, 0));
    let text = Text::default();
    machine.write_trace(Trace::new(text.clone(), u64::MAX));
    let outcome = machine.run().expect("no error");
    machine.take_trace().expect("a trace").finish().expect("no I/O");
    let trace = String::from_utf8(text.0.take()).expect("UTF-8");
    let rides: u64 = outcome.rides.iter().flatten().map(|rides| rides.sent).sum();
    let count = |words: &str| trace.matches(words).count() as u64;
    assert!(rides > 50, "{rides} rides");
    assert_eq!(count("\"fate\":\"aboard\""), rides);
    // No request reports the fates of the last rides.
    let told = count("\"fate\":\"used\"");
    assert!(told > 0 && told <= rides, "{told} of {rides}");
    assert!(trace.contains("\"name\":\"page 50 aboard\",\"pid\":1,"), "{trace}");
}

#[test]
fn a_trace_ends_at_its_limit_and_counts_what_it_leaves_out() {
    const LIMIT: u64 = 20_000;
    let run = |limit| {
        let mut machine = Machine::new(&setup("paper", 2, 1), &Reads(1000, 0));
        let text = Text::default();
        machine.write_trace(Trace::new(text.clone(), limit));
        machine.run().expect("no error");
        let written = machine.take_trace().expect("a trace").finish().expect("no I/O");
        (written, text.0.take().len() as u64)
    };
    let (whole, bytes) = run(u64::MAX);
    assert_eq!((whole.bytes, whole.left_out, whole.cut_at_us), (bytes, 0, None));
    assert!(bytes > 2 * LIMIT, "{bytes}");
    let (cut, bytes) = run(LIMIT);
    assert_eq!(cut.bytes, bytes);
    assert!((LIMIT..LIMIT + 1000).contains(&bytes), "{bytes}");
    assert_eq!(cut.events + cut.left_out, whole.events);
    assert!(cut.cut_at_us.is_some());
}
