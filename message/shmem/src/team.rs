//! Teams: ordered sets of PEs.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, PoisonError};

use crate::job;

/// A team as programs name it (`shmem_team_t`): 0 is invalid, 1 is the world, 2 are the PEs that
/// share memory, and any other value is the address of a [`Team`].
pub type Handle = *mut Team;

/// `SHMEM_TEAM_WORLD`.
pub const WORLD: usize = 1;
/// `SHMEM_TEAM_SHARED`.
pub const SHARED: usize = 2;

/// The slot of `SHMEM_TEAM_WORLD` in all PEs: see [`Team::slot`].
const WORLD_SLOT: usize = 0;
/// The slot of `SHMEM_TEAM_SHARED` in all PEs.
const SHARED_SLOT: usize = 1;
/// The first slot of other teams.
pub const FIRST_SLOT: usize = 2;

/// `shmem_team_config_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Config {
    /// Number of contexts that the program will create.
    pub num_contexts: c_int,
}

/// The PEs of a team, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// PEs at equal distances.
    Strided {
        /// Number in the world of the first PE.
        start: c_int,
        /// Distance from one PE to the next.
        stride: c_int,
        /// Number of PEs.
        n: c_int,
    },
    /// Numbers in the world of any PEs.
    Listed(Box<[c_int]>),
}

impl Members {
    /// Returns the number of PEs.
    pub fn n(&self) -> c_int {
        match self {
            Self::Strided { n, .. } => *n,
            Self::Listed(list) => list.len() as c_int,
        }
    }

    /// Returns the number in the world of a PE of this team.
    pub fn world(&self, pe: c_int) -> Option<c_int> {
        match self {
            Self::Strided { start, stride, n } => {
                (0..*n).contains(&pe).then(|| start + pe * stride)
            }
            Self::Listed(list) => list.get(usize::try_from(pe).ok()?).copied(),
        }
    }

    /// Returns the number in this team of a PE of the world.
    pub fn number(&self, world: c_int) -> Option<c_int> {
        match self {
            Self::Strided { start, stride, n } => {
                let at = world - start;
                let number = at.checked_div(*stride).unwrap_or(0);
                (number * stride == at && (0..*n).contains(&number)).then_some(number)
            }
            Self::Listed(list) => list.iter().position(|&one| one == world).map(|at| at as c_int),
        }
    }

    /// Returns `size` of these PEs, from `start` on, at a distance. None if there are no such PEs.
    pub fn split(&self, start: c_int, stride: c_int, size: c_int) -> Option<Self> {
        let last = i64::from(start) + i64::from(stride) * (i64::from(size) - 1);
        let is_in = |pe: i64| (0..i64::from(self.n())).contains(&pe);
        if size < 1 || !is_in(start.into()) || !is_in(last) || (stride == 0 && size > 1) {
            return None;
        }
        if size == 1 {
            return Some(Self::Strided { start: self.world(start)?, stride: 1, n: 1 });
        }
        Some(match self {
            Self::Strided { start: first, stride: each, .. } => {
                Self::Strided { start: first + start * each, stride: stride * each, n: size }
            }
            Self::Listed(_) => {
                let pes = (0..size).map(|pe| self.world(start + pe * stride));
                Self::Listed(pes.collect::<Option<_>>()?)
            }
        })
    }
}

/// A team of which this PE is a member.
pub struct Team {
    /// Its PEs.
    members: Members,
    /// Number of its PEs.
    pub n: c_int,
    /// Number of this PE in the team.
    pub me: c_int,
    /// This PE's slot in the area of collective operations.
    pub slot: usize,
    /// As given at its creation.
    pub config: Config,
    /// The program has not destroyed it.
    is_alive: AtomicBool,
}

impl Team {
    /// Returns the number in the world of a PE of this team.
    #[inline]
    pub fn world(&self, pe: c_int) -> Option<c_int> {
        self.members.world(pe)
    }

    /// Returns the number in this team of a PE of the world.
    pub fn number(&self, world: c_int) -> Option<c_int> {
        self.members.number(world)
    }

    /// Its PEs.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Returns true if the standard defines this team.
    pub fn is_predefined(&self) -> bool {
        [WORLD, SHARED].contains(&handle(self).addr())
    }
}

/// Teams that the program has destroyed. A new team takes the memory of an old one, so memory does
/// not grow, and the handle of a destroyed team never names other memory.
static ENDED: Mutex<Vec<&'static Team>> = Mutex::new(Vec::new());

/// Returns a new team. This PE is its number `me`.
pub fn create(members: Members, me: c_int, slot: usize, config: Config) -> &'static Team {
    let n = members.n();
    let team = Team { members, n, me, slot, config, is_alive: AtomicBool::new(true) };
    let ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let at = match ended {
        None => return Box::leak(Box::new(team)),
        Some(ended) => std::ptr::from_ref(ended).cast_mut(),
    };
    // SAFETY: a box of this function, which was leaked. By the standard nobody uses the ended team.
    unsafe {
        *at = team;
        &*at
    }
}

/// Ends a team that the program has created.
pub fn end(team: &'static Team) {
    team.is_alive.store(false, Release);
    ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(team);
}

/// Returns a team; none if it is invalid.
#[inline]
pub fn get(function: &str, team: Handle) -> Option<&'static Team> {
    match team.addr() {
        0 => None,
        WORLD => Some(world(function)),
        SHARED => Some(shared(function)),
        _ => {
            // SAFETY: by the standard the program passes a team that it has created. Its memory is
            // never freed.
            let team = unsafe { &*team };
            team.is_alive.load(Acquire).then_some(team)
        }
    }
}

static WORLD_TEAM: OnceLock<Team> = OnceLock::new();
static SHARED_TEAM: OnceLock<Team> = OnceLock::new();

/// Returns a team that the standard defines.
fn predefined(members: Members, slot: usize, me: usize) -> Team {
    let me = members.number(me as c_int).unwrap_or(0);
    let (n, config) = (members.n(), Config::default());
    Team { members, n, me, slot, config, is_alive: AtomicBool::new(true) }
}

/// Returns the team of all PEs.
#[inline]
pub fn world(function: &str) -> &'static Team {
    WORLD_TEAM.get_or_init(|| {
        let job = job::get(function);
        let members = Members::Strided { start: 0, stride: 1, n: job.n as c_int };
        predefined(members, WORLD_SLOT, job.me)
    })
}

/// Returns the team of the PEs that share memory: those of this node.
pub fn shared(function: &str) -> &'static Team {
    SHARED_TEAM.get_or_init(|| {
        let job = job::get(function);
        let near = job.peers.iter().filter(|peer| !peer.is_far());
        let pes: Box<[c_int]> = near.map(|peer| peer.pe as c_int).collect();
        predefined(compressed(pes), SHARED_SLOT, job.me)
    })
}

/// Returns PEs as strided ones if they are.
fn compressed(pes: Box<[c_int]>) -> Members {
    let (start, n) = (pes[0], pes.len() as c_int);
    let stride = pes.get(1).map_or(1, |next| next - start);
    let strided = Members::Strided { start, stride, n };
    let is_strided = (0..n).all(|pe| strided.world(pe) == Some(pes[pe as usize]));
    if is_strided { strided } else { Members::Listed(pes) }
}

/// Returns the handle of a team.
pub fn handle(team: &Team) -> Handle {
    let is = |other: &OnceLock<Team>| other.get().is_some_and(|other| std::ptr::eq(other, team));
    match () {
        () if is(&WORLD_TEAM) => std::ptr::without_provenance_mut(WORLD),
        () if is(&SHARED_TEAM) => std::ptr::without_provenance_mut(SHARED),
        () => std::ptr::from_ref(team).cast_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_team_has_the_numbers_of_the_standard() {
        let world = Members::Strided { start: 0, stride: 1, n: 10 };
        let odd = world.split(1, 2, 5).expect("odd PEs");
        let back = odd.split(4, -2, 3).expect("9, 5, 1");
        let listed = compressed(Box::new([0, 3, 4, 7]));
        let part = listed.split(3, -1, 3).expect("7, 4, 3");
        for (members, pes) in
            [(&odd, &[1, 3, 5, 7, 9][..]), (&back, &[9, 5, 1]), (&part, &[7, 4, 3])]
        {
            for (pe, world) in (0..).zip(pes) {
                assert_eq!(members.world(pe), Some(*world));
                assert_eq!(members.number(*world), Some(pe));
            }
            assert_eq!(members.n() as usize, pes.len());
            assert_eq!((members.world(-1), members.world(members.n())), (None, None));
            assert_eq!((members.number(2), members.number(10)), (None, None));
        }
        assert_eq!(world.split(4, 0, 1).expect("one PE").number(4), Some(0));
    }

    #[test]
    fn wrong_triplets_make_no_team() {
        let world = Members::Strided { start: 0, stride: 1, n: 8 };
        for (start, stride, size) in
            [(3, 3, 3), (0, 1, 0), (0, 1, -1), (-1, 1, 2), (8, 1, 1), (0, 0, 2), (2, -1, 4)]
        {
            assert_eq!(world.split(start, stride, size), None, "{start} {stride} {size}");
        }
        let (far, size) = (c_int::MAX, c_int::MAX);
        assert_eq!(world.split(1, far, size), None);
    }

    #[test]
    fn equal_distances_are_found() {
        assert_eq!(compressed(Box::new([5])), Members::Strided { start: 5, stride: 1, n: 1 });
        let even = Members::Strided { start: 2, stride: 2, n: 3 };
        assert_eq!(compressed(Box::new([2, 4, 6])), even);
    }
}
