//! What is mapped in this process, as the kernel says.

use std::ops::Range;

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub at: Range<u64>,
    pub reads: bool,
    pub writes: bool,
    /// It is shared memory.
    pub is_shared: bool,
    /// The file's, or 0.
    pub inode: u64,
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
    let inode = words.nth(2)?.parse().ok()?;
    let has = |place: usize, letter: u8| permissions.get(place) == Some(&letter);
    let (reads, writes, is_shared) = (has(0, b'r'), has(1, b'w'), has(3, b's'));
    Some(Mapping { at, reads, writes, is_shared, inode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let line = "7f00a000-7f00c000 rw-s 00002000 00:01 1027  /memfd:pvas (deleted)";
        let (reads, writes, is_shared, inode) = (true, true, true, 1027);
        let at = 0x7f00_a000..0x7f00_c000;
        assert_eq!(parse(line), Some(Mapping { at, reads, writes, is_shared, inode }));
        assert_eq!(parse("7f00a000-7f00c000 ---p 0 00:00 0").map(|it| it.inode), Some(0));
        assert_eq!(parse("nothing"), None);
    }

    #[test]
    fn we_are_mapped() {
        let here = we_are_mapped as *const () as u64;
        let found = mappings(&(here..here + 1)).unwrap();
        assert!(matches!(&found[..], [it] if it.reads && !it.writes && it.inode > 0), "{found:?}");
    }
}
