//! Tasks of the same address space. The data of their messages may still lie in the sender's
//! memory when the message arrives, and is copied from there.

use fcp::advance::Advance;
use pvm::error::Error;
use pvm::fragment::Block;

/// Returns true if the process with this PID is a task of our space, or was one whose memory is
/// still mapped.
pub fn is_neighbour(pid: u32) -> bool {
    control::this_task().is_some_and(|this| this.task_of(pid).is_some())
}

/// The data of a message, which the sender exposes while it writes them (a pipelined copy).
pub struct Coming(pub Advance);

impl Block for Coming {
    fn length(&self) -> usize {
        self.0.length()
    }

    fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.0.bytes(range)
    }

    fn settle(&self, end: usize) -> Result<(), Error> {
        self.0.settle(end, is_neighbour).map_err(|_| Error::BadMsg)
    }

    fn read(&self, at: usize, to: &mut [u8]) -> Result<(), Error> {
        self.0.read(at, to, is_neighbour).map_err(|_| Error::BadMsg)
    }

    fn is_uncertain(&self) -> bool {
        !self.0.is_full() && !self.0.is_in_reach(is_neighbour)
    }
}
