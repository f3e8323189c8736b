//! Whatever a peer sends, the other end gets whole messages or one error: it does not
//! panic, does not wait for what cannot come, and takes no more memory than the bytes that
//! have arrived justify.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nagaya_server::identity::Identity;
use nagaya_server::inherit::Inheritance;
use nagaya_server::maps::Mapping;
use nagaya_server::protocol::{
    DomainStatus, Reply, Request, Start, Status, TaskStatus, connection,
};
use proptest::prelude::*;
use proptest::sample::Index;
use pvas::connection::{Connection, FDS_MAX};

/// Counts the bytes that the current thread holds, and the most it ever held.
struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // Not while the thread ends, when its locals have gone.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

// SAFETY: all work is System's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller vouches.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller vouches.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes that `work` held at once beyond what was held before.
fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, usize::try_from(MOST.get() - before).unwrap_or(0))
}

fn pair() -> (UnixStream, Connection) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (ours, connection(theirs.into()))
}

/// The bytes of a message as it is sent.
fn bytes_of(message: &impl serde::Serialize) -> Vec<u8> {
    let (mut ours, theirs) = pair();
    std::thread::scope(|scope| {
        // A large one does not fit into the socket.
        let reader = scope.spawn(move || {
            let mut bytes = Vec::new();
            ours.read_to_end(&mut bytes).unwrap();
            bytes
        });
        theirs.send(message, &[]).unwrap();
        drop(theirs);
        reader.join().unwrap()
    })
}

/// What a peer saw that was sent `bytes` and then the end: messages, and whether it found
/// fault. Also the most memory that it held.
fn receive<T: for<'a> serde::Deserialize<'a>>(bytes: &[u8]) -> (usize, bool, usize) {
    let (mut ours, mut theirs) = pair();
    std::thread::scope(|scope| {
        // The end may come while there is more to send: the receiver has hung up.
        scope.spawn(move || {
            let _ = ours.write_all(bytes);
        });
        let ((messages, fault), most) = most_held(|| {
            let mut messages = 0;
            let fault = loop {
                match theirs.receive::<T>() {
                    Ok(Some(_)) => messages += 1,
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            (messages, fault)
        });
        drop(theirs);
        (messages, fault, most)
    })
}

/// The receiving buffer, and what a decoder may set aside before it has seen an element.
const MEMORY_FIXED: usize = 4 << 20;
/// Of each byte that arrives: the buffer doubles as it grows, and an empty string in a
/// list is one byte there and a whole `Vec` here.
const MEMORY_PER_BYTE: usize = 64;

fn takes_no_more_than_it_may(bytes: &[u8]) -> Result<(), TestCaseError> {
    let allowed = MEMORY_FIXED + MEMORY_PER_BYTE * bytes.len();
    let (_, _, most) = receive::<Request>(bytes);
    prop_assert!(most <= allowed, "a request of {} bytes took {most}", bytes.len());
    let (_, _, most) = receive::<Reply>(bytes);
    prop_assert!(most <= allowed, "a reply of {} bytes took {most}", bytes.len());
    Ok(())
}

fn strings() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20)
}

fn start() -> impl Strategy<Value = Request> {
    (
        prop::collection::vec(any::<u8>(), 0..80),
        strings(),
        strings(),
        prop::collection::vec(any::<i32>(), 0..40),
        any::<Option<u32>>(),
        any::<Option<u32>>(),
        any::<u64>(),
    )
        .prop_map(|(path, arguments, environment, fds, id, preferred_id, sigmask)| {
            Request::Start(Box::new(Start {
                path,
                arguments,
                environment,
                fds,
                expected_tasks: id,
                id,
                preferred_id,
                identity: id.map(|_| Identity::of_this_process()),
                mounts: sigmask & 1 != 0,
                protection: (sigmask & 2 != 0).then_some(pvas::Protection::Writes),
                outlives_stub: false,
                inheritance: Inheritance::of_this_process(sigmask),
            }))
        })
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        4 => start(),
        2 => any::<(i32, Option<i32>)>().prop_map(|(signal, value)| Request::Signal(signal, value)),
        1 => Just(()).prop_map(|()| Request::Status),
        1 => Just(()).prop_map(|()| Request::Maps),
    ]
}

fn task_status() -> impl Strategy<Value = TaskStatus> {
    (any::<[u32; 3]>(), any::<Option<u32>>(), any::<[u64; 5]>(), any::<(String, Vec<String>)>())
        .prop_map(|(ids, stub, n, (path, arguments))| TaskStatus {
            id: ids[0],
            pid: ids[1],
            domain: ids[2],
            stub,
            copies: n[0],
            copied_bytes: n[1],
            sites_patched: n[2],
            sites_unreached: n[3],
            resident: n[4],
            path,
            arguments,
        })
}

fn domain_status() -> impl Strategy<Value = DomainStatus> {
    (any::<u32>(), any::<(u32, u32)>(), any::<Vec<u32>>(), any::<u64>())
        .prop_map(|(pid, ids, processors, far)| DomainStatus { pid, ids, processors, far })
}

fn mapping() -> impl Strategy<Value = Mapping> {
    (any::<u32>(), any::<[u64; 4]>(), any::<[String; 3]>()).prop_map(
        |(id, n, [permissions, part, file])| Mapping {
            id,
            start: n[0],
            end: n[1],
            permissions,
            offset: n[2],
            part,
            resident: n[3],
            file,
        },
    )
}

fn reply() -> impl Strategy<Value = Reply> {
    let status = (
        any::<String>(),
        any::<[u32; 3]>(),
        any::<[u64; 2]>(),
        prop::collection::vec(task_status(), 0..4),
        prop::collection::vec(domain_status(), 0..4),
    );
    let status = status.prop_map(|(job, numbers, [base, segment_size], tasks, domains)| {
        let [server, tasks_max, present] = numbers;
        let expected = (present != 0).then_some(tasks_max);
        let protection = (present & 1 != 0).then_some(pvas::Protection::Writes);
        Status {
            job,
            server,
            present,
            expected,
            base,
            segment_size,
            tasks_max,
            protection,
            tasks,
            domains,
        }
    });
    prop_oneof![
        any::<(u32, u32, bool)>()
            .prop_map(|(id, pid, in_group)| { Reply::Started { id, pid, in_group, present: pid } }),
        any::<(Vec<String>, bool)>()
            .prop_map(|(differences, is_known)| { Reply::Apart { differences, is_known } }),
        any::<(u32, u32)>()
            .prop_map(|(present, expected)| { Reply::RanksMissing { present, expected } }),
        any::<(String, i32)>().prop_map(|(line, status)| Reply::Refused(line, status)),
        (any::<i32>(), any::<u64>())
            .prop_map(|(signal, continues)| Reply::Stopped { signal, continues }),
        any::<i32>().prop_map(Reply::Ended),
        status.prop_map(Reply::Status),
        prop::collection::vec(mapping(), 0..6).prop_map(Reply::Maps),
    ]
}

/// One change to the bytes of some messages.
#[derive(Debug, Clone)]
enum Change {
    Byte(Index, u8),
    /// In the first header, where lengths are.
    Header(usize, u8),
    Remove(Index),
    Insert(Index, u8),
    Truncate(Index),
    /// The bytes once more.
    Repeat,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        4 => any::<(Index, u8)>().prop_map(|(at, value)| Change::Byte(at, value)),
        2 => (0..16usize, any::<u8>()).prop_map(|(at, value)| Change::Header(at, value)),
        1 => any::<Index>().prop_map(Change::Remove),
        1 => any::<(Index, u8)>().prop_map(|(at, value)| Change::Insert(at, value)),
        1 => any::<Index>().prop_map(Change::Truncate),
        1 => Just(Change::Repeat),
    ];
    prop::collection::vec(change, 1..5)
}

fn apply(change: &Change, bytes: &mut Vec<u8>) {
    if bytes.is_empty() {
        return;
    }
    match change {
        Change::Byte(at, value) => {
            let at = at.index(bytes.len());
            bytes[at] = *value;
        }
        Change::Header(at, value) if *at < bytes.len() => bytes[*at] = *value,
        Change::Header(..) => {}
        Change::Remove(at) => drop(bytes.remove(at.index(bytes.len()))),
        Change::Insert(at, value) => bytes.insert(at.index(bytes.len()), *value),
        Change::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        Change::Repeat => bytes.extend_from_within(..),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn messages_arrive_as_they_were_sent(
        requests in prop::collection::vec(request(), 0..5),
        replies in prop::collection::vec(reply(), 0..5),
    ) {
        // Messages have no equality; what they print says as much.
        let check = |sent: String, bytes: Vec<u8>, debug: &dyn Fn(&mut Connection) -> String| {
            let (mut ours, mut theirs) = pair();
            std::thread::scope(|scope| {
                scope.spawn(move || ours.write_all(&bytes).unwrap());
                prop_assert_eq!(sent, debug(&mut theirs));
                Ok(())
            })
        };
        let all: Vec<u8> = requests.iter().flat_map(bytes_of).collect();
        check(format!("{requests:?}"), all, &|connection| {
            let mut got = Vec::new();
            while let Some(message) = connection.receive::<Request>().unwrap() {
                got.push(message);
            }
            format!("{got:?}")
        })?;
        let all: Vec<u8> = replies.iter().flat_map(bytes_of).collect();
        check(format!("{replies:?}"), all, &|connection| {
            let mut got = Vec::new();
            while let Some(message) = connection.receive::<Reply>().unwrap() {
                got.push(message);
            }
            format!("{got:?}")
        })?;
    }

    #[test]
    fn random_bytes_are_one_error(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        takes_no_more_than_it_may(&bytes)?;
        let (messages, fault, _) = receive::<Request>(&bytes);
        prop_assert!(messages == 0 && (fault || bytes.len() < 16));
    }

    #[test]
    fn random_bodies_are_a_message_or_one_error(
        body in prop::collection::vec(any::<u8>(), 0..2048),
    ) {
        let mut bytes = bytes_of(&Request::Status)[..8].to_vec();
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(&body);
        takes_no_more_than_it_may(&bytes)?;
    }

    #[test]
    fn changed_messages_are_messages_or_one_error(
        requests in prop::collection::vec(request(), 1..4),
        replies in prop::collection::vec(reply(), 1..4),
        changes in changes(),
    ) {
        for mut bytes in [
            requests.iter().flat_map(bytes_of).collect::<Vec<u8>>(),
            replies.iter().flat_map(bytes_of).collect(),
        ] {
            for change in &changes {
                apply(change, &mut bytes);
            }
            takes_no_more_than_it_may(&bytes)?;
        }
    }

    /// However the bytes are cut into pieces, and the descriptors come with the first.
    #[test]
    fn messages_in_pieces_arrive_whole(
        requests in prop::collection::vec(request(), 1..4),
        cuts in prop::collection::vec(any::<Index>(), 0..12),
    ) {
        let all: Vec<u8> = requests.iter().flat_map(bytes_of).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(all.len())).collect();
        cuts.sort_unstable();
        let (mut ours, mut theirs) = pair();
        rustix::io::ioctl_fionbio(&theirs, true).unwrap();
        let mut got = Vec::new();
        let mut from = 0;
        for to in cuts.into_iter().chain([all.len()]) {
            ours.write_all(&all[from..to]).unwrap();
            from = to;
            prop_assert!(theirs.fill().unwrap(), "open");
            while let Some((request, _)) = theirs.take::<Request>().unwrap() {
                got.push(request);
            }
        }
        while got.len() < requests.len() {
            prop_assert!(theirs.fill().unwrap(), "open");
            while let Some((request, _)) = theirs.take::<Request>().unwrap() {
                got.push(request);
            }
        }
        prop_assert_eq!(format!("{requests:?}"), format!("{got:?}"));
    }
}

/// A body that claims lists of 2^60 elements, at every place where a length may stand.
#[test]
fn claimed_lengths_are_not_believed() {
    let whole = bytes_of(&Request::Start(Box::new(Start {
        path: b"/bin/true".to_vec(),
        arguments: vec![b"true".to_vec()],
        environment: vec![b"A=b".to_vec()],
        fds: vec![0, 1, 2],
        expected_tasks: Some(2),
        id: None,
        preferred_id: Some(1),
        identity: Some(Identity::of_this_process()),
        mounts: true,
        protection: Some(pvas::Protection::All),
        outlives_stub: true,
        inheritance: Inheritance::of_this_process(0),
    })));
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f];
    for at in 16..whole.len() {
        let mut bytes = whole.clone();
        bytes.splice(at..=at, huge);
        let body = (bytes.len() - 16) as u32;
        bytes[8..12].copy_from_slice(&body.to_le_bytes());
        takes_no_more_than_it_may(&bytes).unwrap();
    }
}

/// A peer that sends descriptors without end, and no message takes them.
#[test]
fn unclaimed_descriptors_are_refused_in_time() {
    let (ours, mut theirs) = pair();
    let ours = connection(OwnedFd::from(ours));
    let zero = File::open("/dev/zero").unwrap();
    // Other tests of this process open descriptors, but not of this.
    let held = || {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|l| l.ends_with("zero"))).count()
    };
    let fds: Vec<_> = (0..120).map(|_| zero.as_fd()).collect();
    let refused = (0..40).any(|_| {
        ours.send(&Request::Status, &fds).unwrap();
        theirs.fill().is_err()
    });
    assert!(refused, "{} descriptors are held", held());
    assert!(held() <= FDS_MAX + 240, "{} descriptors are held", held());
    drop(theirs);
    assert_eq!(held(), 1);
}
