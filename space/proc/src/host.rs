//! The identity of this host and of the caller's PID namespace.
//!
//! Processes with the same boot ID run under one kernel. A PID means the same process to two of
//! them only if their PID namespaces are equal, too.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// Returns the boot ID: a UUID that the kernel draws at random each time it starts. Returns `None`
/// if /proc is not mounted.
pub fn boot_id() -> Option<u128> {
    parse(&fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
}

/// Parses a UUID: hexadecimal digits with hyphens between them.
pub fn parse(text: &str) -> Option<u128> {
    u128::from_str_radix(&text.trim().replace('-', ""), 16).ok()
}

/// Returns the inode number of the caller's PID namespace, or 0 if /proc is not mounted.
pub fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Returns the inode number of the calling thread's network namespace, or 0 if /proc is not
/// mounted.
pub fn network_namespace() -> u64 {
    fs::metadata("/proc/thread-self/ns/net").map_or(0, |namespace| namespace.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_a_number() {
        let text = "00c0ffee-0000-4000-8000-0000000000a5\n";
        assert_eq!(parse(text), Some(0x00c0_ffee_0000_4000_8000_0000_0000_00a5));
        assert_eq!(parse(""), None);
        assert_eq!(parse("no UUID"), None);
    }

    #[test]
    fn the_kernel_reports_both() {
        assert!(boot_id().is_some_and(|id| id != 0) && boot_id() == boot_id());
        assert_ne!(pid_namespace(), 0);
    }
}
