//! Divides processors among several nodes on one machine, as if each node were another machine. If
//! nodes share all processors, the scheduler moves their threads between processors, which does not
//! happen on a cluster.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::{fs, io};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Returns the processors that this process may use, neighbours first: threads of one core, then
/// cores of one package.
pub fn ours() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok(in_order((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(), place))
}

fn in_order(mut cpus: Vec<usize>, place: impl Fn(usize) -> (u32, u32)) -> Vec<usize> {
    cpus.sort_by_key(|&cpu| (place(cpu), cpu));
    cpus
}

/// Returns a processor's package and core, or zeros if the kernel does not report them.
fn place(cpu: usize) -> (u32, u32) {
    let number = |file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/{file}");
        fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok())
    };
    (number("physical_package_id").unwrap_or(0), number("core_id").unwrap_or(0))
}

/// Divides `cpus` into `count` shares of nearly equal size. Each share has neighbours, as [`ours`]
/// orders them.
pub fn shares(cpus: &[usize], count: usize) -> Vec<CpuSet> {
    let border = |at: usize| at * cpus.len() / count;
    let share = |at: usize| {
        let mut set = CpuSet::new();
        cpus[border(at)..border(at + 1)].iter().for_each(|&cpu| set.set(cpu));
        set
    };
    (0..count).map(share).collect()
}

/// Binds the command to this share, if the kernel permits it.
pub fn bind(command: &mut Command, share: CpuSet) {
    // SAFETY: sched_setaffinity is a system call that allocates nothing, as is required between
    // fork and exec.
    unsafe {
        command.pre_exec(move || {
            let _ = sched_setaffinity(None, &share);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(set: &CpuSet) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
    }

    #[test]
    fn threads_of_a_core_stay_together() {
        // Two packages of two cores of two threads, numbered as Linux does.
        let place = |cpu: usize| ((cpu % 4 / 2) as u32, (cpu % 2) as u32);
        let cpus = in_order((0..8).collect(), place);
        let shares =
            |count| -> Vec<Vec<usize>> { shares(&cpus, count).iter().map(members).collect() };
        assert_eq!(shares(4), [[0, 4], [1, 5], [2, 6], [3, 7]].map(Vec::from));
        assert_eq!(shares(2), [[0, 1, 4, 5], [2, 3, 6, 7]].map(Vec::from));
    }

    #[test]
    fn every_share_has_one_and_none_is_left() {
        let cpus: Vec<usize> = (10..17).collect();
        let shares: Vec<_> = shares(&cpus, 3).iter().map(members).collect();
        assert_eq!(shares, [vec![10, 11], vec![12, 13], vec![14, 15, 16]]);
    }

    #[test]
    fn we_run_on_one_of_ours() {
        let cpus = ours().unwrap();
        assert!(cpus.contains(&rustix::thread::sched_getcpu()));
    }
}
