//! The memory of a window: anonymous, a name in `/dev/shm`, a file, huge pages, a DAX device or a
//! PCI device's memory. This file finds, checks and sizes it.
//!
//! The result is always a descriptor that can be mapped, and its size. Files are private to the
//! user: they are made with mode 0600, and refused if they belong to another user or if another
//! user may open them. The administrator sets the permissions of a device.

use std::fs;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    FallocateFlags, FileType, MemfdFlags, Mode, OFlags, SealFlags, Stat, fallocate, fchmod,
    fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, fstatfs, ftruncate, major, memfd_create,
    minor, open,
};
use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};

use crate::error::WindowError;
use crate::ofd;

/// Sizes are multiples of this, or of larger pages.
pub const PAGE_SIZE: usize = 4096;
/// Largest size of a window, in bytes: an address space has room for many of them.
pub const SIZE_MAX: usize = 1 << 44;

const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;
const SYSFS_MAGIC: i64 = 0x6265_6572;
/// Flags in a PCI device's `resource` (include/linux/ioport.h).
const RESOURCE_MEMORY: u64 = 0x200;
const RESOURCE_PREFETCHABLE: u64 = 0x2000;
/// The upper byte of a PCI class: memory controllers (ivshmem is 0x0500, CXL 0x0502).
const CLASS_MEMORY: u64 = 0x05;

/// The kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ordinary pages: a memfd, `/dev/shm`, a file.
    File,
    /// Huge pages: a file on hugetlbfs.
    Huge,
    /// A DAX character device (persistent or CXL memory).
    Dax,
    /// A base address register of a PCI memory device (ivshmem).
    Bar,
}

impl Kind {
    /// Returns true if all processes that map it run under one kernel.
    pub(crate) fn is_of_one_kernel(self) -> bool {
        matches!(self, Self::File | Self::Huge)
    }
}

/// Memory for a window. It is not mapped.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    kind: Kind,
    size: usize,
    place: String,
}

impl Memory {
    /// Makes memory without a name, of `size` bytes rounded up to pages. Others get its descriptor
    /// by inheritance or in a message. It can neither shrink nor grow.
    pub fn anonymous(size: usize) -> Result<Self, WindowError> {
        let place = "new anonymous memory".to_owned();
        let size = rounded(size, PAGE_SIZE, &place)?;
        let fail = |error| WindowError::System { doing: "make", place: place.clone(), error };
        let fd = memfd_create(c"nagaya-window", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(fail)?;
        fchmod(&fd, Mode::RUSR | Mode::WUSR).map_err(fail)?;
        ftruncate(&fd, size as u64).map_err(fail)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(fail)?;
        Ok(Self { fd, kind: Kind::File, size, place })
    }

    /// Returns the memory of a descriptor that was inherited or received, of any kind.
    pub fn received(fd: OwnedFd) -> Result<Self, WindowError> {
        let place = format!("descriptor {}", fd.as_raw_fd());
        let fail = |error| WindowError::System { doing: "use", place: place.clone(), error };
        let flags = fcntl_getfd(&fd).map_err(fail)?;
        fcntl_setfd(&fd, flags | FdFlags::CLOEXEC).map_err(fail)?;
        if fcntl_getfl(&fd).map_err(fail)? & OFlags::RWMODE != OFlags::RDWR {
            return Err(WindowError::ReadOnly { place });
        }
        Self::of(fd, place, None)
    }

    /// Returns the memory with a name in `/dev/shm`. A `size` makes it if it does not exist;
    /// without one it must exist.
    pub fn named(name: &str, size: Option<usize>) -> Result<Self, WindowError> {
        if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
            return Err(WindowError::Name { name: name.to_owned() });
        }
        Self::at(&Path::new("/dev/shm").join(name), size)
    }

    /// Returns the memory at a path: a file, a file on hugetlbfs, `/dev/daxN.M`, or
    /// `/sys/bus/pci/devices/…/resourceN`. A `size` makes a file that does not exist. An existing
    /// file must have that size, rounded up to pages. A device has a size of its own.
    pub fn at(path: &Path, size: Option<usize>) -> Result<Self, WindowError> {
        let place = path.display().to_string();
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
        // In a device's directory, the kernel refuses to make a file.
        let opened = match open(path, flags, Mode::empty()) {
            Err(Errno::NOENT) if size.is_some() => {
                open(path, flags | OFlags::CREATE, Mode::RUSR | Mode::WUSR)
            }
            opened => opened,
        };
        let fd = opened.map_err(|error| WindowError::System {
            doing: "open",
            place: place.clone(),
            error,
        })?;
        Self::of(fd, place, size)
    }

    fn of(fd: OwnedFd, place: String, size: Option<usize>) -> Result<Self, WindowError> {
        let fail = |error| WindowError::System { doing: "look at", place: place.clone(), error };
        let stat = fstat(&fd).map_err(fail)?;
        let system = fstatfs(&fd).map_err(fail)?;
        let euid = rustix::process::geteuid().as_raw();
        let (kind, has) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::CharacterDevice => {
                let (major, minor) = (major(stat.st_rdev), minor(stat.st_rdev));
                let directory = PathBuf::from(format!("/sys/dev/char/{major}:{minor}"));
                (Kind::Dax, dax_size(&directory, &place)?)
            }
            FileType::RegularFile if system.f_type == SYSFS_MAGIC => {
                (Kind::Bar, bar_size(&true_path(&fd, &place)?, &place)?)
            }
            FileType::RegularFile if stat.st_uid != euid => {
                return Err(WindowError::Foreign { place, owner: stat.st_uid, euid });
            }
            FileType::RegularFile if stat.st_mode & 0o077 != 0 => {
                return Err(WindowError::Open { place, mode: stat.st_mode & 0o777 });
            }
            FileType::RegularFile => {
                let huge = system.f_type == HUGETLBFS_MAGIC;
                let unit = if huge { system.f_bsize as usize } else { PAGE_SIZE };
                let has = file_size(&fd, &place, unit, size)?;
                (if huge { Kind::Huge } else { Kind::File }, has)
            }
            _ => return Err(WindowError::Unfit { place, why: "is not memory".into() }),
        };
        if stat.st_uid != euid && stat.st_uid != 0 {
            return Err(WindowError::Foreign { place, owner: stat.st_uid, euid });
        }
        let wrong = size.is_some_and(|size| matches!(kind, Kind::Dax | Kind::Bar) && size > has);
        if wrong || !has.is_multiple_of(PAGE_SIZE) || !(PAGE_SIZE..=SIZE_MAX).contains(&has) {
            return Err(WindowError::Size { place, has, wanted: size });
        }
        Ok(Self { fd, kind, size: has, place })
    }

    /// Returns the kind of memory.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns where the memory is, for messages to the user.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the pages of `range` to the system. The pages of named files are reserved, and
    /// remain. Returns true if the range is zero now.
    pub(crate) fn give_back(&self, range: Range<usize>) -> bool {
        let sealed = SealFlags::SHRINK | SealFlags::GROW;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fcntl_get_seals(&self.fd).is_ok_and(|seals| seals.contains(sealed))
            && fallocate(&self.fd, punch, range.start as u64, range.len() as u64).is_ok()
    }

    /// Returns a new open file description, for locks that end with the caller.
    pub fn reopen(&self) -> Result<OwnedFd, WindowError> {
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
            let place = format!("{} again, by {path}", self.place);
            WindowError::System { doing: "open", place, error }
        })
    }
}

impl AsFd for Memory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Returns `size` rounded up to whole units.
fn rounded(size: usize, unit: usize, place: &str) -> Result<usize, WindowError> {
    match size.checked_next_multiple_of(unit) {
        Some(rounded) if (1..=SIZE_MAX).contains(&rounded) => Ok(rounded),
        _ => Err(WindowError::Size { place: place.to_owned(), has: 0, wanted: Some(size) }),
    }
}

/// Returns the size of a file, and gives one to an empty file. Several processes may do so at once;
/// a lock that ends with its holder orders them.
fn file_size(
    fd: &OwnedFd,
    place: &str,
    unit: usize,
    wanted: Option<usize>,
) -> Result<usize, WindowError> {
    let fail =
        |error| WindowError::System { doing: "give a size to", place: place.to_owned(), error };
    let size = |stat: Stat| usize::try_from(stat.st_size).unwrap_or(0);
    let Some(wanted) = wanted else {
        return Ok(size(fstat(fd).map_err(fail)?));
    };
    let rounded = rounded(wanted, unit, place)?;
    ofd::lock(fd.as_fd(), ofd::SIZE).map_err(fail)?;
    let sized = (|| {
        let has = size(fstat(fd).map_err(fail)?);
        if has == 0 {
            // So a full /dev/shm is an error now, not SIGBUS later. (mmap reserves huge pages, and
            // some file systems cannot reserve.)
            match fallocate(fd, FallocateFlags::empty(), 0, rounded as u64) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    ftruncate(fd, rounded as u64).map_err(fail)?;
                }
                Err(error) => {
                    let _ = ftruncate(fd, 0);
                    return Err(fail(error));
                }
            }
            return Ok(rounded);
        }
        if has != rounded {
            return Err(WindowError::Size { place: place.to_owned(), has, wanted: Some(wanted) });
        }
        Ok(has)
    })();
    ofd::unlock(fd.as_fd(), ofd::SIZE, 1);
    sized
}

/// Returns the real path of a descriptor's file: a BAR is known by its directory.
fn true_path(fd: &OwnedFd, place: &str) -> Result<PathBuf, WindowError> {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .map_err(|error| WindowError::attribute(place, "/proc/self/fd", &error))
}

/// Parses a number in a file of sysfs, decimal or `0x…`.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Reads an attribute of a device in sysfs.
fn attribute(directory: &Path, name: &str, place: &str) -> Result<String, WindowError> {
    let path = directory.join(name);
    fs::read_to_string(&path)
        .map_err(|error| WindowError::attribute(place, &path.display().to_string(), &error))
}

/// Returns the size of the DAX device with this directory in sysfs, in whole units of its
/// alignment.
fn dax_size(directory: &Path, place: &str) -> Result<usize, WindowError> {
    let unfit = |why: &str| WindowError::Unfit { place: place.to_owned(), why: why.into() };
    let subsystem = fs::read_link(directory.join("subsystem")).unwrap_or_default();
    if subsystem.file_name().is_none_or(|name| name != "dax") {
        return Err(unfit("is a character device, but not of the kind dax"));
    }
    let size = number(&attribute(directory, "size", place)?);
    let align = number(&attribute(directory, "align", place)?);
    match (size, align) {
        (Some(size), Some(align)) if align > 0 && size >= align => {
            Ok((size - size % align) as usize)
        }
        _ => Err(unfit("has neither size nor alignment; `daxctl list` shows what is wrong")),
    }
}

/// Returns the size of a PCI device's BAR; `path` is that of `resourceN` or `resourceN_wc`. Refuses
/// registers, since a write to one may do harm.
fn bar_size(path: &Path, place: &str) -> Result<usize, WindowError> {
    let unfit = |why: String| WindowError::Unfit { place: place.to_owned(), why };
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let bar = name.strip_prefix("resource").map(|n| n.strip_suffix("_wc").unwrap_or(n));
    let Some(bar) = bar.and_then(|n| n.parse::<usize>().ok()) else {
        return Err(unfit("is in sysfs, but no PCI device's resourceN".into()));
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    let class = attribute(directory, "class", place)?;
    if number(&class).is_none_or(|class| class >> 16 != CLASS_MEMORY) {
        return Err(unfit(format!("is of a PCI device of class {}, not memory", class.trim())));
    }
    let resources = attribute(directory, "resource", place)?;
    let line = resources.lines().nth(bar).unwrap_or_default();
    let numbers: Vec<_> = line.split_whitespace().filter_map(number).collect();
    let &[start, end, flags] = numbers.as_slice() else {
        return Err(unfit(format!("is BAR {bar}, which the device's `resource` does not have")));
    };
    let memory = RESOURCE_MEMORY | RESOURCE_PREFETCHABLE;
    if flags & memory != memory || end <= start {
        return Err(unfit(format!("is BAR {bar}, of registers; memory is in another one")));
    }
    Ok((end - start).saturating_add(1) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a directory that replaces one of sysfs.
    fn directory(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("fcp-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a new directory");
        for (file, text) in files {
            fs::write(path.join(file), text).expect("a new file");
        }
        path
    }

    #[test]
    fn a_dax_device_is_as_large_as_sysfs_says_in_units_of_its_alignment() {
        let path = directory("dax", &[("size", "6291457\n"), ("align", "2097152\n")]);
        let refused = dax_size(&path, "/dev/dax0.0").expect_err("no subsystem");
        assert!(refused.to_string().contains("not of the kind dax"), "{refused}");
        std::os::unix::fs::symlink("../../../bus/dax", path.join("subsystem")).expect("a link");
        assert_eq!(dax_size(&path, "/dev/dax0.0").expect("a size"), 3 << 21);
        fs::write(path.join("align"), "0\n").expect("written");
        assert!(dax_size(&path, "/dev/dax0.0").is_err());
        fs::remove_file(path.join("size")).expect("removed");
        let refused = dax_size(&path, "/dev/dax0.0").expect_err("no size").to_string();
        assert!(refused.contains("/size"), "{refused}");
        fs::remove_dir_all(path).expect("removed");
    }

    #[test]
    fn a_bar_is_memory_of_a_memory_device_or_refused() {
        // As the kernel writes it for an ivshmem device of 4 MiB.
        let resource = "0x00000000febf1000 0x00000000febf10ff 0x0000000000040200\n\
                        0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                        0x00000000fe000000 0x00000000fe3fffff 0x000000000014220c\n";
        let path = directory("bar", &[("class", "0x050000\n"), ("resource", resource)]);
        let size = |name: &str| bar_size(&path.join(name), "it").map_err(|e| e.to_string());
        assert_eq!(size("resource2"), Ok(4 << 20));
        assert_eq!(size("resource2_wc"), Ok(4 << 20));
        assert!(size("resource0").expect_err("registers").contains("registers"));
        assert!(size("resource1").expect_err("unused").contains("registers"));
        assert!(size("resource5").expect_err("not there").contains("does not have"));
        assert!(size("config").expect_err("no BAR").contains("resourceN"));
        fs::write(path.join("class"), "0x020000\n").expect("written");
        assert!(size("resource2").expect_err("a network card").contains("0x020000"));
        fs::remove_dir_all(path).expect("removed");
    }
}
