//! Tables that a call returns to a C program: hosts, tasks, mailboxes. Each stays valid until
//! the next call of the same function.

use std::ffi::{CString, c_char, c_int};

use pvm::tid::Tid;
use pvm::wire::{ClassInfo, HostInfo, TaskInfo};

/// `struct pvmhostinfo`.
#[repr(C)]
pub struct CHostInfo {
    tid: c_int,
    name: *const c_char,
    architecture: *const c_char,
    speed: c_int,
    signature: c_int,
}

/// The table that pvm_config returns.
#[derive(Default)]
pub struct Hosts {
    strings: Vec<CString>,
    hosts: Vec<CHostInfo>,
}

/// Converts a string for a C program; a zero byte ends it.
pub fn c_string(text: &str) -> CString {
    let bytes = text.bytes().take_while(|byte| *byte != 0).collect::<Vec<u8>>();
    CString::new(bytes).expect("no zero in it")
}

impl Hosts {
    /// Replaces the table.
    pub fn keep(&mut self, hosts: &[HostInfo]) -> *mut CHostInfo {
        *self = Hosts::default();
        for host in hosts {
            let (name, architecture) = (c_string(&host.name), c_string(&host.architecture));
            self.hosts.push(CHostInfo {
                tid: host.tid.as_int(),
                name: name.as_ptr(),
                architecture: architecture.as_ptr(),
                speed: host.speed,
                signature: host.signature,
            });
            self.strings.extend([name, architecture]);
        }
        self.hosts.as_mut_ptr()
    }
}

/// `struct pvmtaskinfo`.
#[repr(C)]
pub struct CTaskInfo {
    tid: c_int,
    parent: c_int,
    host: c_int,
    flags: c_int,
    name: *const c_char,
    pid: c_int,
}

/// The table that pvm_tasks returns.
#[derive(Default)]
pub struct Tasks {
    strings: Vec<CString>,
    tasks: Vec<CTaskInfo>,
}

impl Tasks {
    /// Replaces the table.
    pub fn keep(&mut self, tasks: &[TaskInfo]) -> *mut CTaskInfo {
        *self = Tasks::default();
        for task in tasks {
            let name = c_string(&task.name);
            self.tasks.push(CTaskInfo {
                tid: task.tid.as_int(),
                parent: task.parent.as_int(),
                host: task.host.as_int(),
                flags: task.flags,
                name: name.as_ptr(),
                pid: task.pid,
            });
            self.strings.push(name);
        }
        self.tasks.as_mut_ptr()
    }
}

/// `struct pvmmboxinfo`.
#[repr(C)]
pub struct CClassInfo {
    name: *const c_char,
    count: c_int,
    indices: *mut c_int,
    owners: *mut c_int,
    flags: *mut c_int,
}

/// The table that pvm_getmboxinfo returns.
#[derive(Default)]
pub struct Classes {
    strings: Vec<CString>,
    numbers: Vec<[Vec<c_int>; 3]>,
    classes: Vec<CClassInfo>,
}

impl Classes {
    /// Replaces the table.
    pub fn keep(&mut self, classes: &[ClassInfo]) -> *mut CClassInfo {
        *self = Classes::default();
        for class in classes {
            let mut numbers = [const { Vec::new() }; 3];
            for (index, owner, flags) in &class.entries {
                numbers[0].push(*index);
                numbers[1].push(Tid::as_int(*owner));
                numbers[2].push(*flags);
            }
            let name = c_string(&class.name);
            let [indices, owners, flags] = &mut numbers;
            self.classes.push(CClassInfo {
                name: name.as_ptr(),
                count: class.entries.len() as c_int,
                indices: indices.as_mut_ptr(),
                owners: owners.as_mut_ptr(),
                flags: flags.as_mut_ptr(),
            });
            self.strings.push(name);
            self.numbers.push(numbers);
        }
        self.classes.as_mut_ptr()
    }
}
