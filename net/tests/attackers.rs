//! Attackers of the TCP carrier: they do not hold the secret, and send noise, the messages of other
//! protocols, repetitions, or nothing; or they change bytes on the way.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use net::event::{Dropped, Event};
use net::fabric::{ANSWER_MAX, Fabric};
use net::secret::Domain;
use net::wire::{Address, CarrierKind, Section, sections};

mod node;
use node::{Node, TIME_LIMIT, lost_by_another_secret, play, random, round, secret};

/// Length of a carrier's random name, which begins its address.
const INSTANCE_BYTES: usize = 16;

#[test]
fn role() {
    play();
}

fn fabric(id: u64) -> Fabric {
    Fabric::with_carriers(id, &secret(), "tcp").unwrap()
}

fn echo() -> Node {
    Node::start("echo", 2, &[("NAGAYA_NET", "tcp".to_owned())])
}

/// Returns the random name of a carrier, and the first IPv4 address on which it listens.
fn listens(address: &[u8]) -> (Vec<u8>, SocketAddr) {
    let (_, rest) = Address::parse(address).unwrap();
    let tcp = sections(rest).find(|section| section.kind == CarrierKind::Tcp).unwrap();
    let (instance, entry) = tcp.bytes.split_at(INSTANCE_BYTES);
    let &[4, a, b, c, d, high, low, ..] = entry else { panic!("no IPv4 address: {entry:?}") };
    let port = u16::from_be_bytes([high, low]);
    (instance.to_vec(), (Ipv4Addr::new(a, b, c, d), port).into())
}

/// Returns an address as its owner would sign it, with another socket.
fn address_with(original: &[u8], socket: SocketAddr) -> Vec<u8> {
    let (head, _) = Address::parse(original).unwrap();
    let (mut tcp, _) = listens(original);
    let SocketAddr::V4(socket) = socket else { panic!("IPv4 only") };
    tcp.push(4);
    tcp.extend_from_slice(&socket.ip().octets());
    tcp.extend_from_slice(&socket.port().to_be_bytes());
    let mut rest = Vec::new();
    Section::write(&mut rest, CarrierKind::Tcp, &tcp);
    let id = head.id.get();
    let token = secret().token(Domain::Address, &[&id.to_le_bytes(), &rest]);
    Address::bytes(id, token, &rest)
}

/// Passes bytes between a caller and a carrier.
struct Between {
    /// The caller's bytes so far.
    heard: Arc<Mutex<Vec<u8>>>,
    address: SocketAddr,
}

impl Between {
    /// Before the carrier at `to`, for one caller. The caller's byte at `changed` is inverted.
    fn new(to: SocketAddr, changed: Option<usize>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        std::thread::spawn(move || {
            let (mut caller, _) = listener.accept().unwrap();
            let mut called = TcpStream::connect(to).unwrap();
            let (mut back_from, mut back_to) =
                (called.try_clone().unwrap(), caller.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut back_from, &mut back_to);
                let _ = back_to.shutdown(std::net::Shutdown::Both);
            });
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = caller.read(&mut bytes) {
                let mut heard = hears.lock().unwrap();
                let place = changed.and_then(|at| at.checked_sub(heard.len()));
                if let Some(byte) = place.and_then(|at| bytes[..count].get_mut(at)) {
                    *byte = !*byte;
                }
                heard.extend_from_slice(&bytes[..count]);
                if called.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = called.shutdown(std::net::Shutdown::Both);
        });
        Self { heard, address }
    }
}

/// Lets the fabric work until the other side has ended the stream.
#[track_caller]
fn until_closed(fabric: &mut Fabric, stranger: &mut TcpStream, limit: Duration) {
    stranger.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let (begin, mut bytes) = (Instant::now(), [0; 100]);
    loop {
        assert!(begin.elapsed() < limit, "the connection is open after {limit:?}");
        let event = fabric.wait(Duration::from_millis(1)).unwrap();
        assert!(event.is_none(), "{event:?}");
        match stranger.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return,
            Err(_) => {}
        }
    }
}

/// The connection request of UCX's TCP, and a PUT to an address of this process, as UCX 1.13 sends
/// them. UCX executes the PUT.
fn write_by_ucx(target: &[u8; 16]) -> Vec<u8> {
    let mut bytes = 0xCAFE_BABE_1234_5678_u64.to_le_bytes().to_vec();
    let mut request = 1u32.to_le_bytes().to_vec();
    request.extend_from_slice(&[0; 9]);
    request.extend_from_slice(&[2, 0, 0, 1, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes.push(0x20);
    bytes.extend_from_slice(&(request.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&request);
    bytes.push(33);
    bytes.extend_from_slice(&20u32.to_le_bytes());
    bytes.extend_from_slice(&(target.as_ptr() as u64).to_le_bytes());
    bytes.extend_from_slice(&(target.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&1u32.to_le_bytes());
    bytes.extend_from_slice(b"0123456789ABCDEF");
    bytes
}

#[test]
fn a_stranger_writes_nothing_into_memory() {
    let mut fabric = fabric(1);
    let target = Box::new([0; 16]);
    let mut stranger = TcpStream::connect(listens(fabric.address()).1).unwrap();
    stranger.write_all(&write_by_ucx(&target)).unwrap();
    until_closed(&mut fabric, &mut stranger, TIME_LIMIT);
    assert_eq!(std::hint::black_box(&target)[..], [0; 16]);
    assert_eq!(fabric.dropped(), Dropped { malformed: 0, unauthenticated: 1 });
}

#[test]
fn strangers_are_refused_and_harm_nobody() {
    let mut fabric = fabric(1);
    let echo = echo();
    let peer = fabric.connect(&echo.address).unwrap();
    round(&mut fabric, peer, 0);
    let (_, socket) = listens(&echo.address);
    let mut random = random();
    let mut silent = Vec::new();
    for turn in 0..30 {
        let mut stranger = TcpStream::connect(socket).unwrap();
        let bytes = random.usize(..5_000);
        let noise: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
        // The stream may be closed already.
        let _ = match turn % 3 {
            0 => stranger.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            1 => stranger.write_all(&noise),
            _ => {
                silent.push(stranger);
                Ok(())
            }
        };
        round(&mut fabric, peer, turn);
    }
    // Newcomers are still accepted.
    let mut another = self::fabric(3);
    let peer = another.connect(&echo.address).unwrap();
    round(&mut another, peer, 0);
}

#[test]
fn strangers_take_a_limited_number_of_descriptors() {
    /// The limit, and the descriptors of the process itself.
    const DESCRIPTORS_MAX: usize = 128 + 32;
    let echo = echo();
    let (_, socket) = listens(&echo.address);
    let held = || std::fs::read_dir(format!("/proc/{}/fd", echo.pid())).unwrap().count();
    let mut strangers = Vec::new();
    for _ in 0..600 {
        strangers.push(TcpStream::connect(socket).unwrap());
        assert!(held() < DESCRIPTORS_MAX, "{} descriptors", held());
    }
    // A peer is accepted among them.
    let mut fabric = fabric(1);
    let peer = fabric.connect(&echo.address).unwrap();
    round(&mut fabric, peer, 0);
    // Silent ones are closed, although they stay.
    let begin = Instant::now();
    while held() > 32 {
        assert!(begin.elapsed() < TIME_LIMIT, "{} descriptors", held());
        fabric.wait(Duration::from_millis(20)).unwrap();
    }
    round(&mut fabric, peer, 1);
}

/// Single bytes do not extend the time limit.
#[test]
fn a_stranger_that_sends_slowly_is_refused_in_time() {
    let mut fabric = fabric(1);
    let mut stranger = TcpStream::connect(listens(fabric.address()).1).unwrap();
    let mut slow = stranger.try_clone().unwrap();
    let sends = std::thread::spawn(move || {
        while slow.write_all(&[7]).is_ok() {
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    until_closed(&mut fabric, &mut stranger, TIME_LIMIT);
    assert_eq!(fabric.dropped(), Dropped { malformed: 0, unauthenticated: 1 });
    drop(stranger);
    sends.join().unwrap();
}

#[test]
fn a_conversation_that_is_repeated_makes_no_connection() {
    let mut fabric = fabric(1);
    let echo = echo();
    let between = Between::new(listens(&echo.address).1, None);
    let peer = fabric.connect(&address_with(&echo.address, between.address)).unwrap();
    round(&mut fabric, peer, 0);
    let heard = between.heard.lock().unwrap().clone();
    assert!(heard.len() > 100, "a handshake and messages");

    let mut stranger = TcpStream::connect(listens(&echo.address).1).unwrap();
    stranger.write_all(&heard).unwrap();
    until_closed(&mut fabric, &mut stranger, TIME_LIMIT);
    round(&mut fabric, peer, 1);
}

#[test]
fn a_connection_with_a_changed_byte_is_lost() {
    // In the handshake, in the length of a record, in the first record, in one of the open
    // connection.
    for changed in [0, 49, 60, 1000] {
        let mut fabric = fabric(1);
        let echo = echo();
        let between = Between::new(listens(&echo.address).1, Some(changed));
        let peer = fabric.connect(&address_with(&echo.address, between.address)).unwrap();
        let _ = fabric.send(peer, b"header", vec![5; 1000]);
        let begin = Instant::now();
        loop {
            assert!(begin.elapsed() < ANSWER_MAX + TIME_LIMIT, "byte {changed} is not noticed");
            match fabric.wait(Duration::from_millis(100)).unwrap() {
                Some(Event::Lost { .. }) => break,
                Some(Event::Message { .. }) => panic!("byte {changed} does not count"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_peer_with_another_secret_is_refused() {
    let mut fabric = fabric(1);
    let lost = lost_by_another_secret(&mut fabric, "tcp");
    assert!(lost.contains("handshake") && lost.contains("secret"), "{lost}");
    let refused = fabric.dropped().unauthenticated;
    assert!(refused >= 1, "one for each address that was tried: {refused}");
}

/// Its address may be that of another process by now.
#[test]
fn a_restarted_process_is_not_taken_for_its_predecessor() {
    let mut fabric = fabric(1);
    let first = echo();
    let second = echo();
    let mixed = address_with(&first.address, listens(&second.address).1);
    let peer = fabric.connect(&mixed).unwrap();
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < ANSWER_MAX + TIME_LIMIT);
        match fabric.wait(Duration::from_millis(100)).unwrap() {
            Some(Event::Lost { peer: lost, .. }) if lost == peer => break,
            Some(event) => panic!("{event:?}"),
            None => {}
        }
    }
}

/// A job's nodes that are all connected need no open port.
#[test]
fn a_carrier_that_stops_listening_refuses_callers_and_keeps_its_peers() {
    let mut fabric = fabric(1);
    let own = fabric.address().to_vec();
    let mut peer = self::fabric(2);
    let to = peer.connect(&own).unwrap();
    peer.send(to, b"", vec![1]).unwrap();
    let begin = Instant::now();
    let mut stands = false;
    while !stands {
        assert!(begin.elapsed() < TIME_LIMIT);
        peer.poll();
        stands = matches!(fabric.poll(), Some(Event::Message { .. }));
    }
    fabric.stop_listening();
    // A program that another test starts may have the socket until it is executed.
    while TcpStream::connect(listens(&own).1).is_ok() {
        assert!(begin.elapsed() < TIME_LIMIT, "it still listens");
    }
    peer.send(to, b"", vec![2]).unwrap();
    loop {
        assert!(begin.elapsed() < TIME_LIMIT);
        peer.poll();
        if let Some(Event::Message { payload, .. }) = fabric.poll() {
            assert_eq!(payload, [2]);
            break;
        }
    }
}

/// Returns the TCP ports on which a process listens.
fn ports(pid: i32) -> Vec<u16> {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = descriptors.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let inode = |to: &str| Some(to.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned());
    let sockets: Vec<String> = links.filter_map(|to| inode(to.to_str()?)).collect();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let mut ports = Vec::new();
    for line in tables.iter().flatten().flat_map(|table| table.lines().skip(1)) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if fields[3] == "0A" && sockets.iter().any(|inode| inode == fields[9]) {
            let port = fields[1].rsplit_once(':').unwrap().1;
            ports.push(u16::from_str_radix(port, 16).unwrap());
        }
    }
    ports
}

#[test]
fn peers_of_one_host_open_no_port() {
    let within = [("FABRIC_WITHIN_HOST", "1".to_owned())];
    let echo = Node::start("echo", 2, &within);
    assert_eq!(ports(echo.pid()), []);
    let mut fabric = Fabric::within_host(1, &secret()).unwrap();
    let peer = fabric.connect(&echo.address).unwrap();
    round(&mut fabric, peer, 0);
    // The check finds the ports of others.
    assert_ne!(ports(self::echo().pid()), []);
}

/// Root can enter the directory of another user, whose carrier could be an attacker's.
#[test]
fn carriers_of_two_users_share_no_memory() {
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return skip::because("only root starts a process of another user");
    }
    let directory = std::env::temp_dir().join(format!("attackers-user-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("node");
    let own = std::env::current_exe().unwrap();
    assert!(Command::new("cp").args([&own, &program]).status().unwrap().success());
    let mut nobody = Command::new(&program);
    nobody.uid(65534).gid(65534).current_dir("/").env_remove("XDG_RUNTIME_DIR");
    let echo = Node::from(nobody, "echo", 2, &[("NAGAYA_NET", "local".to_owned())]);
    let mut fabric = Fabric::with_carriers(1, &secret(), "local").unwrap();
    fabric.connect(&echo.address).unwrap();
    match fabric.wait(TIME_LIMIT).unwrap() {
        Some(Event::Lost { why, .. }) => assert!(why.contains("not permitted"), "{why}"),
        event => panic!("{event:?}"),
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
