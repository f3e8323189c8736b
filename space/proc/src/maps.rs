//! The mappings of a process, from `/proc/PID/maps` (proc_pid_maps(5)).

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::ops::Range;

/// A mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub addresses: Range<u64>,
    /// Its pages can be read.
    pub reads: bool,
    /// Its pages can be written.
    pub writes: bool,
    /// Its pages can be executed.
    pub executes: bool,
    /// It is shared memory; a private mapping otherwise.
    pub is_shared: bool,
    /// Offset of the first address in the file.
    pub offset: u64,
    /// Device and inode number of the file; zeros for anonymous memory.
    pub identity: (u64, u64),
    /// Path of the file, or a name such as `[vdso]`; empty for anonymous memory.
    pub path: String,
}

impl Mapping {
    /// Parses a line of `maps`, or the first line of a mapping in `smaps`.
    pub fn parse(line: &str) -> Option<Self> {
        // The path may contain spaces. Others stand before it, to align it.
        let mut fields = line.splitn(6, ' ');
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = fields.next()?.split_once('-')?;
        let addresses = Some(hex(start)?..hex(end)?).filter(|range| !range.is_empty())?;
        let permissions = fields.next()?.as_bytes();
        let offset = hex(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        let device = rustix::fs::makedev(number(major)?, number(minor)?);
        let identity = (device, fields.next()?.parse().ok()?);
        let path = fields.next().unwrap_or_default().trim().to_owned();
        let has = |position: usize, letter: u8| permissions.get(position) == Some(&letter);
        let (reads, writes, executes) = (has(0, b'r'), has(1, b'w'), has(2, b'x'));
        let is_shared = has(3, b's');
        Some(Self { addresses, reads, writes, executes, is_shared, offset, identity, path })
    }

    /// Returns the permissions in the kernel's notation, such as `r-xp`.
    pub fn permissions(&self) -> String {
        let letters = [
            if self.reads { 'r' } else { '-' },
            if self.writes { 'w' } else { '-' },
            if self.executes { 'x' } else { '-' },
            if self.is_shared { 's' } else { 'p' },
        ];
        letters.into_iter().collect()
    }
}

/// Reads the mappings of the calling process, in ascending order.
pub fn own() -> io::Result<Vec<Mapping>> {
    // A path may be any bytes.
    let text = fs::read("/proc/self/maps")?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(Mapping::parse).collect())
}

/// Reads the mappings of process or thread `id`, one at a time, in ascending order. The iterator
/// ends early if the process does.
pub fn of(id: i32) -> io::Result<impl Iterator<Item = Mapping>> {
    let lines = BufReader::new(File::open(format!("/proc/{id}/maps"))?).split(b'\n');
    let lines = lines.map_while(Result::ok);
    Ok(lines.filter_map(|line| Mapping::parse(&String::from_utf8_lossy(&line))))
}

/// Counts the mappings of the calling process without allocating memory. So it works when
/// vm.max_map_count is reached.
pub fn count() -> io::Result<usize> {
    let mut file = File::open("/proc/self/maps")?;
    let mut buffer = [0; 4096];
    let mut lines = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(lines),
            bytes => lines += buffer[..bytes].iter().filter(|&&byte| byte == b'\n').count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_becomes_a_mapping() {
        let line = "7f00a000-7f00c000 rw-s 00002000 fd:01 1027       /memfd:a b (deleted)";
        let found = Mapping::parse(line).expect("a mapping");
        assert_eq!(found.addresses, 0x7f00_a000..0x7f00_c000);
        assert!(found.reads && found.writes && found.is_shared && !found.executes);
        assert_eq!(found.permissions(), "rw-s");
        assert_eq!((found.offset, &*found.path), (0x2000, "/memfd:a b (deleted)"));
        assert_eq!(found.identity, (rustix::fs::makedev(0xfd, 1), 1027));
        let other = Mapping::parse("7f00a000-7f00c000 ---p 00000000 00:00 0 ").expect("a mapping");
        assert_eq!((other.identity, other.reads, other.is_shared), ((0, 0), false, false));
        assert_eq!((&*other.path, &*other.permissions()), ("", "---p"));
    }

    #[test]
    fn other_lines_are_no_mapping() {
        for line in [
            "",
            "7f00c000-7f00a000 ---p 00000000 00:00 0 ",
            "nothing",
            "Rss:                   8 kB",
            "VmFlags: rd ex mr mw me",
        ] {
            assert_eq!(Mapping::parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_caller_finds_its_own_code() {
        let here = the_caller_finds_its_own_code as *const () as u64;
        let is_here = |mapping: &Mapping| mapping.addresses.contains(&here);
        let own = own().expect("/proc/self/maps");
        let found = own.iter().find(|mapping| is_here(mapping)).expect("the code is mapped");
        assert!(found.reads && found.executes && found.identity.1 > 0, "{found:?}");
        let pid = std::process::id() as i32;
        assert_eq!(of(pid).expect("/proc/PID/maps").find(is_here).as_ref(), Some(found));
        assert!(count().expect("/proc/self/maps") > 1);
        assert!(of(-1).is_err());
    }
}
