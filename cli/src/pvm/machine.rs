//! The virtual machine, as the console's task sees it.

use std::time::{SystemTime, UNIX_EPOCH};

use pvm::constants::{PvmDataDefault, PvmHostAdd};
use pvm::error::Error;
use pvm::items::{Kind, Source, Target};
use pvm::protocol::{SYSCTX_TC, TC_SIBLINGS, TO_EOF, TO_NEW, TO_SPAWN};
use pvm::tid::Tid;
use pvm::wire::{Answer, ClassInfo, HostInfo, MailboxRequest, Parcel, Request, Spawn, TaskInfo};
use pvm3::task::Task;
use pvm3::task::daemon::Refusal;
use pvm3::task::handlers::Handlers;

use crate::events::Record;
use crate::job::Event;
use crate::traces::Traces;

/// With which version of PVM this is compatible.
pub const VERSION: &str = "3.4.6";

/// The tag with which notices of new hosts come.
const HOSTS_TAG: i32 = 0;
/// Longest piece of output in one message, in bytes.
const OUTPUT_MAX: i32 = 1 << 24;

/// A task that is enrolled.
pub struct Machine {
    task: Task,
    tid: Tid,
    traces: Traces,
}

/// A message that arrived without a request.
pub enum News {
    /// Hosts: their daemons.
    HostsAdded(Vec<Tid>),
    /// Output of a child, in messages with this tag.
    Output {
        /// Of the job.
        tag: i32,
        /// Whose.
        tid: Tid,
        /// The event.
        event: Event,
    },
    /// Events, in a message with this tag.
    Traced {
        /// The tag.
        tag: i32,
        /// Whose.
        tid: Tid,
        /// The records.
        records: Vec<Record>,
    },
}

impl Machine {
    /// Enrolls with this host's daemon.
    pub fn enroll() -> Result<Machine, Refusal> {
        let mut task = Task::new(clock);
        let tid = task.enroll(Handlers::default())?.tid;
        Ok(Machine { task, tid, traces: Traces::default() })
    }

    /// Tells the daemon that `reset` spares this task, and that it wants to know of new hosts.
    pub fn introduce(&mut self) -> Result<(), Error> {
        self.done(Request::NoReset(true))?;
        let what = PvmHostAdd;
        self.done(Request::Notify {
            what,
            context: self.context(),
            tag: HOSTS_TAG,
            tids: Vec::new(),
            count: -1,
        })
    }

    /// Is a task no longer.
    pub fn exit(mut self) {
        let _ = self.done(Request::Exit);
    }

    /// Its tid.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// The context of its messages.
    pub fn context(&self) -> i32 {
        self.task.context
    }

    /// Returns a function that ends [`Machine::wait`] from another thread.
    pub fn waker(&self) -> impl Fn() + Send + Clone + 'static {
        let bell = self.task.bell().expect("enrolled");
        move || bell.ring()
    }

    /// Waits for a message or a wake-up, for at most half a second.
    pub fn wait(&mut self) -> Result<(), Error> {
        self.task.wait(None).map(drop)
    }

    /// The hosts.
    pub fn hosts(&mut self) -> Result<Vec<HostInfo>, Error> {
        match self.task.ask(Request::Config)? {
            Answer::Hosts(hosts) => Ok(hosts),
            _ => Err(Error::DSysErr),
        }
    }

    /// All tasks (0), those of a daemon's host, or one.
    pub fn tasks(&mut self, of: Tid) -> Result<Vec<TaskInfo>, Error> {
        match self.task.ask(Request::Tasks(of))? {
            Answer::Tasks(tasks) => Ok(tasks),
            _ => Err(Error::DSysErr),
        }
    }

    /// Adds hosts, each a line of a hosts file: a daemon's tid or an error of each.
    pub fn add_hosts(&mut self, lines: &[String]) -> Result<Vec<i32>, Error> {
        self.each(Request::AddHosts(lines.to_vec()))
    }

    /// Deletes hosts: 0 or an error of each.
    pub fn delete_hosts(&mut self, names: &[String]) -> Result<Vec<i32>, Error> {
        self.each(Request::DeleteHosts(names.to_vec()))
    }

    /// Succeeds if the host answers. Errors: NoHost, HostFail.
    pub fn host_status(&mut self, name: &str) -> Result<(), Error> {
        self.done(Request::HostStatus(name.to_owned()))
    }

    /// Succeeds if the task runs. Errors: NoTask, BadParam.
    pub fn task_status(&mut self, tid: Tid) -> Result<(), Error> {
        self.done(Request::TaskStatus(tid))
    }

    /// Ends a task by SIGTERM.
    pub fn kill(&mut self, tid: Tid) -> Result<(), Error> {
        self.signal(tid, libc::SIGTERM)
    }

    /// Sends a signal.
    pub fn signal(&mut self, tid: Tid, signal: i32) -> Result<(), Error> {
        if !tid.is_task() {
            return Err(Error::BadParam);
        }
        self.done(Request::Signal(tid, signal))
    }

    /// Starts tasks. Returns a tid or an error for each, and the reasons of hosts that did not
    /// start some. The tasks learn each other's tids, as `pvm_siblings` expects.
    pub fn spawn(&mut self, request: Spawn) -> Result<(Vec<i32>, Vec<String>), Error> {
        let Answer::Spawned(each, why) = self.task.ask(Request::Spawn(request))? else {
            return Err(Error::DSysErr);
        };
        let started: Vec<i32> = each.iter().copied().filter(|tid| *tid > 0).collect();
        if !started.is_empty() {
            self.tell_siblings(&started)?;
        }
        Ok((each, why))
    }

    fn tell_siblings(&mut self, tids: &[i32]) -> Result<(), Error> {
        let buffers = &mut self.task.buffers;
        let buffer = buffers.initsend(PvmDataDefault)?;
        let numbers: Vec<i32> =
            [tids.len() as i32].into_iter().chain(tids.iter().copied()).collect();
        let (first, count) = (numbers.as_ptr().cast(), numbers.len() as i32);
        // SAFETY: `numbers` has `count` ints and outlives the call; PvmDataDefault copies them.
        buffers.pack(&unsafe { Source::new(Kind::Int, first, count, 1) })?;
        let to: Vec<Tid> = tids.iter().map(|tid| Tid::from(*tid)).collect();
        let context = std::mem::replace(&mut self.task.context, SYSCTX_TC);
        let sent = self.task.multicast(buffer, &to, TC_SIBLINGS);
        self.task.context = context;
        sent
    }

    /// Kills all tasks except consoles like this one, and deletes the mailboxes that they leave.
    pub fn reset(&mut self) -> Result<(), Error> {
        self.done(Request::Reset)
    }

    /// Stops the virtual machine.
    pub fn halt(&mut self) -> Result<(), Error> {
        self.done(Request::Halt)
    }

    /// Mailboxes whose names fit a pattern.
    pub fn mailboxes(&mut self, pattern: &str) -> Result<Vec<ClassInfo>, Error> {
        match self.task.ask(Request::Mailbox(MailboxRequest::List(pattern.to_owned())))? {
            Answer::Classes(classes) => Ok(classes),
            _ => Err(Error::DSysErr),
        }
    }

    /// Puts a number into a mailbox. Errors: Exists, Denied.
    pub fn put(&mut self, class: &str, flags: i32, number: i32) -> Result<(), Error> {
        let buffers = &mut self.task.buffers;
        let buffer = buffers.initsend(PvmDataDefault)?;
        // SAFETY: our own variable, one `int`, which does not change.
        buffers.pack(&unsafe { Source::new(Kind::Int, (&raw const number).cast(), 1, 1) })?;
        let parcel = Parcel { bytes: self.task.parcel(buffer)? };
        let put = MailboxRequest::Put { class: class.to_owned(), index: -1, flags, parcel };
        self.done(Request::Mailbox(put))
    }

    /// Deletes an entry of a mailbox.
    pub fn delete_mailbox(&mut self, class: &str, index: i32) -> Result<(), Error> {
        let class = class.to_owned();
        self.done(Request::Mailbox(MailboxRequest::Delete { class, index, flags: 0 }))
    }

    /// Sets or reads debug and trace settings of the daemon. Returns its answer.
    pub fn tickle(&mut self, numbers: &[i32]) -> Result<Vec<i32>, Error> {
        Ok(match self.task.ask(Request::Tickle(numbers.to_vec()))? {
            Answer::Number(number) => vec![number],
            Answer::Each(numbers) => numbers,
            _ => Vec::new(),
        })
    }

    /// Sets whether `reset` spares the console.
    pub fn set_no_reset(&mut self, spare: bool) -> Result<(), Error> {
        self.done(Request::NoReset(spare))
    }

    fn done(&mut self, request: Request) -> Result<(), Error> {
        self.task.ask(request).map(drop)
    }

    fn each(&mut self, request: Request) -> Result<Vec<i32>, Error> {
        match self.task.ask(request)? {
            Answer::Each(results) => Ok(results),
            _ => Err(Error::DSysErr),
        }
    }

    /// Returns a message that has arrived for the console, and drops others. `is_trace` is true
    /// for the tags of events.
    pub fn news(&mut self, is_trace: impl Fn(i32) -> bool) -> Result<Option<News>, Error> {
        self.task.take_in()?;
        while let Some(buffer) = self.task.intake()?.arrived.pop_front() {
            let news = self.read(buffer, &is_trace);
            let _ = self.task.buffers.freebuf(buffer);
            if let Ok(news) = news {
                return Ok(Some(news));
            }
        }
        Ok(None)
    }

    fn read(&mut self, buffer: i32, is_trace: impl Fn(i32) -> bool) -> Result<News, Error> {
        let header = self.task.buffers.info(buffer)?.header;
        let tag = header.tag;
        if is_trace(tag) {
            let fragments = self.task.buffers.message(buffer)?.fragments();
            let bytes: Vec<u8> =
                fragments.iter().flat_map(|fragment| fragment.bytes()).copied().collect();
            let tid = Tid::from(header.source);
            return Ok(News::Traced { tag, tid, records: self.traces.read(tid, &bytes)? });
        }
        self.task.buffers.setrbuf(buffer)?;
        let first = self.unpack_int()?;
        if tag == HOSTS_TAG {
            let tids: Result<_, _> = (0..first).map(|_| self.unpack_int().map(Tid::from)).collect();
            return Ok(News::HostsAdded(tids?));
        }
        let tid = Tid::from(first);
        let event = match self.unpack_int()? {
            TO_EOF => Event::End,
            TO_SPAWN => Event::Spawned,
            TO_NEW => Event::Created,
            length @ 1..=OUTPUT_MAX => Event::Output(self.unpack_bytes(length)?),
            _ => return Err(Error::BadMsg),
        };
        Ok(News::Output { tag, tid, event })
    }

    fn unpack_int(&mut self) -> Result<i32, Error> {
        let mut number = 0i32;
        // SAFETY: `number` is a local `int`, and only `target` accesses it while `target` lives.
        let mut target = unsafe { Target::new(Kind::Int, (&raw mut number).cast(), 1, 1) };
        self.task.buffers.unpack(&mut target)?;
        Ok(number)
    }

    fn unpack_bytes(&mut self, length: i32) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; length as usize];
        // SAFETY: `bytes` is a local vector of `length` bytes, and only `target` accesses it while
        // it lives.
        let mut target = unsafe { Target::new(Kind::Byte, bytes.as_mut_ptr(), length, 1) };
        self.task.buffers.unpack(&mut target)?;
        Ok(bytes)
    }
}

/// Seconds and microseconds since 1970, as trace events have them.
pub fn clock() -> (i32, i32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (now.as_secs() as i32, now.subsec_micros() as i32)
}

/// Date and time here, as ctime(3) has them.
pub fn date() -> String {
    let mut text = [0u8; 64];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = now.as_secs() as libc::time_t;
    // SAFETY: a buffer of more than the 26 bytes that ctime_r writes; null if it cannot.
    let written = unsafe { libc::ctime_r(&now, text.as_mut_ptr().cast()) };
    let end =
        if written.is_null() { 0 } else { text.iter().position(|&byte| byte < b' ').unwrap_or(0) };
    String::from_utf8_lossy(&text[..end]).into_owned()
}
