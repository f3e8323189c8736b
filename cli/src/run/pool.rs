//! `nagaya run --pool`: memory that all machines of a job map.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ::cluster::pool;
use ::fcp::error::WindowError;
use ::fcp::memory::{Kind, Memory};

/// The path of the pool on each machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pools {
    /// On all others.
    path: PathBuf,
    /// On single hosts.
    at: Vec<(String, PathBuf)>,
}

impl FromStr for Pools {
    type Err = String;

    /// `PATH[,HOST=PATH]…`
    fn from_str(text: &str) -> Result<Self, String> {
        let absolute = |path: &str| match path.starts_with('/') {
            true => Ok(PathBuf::from(path)),
            false => Err(format!("{path:?} is no absolute path of a file or device")),
        };
        let mut parts = text.split(',');
        let path = absolute(parts.next().unwrap_or_default())?;
        let at = parts.map(|part| match part.split_once('=') {
            Some((host, path)) if !host.is_empty() => Ok((host.to_owned(), absolute(path)?)),
            _ => Err(format!("{part:?}: no HOST=PATH")),
        });
        Ok(Self { path, at: at.collect::<Result<_, _>>()? })
    }
}

impl Pools {
    /// The path on a host; none: this one.
    pub fn of(&self, host: Option<&str>) -> &Path {
        let own = self.at.iter().find(|(name, _)| Some(&name[..]) == host);
        own.map_or(&self.path, |(_, path)| path)
    }

    /// A host that is named, but not among these.
    pub fn stranger(&self, hosts: &[&str]) -> Option<&str> {
        self.at.iter().map(|(name, _)| &name[..]).find(|name| !hosts.contains(name))
    }
}

/// Opens one, for the job with this mark.
pub fn open(path: &[u8], mark: u64) -> Result<pool::Memory, String> {
    let words = |why: WindowError| format!("--pool: {why}");
    let memory = Memory::at(Path::new(OsStr::from_bytes(path)), None).map_err(words)?;
    if memory.kind() == Kind::Bar {
        return Err(format!(
            "--pool: {} is a PCI device's memory, at which no thread can wait: give the machine the \
             same memory as a DAX device (nvdimm or virtio-pmem)",
            memory.place()
        ));
    }
    let file = memory.reopen().map_err(words)?;
    Ok(pool::Memory { file, size: memory.size() as u64, place: memory.place().to_owned(), mark })
}

/// A mark that no other job has.
pub fn mark() -> Result<u64, String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|why| format!("no random numbers: {why}"))?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_its_path() {
        let pools: Pools = "/dev/shm/pool,vm=/dev/dax0.0".parse().unwrap();
        assert_eq!(pools.of(None), Path::new("/dev/shm/pool"));
        assert_eq!(pools.of(Some("vm")), Path::new("/dev/dax0.0"));
        assert_eq!(pools.of(Some("other")), Path::new("/dev/shm/pool"));
        assert_eq!(pools.stranger(&["vm", "b"]), None);
        assert_eq!(pools.stranger(&["b"]), Some("vm"));
        for wrong in ["", "pool", "/a,b", "/a,=/b", "/a,b=c"] {
            assert!(wrong.parse::<Pools>().is_err(), "{wrong}");
        }
    }
}
