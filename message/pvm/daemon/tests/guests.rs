//! A daemon that another host has started, and that is never admitted.

use pvm::tid::Tid;
use pvm::wire::HostInfo;
use pvmd::daemon::Daemon;
use pvmd::event::{Action, Clock, Event};

/// Ticks after which a silent host is lost. A guest waits longer.
const SILENCE: u32 = 6;

fn info(host: u16) -> HostInfo {
    let (name, architecture) = (format!("host{host}"), "LINUX64".into());
    HostInfo { tid: Tid::of_host(host), name, architecture, speed: 1000, signature: 0 }
}

/// Returns the tick at which the daemon ends, if it ends within `ticks`.
fn ends_after(mut daemon: Daemon, ticks: u32) -> Option<u32> {
    (1..=ticks).find(|_| {
        let actions = daemon.step(Clock::default(), Event::Tick);
        actions.iter().any(|action| matches!(action, Action::Halt(_)))
    })
}

#[test]
fn a_guest_that_is_never_let_join_ends_after_a_while() {
    let ended = ends_after(Daemon::guest(info(2), [7; 32]), 100 * SILENCE);
    assert!(ended.is_some_and(|ticks| ticks > SILENCE), "{ended:?}");
    assert_eq!(ends_after(Daemon::first(info(1), [7; 32]), 100 * SILENCE), None);
}
