//! The start of a node: its agent gets a thread with a private descriptor table, the nodes connect,
//! and at the origin the first thread of this process becomes the program's.

use std::arch::asm;
use std::ffi::{CString, OsStr, OsString};
use std::ops::Range;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use ::node::residency::MIN_RESIDENCE_NS;
use coherence::ride::Policy as Rides;
use coherence::sequential::message::PAGES_MAX;
use coherence::sequential::{MIGRATORY_MAX, Options};
use launch::control::{self, Control};
use launch::messages::{Begun, Refusal};
use nagaya_layout::Seed;
use nagaya_loader::{LoadErrorKind, Program};
use net::mesh::{Gone, Mesh, Received};
use net::secret::Secret;
use pager::{Ranges, Region, Stops};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::addresses::{Addresses, END, PAGE};
use crate::agent::{Agent, Orders, Origin, Parts, ReportFile};
use crate::clock_offsets::{self, Times};
use crate::exe::Exe;
use crate::frame::{Frame, Message};
use crate::here::Here;
use crate::image::{self, Image};
use crate::place::Room;
use crate::request_table::RequestTable;
use crate::slot::Entries;
use crate::snapshot::MemoryMap;
use crate::talk::{self, Everybody, KIND, Order, Ready};
use crate::{
    alternate_stack, calls, clocks, jump, kernel_threads, leave, limits, processors, shadow,
    sigaction, titles, trap,
};

/// Room for the heap. For more, malloc(3) uses mmap(2).
const HEAP_BYTES: u64 = 256 << 20;
/// Room for later mappings of Nagaya: above those that grow up, below those that grow down.
const OWN_BYTES: u64 = 64 << 30;
/// The lowest number of the doorbell's descriptor: programs seldom use such numbers.
const DOORBELL_MIN: i32 = 900;
/// The number of exchanges by which a node measures the offset of the origin's clocks.
const EXCHANGES: usize = 32;
/// Time limit for that.
const MEET_MAX: Duration = Duration::from_secs(30);

/// The name of an agent's thread. At the origin, a colon and the descriptor of the program's file
/// follow.
pub const AGENT: &str = "nagaya-span";

/// The start of the program's first thread.
struct Start {
    entry: u64,
    stack_pointer: u64,
    name: CString,
}

/// Returns a new secret for the nodes of a job.
pub fn secret() -> Secret {
    Secret::random()
}

/// Runs a node; `control` leads to the command that starts it. Returns only a refusal that could
/// not be sent there.
pub fn run(control: Control) -> Option<Refusal> {
    let (sender, receiver) = channel();
    let doorbell = match doorbell() {
        Ok(doorbell) => doorbell,
        Err(why) => return Some(format!("cannot make an eventfd: {why}").into()),
    };
    let numbers = control.numbers();
    let mask = block_signals();
    let thread = std::thread::Builder::new().name(AGENT.into());
    let spawned = thread.spawn(move || serve(control, doorbell, &sender));
    if let Err(why) = spawned {
        return Some(format!("cannot start a thread: {why}").into());
    }
    let start = match receiver.recv() {
        Ok(Ok(start)) => start,
        Ok(Err(failure)) => return failure,
        Err(_) => return Some("its agent has failed".into()),
    };
    // The agent has its own copies; the program must have none.
    // SAFETY: the agent has unshared the descriptor table, so this thread's copies have no other
    // owner.
    numbers.into_iter().for_each(|number| drop(unsafe { OwnedFd::from_raw_fd(number) }));
    let Some(start) = start else {
        loop {
            std::thread::park();
        }
    };
    let here = Here::get();
    let slot = here.table.slot(0);
    slot.tid.store(std::process::id().cast_signed(), std::sync::atomic::Ordering::Relaxed);
    slot.attach();
    alternate_stack::register(slot);
    slot.live_tid_word().store(std::process::id(), std::sync::atomic::Ordering::SeqCst);
    // SAFETY: this thread becomes the program's, with the program's stack. Only the handlers of
    // Nagaya run on it from now on, which use no memory of this stack.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, start.name.as_ptr());
        libc::syscall(libc::SYS_set_tid_address, slot.live_tid_word().as_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
        kernel_threads::dispatch(None);
        asm!(
            "mov rsp, {stack}",
            "xor eax, eax", "xor ebx, ebx", "xor ecx, ecx", "xor edx, edx",
            "xor esi, esi", "xor edi, edi", "xor ebp, ebp",
            "xor r8d, r8d", "xor r9d, r9d", "xor r10d, r10d", "xor r11d, r11d",
            "jmp r12",
            stack = in(reg) start.stack_pointer,
            in("r12") start.entry,
            options(noreturn),
        )
    }
}

fn doorbell() -> rustix::io::Result<OwnedFd> {
    let doorbell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let lowest =
        limit.map_or(DOORBELL_MIN, |limit| DOORBELL_MIN.min(limit.saturating_sub(8) as i32));
    rustix::io::fcntl_dupfd_cloexec(&doorbell, lowest.max(3))
}

/// Blocks all signals in this thread and its children. Returns the previous mask.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both masks are on this stack.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        before
    }
}

/// Runs the agent's thread. An error before the program starts goes to the command or, if that is
/// impossible, to the first thread.
fn serve(
    mut control: Control,
    doorbell: OwnedFd,
    first: &Sender<Result<Option<Start>, Option<Refusal>>>,
) {
    let begun = prepare(&mut control, doorbell).and_then(|begun| {
        control.answer(Ok(Begun))?;
        Ok(begun)
    });
    match begun {
        Ok((agent, start)) => {
            proc::log_line!(Info, "span", "PID {}: the node is ready", std::process::id());
            let _ = first.send(Ok(start));
            agent.run()
        }
        Err(refusal) => {
            let answered = control.answer::<Begun>(Err(refusal.clone()));
            let _ = first.send(Err(answered.is_err().then_some(refusal)));
        }
    }
}

fn prepare(control: &mut Control, doorbell: OwnedFd) -> Result<(Agent, Option<Start>), Refusal> {
    // SAFETY: unshare(2) takes no pointers; this thread has opened no descriptor yet.
    if unsafe { libc::unshare(libc::CLONE_FILES) } != 0 {
        let why = std::io::Error::last_os_error();
        return Err(format!("cannot unshare descriptors: {why}").into());
    }
    limits::lift();
    let entries = Entries { clocks: clocks::entry(), calls: jump::entry() };
    let table = RequestTable::new(doorbell.as_raw_fd(), entries)
        .map_err(|why| format!("no memory for threads: {why}"))?;
    control.greet(KIND)?;
    let order: Order = control.receive()?;
    for (name, value) in &order.variables {
        if std::env::var_os(name).is_none() {
            // SAFETY: the only other thread waits for this one, and reads no environment.
            unsafe { std::env::set_var(name, value) };
        }
    }
    let timeout = (order.timeout > 0).then(|| Duration::from_secs(order.timeout.into()));
    let secret = Secret::new(order.secret);
    let program = order.program.as_ref().map(open).transpose()?;
    let mut mesh = match order.nodes {
        1 => None,
        _ => {
            let alive = Frame::Word(Message::Alive).bytes();
            let new = if order.all_are_here { Mesh::within_host } else { Mesh::new };
            let mesh = new(order.node, &secret, timeout, alive);
            Some(mesh.map_err(|why| why.to_string())?)
        }
    };
    let ready = describe(&order, mesh.as_ref())?;
    control.answer(Ok(ready.clone()))?;
    let everybody: Everybody = control.receive()?;
    control.watch(&doorbell).map_err(|why| format!("cannot start a thread: {why}"))?;
    if everybody.nodes.is_empty() {
        return Err("there are no nodes".into());
    }
    // The origin's memory becomes common when the first thread goes to another node.
    let new = if order.node == 0 { Region::unwatched } else { Region::everywhere };
    let mut region = new(Stops::All).map_err(|why| why.to_string())?;
    let (early, ahead) = match &mut mesh {
        Some(mesh) => meet(mesh, &order, &ready, &everybody.nodes)?,
        None => Default::default(),
    };
    clocks::find();
    clock_offsets::set(ahead);
    let Loaded { origin, image, first_thread, report, exe } = match (program, &order.program) {
        (Some(program), Some(wanted)) => {
            load_at_origin(program, wanted, &everybody.nodes, &mut region)?
        }
        _ => Loaded::default(),
    };
    // From here on the program's threads may start.
    set_here(table, &order, &everybody.nodes, ready, exe, report.is_some());
    trap::catch();
    match order.node {
        0 => sigaction::handle_faults(),
        _ => sigaction::elsewhere(),
    }
    let mut agent = Agent::new(Parts {
        region,
        options: options(&order),
        mesh,
        table,
        doorbell,
        // Without the socket, --move fails.
        orders: origin.as_ref().and_then(|_| Orders::new().ok()),
        origin,
        names: everybody.nodes.into_iter().map(|node| node.name).collect(),
        wanted: report,
    });
    early.into_iter().for_each(|message| agent.handle(message));
    if let Some(image) = image {
        let memory = order.program.as_ref().and_then(|program| program.memory);
        agent.begin(&image.parts, image.texts, memory);
    }
    Ok((agent, first_thread))
}

fn options(order: &Order) -> Options {
    Options {
        nodes: order.nodes,
        me: order.node,
        pages_max: PAGES_MAX,
        copies_max: u64::MAX,
        rides: Rides::Runs,
        migratory: MIGRATORY_MAX,
        rest: MIN_RESIDENCE_NS,
    }
}

/// Describes this node to the others.
fn describe(order: &Order, mesh: Option<&Mesh>) -> Result<Ready, Refusal> {
    Ok(Ready {
        address: mesh.map_or(&[][..], Mesh::address).to_vec(),
        processors: order.processors.unwrap_or_else(|| {
            rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count())
        }),
        features: features(),
        name: format!("node {} ({})", order.node, order.host.clone().unwrap_or_else(host)),
        ours: ours().map_err(|why| format!("cannot read /proc/self/maps: {why}"))?,
        clocks: clock_offsets::identity(),
    })
}

/// Sets what the program's threads see. `names`: areas get names for the report.
fn set_here(
    table: &'static RequestTable,
    order: &Order,
    all: &[Ready],
    ready: Ready,
    exe: Exe,
    names: bool,
) {
    let ours = ready.ours;
    let (node, nodes) = (order.node, order.nodes);
    let processors = processors::of(all);
    let processors_of = processors::names(all);
    if nodes > 1 {
        let own = rustix::thread::sched_getaffinity(None).unwrap_or_default();
        let first = processors::of(&all[..node as usize]);
        processors::name(&own, first, ready.processors);
    }
    jump::set(node, nodes);
    let thread_entry = shadow::first;
    let before_leaving = leave::before_leaving;
    let answer = calls::answer;
    Here {
        table,
        node,
        nodes,
        processors,
        processors_of,
        ours,
        names,
        exe,
        thread_entry,
        answer,
        before_leaving,
    }
    .set();
}

/// Connects to the other nodes. Returns messages that came meanwhile, and the offset of the
/// origin's clocks.
fn meet(
    mesh: &mut Mesh,
    order: &Order,
    ready: &Ready,
    nodes: &[Ready],
) -> Result<(Vec<Received>, Times), Refusal> {
    let addresses: Vec<&[u8]> = nodes.iter().map(|it| &it.address[..]).collect();
    mesh.connect(&addresses).map_err(|why| why.to_string())?;
    let names: Vec<&str> = nodes.iter().map(|it| &it.name[..]).collect();
    let mut early = mesh.meet(&names, control::is_closed)?;
    let ahead = match order.node != 0 && !clock_offsets::are_same(ready, &nodes[0]) {
        true => compare_clocks(mesh, &mut early)?,
        false => Times::default(),
    };
    Ok((early, ahead))
}

/// The program at the origin. Other nodes have nothing of it.
#[derive(Default)]
struct Loaded {
    origin: Option<Origin>,
    image: Option<Image>,
    first_thread: Option<Start>,
    report: Option<ReportFile>,
    exe: Exe,
}

fn load_at_origin(
    program: Program,
    wanted: &talk::Program,
    nodes: &[Ready],
    region: &mut Region,
) -> Result<Loaded, Refusal> {
    let seed = match wanted.fixed_addresses {
        true => Seed::default(),
        false => nagaya_loader::random_seed().map_err(|why| format!("getrandom: {why}"))?,
    };
    let start = image::start(&program, seed);
    let environment = environment(std::env::vars_os(), nodes.len());
    let mut image = load(&program, environment, seed, region).map_err(|why| why.to_string())?;
    let report = match &wanted.report {
        Some(path) => {
            let path = Path::new(OsStr::from_bytes(path));
            let file = std::fs::File::options().write(true).open(path);
            let file = file.map_err(|why| format!("cannot open {}: {why}", path.display()))?;
            Some(ReportFile { file, areas: std::mem::take(&mut image.areas) })
        }
        None => None,
    };
    let name = Path::new(OsStr::from_bytes(&wanted.path)).file_name().unwrap_or_default();
    set_command_line(&program);
    let agent = rustix::thread::gettid().as_raw_nonzero().get();
    // The file stays open. A child that executes nagaya as /proc/self/exe finds it by this name
    // (cli/src/itself.rs).
    let file = program.executable.file.into_raw_fd();
    let _ = rustix::thread::set_name(&CString::new(format!("{AGENT}:{file}")).unwrap_or_default());
    let exe = Exe::new(program.real_path.into_os_string().into_vec(), agent, file);
    let first_thread = Start {
        entry: image.entry,
        stack_pointer: image.stack_pointer,
        name: CString::new(name.as_bytes()).unwrap_or_default(),
    };
    let room = |node: &Ready| Room { processors: node.processors, threads: 0, busy: 0 };
    let rooms = nodes.iter().map(room).collect();
    if let Some(part) = image.parts.iter().find(|it| it.start + it.bytes == image.stack.end) {
        limits::stack_is(&image.stack, part.start, part.protection);
    }
    let mut addresses = Addresses::new(start..image.end, HEAP_BYTES, seed.mmap);
    addresses.map_at(image.stack.clone());
    let ours = nodes.iter().flat_map(|node| node.ours.iter().cloned());
    ours.for_each(|range| addresses.reserve(range));
    let map = MemoryMap::of(start, &image);
    let origin = Some(Origin::new(addresses, map, wanted.place, rooms));
    Ok(Loaded { origin, image: Some(image), first_thread: Some(first_thread), report, exe })
}

/// Shows the program's arguments to other processes. They read a copy: the kernel reads arguments
/// from private memory only.
fn set_command_line(program: &Program) {
    let strings: Vec<&[u8]> = program.arguments.iter().map(|it| it.as_bytes_with_nul()).collect();
    titles::set_arguments(strings.concat().leak());
}

/// Measures the offset of the origin's clocks. The origin may be busy with the program at first.
fn compare_clocks(mesh: &mut Mesh, early: &mut Vec<Received>) -> Result<Times, Refusal> {
    let mut exchanges = Vec::new();
    let until = Instant::now() + MEET_MAX;
    while exchanges.len() < EXCHANGES {
        let before = clock_offsets::times();
        mesh.send(0, &Frame::Word(Message::QueryTime).bytes(), Vec::new())
            .map_err(|why| why.to_string())?;
        let there = loop {
            match mesh.receive() {
                Some(Ok(message)) => match Frame::parse(&message.header) {
                    Some(Frame::Word(Message::Time { times })) if message.from == 0 => break times,
                    _ => early.push(message),
                },
                Some(Err(Gone::Left(_) | Gone::Lost(..))) => return Err("a node is lost".into()),
                None if control::is_closed() => {
                    return Err("the command that starts the nodes has ended".into());
                }
                None if Instant::now() > until => return Err("the origin does not answer".into()),
                // No sleep: its wake-up would count as a part of the message's time.
                None => std::thread::yield_now(),
            }
        };
        exchanges.push([before, there, clock_offsets::times()]);
    }
    Ok(clock_offsets::ahead(&exchanges))
}

fn open(program: &talk::Program) -> Result<Program, Refusal> {
    let string = |bytes: &Vec<u8>| CString::new(bytes.clone()).unwrap_or_default();
    let arguments = program.arguments.iter().map(string).collect();
    let path = Path::new(OsStr::from_bytes(&program.path));
    let failure =
        |why: nagaya_loader::LoadError| Refusal { line: why.to_string(), is_of_program: true };
    Program::open_fixed(path, arguments).map_err(failure)
}

/// Variables by which a user sets how the threads of OpenMP wait.
const OPENMP_WAITS: [&str; 3] = ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"];

/// Returns the program's environment. On several nodes the threads of OpenMP sleep while they wait,
/// unless the user wants something else: they would spin for milliseconds, since they know the
/// number of processors of all nodes, but not that their threads may be on one of them.
fn environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
    nodes: usize,
) -> Vec<CString> {
    let mut variables: Vec<(OsString, OsString)> = variables.collect();
    let is_set = variables.iter().any(|(name, _)| OPENMP_WAITS.iter().any(|it| name == it));
    if nodes > 1 && !is_set {
        variables.push((OPENMP_WAITS[0].into(), "passive".into()));
    }
    let pair = |(name, value): (OsString, OsString)| {
        let pair = [name.as_bytes(), b"=", value.as_bytes()].concat();
        CString::new(pair).expect("an environment has no zero bytes")
    };
    variables.into_iter().map(pair).collect()
}

fn load(
    program: &Program,
    environment: Vec<CString>,
    seed: Seed,
    region: &mut Region,
) -> Result<Image, nagaya_loader::LoadError> {
    let memory = |_| LoadErrorKind::Memory(Errno::NOMEM);
    image::load(program, &environment, seed, limits::stack_bytes(), |mut at, mut bytes| {
        while !bytes.is_empty() {
            let (page, in_page) = (at / PAGE, (at % PAGE) as usize);
            let (now, rest) = bytes.split_at(bytes.len().min(PAGE as usize - in_page));
            region.write(page, in_page, now).map_err(memory)?;
            at += now.len() as u64;
            bytes = rest;
        }
        Ok(())
    })
}

/// Returns the addresses that this process uses, with room for more. Mappings below the widest gap
/// grow up from the executable; those above it grow down from the libraries.
fn ours() -> std::io::Result<Vec<Range<u64>>> {
    let mut ours = Ranges::default();
    for mapping in proc::maps::own()? {
        let Range { start, end } = mapping.addresses;
        if end <= END {
            ours.insert(start.saturating_sub(OWN_BYTES / 64)..(end + OWN_BYTES / 64).min(END));
        }
    }
    let all: Vec<Range<u64>> = ours.iter().collect();
    let widest = all.windows(2).max_by_key(|two| two[1].start - two[0].end);
    if let Some([below, above]) = widest {
        ours.insert(below.end..(below.end + OWN_BYTES).min(above.start));
        ours.insert(above.start.saturating_sub(OWN_BYTES).max(below.end)..END);
    }
    Ok(ours.iter().collect())
}

/// Returns the features of the processors: the flags in /proc/cpuinfo.
fn features() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find_map(|line| line.strip_prefix("flags"));
    let words = flags.and_then(|flags| flags.split_once(':')).map_or("", |(_, words)| words);
    words.split_whitespace().map(str::to_owned).collect()
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the environment on this many nodes, as lines.
    fn on(nodes: usize, variables: &[(&str, &str)]) -> String {
        let pairs = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        let lines = environment(pairs, nodes).into_iter().map(|it| it.into_string().unwrap());
        lines.collect::<Vec<String>>().join(" ")
    }

    #[test]
    fn openmp_sleeps_on_several_nodes_unless_the_user_decides() {
        assert_eq!(on(1, &[("A", "1")]), "A=1");
        assert_eq!(on(2, &[("A", "1")]), "A=1 OMP_WAIT_POLICY=passive");
        assert_eq!(on(2, &[("OMP_WAIT_POLICY", "active")]), "OMP_WAIT_POLICY=active");
        assert_eq!(on(2, &[("GOMP_SPINCOUNT", "9")]), "GOMP_SPINCOUNT=9");
        assert_eq!(on(2, &[("KMP_BLOCKTIME", "0")]), "KMP_BLOCKTIME=0");
    }
}
