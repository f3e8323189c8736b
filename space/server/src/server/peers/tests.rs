//! The loop of accepts, requests and replies in one thread with its clients, over real sockets. A
//! seed selects errors of system calls.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fastrand::Rng;
use pvas::connection::Connection;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use sync::clock;
use sync::inject::{self, Call, Injected};

use super::{ACCEPT_PAUSE, Event, Lost, Peers};
use crate::protocol::{Reply, Request, connection};

/// Number of seeds in an ordinary run.
const SEEDS: u64 = 1000;
/// Rounds of a run until it counts as hanging.
const ROUNDS_MAX: usize = 2000;

/// A client: the numbers of its requests that are sent and answered.
struct Client {
    connection: Connection,
    left: i32,
    sent: i32,
    answered: i32,
    /// It may leave before it has all replies.
    is_hasty: bool,
    /// The server has closed the connection.
    is_over: bool,
}

impl Client {
    fn connect(address: &SocketAddrUnix, requests: i32, is_hasty: bool) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = socket.expect("a socket");
        connect(&socket, address).expect("the server listens");
        let connection = connection(socket);
        Self { connection, left: requests, sent: 0, answered: 0, is_hasty, is_over: false }
    }

    /// Sends, or reads replies. Each reply has the number of its request.
    fn act(&mut self, random: &mut Rng) {
        if self.left > 0 && random.bool() {
            let request = Request::Signal(self.sent, Some(random.i32(..)));
            self.connection.queue(&request).expect("it is short");
            (self.left, self.sent) = (self.left - 1, self.sent + 1);
        }
        let flushed = self.connection.flush().is_ok();
        let is_open = self.connection.fill().unwrap_or(false);
        while let Some((reply, _)) = self.connection.take::<Reply>().expect("a whole reply") {
            let Reply::Ended(number) = reply else { panic!("{reply:?}") };
            assert_eq!(number, self.answered, "each request is answered once, in order");
            self.answered += 1;
        }
        self.is_over |= !flushed || !is_open;
    }
}

/// Handles the events of a turn as the server does. Each request gets its number as reply.
fn serve(peers: &mut Peers, found: (Vec<Event>, Vec<u64>)) {
    let (events, lost) = found;
    lost.into_iter().for_each(|key| drop(peers.remove(key)));
    for event in events {
        let Event::Peer(key) = event else { continue };
        let goes_on = match peers.next(key) {
            Ok(Some((Request::Signal(number, _), _))) => {
                peers.reply(key, &Reply::Ended(number)).is_ok()
            }
            Ok(Some((request, _))) => panic!("{request:?}"),
            Ok(None) => true,
            Err(Lost::Closed) => false,
            // A client has left without its replies.
            Err(Lost::Failed(error)) => !peers.finish(key, &Reply::Refused(error.to_string(), 1)),
        };
        if !goes_on || peers.watch(key).is_err() {
            peers.remove(key);
        }
    }
}

/// A listening socket with an address that the kernel selects.
pub fn listener() -> (OwnedFd, SocketAddrUnix) {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    let name = format!("nagaya-peers-{}-{}", std::process::id(), fastrand::u64(..));
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a short name");
    bind(&socket, &address).expect("the name is free");
    listen(&socket, 64).expect("a bound socket");
    (socket, address)
}

/// Runs a server and its clients. Returns the injected errors.
fn run(seed: u64) -> Injected {
    let mut random = Rng::with_seed(seed);
    let start = Instant::now();
    clock::simulate(Some(start));
    let (socket, address) = listener();
    let signals = eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor");
    let mut peers = Peers::new(socket, &signals).expect("an epoll instance");
    inject::set(Some(Injected::new(seed, random.u64(2..20))));
    let mut clients: Vec<Client> = Vec::new();
    let mut to_connect = random.usize(1..12);
    for round in 1.. {
        assert!(round < ROUNDS_MAX, "the server and its clients go on for ever");
        // The pause after a failed accept is the only time that passes.
        clock::simulate(Some(start + round as u32 * ACCEPT_PAUSE / 8));
        if to_connect > 0 && random.bool() {
            to_connect -= 1;
            clients.push(Client::connect(&address, random.i32(0..10), random.u32(0..4) == 0));
        }
        for client in clients.iter_mut().filter(|client| !client.is_over) {
            client.act(&mut random);
        }
        let leaves = |client: &Client, random: &mut Rng| {
            let is_done = client.left == 0 && client.answered == client.sent;
            is_done || client.is_hasty && random.u32(0..30) == 0
        };
        clients.retain(|client| !client.is_over && !leaves(client, &mut random));
        let found = peers.wait(Some(Duration::ZERO));
        serve(&mut peers, found);
        if to_connect == 0 && clients.is_empty() && peers.is_empty() && !has_more(&mut peers) {
            break;
        }
    }
    clock::simulate(None);
    inject::set(None).expect("set above")
}

/// Returns true if a client waits for an accept. None is injected.
fn has_more(peers: &mut Peers) -> bool {
    let injected = inject::set(None);
    peers.accept();
    inject::set(injected);
    !peers.is_empty()
}

#[test]
fn each_request_is_answered_once_whatever_system_calls_return() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect(name));
    let seeds = match number("NAGAYA_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("NAGAYA_SEEDS").unwrap_or(SEEDS),
    };
    let mut all = Injected::new(0, 1);
    for seed in seeds {
        println!("NAGAYA_SEED={seed}");
        all.merge(&run(seed));
    }
    println!("{:?}", all.counts());
    if number("NAGAYA_SEED").is_none() {
        let never = all.counts().into_iter().filter(|(.., count)| *count == 0);
        let never: Vec<_> = never.map(|(call, errno, _)| (call, errno)).collect();
        assert!(never.is_empty(), "never injected: {never:?}");
        assert!(all.counts().iter().any(|it| matches!(it, (Call::Accept, Some(_), 1..))));
    }
}
