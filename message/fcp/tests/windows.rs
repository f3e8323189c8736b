//! Windows of each kind, and what is refused: by one line that says what to do.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use fcp::error::WindowError;
use fcp::header::Plan;
use fcp::inbox::Inbox;
use fcp::member::{Card, Members};
use fcp::memory::{Kind as Memories, Memory};
use fcp::outbox::Outbox;
use fcp::window::Window;
use proptest::prelude::*;
use sync::ring::Kind;

mod children;
use children::{child, kill, reap};

const PLAN: Plan = Plan { members: 4, messages: 64 << 10, lendable: 0, listed: false };
const SIZE: usize = 256 << 10;

/// A directory of the test's own, which goes with it.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fcp-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }
    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A child that opens the window anew sends a message and changes plain memory.
fn carries(open: impl Fn() -> Memory) {
    let window = Arc::new(Window::open(open(), Some(PLAN)).expect("a window"));
    let members = Arc::new(Members::of(window.clone()).expect("members"));
    let me = members.join(Card { id: 7, group: 1 }, None).expect("a place");
    let plain = window.plain().start;
    let pid = child(|| {
        let window = Arc::new(Window::open(open(), None).expect("the same window"));
        let members = Arc::new(Members::of(window.clone()).expect("members"));
        let sender = members.join(Card { id: 8, group: 1 }, None).expect("a place");
        let peer = members.find(Card { id: 7, group: 1 }).expect("the other one");
        window.word64(plain).expect("in the window").store(42, SeqCst);
        let _hold = sender.hold(peer).expect("it lives");
        // SAFETY: held, and the window stays.
        let ring = unsafe { window.ring(peer.index) }.expect("a ring");
        let mut outbox = Outbox::new(ring, members.ticket(sender.peer()), 8);
        outbox.try_send(Kind::Inline, &[b"good morning"]).expect("room");
    });
    // SAFETY: our own, and the window stays.
    let mut inbox = Inbox::new(unsafe { window.ring(me.peer().index) }.expect("a ring"));
    let until = Instant::now() + Duration::from_secs(20);
    let arrived = inbox.receive(Some(until), |_| false).expect("in order").expect("a message");
    let mut bytes = [0; 12];
    arrived.read(0, &mut bytes);
    assert_eq!((&bytes, arrived.header().source), (b"good morning", 8));
    drop(arrived);
    assert_eq!(reap(pid), 0);
    assert_eq!(window.word64(plain).expect("in the window").load(SeqCst), 42);
}

#[test]
fn anonymous_memory_goes_by_its_descriptor() {
    let memory = Memory::anonymous(SIZE - 1).expect("memory");
    assert_eq!(memory.size(), SIZE);
    let again = || {
        let copy = memory.as_fd().try_clone_to_owned().expect("a copy");
        Memory::received(copy).expect("the same")
    };
    carries(again);
}

#[test]
fn a_name_a_file_and_a_path_lead_to_one_window() {
    let name = format!("fcp-test-{}", std::process::id());
    carries(|| Memory::named(&name, Some(SIZE)).expect("memory"));
    let path = Path::new("/dev/shm").join(&name);
    let stat = fs::metadata(&path).expect("it is there");
    assert_eq!((stat.mode() & 0o777, stat.len()), (0o600, SIZE as u64));
    assert_eq!(Memory::at(&path, None).expect("by path").size(), SIZE);
    fs::remove_file(path).expect("removed");

    let directory = Directory::new("file");
    carries(|| Memory::at(&directory.at("window"), Some(SIZE)).expect("memory"));
}

#[test]
fn huge_pages_round_the_size_up() {
    let overcommit = Path::new("/proc/sys/vm/nr_overcommit_hugepages");
    let before = fs::read_to_string(overcommit).unwrap_or_default();
    let few = before.trim() == "0";
    if few && fs::write(overcommit, "8").is_err() {
        return skip::because("no huge pages, and not root to allow some");
    }
    let directory = Directory::new("huge");
    let at = directory.at("mount");
    fs::create_dir(&at).expect("a new directory");
    let target = std::ffi::CString::new(at.as_os_str().as_encoded_bytes()).expect("no NUL");
    let kind = c"hugetlbfs".as_ptr();
    // SAFETY: strings and numbers.
    let mounted = unsafe {
        libc::mount(c"none".as_ptr(), target.as_ptr(), kind, 0, c"pagesize=2M".as_ptr().cast()) == 0
    };
    let path = at.join("window");
    let result = std::panic::catch_unwind(|| {
        if !mounted {
            return skip::because("hugetlbfs cannot be mounted here");
        }
        let memory = Memory::at(&path, Some(SIZE)).expect("memory");
        assert_eq!((memory.kind(), memory.size()), (Memories::Huge, 2 << 20));
        match Window::open(memory, Some(PLAN)) {
            Err(WindowError::System { doing: "map", .. }) => skip::because("no huge page is free"),
            opened => {
                drop(opened.expect("a window"));
                carries(|| Memory::at(&path, Some(SIZE)).expect("memory"));
            }
        }
    });
    // SAFETY: a string.
    unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    if few {
        let _ = fs::write(overcommit, before);
    }
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Whether this is the memory of QEMU's inter-VM shared memory device.
fn is_ivshmem(bar: &Path) -> bool {
    let is = |file: &str, id: &str| {
        fs::read_to_string(bar.with_file_name(file)).is_ok_and(|text| text.trim() == id)
    };
    bar.exists() && is("vendor", "0x1af4") && is("device", "0x1110")
}

#[test]
fn devices_that_share_memory_are_used_where_there_are_any() {
    let dax = fs::read_dir("/dev").expect("/dev").flatten().map(|entry| entry.path());
    let bars = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let bars = bars.map(|entry| entry.path().join("resource2"));
    let is_dax = |path: &PathBuf| path.display().to_string().starts_with("/dev/dax");
    let found: Vec<_> = dax.filter(is_dax).chain(bars.filter(|bar| is_ivshmem(bar))).collect();
    if found.is_empty() {
        // What a file can stand in for is tested in memory.rs.
        return skip::machine_lacks("DAX devices and ivshmem BARs");
    }
    let memory: Vec<_> = found.iter().filter_map(|path| Memory::at(path, None).ok()).collect();
    if memory.is_empty() {
        return skip::because(&format!("this user may open none of {found:?}"));
    }
    for memory in memory {
        // Somebody may use it: only look.
        let at = memory.place().to_owned();
        match Window::open(memory, None) {
            Ok(window) => println!("{at}: a window for {:?}", window.plan()),
            Err(error) => println!("{error}"),
        }
    }
}

fn refusal(result: Result<Memory, WindowError>) -> String {
    let line = result.expect_err("refused").to_string();
    assert!(!line.contains('\n') && line.len() < 300, "{line}");
    line
}

#[test]
fn memory_that_cannot_be_a_window_is_refused_in_one_line() {
    let directory = Directory::new("refused");
    let file = directory.at("window");
    drop(Memory::at(&file, Some(SIZE)).expect("memory"));

    let line = refusal(Memory::at(&file, Some(2 * SIZE)));
    assert!(line.contains("has 262144 bytes, not 524288"), "{line}");
    symlink(&file, directory.at("link")).expect("a link");
    assert!(refusal(Memory::at(&directory.at("link"), Some(SIZE))).contains("link"));
    assert!(refusal(Memory::at(&directory.at("none"), None)).contains("give a size"));
    assert!(refusal(Memory::at(&directory.0, Some(SIZE))).contains("cannot open"));
    assert!(refusal(Memory::at(Path::new("/dev/null"), None)).contains("not of the kind dax"));
    for name in ["", ".", "..", "a/b", "a\0b"] {
        assert!(refusal(Memory::named(name, Some(SIZE))).contains("no name for /dev/shm"));
    }
    assert!(refusal(Memory::anonymous(0)).contains("bytes"));
    assert!(refusal(Memory::anonymous(usize::MAX)).contains("bytes"));
    fs::write(directory.at("odd"), [0; 5000]).expect("a file");
    fs::set_permissions(directory.at("odd"), fs::Permissions::from_mode(0o600)).expect("chmod");
    assert!(refusal(Memory::at(&directory.at("odd"), None)).contains("whole pages"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("chmod");
    assert!(refusal(Memory::at(&file, None)).contains("chmod 600"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("chmod");
    let reader = fs::File::open(&file).expect("readable");
    assert!(refusal(Memory::received(reader.into())).contains("O_RDWR"));
    let (pipe, _writer) = std::io::pipe().expect("a pipe");
    assert!(refusal(Memory::received(pipe.into())).contains("O_RDWR"));
    let (socket, _other) = std::os::unix::net::UnixStream::pair().expect("sockets");
    assert!(refusal(Memory::received(socket.into())).contains("is not memory"));
    // The registers of some other device are no memory, whoever may write them.
    let bars = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    for bar in bars.map(|entry| entry.path().join("resource0")).filter(|bar| bar.exists()) {
        if fs::read_to_string(bar.with_file_name("class")).is_ok_and(|c| !c.starts_with("0x05")) {
            refusal(Memory::at(&bar, None));
        }
    }
}

#[test]
fn a_foreign_user_is_refused_and_his_files_are() {
    // SAFETY: no argument.
    if unsafe { libc::geteuid() } != 0 {
        return skip::because("not root: cannot be another user");
    }
    let name = format!("fcp-foreign-{}", std::process::id());
    drop(Memory::named(&name, Some(SIZE)).expect("memory"));
    let other = format!("{name}-other");
    let pid = child(|| {
        // SAFETY: numbers.
        assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        let line = refusal(Memory::named(&name, Some(SIZE)));
        assert!(line.contains("its owner must allow it"), "{line}");
        drop(Memory::named(&other, Some(SIZE)).expect("his own"));
    });
    assert_eq!(reap(pid), 0);
    // Root may open it, and still does not trust it.
    let line = refusal(Memory::named(&other, None));
    assert!(line.contains("belongs to user 65534, not 0"), "{line}");
    for name in [name, other] {
        fs::remove_file(Path::new("/dev/shm").join(name)).expect("removed");
    }
}

#[test]
fn a_window_has_one_plan_and_other_memory_is_unchanged() {
    let directory = Directory::new("plan");
    let path = directory.at("window");
    let memory = || Memory::at(&path, Some(SIZE)).expect("memory");
    let error = |plan| Window::open(memory(), plan).expect_err("refused").to_string();
    assert!(error(None).contains("no window yet"));
    assert!(
        error(Some(Plan { members: 0, messages: 0, lendable: 0, listed: false }))
            .contains("0 members")
    );
    assert!(
        error(Some(Plan { members: 1, messages: SIZE, lendable: 0, listed: false }))
            .contains("262144 bytes")
    );
    let window = Window::open(memory(), Some(PLAN)).expect("a window");
    assert!(error(Some(Plan { members: 5, ..PLAN })).contains("for 4 members"));
    assert!(window.address(window.plain().end - 8, 9).is_none());
    assert!(window.address(usize::MAX, 2).is_none());
    assert!(window.word64(window.plain().start + 4).is_none());
    assert!(window.address(window.plain().start - 1, 1).is_none());
    assert_eq!(window.buffer(4), None);
    let last = window.buffer(3).expect("a buffer");
    assert!(last.0 + sync::mapped::size_of_ring(last.1) <= window.messages().end);
    drop(window);

    fs::write(&path, vec![b'x'; SIZE]).expect("written");
    assert!(error(Some(PLAN)).contains("not a window; erase it"));
    assert_eq!(fs::read(&path).expect("read"), vec![b'x'; SIZE]);
    Window::erase(&memory()).expect("nobody lives there");
    let window = Arc::new(Window::open(memory(), Some(PLAN)).expect("a window"));
    let members = Arc::new(Members::of(window).expect("members"));
    let _me = members.join(Card::default(), None).expect("a place");
    let busy = Window::erase(&memory()).expect_err("somebody lives there").to_string();
    assert!(busy.contains("living members"), "{busy}");
}

#[test]
fn concurrent_creators_of_a_window_agree_even_if_some_are_killed() {
    let directory = Directory::new("race");
    for round in 0..40 {
        let path = directory.at(&round.to_string());
        // Two plans: one wins, and whoever wanted it gets it.
        let open = |n: u16| {
            let plan = Plan { members: 4 + n % 2, ..PLAN };
            Memory::at(&path, Some(SIZE)).and_then(|memory| Window::open(memory, Some(plan)))
        };
        let pids: Vec<_> = (0..6)
            .map(|n| {
                child(|| {
                    let status = match open(n) {
                        Ok(_) => 0,
                        Err(WindowError::Differs { .. }) => 1,
                        Err(_) => 2,
                    };
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(status) }
                })
            })
            .collect();
        let victim = round % 6;
        for (n, pid) in pids.into_iter().enumerate() {
            let status = if n == victim { kill(pid) } else { reap(pid) };
            assert!(n == victim || matches!(libc::WEXITSTATUS(status), 0 | 1), "{status:x}");
        }
        let memory = Memory::at(&path, None).expect("it is there");
        let window = Window::open(memory, None).expect("a whole window");
        assert!(matches!(window.plan().members, 4 | 5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever stands in header and table: an answer, and nothing outside is touched.
    #[test]
    fn hostile_memory_never_crashes(
        words in prop::collection::vec((0usize..1024, prop_oneof![
            any::<u64>(), 0u64..4, Just(u64::MAX),
            (0u64..8, 0u64..64, 0u64..64).prop_map(|(m, p, l)| (m & 1) << 63 | m << 50 | p << 25 | l),
        ]), 1..200),
        magic in prop_oneof![Just(u64::from_le_bytes(*b"nagayaW\x02")), Just(0), any::<u64>()],
        plan in prop_oneof![
            Just(4 << 50 | 16 << 25), Just(1 << 50 | 1 << 25 | 16), any::<u64>(),
            (0u64..8, 0u64..64, 0u64..64).prop_map(|(m, p, l)| (m & 1) << 63 | m << 50 | p << 25 | l),
        ],
        size in prop_oneof![Just(SIZE as u64), any::<u64>()],
    ) {
        let memory = Memory::anonymous(SIZE).expect("memory");
        let file = fs::File::from(memory.as_fd().try_clone_to_owned().expect("a copy"));
        use std::os::unix::fs::FileExt;
        for (at, word) in words {
            file.write_at(&word.to_le_bytes(), at as u64 * 8).expect("written");
        }
        for (at, word) in [(0, magic), (64, plan), (72, size)] {
            file.write_at(&word.to_le_bytes(), at).expect("written");
        }
        for wanted in [None, Some(PLAN)] {
            let copy = Memory::received(memory.as_fd().try_clone_to_owned().expect("a copy"));
            let Ok(window) = Window::open(copy.expect("memory"), wanted) else { continue };
            let members = Arc::new(Members::of(Arc::new(window)).expect("members"));
            for entry in members.entries() {
                members.life(entry.peer);
            }
            // Entries may seem to be another machine's: then there is no place.
            if let Ok(me) = members.join(Card { id: 1, group: 2 }, None) {
                let found = members.find(Card { id: 1, group: 2 });
                prop_assert!(found.is_some());
                for entry in members.entries() {
                    me.hold(entry.peer);
                    // SAFETY: the window stays as long as this.
                    if let Some(ring) = unsafe { members.window().ring(entry.peer.index) } {
                        let _ = Inbox::new(ring).try_receive(|_| false).is_ok();
                    }
                }
            }
        }
    }
}
