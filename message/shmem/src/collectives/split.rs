//! Creation and end of teams. The PEs of the parent team exchange the slots that they have taken.

use std::ffi::c_int;

use crate::collectives::area;
use crate::collectives::channel::{self, Use};
use crate::fatal::fatal;
use crate::rma;
use crate::team::{self, Config, Members, Team};

/// A team to be created.
pub struct Wanted {
    /// Its PEs.
    pub members: Members,
    /// Its configuration.
    pub config: Config,
}

/// In a word of an exchange: the PE has no slot.
const NONE: u64 = u32::MAX as u64;

/// Creates one or two teams. PEs that are no members pass the team as well. Returns this PE's
/// teams, or an error in all PEs of the parent if any lacks memory.
pub fn split<const N: usize>(
    f: &str,
    parent: &'static Team,
    wanted: [Wanted; N],
) -> Result<[Option<&'static Team>; N], ()> {
    assert!(N <= 2, "two slots fit into a word");
    let mut channel = channel::of(f, parent);
    let job = channel.job;
    let world = job.me as c_int;
    let numbers = wanted.each_ref().map(|team| team.members.number(world));
    let slots = numbers.map(|number| number.and_then(|_| area::take(job)));
    let failed =
        numbers.iter().zip(&slots).any(|(number, slot)| number.is_some() && slot.is_none());
    let half = |at: usize| slots.get(at).copied().flatten().map_or(NONE, |slot| slot as u64);
    let word = half(0) | half(1) << 32;
    let words = channel.exchange_words(f, if failed { u64::MAX - 1 } else { word });
    drop(channel);
    if words.contains(&(u64::MAX - 1)) {
        slots.iter().flatten().for_each(|&slot| area::give(slot, 0));
        return Err(());
    }
    let mut teams = [None; N];
    for (at, wanted) in wanted.into_iter().enumerate() {
        let (Some(me), Some(slot)) = (numbers[at], slots[at]) else { continue };
        let slot_of = |pe: c_int| {
            let number = wanted.members.world(pe).and_then(|world| parent.number(world));
            (words[number.unwrap_or(0) as usize] >> (32 * at)) as u32 as usize
        };
        let slots: Vec<usize> = (0..wanted.members.n()).map(slot_of).collect();
        let team = team::create(wanted.members, me, slot, wanted.config);
        drop(channel::open(f, team, &slots));
        teams[at] = Some(team);
    }
    Ok(teams)
}

/// Ends a team. All its PEs call this.
pub fn destroy(f: &str, team: &'static Team) {
    if team.is_predefined() {
        fatal!(f, "a predefined team cannot be destroyed");
    }
    let mut channel: Use = channel::of(f, team);
    rma::quiet();
    channel.sync(f);
    channel::close(channel);
    team::end(team);
}
