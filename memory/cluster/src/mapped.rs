//! What is mapped in this process, as the kernel says.

use std::ops::Range;

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub at: Range<u64>,
    pub reads: bool,
    pub writes: bool,
    pub executes: bool,
    /// It is shared memory.
    pub is_shared: bool,
    /// Device and inode of the file, or zeros.
    pub identity: (u64, u64),
}

/// All that touch these addresses, in order.
pub fn mappings(at: &Range<u64>) -> std::io::Result<Vec<Mapping>> {
    let text = std::fs::read_to_string("/proc/self/maps")?;
    let touches = |it: &Mapping| it.at.start < at.end && at.start < it.at.end;
    Ok(text.lines().filter_map(parse).filter(touches).collect())
}

/// A line of /proc/PID/maps.
fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let at = number(start)?..number(end)?;
    let permissions = words.next()?.as_bytes();
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let identity = (device, words.next()?.parse().ok()?);
    let has = |place: usize, letter: u8| permissions.get(place) == Some(&letter);
    let (reads, writes, executes) = (has(0, b'r'), has(1, b'w'), has(2, b'x'));
    Some(Mapping { at, reads, writes, executes, is_shared: has(3, b's'), identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "7f00a000-7f00c000 rw-s 00002000 fd:01 1027  /memfd:pvas (deleted)";
        let found = parse(line).unwrap();
        assert_eq!(found.at, 0x7f00_a000..0x7f00_c000);
        assert!(found.reads && found.writes && found.is_shared && !found.executes);
        assert_eq!(found.identity, (rustix::fs::makedev(0xfd, 1), 1027));
        let other = parse("7f00a000-7f00c000 ---p 0 00:00 0").unwrap();
        assert_eq!((other.identity, other.reads, other.is_shared), ((0, 0), false, false));
        assert_eq!(parse("nothing"), None);
    }

    #[test]
    fn we_are_mapped() {
        let here = we_are_mapped as *const () as u64;
        let found = mappings(&(here..here + 1)).unwrap();
        assert!(
            matches!(&found[..], [it] if it.reads && it.executes && it.identity.1 > 0),
            "{found:?}"
        );
    }
}
