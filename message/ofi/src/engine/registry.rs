//! The names of the space's endpoints. Each task exports the names of its endpoints
//! (pvas_export(3)). A lookup asks all tasks.
//!
//! Two tasks that want one name at the same time both export a claim before they look. So at least
//! one of them sees the other. The task with the greater ID withdraws its claim.

use std::sync::Mutex;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;
use std::time::Duration;

use control::export;
use sync::wait::Backoff;

use crate::engine::address::Address;
use crate::engine::name::Name;
use crate::engine::space::Here;

/// Prefix of these exports.
const PREFIX: &str = "libfabric ";

/// Flag in the exported size: the endpoint has the name. Without it, the endpoint claims the name.
const HAS: u64 = 1 << 32;

/// One thread of the task registers at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Returns a name as it is exported. It contains the mark, since machines of one space see each
/// other's exports.
fn exported(here: &Here, name: &Name) -> String {
    format!("{PREFIX}{:016x} {}", here.mark, name.text())
}

/// Returns the export of task `id`.
fn of_task(here: &Here, id: u32, exported: &str) -> Option<(Address, bool)> {
    let control = &here.task.control;
    let task = control.identity(id)?;
    let now = Some(Duration::ZERO);
    let (port, size) = export::import(control, id, exported.as_bytes(), now).ok()?;
    Some((Address { mark: here.mark, task, port, source: size as u32 }, size & HAS != 0))
}

/// Finds the endpoint that has this name.
pub fn find(here: &Here, name: &Name) -> Option<Address> {
    let exported = exported(here, name);
    let tasks = 0..here.task.control.tasks_high();
    let mut all = tasks.filter_map(|id| of_task(here, id, &exported));
    all.find_map(|(address, has)| has.then_some(address))
}

/// The reason why an endpoint does not get a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another endpoint has it.
    Taken,
    /// The task exports as many names as it can.
    Full,
}

/// Registers the name of an endpoint of this task.
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
    let mut backoff = Backoff::default();
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
                backoff.pause();
            }
            // The other task sees our claim and withdraws, or it looked before us and gets the
            // name.
            Some(Rival::Second) => backoff.pause(),
        }
    }
}

/// Another task that has or claims the name.
enum Rival {
    Has,
    /// It claims the name, and has the smaller ID.
    First,
    /// It claims the name, and this task has the smaller ID.
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

/// Withdraws the name of an endpoint of this task.
pub fn remove(here: &Here, name: &Name) {
    let _one = ONE.lock().expect("no panic while held");
    // Only registered names are withdrawn, so the export exists.
    let _ = export::unexport(&here.task.control, here.us.id, exported(here, name).as_bytes());
}
