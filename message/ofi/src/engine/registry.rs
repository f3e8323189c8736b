//! Which endpoint of the space has which name. Each task exports the names of its endpoints
//! (pvas_export(3)), and whoever looks for one asks all tasks.
//!
//! Two that want one name at the same time both say so before they look: then at least one of
//! them sees the other, and the one with the greater ID takes its claim back.

use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;
use std::time::Duration;

use control::export;

use crate::engine::address::Address;
use crate::engine::name::Name;
use crate::engine::space::Here;

/// What exports of ours begin with.
const PREFIX: &str = "libfabric ";

/// In what is exported as a size: the endpoint has the name; otherwise it only wants it.
const HAS: u64 = 1 << 32;

/// One of a task's threads at a time.
static ONE: Mutex<()> = Mutex::new(());

/// A name as it is exported. Not only its text: machines of one space see each other's exports.
fn exported(here: &Here, name: &Name) -> String {
    format!("{PREFIX}{:016x} {}", here.mark, name.text())
}

/// What task `id` exports.
fn of_task(here: &Here, id: u32, exported: &str) -> Option<(Address, bool)> {
    let control = &here.task.control;
    let whom = control.identity(id)?;
    let now = Some(Duration::ZERO);
    let (port, size) = export::import(control, id, exported.as_bytes(), now).ok()?;
    Some((Address { mark: here.mark, whom, port, source: size as u32 }, size & HAS != 0))
}

/// The endpoint that has this name.
pub fn find(here: &Here, name: &Name) -> Option<Address> {
    let exported = exported(here, name);
    let tasks = 0..here.task.control.tasks_high();
    let mut all = tasks.filter_map(|id| of_task(here, id, &exported));
    all.find_map(|(address, has)| has.then_some(address))
}

/// Why an endpoint does not get a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another has it.
    Taken,
    /// The task exports as many names as it can.
    Full,
}

/// Gives a name to an endpoint of ours.
pub fn add(here: &Here, name: &Name, port: u64, source: u32) -> Result<(), Refusal> {
    let _one = ONE.lock().expect("no panic while held");
    let (control, us) = (&here.task.control, here.us.id);
    let exported = exported(here, name);
    if of_task(here, us, &exported).is_some() {
        return Err(Refusal::Taken);
    }
    let export = |size: u64| {
        let exported = export::export(control, us, exported.as_bytes(), port, size);
        exported.map_err(|_| Refusal::Full)
    };
    let withdraw = || drop(export::unexport(control, us, exported.as_bytes()));
    loop {
        export(source.into())?;
        fence(SeqCst);
        match rival(here, &exported) {
            None => return export(HAS | u64::from(source)),
            Some(Rival::Has) => {
                withdraw();
                return Err(Refusal::Taken);
            }
            Some(Rival::First) => {
                withdraw();
                rustix::thread::sched_yield();
            }
            // It sees us, and takes its claim back, or it came before us.
            Some(Rival::Second) => rustix::thread::sched_yield(),
        }
    }
}

/// Another task that has or wants the same name.
enum Rival {
    Has,
    /// It wants it, and goes first.
    First,
    /// It wants it, and we go first.
    Second,
}

fn rival(here: &Here, exported: &str) -> Option<Rival> {
    let us = here.us.id;
    let mut found = None;
    for id in (0..here.task.control.tasks_high()).filter(|&id| id != us) {
        match of_task(here, id, exported) {
            Some((_, true)) => return Some(Rival::Has),
            Some(_) if id < us => found = Some(Rival::First),
            Some(_) => found = found.or(Some(Rival::Second)),
            None => {}
        }
    }
    found
}

/// Takes the name from an endpoint of ours.
pub fn remove(here: &Here, name: &Name) {
    let _one = ONE.lock().expect("no panic while held");
    // Only those are removed that were added.
    let _ = export::unexport(&here.task.control, here.us.id, exported(here, name).as_bytes());
}
