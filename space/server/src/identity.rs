//! The identity of a process: its rights and namespaces, which decide if it may be a task of a
//! server.
//!
//! A task runs with the rights and in the namespaces of its server. So a program becomes a task
//! only of a server that has the same ones. The mount namespace and the root directory are an
//! exception. A server with enough rights starts the task in the mount namespace and root of the
//! program's stub ([`crate::mounts`]).

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;

use control::fnv1a;
use proc::process::Status;
use serde::{Deserialize, Serialize};

/// Lines of /proc/PID/status, and their names in messages.
const RIGHTS: &[(&str, &str)] = &[
    ("Uid", "users"),
    ("Gid", "groups"),
    ("Groups", "groups"),
    ("CapInh", "capabilities"),
    ("CapPrm", "capabilities"),
    ("CapEff", "capabilities"),
    ("CapBnd", "capabilities"),
    ("CapAmb", "capabilities"),
    ("NoNewPrivs", "no_new_privs attributes"),
    ("Seccomp", "seccomp filters"),
    ("Seccomp_filters", "seccomp filters"),
];
/// Entries of /proc/PID/ns, and their names in messages.
const NAMESPACES: &[(&str, &str)] = &[
    ("mnt", MOUNTS),
    ("pid", "PID namespaces"),
    ("user", "user namespaces"),
    ("net", "network namespaces"),
    ("ipc", "IPC namespaces"),
    ("uts", "UTS namespaces"),
    ("cgroup", "cgroup namespaces"),
    ("time", "time namespaces"),
];
const MOUNTS: &str = "mount namespaces";
const ROOTS: &str = "root directories";
const LABELS: &str = "security labels";

/// Rights and namespaces of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Key and value, in the order of [`RIGHTS`]; only those that the kernel has.
    rights: Vec<(String, String)>,
    /// Label of the security module.
    label: String,
    /// In the order of [`NAMESPACES`]; empty where unknown.
    namespaces: Vec<String>,
    /// Device and inode of the root directory.
    root: (u64, u64),
}

impl Identity {
    /// Returns the identity of the calling process.
    pub fn of_this_process() -> Self {
        Self::of("self")
    }

    /// Returns the identity of the process `pid`, or `None` if /proc does not show it.
    pub fn of_process(pid: i32) -> Option<Self> {
        let pid = (pid > 0).then(|| pid.to_string())?;
        let is_shown = fs::read_link(format!("/proc/{pid}/ns/{}", NAMESPACES[0].0)).is_ok();
        is_shown.then(|| Self::of(&pid))
    }

    fn of(pid: &str) -> Self {
        let link = |name: &(&str, &str)| {
            let link = fs::read_link(format!("/proc/{pid}/ns/{}", name.0)).unwrap_or_default();
            link.display().to_string()
        };
        let label = fs::read(format!("/proc/{pid}/attr/current")).unwrap_or_default();
        Self {
            rights: rights(pid).unwrap_or_default(),
            label: String::from_utf8_lossy(&label).trim_end_matches(['\0', '\n']).to_owned(),
            namespaces: NAMESPACES.iter().map(link).collect(),
            root: fs::metadata(format!("/proc/{pid}/root/"))
                .map_or((0, 0), |root| (root.dev(), root.ino())),
        }
    }

    /// Returns a hash of the identity.
    pub fn number(&self) -> u64 {
        fnv1a(self.to_string().as_bytes())
    }

    /// Returns true if the process `pid` has the same rights, or `None` if /proc does not show
    /// them.
    pub fn has_rights(&self, pid: i32) -> Option<bool> {
        (pid > 0).then(|| rights(&pid.to_string()))?.map(|rights| rights == self.rights)
    }

    /// Returns the names of all differences, for messages.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let value = |identity: &Self, key: &str| {
            let found = identity.rights.iter().find(|right| right.0 == key);
            found.map(|right| right.1.clone())
        };
        let namespace = |identity: &Self, number: usize| identity.namespaces.get(number).cloned();
        let rights = RIGHTS.iter().filter(|(key, _)| value(self, key) != value(other, key));
        let namespaces = NAMESPACES.iter().enumerate();
        let namespaces = namespaces.filter(|&(at, _)| namespace(self, at) != namespace(other, at));
        let mut names: Vec<String> = Vec::new();
        let all = rights.map(|(_, name)| *name).chain(namespaces.map(|(_, (_, name))| *name));
        let label = (self.label != other.label).then_some(LABELS);
        let root = (self.root != other.root).then_some(ROOTS);
        for name in all.chain(label).chain(root) {
            if !names.iter().any(|it| it == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// Returns true if only the mounts differ, which a server can set for a single task.
    pub fn differs_in_mounts_only(&self, other: &Self) -> bool {
        let differences = self.differences(other);
        !differences.is_empty() && differences.iter().all(|it| it == MOUNTS || it == ROOTS)
    }
}

/// Formats all parts of the identity, as input of the hash.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, value) in &self.rights {
            writeln!(f, "{key}:{value}")?;
        }
        writeln!(f, "{}", self.label)?;
        for namespace in &self.namespaces {
            writeln!(f, "{namespace}")?;
        }
        writeln!(f, "{}:{}", self.root.0, self.root.1)
    }
}

/// Returns the rights of a process of this PID namespace, or `None` if /proc does not show them.
fn rights(pid: &str) -> Option<Vec<(String, String)>> {
    let status = Status::read(&format!("/proc/{pid}")).ok()?;
    let is_right = |key: &str| RIGHTS.iter().any(|right| right.0 == key);
    let rights = status.fields().filter(|(key, _)| is_right(key));
    Some(rights.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_named_once() {
        let own = Identity::of_this_process();
        assert_eq!(own, Identity::of_this_process());
        assert!(own.differences(&own).is_empty() && !own.differs_in_mounts_only(&own));
        let mut other = own.clone();
        other.namespaces[0] = "mnt:[1]".into();
        assert_eq!(own.differences(&other), ["mount namespaces"]);
        assert!(own.differs_in_mounts_only(&other));
        assert_ne!(own.to_string(), other.to_string());
        other.root = (0, 0);
        assert!(own.differs_in_mounts_only(&other));
        other.namespaces[1] = "pid:[1]".into();
        for right in other.rights.iter_mut().filter(|right| right.0.starts_with("Cap")) {
            right.1 = "7".into();
        }
        let names = ["capabilities", "mount namespaces", "PID namespaces", "root directories"];
        assert_eq!(own.differences(&other), names);
        assert!(!own.differs_in_mounts_only(&other));
    }

    #[test]
    fn rights_of_another_process_are_compared() {
        let own = Identity::of_this_process();
        assert_eq!(own.has_rights(std::process::id() as i32), Some(true));
        assert_eq!(own.has_rights(0), None);
        let mut less = own.clone();
        less.rights[0].1 = "none".into();
        assert_eq!(less.has_rights(std::process::id() as i32), Some(false));
    }
}
