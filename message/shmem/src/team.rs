//! Teams: ordered sets of PEs.

use std::ffi::{c_int, c_long};
use std::sync::OnceLock;

use crate::job;

/// A team as programs name it (`shmem_team_t`): 0 is invalid, 1 is the world, 2 are the PEs that
/// share memory, and any other value is the address of a [`Team`].
pub type Handle = *mut Team;

/// `SHMEM_TEAM_WORLD`.
pub const WORLD: usize = 1;
/// `SHMEM_TEAM_SHARED`.
pub const SHARED: usize = 2;

/// `shmem_team_config_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Config {
    /// Number of contexts that the program will create.
    pub num_contexts: c_int,
}

/// A team of which this PE is a member.
pub struct Team {
    /// Number in the world of its first PE.
    pub start: c_int,
    /// Distance from one PE to the next.
    pub stride: c_int,
    /// Number of its PEs.
    pub n: c_int,
    /// Number of this PE in the team.
    pub me: c_int,
    /// As given at its creation.
    pub config: Config,
    /// `SHMEM_TEAM_NUM_CONTEXTS`, if the configuration was given.
    pub mask: c_long,
}

impl Team {
    /// Returns the number in the world of a PE of this team.
    #[inline]
    pub fn world(&self, pe: c_int) -> Option<c_int> {
        (0..self.n).contains(&pe).then(|| self.start + pe * self.stride)
    }

    /// Returns the number in this team of a PE of the world.
    pub fn number(&self, world: c_int) -> Option<c_int> {
        let at = world - self.start;
        let number = at.checked_div(self.stride).unwrap_or(0);
        (number * self.stride == at && (0..self.n).contains(&number)).then_some(number)
    }
}

/// Returns a team; none if it is invalid.
pub fn get(function: &str, team: Handle) -> Option<&'static Team> {
    match team.addr() {
        0 => None,
        WORLD | SHARED => Some(world(function)),
        // SAFETY: by the standard the program passes a team that it has created and not destroyed.
        _ => unsafe { team.as_ref() },
    }
}

/// Returns the team of all PEs.
pub fn world(function: &str) -> &'static Team {
    static TEAM: OnceLock<Team> = OnceLock::new();
    let job = job::get(function);
    TEAM.get_or_init(|| Team {
        start: 0,
        stride: 1,
        n: job.n as c_int,
        me: job.me as c_int,
        config: Config::default(),
        mask: 0,
    })
}

/// Returns the handle of a team.
pub fn handle(team: &'static Team) -> Handle {
    std::ptr::from_ref(team).cast_mut()
}
