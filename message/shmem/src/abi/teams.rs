//! Team management.

use std::ffi::{c_int, c_long, c_void};
use std::ptr;

use crate::abi::export::export;
use crate::collectives::split::{self, Wanted};
use crate::job;
use crate::team::{self, Config, Handle, Members};

/// Returned for a wrong team or PE.
const NONE: c_int = -1;
/// `SHMEM_TEAM_NUM_CONTEXTS`.
const NUM_CONTEXTS: c_long = 1;

export!(["team_my_pe"] (team: Handle) -> c_int {
    team::get("shmem_team_my_pe", team).map_or(NONE, |team| team.me)
});
export!(["team_n_pes"] (team: Handle) -> c_int {
    team::get("shmem_team_n_pes", team).map_or(NONE, |team| team.n)
});
export!(["team_get_config"] (team: Handle, mask: c_long, config: *mut Config) -> c_int {
    let Some(team) = team::get("shmem_team_get_config", team) else { return NONE };
    if mask & NUM_CONTEXTS != 0 && !config.is_null() {
        // SAFETY: the standard's contract: `config` is writable.
        unsafe { (*config).num_contexts = team.config.num_contexts };
    }
    0
});
export!(["team_translate_pe"] (from: Handle, pe: c_int, to: Handle) -> c_int {
    let f = "shmem_team_translate_pe";
    let number = || team::get(f, to)?.number(team::get(f, from)?.world(pe)?);
    number().unwrap_or(NONE)
});
export!(["team_ptr"] (team: Handle, object: *const c_void, pe: c_int) -> *mut c_void {
    let f = "shmem_team_ptr";
    let find = || {
        let pe = team::get(f, team)?.world(pe)?;
        let job = job::get(f);
        job.find(object.cast(), job.peer(f, pe))
    };
    find().map_or(ptr::null_mut(), |at| at.cast())
});

/// Returns a team to be created with a configuration.
///
/// # Safety
/// `config` is null, or points to a configuration.
unsafe fn wanted(members: Members, config: *const Config, mask: c_long) -> Wanted {
    // SAFETY: this function has the contract of the reference.
    let config = unsafe { config.as_ref() }.filter(|_| mask & NUM_CONTEXTS != 0);
    Wanted { members, config: config.copied().unwrap_or_default() }
}

export!(["team_split_strided"] (parent: Handle, start: c_int, stride: c_int, size: c_int,
    config: *const Config, mask: c_long, new: *mut Handle) -> c_int {
    let f = "shmem_team_split_strided";
    // SAFETY: the standard's contract: `new` is writable.
    unsafe { *new = ptr::null_mut() };
    let Some(parent) = team::get(f, parent) else { return NONE };
    let Some(members) = parent.members().split(start, stride, size) else { return NONE };
    // SAFETY: the standard's contract of the configuration.
    let wanted = unsafe { wanted(members, config, mask) };
    let Ok([team]) = split::split(f, parent, [wanted]) else { return NONE };
    // SAFETY: the standard's contract: `new` is writable.
    unsafe { *new = team.map_or(ptr::null_mut(), team::handle) };
    0
});
export!(["team_split_2d"] (parent: Handle, xrange: c_int,
    xconfig: *const Config, xmask: c_long, xteam: *mut Handle,
    yconfig: *const Config, ymask: c_long, yteam: *mut Handle) -> c_int {
    let f = "shmem_team_split_2d";
    // SAFETY: the standard's contract: both are writable.
    unsafe { (*xteam, *yteam) = (ptr::null_mut(), ptr::null_mut()) };
    let Some(parent) = team::get(f, parent).filter(|_| xrange > 0) else { return NONE };
    let (xrange, n) = (xrange.min(parent.n), parent.n);
    let (x, y) = (parent.me % xrange, parent.me / xrange);
    let row = parent.members().split(y * xrange, 1, xrange.min(n - y * xrange));
    let column = parent.members().split(x, xrange, (n - x + xrange - 1) / xrange);
    let (Some(row), Some(column)) = (row, column) else { return NONE };
    // SAFETY: the standard's contract of the configurations.
    let wanted = unsafe { [wanted(row, xconfig, xmask), wanted(column, yconfig, ymask)] };
    let Ok([row, column]) = split::split(f, parent, wanted) else { return NONE };
    let handle = |team: Option<_>| team.map_or(ptr::null_mut(), team::handle);
    // SAFETY: the standard's contract: both are writable.
    unsafe { (*xteam, *yteam) = (handle(row), handle(column)) };
    0
});
export!(["team_destroy"] (team: Handle) {
    let f = "shmem_team_destroy";
    if let Some(team) = team::get(f, team) {
        split::destroy(f, team);
    }
});
