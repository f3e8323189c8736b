//! A task that uses the daemon's protocol directly, without the library.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fcp::member::{Card, Members};
use fcp::memory::Memory;
use fcp::port::Port;
use fcp::window::Window;
use pvm::envelope::{Envelope, Part, SIZE, What};
use pvm::message::Header;
use pvm::tid::Tid;
use pvm::wire::{Answer, Control, Frame, Parcel, Request, VERSION, Welcome};
use pvmd::hostfile::HostFile;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// Time limit for each step of a test.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A message.
#[derive(Debug)]
pub struct Message {
    pub header: Header,
    pub data: Vec<u8>,
}

impl Message {
    /// Returns its data as XDR integers.
    pub fn ints(&self) -> Vec<i32> {
        let word = |word: &[u8]| i32::from_be_bytes(word.try_into().expect("a word"));
        self.data.chunks_exact(4).map(word).collect()
    }
}

/// A task.
pub struct Client {
    stream: UnixStream,
    pub welcome: Welcome,
    port: Port,
    /// The received parts of a message.
    part: Vec<u8>,
    last: u32,
    messages: Vec<Message>,
    answers: Vec<(u32, Result<Answer, i32>)>,
}

/// Sends a frame of bytes.
pub fn send_bytes(stream: &mut UnixStream, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("a short frame");
    stream.write_all(&[&length.to_le_bytes()[..], bytes].concat()).expect("sent");
}

/// Enrolls. Returns the answer, and with a welcome the window.
pub fn enroll(
    path: &Path,
    version: u32,
    cookie: Option<u32>,
) -> (UnixStream, Result<(Welcome, Memory), i32>) {
    let mut stream = UnixStream::connect(path).expect("a daemon listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let request = Request::Enroll { version, started_as: cookie, name: "client".into() };
    let frame = postcard::to_allocvec(&Frame { id: 0, request }).expect("a frame");
    send_bytes(&mut stream, &frame);
    let mut bytes = vec![0; 64 << 10];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(&stream, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC);
    let got = got.expect("an answer").bytes;
    let length = u32::from_le_bytes(*bytes.first_chunk().expect("a length")) as usize;
    assert_eq!(got, 4 + length, "one frame");
    let fd = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let welcome: Result<Welcome, i32> = postcard::from_bytes(&bytes[4..got]).expect("a welcome");
    let welcome = welcome.map(|welcome| {
        let memory = Memory::received(fd.expect("a descriptor")).expect("memory");
        (welcome, memory)
    });
    (stream, welcome)
}

impl Client {
    /// Enrolls this process. It survives the end of the virtual machine.
    pub fn new(path: &Path) -> Client {
        extern "C" fn nothing(_: i32) {}
        let nothing: extern "C" fn(i32) = nothing;
        // SAFETY: the handler does nothing, so it may run at any time.
        unsafe { libc::signal(libc::SIGTERM, nothing as libc::sighandler_t) };
        Client::started_as(path, None)
    }

    /// Enrolls as the program that the daemon started with this cookie.
    pub fn started_as(path: &Path, cookie: Option<u32>) -> Client {
        let (stream, welcome) = enroll(path, VERSION, cookie);
        let (welcome, memory) = welcome.expect("welcome");
        let window = Arc::new(Window::open(memory, None).expect("a window"));
        let members = Arc::new(Members::of(window).expect("members"));
        let tid = welcome.tid;
        let port = Port::join(&members, Card { id: tid.0, group: 0 }, Some(tid.place()));
        let port = port.expect("a place");
        Client {
            stream,
            welcome,
            port,
            part: Vec::new(),
            last: 0,
            messages: Vec::new(),
            answers: Vec::new(),
        }
    }

    /// Returns its tid.
    pub fn tid(&self) -> Tid {
        self.welcome.tid
    }

    /// Sends a request. Returns its number.
    pub fn send(&mut self, request: Request) -> u32 {
        self.last += 1;
        let frame = Frame { id: self.last, request };
        send_bytes(&mut self.stream, &postcard::to_allocvec(&frame).expect("a frame"));
        self.last
    }

    /// Sends a request, and waits for the answer.
    pub fn ask(&mut self, request: Request) -> Result<Answer, i32> {
        let id = self.send(request);
        self.answer(id)
    }

    /// Waits for an answer.
    pub fn answer(&mut self, id: u32) -> Result<Answer, i32> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.answers.iter().position(|answer| answer.0 == id) {
                return self.answers.remove(at).1;
            }
            assert!(self.take(until), "no answer to request {id}");
        }
    }

    /// Waits for a message with this tag.
    pub fn receive(&mut self, tag: i32) -> Message {
        self.receive_until(tag, PATIENCE).expect("a message")
    }

    /// Waits for a message with this tag, at most for `time`.
    pub fn receive_until(&mut self, tag: i32, time: Duration) -> Option<Message> {
        let until = Instant::now() + time;
        loop {
            if let Some(at) = self.messages.iter().position(|message| message.header.tag == tag) {
                return Some(self.messages.remove(at));
            }
            if !self.take(until) {
                return None;
            }
        }
    }

    /// Takes one message from the receive buffer.
    fn take(&mut self, until: Instant) -> bool {
        let Some(mut arrived) = self.port.receive(Some(until)).expect("no corruption") else {
            return false;
        };
        let mut bytes = vec![0; arrived.header().length as usize];
        arrived.read(0, &mut bytes);
        if let Some(loan) = arrived.loan() {
            bytes.extend_from_slice(&loan);
        }
        drop(arrived);
        let head = bytes.first_chunk::<SIZE>().expect("an envelope");
        if head[SIZE - 1] == What::Part as u8 {
            let part = Part::parse(head);
            self.part.extend_from_slice(&bytes[SIZE..]);
            if self.part.len() < part.total as usize {
                return true;
            }
            bytes = std::mem::take(&mut self.part);
        }
        let envelope = Envelope::parse(&bytes).expect("an envelope");
        let data = bytes[SIZE..].to_vec();
        match envelope.what {
            What::Message => self.messages.push(Message { header: envelope.header, data }),
            What::Control => match postcard::from_bytes(&data).expect("a control message") {
                Control::Answer(id, answer) => self.answers.push((id, answer)),
                Control::Notice(_) => {}
            },
            What::Part => panic!("a parsed envelope is none of a part"),
        }
        true
    }

    /// Returns the connection, for protocol violations.
    pub fn stream(&mut self) -> &mut UnixStream {
        &mut self.stream
    }

    /// Waits until the daemon closes the connection.
    pub fn closed(mut self) {
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut byte = [0];
        assert_eq!(self.stream.read(&mut byte).unwrap_or(0), 0, "the daemon closes");
    }
}

/// Returns a message for `to`, in one fragment.
pub fn parcel(to: Tid, tag: i32, data: &[u8]) -> Parcel {
    let header = Header { tag, destination: to.as_int(), ..Header::default() };
    let envelope = Envelope { what: What::Message, header, number: 0, encoding: 0, fragments: 1 };
    Parcel { bytes: [&envelope.to_bytes()[..], data].concat() }
}

/// Only one daemon runs at a time: a forked child of one would briefly hold another's descriptors.
static TURN: Mutex<()> = Mutex::new(());

/// A daemon in a dedicated thread and directory.
pub struct Host {
    _turn: MutexGuard<'static, ()>,
    directory: PathBuf,
    pub path: PathBuf,
    pub log: PathBuf,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Host {
    /// Starts a daemon; `name` tells tests apart.
    pub fn start(name: &str) -> Host {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = std::env::temp_dir().join(format!("pvmd-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("a new directory");
        let options = pvmd::options::Options {
            directory: Some(directory.join("run")),
            log: Some(directory.join("log")),
            hostfile: HostFile::parse("* ep=/bin:/usr/bin wd=/").expect("a host file"),
            quiet: true,
            ..Default::default()
        };
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let tell = |path: &Path| ready.send(path.to_owned()).expect("somebody waits");
            pvmd::run::run(&options, tell).expect("a daemon");
        });
        let path = is_ready.recv_timeout(PATIENCE).expect("a daemon");
        Host { _turn: turn, log: directory.join("log/pvml"), directory, path, thread: Some(thread) }
    }

    /// Halts the daemon, and checks that it leaves no files.
    pub fn halt(mut self) {
        let mut client = Client::new(&self.path);
        let _ = client.send(Request::Halt);
        self.thread.take().expect("it runs").join().expect("it ends");
        assert!(!self.directory.join("run").exists(), "nothing is left");
        std::fs::remove_dir_all(&self.directory).expect("removed");
    }
}
