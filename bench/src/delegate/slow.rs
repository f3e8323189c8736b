//! Slow cores: control groups with a CPU quota.

use std::fs;
use std::path::{Path, PathBuf};

/// The quota and its period in microseconds: a fifth of a processor.
const QUOTA_US: u32 = 2_000;
const PERIOD_US: u32 = 10_000;

/// A control group for each rank. The empty groups are removed with this value.
pub struct Slow {
    /// A rank's group has this path, followed by `-RANK`.
    pub prefix: PathBuf,
    groups: Vec<PathBuf>,
}

impl Slow {
    /// Makes the groups; `None` without the permission.
    pub fn make(ranks: usize) -> Option<Self> {
        let ours = fs::read_to_string("/proc/self/cgroup").ok()?;
        ours.lines().find_map(|line| {
            let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else {
                return None;
            };
            let mount = match controllers {
                "" => PathBuf::from("/sys/fs/cgroup"),
                _ if controllers.split(',').any(|one| one == "cpu") => {
                    Path::new("/sys/fs/cgroup").join(controllers)
                }
                _ => return None,
            };
            let place = mount.join(path.trim_start_matches('/'));
            let prefix = place.join(format!("nagaya-bench-{}", std::process::id()));
            let mut made = Self { prefix, groups: Vec::new() };
            (0..ranks).all(|rank| made.add(rank)).then_some(made)
        })
    }

    fn add(&mut self, rank: usize) -> bool {
        let mut group = self.prefix.clone().into_os_string();
        group.push(format!("-{rank}"));
        let group = PathBuf::from(group);
        if fs::create_dir(&group).is_err() {
            return false;
        }
        let write = |file: &str, text: String| fs::write(group.join(file), text).is_ok();
        let limited = match group.join("cpu.max").exists() {
            true => write("cpu.max", format!("{QUOTA_US} {PERIOD_US}")),
            false => {
                group.join("cpu.cfs_quota_us").exists()
                    && write("cpu.cfs_period_us", PERIOD_US.to_string())
                    && write("cpu.cfs_quota_us", QUOTA_US.to_string())
            }
        };
        self.groups.push(group);
        limited
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        for group in &self.groups {
            let _ = fs::remove_dir(group);
        }
    }
}
