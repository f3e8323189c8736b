//! The rights and features that this user has, and those to ask an administrator for.

use std::fs;

use rustix::process::{Resource, getrlimit};

use crate::ps::human;

/// Reports whether userfaultfd(2) is permitted: pages between nodes, and domains, need it.
pub fn userfaultfd() -> String {
    let all = match pager::check(pager::Stops::All) {
        Ok(()) => return "yes".into(),
        Err(error) => error.to_string(),
    };
    match pager::check(pager::Stops::Programs) {
        Ok(()) => format!("for the program's own accesses; not for its system calls: {all}"),
        Err(_) => format!("no: {all}"),
    }
}

/// The namespaces in which all ranks of a node must be, and the inodes of the machine's first ones
/// (`linux/nsfs.h`).
const FIRST_NAMESPACES: [(&str, &str, &str); 3] = [
    ("pid", "PID", "pid:[4026531836]"),
    ("user", "user", "user:[4026531837]"),
    ("ipc", "IPC", "ipc:[4026531839]"),
];

/// Reports the namespaces that separate this process from those of other containers.
pub fn container() -> String {
    let mut own = Vec::new();
    for (file, name, first) in FIRST_NAMESPACES {
        match fs::read_link(format!("/proc/self/ns/{file}")) {
            Ok(link) if link.as_os_str() != first => own.push(name),
            Ok(_) => {}
            Err(error) => return format!("unknown: /proc/self/ns/{file}: {error}"),
        }
    }
    match own.is_empty() {
        true => "none: this process is in the machine's PID, user and IPC namespaces".into(),
        false => format!(
            "separate {} namespace: ranks in other containers of this node get other spaces; start \
             all ranks in one container (nagaya-exec(1))",
            own.join(", ")
        ),
    }
}

/// Reports whether memfd_create(2) works.
pub fn memfd() -> String {
    match rustix::fs::memfd_create("nagaya-info", rustix::fs::MemfdFlags::CLOEXEC) {
        Ok(_) => "yes".into(),
        Err(error) => format!("no: {error}; ask for a seccomp profile that permits memfd_create"),
    }
}

/// Reports whether a process may attach to another one of this user: `nagaya gdb` needs it.
pub fn ptrace() -> String {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match scope.as_deref().map(str::trim) {
        Err(_) | Ok("0") => "yes".into(),
        Ok("1") => "only of children (kernel.yama.ptrace_scope=1): nagaya gdb asks for sysctl \
             kernel.yama.ptrace_scope=0"
            .into(),
        Ok(scope) => format!(
            "only with CAP_SYS_PTRACE (kernel.yama.ptrace_scope={scope}): nagaya gdb asks for \
             sysctl kernel.yama.ptrace_scope=0"
        ),
    }
}

/// Reports a limit of resources: its current and its maximum value.
fn limit(resource: Resource, shown: fn(u64) -> String) -> String {
    let limit = getrlimit(resource);
    let text = |value: Option<u64>| value.map_or("unlimited".into(), shown);
    match (limit.current, limit.maximum) {
        (current, maximum) if current == maximum => text(current),
        (current, maximum) => format!("{}, at most {}", text(current), text(maximum)),
    }
}

/// Reports how much memory may be locked: RDMA needs it.
pub fn locked_memory() -> String {
    let text = limit(Resource::Memlock, human);
    match text.as_str() {
        "unlimited" => text,
        _ => format!("{text}; RDMA between nodes (ucx) asks for unlimited (ulimit -l)"),
    }
}

/// Reports how many files a process may open.
pub fn open_files() -> String {
    limit(Resource::Nofile, |value| value.to_string())
}

/// Reports how many processes this user may have. Each task is one.
pub fn processes() -> String {
    limit(Resource::Nproc, |value| value.to_string())
}

/// Reports the limit of address space: a space needs room for its segments.
pub fn address_space() -> String {
    let text = limit(Resource::As, human);
    match text.as_str() {
        "unlimited" => text,
        _ => format!("{text} (ulimit -v)"),
    }
}

/// Reports where the provider for libfabric is.
pub fn provider() -> String {
    match paths::choice::libraries() {
        (Some(directory), _) => format!("yes: {}", directory.display()),
        (None, _) => "no: libnagaya-fi.so is not installed with this nagaya".into(),
    }
}

/// Reports where the library of collective operations is.
pub fn collectives() -> String {
    match paths::choice::libraries() {
        (_, Some(file)) => format!("yes: {}", file.display()),
        (_, None) => "no: libnagaya-coll.so is not installed with this nagaya".into(),
    }
}
