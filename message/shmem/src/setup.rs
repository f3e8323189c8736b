//! The begin and the end of the library: `shmem_init`, `shmem_finalize`, `shmem_global_exit`.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{Acquire, SeqCst};
use std::time::{Duration, Instant};

use control::hold::KEEP;
use control::{ThisTask, export, this_task};
use sync::futex;

use crate::block::{Block, Facts, Region, VERSION};
use crate::collectives::area;
use crate::ending::{self, INITS};
use crate::fatal::{self, fatal};
use crate::heap::Heap;
use crate::identity::Identity;
use crate::job::{self, Job, Peer};
use crate::meet;
use crate::remote::join::Meeting;
use crate::remote::{agent, leave};
use crate::settings;
use crate::symmetric::{self, Program, Range};

/// `SHMEM_THREAD_MULTIPLE`.
const THREAD_MULTIPLE: c_int = 3;
/// Time after which a PE that waits for the others to start says so.
const LATE: Duration = Duration::from_secs(10);
/// Sleep between two searches for PEs that have not started.
const NAP: Duration = Duration::from_millis(20);

/// Stack of the thread that waits for such a request. Exit handlers run on it.
const STACK_BYTES: usize = 1 << 20;

/// Initialises the library. Returns the provided level of thread support.
pub fn init(function: &'static str, level: c_int) -> c_int {
    if !(0..=THREAD_MULTIPLE).contains(&level) {
        fatal!(function, "{level} is no level of thread support");
    }
    if INITS.fetch_add(1, SeqCst) > 0 {
        return job::get(function).thread_level;
    }
    if job::try_get().is_some() {
        fatal!(function, "the program has called shmem_finalize before");
    }
    let job = match join(level) {
        Ok(job) => {
            fatal::end_by(job.me, end_all);
            job::set(job)
        }
        Err(line) => fatal!(function, "{line}"),
    };
    if let Err(line) = agent::start(job) {
        fatal!(function, "{line}");
    }
    area::prepare(job);
    meet::all(job);
    settings::show(job);
    // SAFETY: the handler is a function of this library, which stays loaded.
    unsafe { on_exit(at_exit, ptr::null_mut()) };
    level
}

unsafe extern "C" {
    /// glibc's: see on_exit(3).
    fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
}

/// Leaves the job in order if the program ends without `shmem_finalize`. That was allowed up to
/// version 1.4, and is common. A status other than 0 is a failure, which ends the job.
extern "C" fn at_exit(status: c_int, _: *mut c_void) {
    // SAFETY: getpid reads no memory.
    let is_child = |job: &Job| job.peers[job.me].pid != unsafe { libc::getpid() };
    if status == 0 && state() == (true, false) && !is_child(job::get("exit")) {
        INITS.store(1, SeqCst);
        finalize("exit");
    }
}

/// Ends all PEs after a fatal error of this one.
fn end_all(status: c_int) -> ! {
    if let Some(job) = job::try_get() {
        leave::end_others(job, status);
    }
    ending::exit(status)
}

/// Meets the other PEs and returns the job. The error is one line.
fn join(thread_level: c_int) -> Result<Job, String> {
    let mut identity = Identity::new()?;
    let task = this_task();
    if identity.n > 1 && task.is_none() {
        return Err("this process is not a task of a space: start the program by `oshrun`, or by \
                    `nagaya exec` behind the launcher"
            .to_owned());
    }
    let bytes = settings::symmetric_size()?;
    let heap = symmetric::map_heap(Heap::room(bytes) + area::bytes(identity.n));
    let heap = heap.ok_or_else(|| {
        format!("no room for a symmetric heap of {bytes} bytes: set SHMEM_SYMMETRIC_SIZE lower")
    })?;
    let Program { data, number } = Program::this();
    let block = Block::allocate().ok_or("no memory for the control block")?;
    sync::barrier::register();
    block.facts.0 = Facts {
        pe: identity.me as u32,
        pes: identity.n as u32,
        heap: Region { start: heap.start as u64, bytes: heap.bytes as u64 },
        data: Region {
            start: task.map_or(0, |task| task.for_others(data.start as u64)),
            bytes: data.bytes as u64,
        },
        program: number,
    };
    let block: &'static Block = block;
    serve_exit(block)?;
    let mut job = Job {
        me: identity.me,
        n: identity.n,
        heap,
        data,
        peers: Box::new([]),
        allocator: Mutex::new(Heap::new(bytes)),
        task,
        holds: Vec::new(),
        far: None,
        thread_level,
    };
    job.peers = match task {
        Some(task) => {
            let wireup = if identity.is_one_space(task) { None } else { identity.take_wireup()? };
            let meeting = wireup.map(|wireup| Meeting::new(wireup, task.mark(), heap));
            let meeting = meeting.transpose()?;
            let peers = meet(&mut job, &identity, task, block, meeting.as_ref())?;
            job.far = meeting.map(Meeting::finish).transpose()?.flatten();
            peers
        }
        None => Box::new([this_peer(&job, block)]),
    };
    Ok(job)
}

/// Returns this PE as one of its peers.
fn this_peer(job: &Job, block: &'static Block) -> Peer {
    let ranges = [job.heap, job.data];
    let starts = ranges.map(|range| range.start);
    // SAFETY: getpid reads no memory.
    let pid = unsafe { libc::getpid() };
    Peer::new(job.me, ranges, starts, true, block, None, pid)
}

/// Returns the name under which a PE of this job exports memory.
fn name(identity: &Identity, what: &str) -> String {
    format!("nagaya-shmem {VERSION} {what} {:016x}", identity.job)
}

/// Exports this PE's memory, and finds that of all others on this node.
fn meet(
    job: &mut Job,
    identity: &Identity,
    task: ThisTask,
    block: &'static Block,
    meeting: Option<&Meeting>,
) -> Result<Box<[Peer]>, String> {
    let facts = block.facts.0;
    let at = ptr::from_ref(block).addr() as u64;
    let memory = [
        ("heap", facts.heap.start, facts.heap.bytes),
        ("data", facts.data.start, facts.data.bytes),
        // The last one, since peers look for it.
        ("block", at, size_of::<Block>() as u64),
    ];
    for (what, start, bytes) in memory {
        let name = name(identity, what);
        let exported = export::export(&task.control, task.id, name.as_bytes(), start, bytes);
        exported.map_err(|error| format!("cannot export memory: {error}"))?;
    }
    let mut peers: Vec<Option<Peer>> = Vec::new();
    peers.resize_with(job.n, || None);
    peers[job.me] = Some(this_peer(job, block));
    for (pe, peer) in peers.iter_mut().enumerate() {
        if let Some(meeting) = meeting.filter(|meeting| meeting.is_far(pe)) {
            *peer = Some(Peer::far(pe, meeting.has_same_program(pe)));
        }
    }
    let (begin, mut is_late) = (Instant::now(), false);
    loop {
        let event = task.control.event().load(Acquire);
        find(job, identity, task, &mut peers)?;
        let missing = peers.iter().filter(|peer| peer.is_none()).count();
        if missing == 0 {
            return Ok(peers.into_iter().flatten().collect());
        }
        if !is_late && begin.elapsed() > LATE {
            is_late = true;
            proc::error_line!(
                "nagaya-shmem: PE {}: shmem_init waits for {missing} of {} PEs, which have not \
                 called it or are in another space",
                job.me,
                job.n
            );
        }
        futex::sleep(task.control.event(), event, Some(Instant::now() + NAP));
    }
}

/// Adds the peers that have exported their memory since the last search.
fn find(
    job: &mut Job,
    identity: &Identity,
    task: ThisTask,
    peers: &mut [Option<Peer>],
) -> Result<(), String> {
    let names = ["block", "heap", "data"].map(|what| name(identity, what));
    for id in (0..task.control.tasks_high()).filter(|&id| id != task.id) {
        let is_known = |peer: &Peer| peer.task.is_some_and(|task| task.id == id);
        if peers.iter().flatten().any(is_known) {
            continue;
        }
        let Some(whom) = task.control.identity(id) else { continue };
        let import = |name: &String| {
            let found = export::import(&task.control, id, name.as_bytes(), Some(Duration::ZERO));
            let (start, bytes) = found.ok()?;
            task.open_exported(id, start, bytes);
            Some(start)
        };
        let [Some(at), Some(heap), Some(data)] = names.each_ref().map(import) else { continue };
        if let Ok(hold) = task.hold(whom, KEEP) {
            job.holds.push(hold);
        }
        // SAFETY: the task has exported the address of its control block, which it never frees.
        let block: &'static Block = unsafe { &*ptr::with_exposed_provenance(at as usize) };
        let Facts { pe, pes, program, heap: region, .. } = block.facts.0;
        if pes as usize != job.n || pe as usize >= job.n {
            return Err(format!("task {id} is PE {pe} of {pes}, and this one of {}", job.n));
        }
        if region.bytes != job.heap.bytes as u64 {
            return Err(format!(
                "PE {pe} has another size of the symmetric heap: set SHMEM_SYMMETRIC_SIZE alike"
            ));
        }
        let is_here = task.control.domain_of(id) == task.control.domain_of(task.id);
        let pid = match is_here {
            // SAFETY: getpid reads no memory.
            true => unsafe { libc::getpid() },
            false => task.control.slot(id).pid.load(Acquire) as libc::pid_t,
        };
        let ranges: [Range; 2] = [job.heap, job.data];
        let starts = [heap as usize, data as usize];
        let has_data = program == Program::this().number;
        let pe = pe as usize;
        let peer = Peer::new(pe, ranges, starts, has_data, block, Some(whom), pid);
        peers[pe] = Some(peer);
    }
    Ok(())
}

/// Starts the thread that ends this process when another PE requests that. The program may compute
/// without calls of this library, and its output must not be lost: so neither a poll nor a signal
/// handler will do.
fn serve_exit(block: &'static Block) -> Result<(), String> {
    let serve = move || {
        let word = &block.exit.0;
        let mut died = None;
        let request = loop {
            match word.load(Acquire) {
                0 => {
                    let watched = job::try_get().map(|job| leave::watch_first(job, &mut died));
                    // Before the job stands, it is not known whether there is anything to watch.
                    let pause = watched.unwrap_or(Some(LATE));
                    futex::sleep(word, 0, pause.map(|pause| Instant::now() + pause));
                }
                request => break request,
            }
        };
        // A PE that is asked to end has not died: the others need not report it.
        block.finalized.0.store(1, SeqCst);
        ending::exit((request & 0xff) as c_int)
    };
    // The program's signals are for its own threads.
    let thread = ending::blocked(|| {
        let builder = std::thread::Builder::new().name("nagaya-shmem".to_owned());
        builder.stack_size(STACK_BYTES).spawn(serve)
    });
    thread.map(drop).map_err(|error| format!("cannot start a thread: {error}"))
}

/// Leaves the job, if this is the last call for as many of `shmem_init`.
pub fn finalize(function: &'static str) {
    let job = job::get(function);
    let before = INITS.fetch_update(SeqCst, SeqCst, |inits| inits.checked_sub(1));
    if before == Ok(1) {
        crate::rma::quiet();
        meet::all(job);
        leave::leave(job);
        job.block().finalized.0.store(1, SeqCst);
        if let Some(far) = &job.far {
            far.part_from_launcher();
        }
    }
}

/// Ends all PEs of the job with an exit status.
pub fn global_exit(function: &'static str, status: c_int) -> ! {
    let job = job::get(function);
    leave::end_others(job, status);
    job.block().finalized.0.store(1, SeqCst);
    ending::exit(status)
}

/// Returns whether the library is initialised, and whether it has been finalised.
pub fn state() -> (bool, bool) {
    let is_initialised = job::try_get().is_some();
    (is_initialised, is_initialised && INITS.load(SeqCst) == 0)
}
