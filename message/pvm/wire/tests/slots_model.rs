//! A group's slot under loom: tasks arrive, sleep and die, and the daemon takes the count
//! away, in every interleaving.
//!
//! Run with `make model`.
#![cfg(loom)]

use loom::sync::atomic::AtomicU64;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pvm::slots::{Arrival, Count, Found, Slot, Ticket};

#[path = "../../../../sync/tests/model/mod.rs"]
mod model;
use model::{Wide, model};

/// A slot, and where tasks sleep.
struct Group {
    version: Wide,
    barrier: Wide,
    sleepers: Mutex<()>,
    woken: Condvar,
}

impl Group {
    fn new() -> Arc<Group> {
        Arc::new(Group {
            version: Wide(AtomicU64::new(0)),
            barrier: Wide(AtomicU64::new(0)),
            sleepers: Mutex::new(()),
            woken: Condvar::new(),
        })
    }

    fn slot(&self) -> Slot<'_, Wide> {
        Slot { version: &self.version, barrier: &self.barrier }
    }

    fn wake(&self) {
        let _guard = self.sleepers.lock().expect("no panic while held");
        self.woken.notify_all();
    }

    fn arrive(&self, version: u32, wanted: u16) -> Arrival {
        let arrival = self.slot().arrive(version, wanted);
        if arrival == (Arrival::Last { sleepers: true }) {
            self.wake();
        }
        arrival
    }

    /// As a task waits; it looks no more often than it must, so that loom ends.
    fn wait(&self, ticket: Ticket) -> Found {
        self.slot().about_to_sleep(ticket);
        let mut guard = self.sleepers.lock().expect("no panic while held");
        loop {
            match self.slot().look(ticket) {
                Found::Waiting => guard = self.woken.wait(guard).expect("no panic while held"),
                found => return found,
            }
        }
    }

    /// A whole barrier, without a daemon.
    fn barrier(&self, wanted: u16) {
        match self.arrive(0, wanted) {
            Arrival::Last { .. } => {}
            Arrival::Waits(ticket) => assert_eq!(self.wait(ticket), Found::Done),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn all_waiters_that_arrive_leave() {
    model(3, || {
        let group = Group::new();
        let others: Vec<_> = (0..2)
            .map(|_| {
                let group = group.clone();
                thread::spawn(move || group.barrier(3))
            })
            .collect();
        group.barrier(3);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn a_barrier_opens_after_all_arrivals_and_separates_generations() {
    model(3, || {
        let group = Group::new();
        let came = Arc::new(Wide(AtomicU64::new(0)));
        let twice = |group: &Group, came: &Wide| {
            for round in 1..=2 {
                came.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                group.barrier(2);
                let came = came.0.load(std::sync::atomic::Ordering::Relaxed);
                assert!((2 * round..=2 * round + 1).contains(&came), "{came} in round {round}");
            }
        };
        let other = {
            let (group, came) = (group.clone(), came.clone());
            thread::spawn(move || twice(&group, &came))
        };
        twice(&group, &came);
        other.join().unwrap();
    });
}

#[test]
fn a_killed_task_has_arrived_or_not() {
    model(3, || {
        let group = Group::new();
        // Killed right after its arrival; it would have woken others.
        let killed = {
            let group = group.clone();
            thread::spawn(move || group.slot().arrive(0, 2))
        };
        let ticket = match group.slot().arrive(0, 2) {
            Arrival::Waits(ticket) => ticket,
            Arrival::Last { .. } => return,
            other => panic!("{other:?}"),
        };
        let waiter = {
            let group = group.clone();
            thread::spawn(move || group.wait(ticket))
        };
        assert!(matches!(killed.join().unwrap(), Arrival::Last { .. }));
        // The daemon knows of a death in the group.
        group.wake();
        assert_eq!(waiter.join().unwrap(), Found::Done);
    });
}

#[test]
fn closing_loses_no_arrival_and_counts_none_twice() {
    model(3, || {
        let group = Group::new();
        // Tasks that find the slot closed tell the daemon.
        let told = Arc::new(Mutex::new(0));
        let task = |group: Arc<Group>, told: Arc<Mutex<u16>>| match group.arrive(0, 2) {
            Arrival::Last { .. } => true,
            Arrival::Waits(ticket) => group.wait(ticket) == Found::Done,
            Arrival::Closed => {
                *told.lock().unwrap() += 1;
                false
            }
            other => panic!("{other:?}"),
        };
        let tasks: Vec<_> = (0..2)
            .map(|_| {
                let (group, told) = (group.clone(), told.clone());
                thread::spawn(move || task(group, told))
            })
            .collect();
        let Count { arrived, wanted } = group.slot().close();
        assert_eq!(wanted, 2 * arrived);
        if arrived == 1 {
            // The other must come to the daemon. (It may be slow, so do as if it had come.)
            group.slot().complete();
            group.wake();
        }
        let through = tasks.into_iter().map(|task| task.join().unwrap()).filter(|&ok| ok).count();
        let told = usize::from(*told.lock().unwrap());
        assert_eq!(through + told, 2);
        assert!(through == 2 && arrived == 0 || through == usize::from(arrived));
    });
}

#[test]
fn arrivals_and_changes_of_the_group_have_an_order() {
    model(3, || {
        let group = Group::new();
        // Two members, who want all; a third joins, and then wants all, too.
        let member = {
            let group = group.clone();
            thread::spawn(move || match group.slot().arrive(0, 2) {
                Arrival::Changed => group.slot().arrive(1, 3),
                arrival => arrival,
            })
        };
        group.slot().changed(1);
        let joined = group.slot().arrive(1, 3);
        let member = member.join().unwrap();
        assert!(matches!(member, Arrival::Waits(_)), "{member:?}");
        assert!(matches!(joined, Arrival::Waits(_) | Arrival::Mismatch), "{joined:?}");
    });
}

#[test]
fn a_group_that_dies_lets_go_of_all() {
    model(3, || {
        let group = Group::new();
        let members: Vec<_> = (0..2)
            .map(|_| {
                let group = group.clone();
                thread::spawn(move || match group.arrive(0, 3) {
                    Arrival::Waits(ticket) => group.wait(ticket) == Found::Dead,
                    arrival => arrival == Arrival::Dead,
                })
            })
            .collect();
        group.slot().kill();
        group.wake();
        for member in members {
            assert!(member.join().unwrap());
        }
    });
}
