//! Barrier and broadcast.

use std::ffi::c_int;
use std::ptr;

use outbox::outbox::{DATA_MAX, Location, Published};
use outbox::spread::{HELPED_MIN, copy};

use crate::abi::SUCCESS;
use crate::buffer::{Elements, Failed};
use crate::mpi::Mpi;
use crate::team::Team;

impl Team {
    /// `MPI_Barrier`.
    #[inline]
    pub fn barrier(&mut self) {
        let step = self.step();
        self.publish_nothing(step);
        self.meet(step);
        self.finish();
    }

    /// `MPI_Bcast`. The other ranks follow the data that the root publishes. So no rank waits in
    /// vain if ranks call with different sizes.
    #[inline]
    pub fn bcast(&mut self, mpi: &Mpi, data: Elements, root: usize) -> Result<(), Failed> {
        if self.rank == root { self.send(mpi, data) } else { self.receive(mpi, data, root) }
    }

    fn send(&mut self, mpi: &Mpi, data: Elements) -> Result<(), Failed> {
        let (source, bytes) = (data.source(mpi, self.comm)?, data.bytes());
        let step = self.step();
        if bytes <= DATA_MAX {
            // SAFETY: the program passed this data, and it fits into a slot.
            unsafe { self.publish_data(step, source.address, bytes) };
            self.finish();
            return Ok(());
        }
        let helps = bytes >= HELPED_MIN && self.has_processors();
        let to = if helps { source.address } else { ptr::null_mut() };
        self.publish_location(step, Location { from: source.address, to, bytes });
        if helps {
            for other in self.others() {
                // SAFETY: the program passed this data.
                unsafe { self.help(other, step, source.address, bytes, None) };
            }
        }
        self.finish();
        self.wait_done(step);
        Ok(())
    }

    fn receive(&mut self, mpi: &Mpi, data: Elements, root: usize) -> Result<(), Failed> {
        let (target, room) = (data.target(), data.bytes());
        let step = self.step();
        let bytes = match self.await_published(root, step) {
            Published::Data(from, bytes) => {
                // SAFETY: the root's data stays until this rank is done. The buffer has `room`
                // bytes.
                unsafe { copy(from, target.address, bytes.min(room)) };
                bytes
            }
            Published::Location(location) => {
                // SAFETY: the root has published this, and the buffer has `room` bytes.
                unsafe { self.fetch(step, root, location, target.address, room) };
                location.bytes
            }
        };
        self.finish();
        data.unpack(mpi, self.comm, target)?;
        if bytes > room { Err(self.truncated(mpi)) } else { Ok(()) }
    }

    /// Returns the error for data that is larger than the program's buffer.
    fn truncated(&self, mpi: &Mpi) -> c_int {
        // SAFETY: MPI accepts its own error class for the error handler, which may not return.
        match unsafe { (mpi.comm_call_errhandler)(self.comm, mpi.err_truncate()) } {
            SUCCESS => mpi.err_truncate(),
            error => error,
        }
    }
}
