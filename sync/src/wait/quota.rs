//! The limit of a control group on the processor time of this process (cgroups(7), `cpu.max`).
//!
//! With less than a processor, a spin takes time that the process needs for its work: it is stopped
//! for the rest of the period, some milliseconds. A waiter does not notice that by itself, since
//! the kernel stops it on its way out of any system call.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the number of processors whose time this process may use, if that is limited: the least
/// of its control group's and those above.
pub fn processors() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit(&groups, Path::new("/sys/fs/cgroup"), |path| fs::read_to_string(path).ok())
}

fn limit(groups: &str, mount: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<f64> {
    let directories = groups.lines().filter_map(|line| {
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else {
            return None;
        };
        let top = match controllers {
            "" => mount.to_owned(),
            _ if controllers.split(',').any(|one| one == "cpu") => mount.join(controllers),
            _ => return None,
        };
        Some((top.clone(), top.join(path.trim_start_matches('/'))))
    });
    let above = directories.flat_map(|(top, directory)| {
        let above: Vec<PathBuf> = directory.ancestors().map(Path::to_owned).collect();
        above.into_iter().filter(move |it| it.starts_with(&top))
    });
    above.filter_map(|directory| limit_of(&directory, &read)).min_by(f64::total_cmp)
}

fn limit_of(directory: &Path, read: &impl Fn(&Path) -> Option<String>) -> Option<f64> {
    let number = |name: &str| read(&directory.join(name))?.trim().parse::<f64>().ok();
    let (quota, period) = match read(&directory.join("cpu.max")) {
        Some(text) => {
            let (quota, period) = text.trim().split_once(' ')?;
            (quota.parse().ok()?, period.parse().ok()?)
        }
        None => (number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?),
    };
    // Version 1 writes -1 for no limit.
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn limited(groups: &str, files: &[(&str, &str)]) -> Option<f64> {
        let files: HashMap<_, _> = files.iter().copied().collect();
        limit(groups, Path::new("/g"), |path| Some((*files.get(path.to_str()?)?).to_owned()))
    }

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let files = [
            ("/g/cpu.max", "max 100000\n"),
            ("/g/pod/cpu.max", "50000 100000\n"),
            ("/g/pod/box/cpu.max", "200000 100000\n"),
        ];
        assert_eq!(limited("0::/pod/box\n", &files), Some(0.5));
        assert_eq!(limited("0::/\n", &files), None);
        assert_eq!(limited("0::/gone\n", &[]), None);
    }

    #[test]
    fn version_1_has_a_hierarchy_of_its_own() {
        let quota = |text| {
            [
                ("/g/cpu,cpuacct/job/cpu.cfs_quota_us", text),
                ("/g/cpu,cpuacct/job/cpu.cfs_period_us", "10000\n"),
            ]
        };
        let groups = "4:memory:/other\n3:cpu,cpuacct:/job\n";
        assert_eq!(limited(groups, &quota("2000\n")), Some(0.2));
        assert_eq!(limited(groups, &quota("-1\n")), None);
    }
}
