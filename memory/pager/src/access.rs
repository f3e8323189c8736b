//! The access that threads have to a page, and the report of a thread that lacked it.

/// The start address of a region, and the size of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The programs' view begins here: at a page of the system's.
    pub start: usize,
    /// A multiple of the system's page size.
    pub page_bytes: usize,
}

/// The access to a page that threads have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// None: a thread that tries is stopped.
    None,
    /// Read.
    Read,
    /// Read and write.
    Write,
}

/// The places in which threads can be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stops {
    /// In the program, and in system calls that use the memory. Needs a right that ordinary
    /// users do not have by default.
    All,
    /// In the program. A system call that meets a page which it must not use fails with EFAULT,
    /// or ends there. Needs no right (Linux 5.11).
    Programs,
}

/// A thread was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// At this page.
    pub page: u64,
    /// The offset in the page.
    pub at: usize,
    /// `Read` or `Write`.
    pub wants: Access,
    /// The thread's ID, as this process's PID namespace knows it.
    pub thread: u32,
}
