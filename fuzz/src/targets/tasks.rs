//! The node server's messages, what the kernel reports about processes, envelopes between the tasks
//! of a space, records of their messages, and OpenSHMEM's messages between nodes.

use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use nagaya_fi::protocol::wire::{ENVELOPE_BYTES, Envelope, RTS_BYTES, Rts};
use nagaya_layout::{EXPORT_SIZE, SpaceLayout};
use nagaya_server::maps::Bounds;
use nagaya_server::protocol::{self, Reply, Request};
use proc::maps::Mapping;
use proc::process::{Stat, Status};
use shmem_wire::card::{Card, Nodes};
use shmem_wire::flow::Flow;
use shmem_wire::message::{Action, Area, HEADER_BYTES, Outcome, Place};
use shmem_wire::message::{Reply as Answer, Request as Operation};

use traffic::{Call, Message, Record, Tally};

use crate::input::{Input, Output};
use crate::target::{Seeds, Target, is_one_line, numbered, text};

pub const NODE_SERVER: Target = Target {
    name: "node_server",
    reads: "messages of stubs and tools to the node server, and its replies",
    run: node_server,
    seeds: node_server_seeds,
};

fn node_server(bytes: &[u8]) {
    let (is_request, bytes) = bytes.split_first().unwrap_or((&0, &[]));
    let (mut from, to) = UnixStream::pair().expect("sockets");
    let mut connection =
        protocol::connection(OwnedFd::from(to)).with_body_size_max(protocol::REQUEST_SIZE_MAX);
    // A socket has room for the inputs of fuzzers.
    from.write_all(&bytes[..bytes.len().min(64 << 10)]).expect("room");
    drop(from);
    while connection.fill().expect("a socket") {
        loop {
            let has_message = connection.has_message();
            let taken = match is_request % 2 {
                0 => connection.take::<Request>().map(|taken| taken.map(drop)),
                _ => connection.take::<Reply>().map(|taken| taken.map(drop)),
            };
            match taken {
                Ok(Some(())) => assert!(has_message),
                Ok(None) => break,
                Err(error) => return is_one_line(&error.to_string()),
            }
        }
    }
}

/// A message's header, as [`protocol::connection`] sends it, and its body.
fn framed(message: &impl serde::Serialize) -> Vec<u8> {
    let (mut from, to) = UnixStream::pair().expect("sockets");
    let mut connection = protocol::connection(OwnedFd::from(to));
    connection.queue(message).expect("a short message");
    connection.flush().expect("room");
    drop(connection);
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut from, &mut bytes).expect("a socket");
    bytes
}

fn node_server_seeds() -> Seeds {
    let request = |request: Request| [&[0][..], &framed(&request)].concat();
    let reply = |reply: Reply| [&[1][..], &framed(&reply)].concat();
    let start = protocol::Start {
        path: b"/bin/true".to_vec(),
        arguments: vec![b"true".to_vec()],
        environment: vec![b"A=b".to_vec()],
        fds: Vec::new(),
        expected_tasks: Some(2),
        id: Some(1),
        preferred_id: None,
        identity: None,
        mounts: false,
        protection: None,
        outlives_stub: false,
        inheritance: nagaya_server::inherit::Inheritance::of_this_process(0),
    };
    let mapping = nagaya_server::maps::Mapping {
        id: 1,
        start: 1 << 40,
        end: 1 << 41,
        permissions: "rwxp".into(),
        offset: 0,
        part: "heap".into(),
        resident: 4096,
        file: String::new(),
    };
    let differences = vec!["user".into()];
    let two = [request(Request::Status), framed(&Request::Signal(15, Some(3)))].concat();
    numbered([
        request(Request::Start(Box::new(start))),
        two,
        request(Request::Maps),
        reply(Reply::Started { id: 1, pid: 7, in_group: true, present: 2 }),
        reply(Reply::Apart { differences, is_known: false }),
        reply(Reply::Refused("no".into(), 126)),
        reply(Reply::Maps(vec![mapping])),
    ])
}

/// A space of four segments.
fn layout() -> SpaceLayout {
    SpaceLayout::new(2 << 40, 64 << 20, 4).expect("a small space")
}

pub const SMAPS: Target = Target {
    name: "smaps",
    reads: "/proc/PID/smaps of tasks, with bounds that tasks can write",
    run: smaps,
    seeds: smaps_seeds,
};

fn smaps(bytes: &[u8]) {
    let mut input = Input(bytes);
    let layout = layout();
    let mut place = |id: u32| {
        let segment = layout.segment(id % 4).expect("one of four");
        match input.byte() {
            255 => input.number(8),
            pages => segment.start() + u64::from(pages) * 4096,
        }
    };
    let bounds: Vec<Bounds> = (0..2)
        .map(|id| Bounds {
            id,
            heap: place(id),
            mmap: place(id),
            mmap_end: place(id),
            own: place(id),
        })
        .collect();
    nagaya_server::fuzz::mappings(input.rest(), &layout, &bounds);
}

fn smaps_seeds() -> Seeds {
    let layout = layout();
    let first = layout.segment(0).expect("the first");
    let line = |start: u64, end: u64, rest: &str| format!("{start:x}-{end:x} {rest}\nRss: 8 kB\n");
    let head = line(first.start(), first.start() + (1 << 20), "rw-p 00000000 00:00 0 ");
    let image = first.start() + (2 << 20);
    let image = line(image, image + 8192, "r-xp 00001000 fd:01 1027   /usr/lib/libc.so.6");
    let second = layout.segment(1).expect("the second").start() + EXPORT_SIZE;
    let second = line(second, second + 4096, "---p 00000000 00:00 0 ");
    let text = [head, image, second].concat();
    let bounds = |pages: [u8; 8]| Output::default().raw(&pages).raw(text.as_bytes()).0;
    numbered([bounds([20, 30, 40, 10, 20, 30, 40, 10]), bounds([100, 200, 250, 50, 0, 0, 0, 0])])
}

pub const PROC: Target = Target {
    name: "proc",
    reads: "files of /proc: maps, stat, status, syscall, boot_id; sizes of arguments",
    run: |bytes| {
        let text = &*text(bytes);
        for mapping in text.lines().filter_map(Mapping::parse) {
            assert_eq!(mapping.permissions().len(), 4);
        }
        let stat = Stat::of(bytes);
        for number in [0, 2, 3, 4, 14, 22, 52, usize::MAX] {
            let _ = stat.field::<u64>(number);
        }
        let status = Status::of(bytes);
        for (name, _) in status.fields() {
            assert!(status.field(name).is_some());
        }
        proc::host::parse(text);
        cluster::fuzz::thread(text);
        let _ = pvas::parse_size(text);
    },
    seeds: || {
        let texts = [
            "7f00a000-7f00c000 rw-s 00002000 fd:01 1027       /memfd:a b (deleted)\n\
             ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0  [vsyscall]\n",
            "1234 (a ) b) S 1 1234 1234 0 -1 4194304 100 0 0 0 1 2 0 0 20 0 1 0 4711 1000 10\n",
            "Name:\tbash\nPPid:\t1\nSigBlk:\t0000000000010000\nvoluntary_ctxt_switches:\t3\n",
            "202 0x7f01 0x0 0x1 0x0 0x0 0x0 0x2 0x3\n",
            "c7b4b2a4-0f6e-4f5c-8a7e-0a1b2c3d4e5f\n",
            "32G",
        ];
        numbered(texts.map(|text| text.as_bytes().to_vec()))
    },
};

pub const OFI: Target = Target {
    name: "ofi",
    reads: "libfabric addresses, and envelopes and requests to send in a ring",
    run: ofi,
    seeds: ofi_seeds,
};

fn ofi(bytes: &[u8]) {
    if let Some(envelope) = bytes.first_chunk::<ENVELOPE_BYTES>()
        && let Some(envelope) = Envelope::parse(envelope)
    {
        assert_eq!(Envelope::parse(&envelope.bytes()), Some(envelope));
        if let Some(rts) = bytes[ENVELOPE_BYTES..].first_chunk::<RTS_BYTES>() {
            assert_eq!(Rts::parse(rts).bytes(), *rts);
        }
    }
    if let Some(address) = bytes.first_chunk::<{ nagaya_fi::fuzz::ADDRESS_BYTES }>() {
        nagaya_fi::fuzz::address(address);
    }
    nagaya_fi::fuzz::text(&text(bytes));
}

fn ofi_seeds() -> Seeds {
    use nagaya_fi::protocol::wire::Kind;
    let envelope = Envelope { is_rts: true, ..Envelope::of(Kind::Tagged, 7, Some(9)) };
    let rts = Rts { at: 1 << 40, address: 1 << 41, length: 1 << 20, generation: 3, slot: 1 };
    let sent = [&envelope.bytes()[..], &rts.bytes()].concat();
    let words = [u64::from_le_bytes(*b"nagaya\0\x01"), 0xabc, 9 << 32 | 7, 0x1000, 3, 0];
    let named = [&b"nagaya\0\x02"[..], b"localhost:9228", &[0; 26]].concat();
    let texts = ["fi_nagaya://0000000000000abc/7.9/1000/70003", "fi_ns://a:9228", "fi_ns://"];
    let texts = texts.map(|text| text.as_bytes().to_vec());
    numbered([sent, words.map(u64::to_le_bytes).concat(), named].into_iter().chain(texts))
}

pub const TRAFFIC: Target = Target {
    name: "traffic",
    reads: "records of the messages of an MPI's ranks",
    run: traffic,
    seeds: traffic_seeds,
};

fn traffic(bytes: &[u8]) {
    let Some(record) = Record::parse(&text(bytes)) else { return };
    let written = record.to_text();
    let again = Record::parse(&written).expect("what it writes");
    assert_eq!(again.to_text(), written);
    let mut sum = Tally::default();
    record.calls.iter().for_each(|call| sum.add(call.tally));
}

fn traffic_seeds() -> Seeds {
    let tally = Tally { count: 3, bytes: 3000, time_ns: 77 };
    let call = Call { function: "MPI_Send".into(), class: 10, tally };
    let messages = [Some(1), None].map(|to| Message { to, class: 10, tally });
    let whole = Record {
        rank: 1,
        ranks: 2,
        host: "a".into(),
        task: Some(1),
        time_ns: 5_000_000,
        copies: tally,
        in_place: 9,
        calls: vec![call],
        messages: messages.into(),
    };
    numbered([whole, Record::default()].map(|record| record.to_text().into_bytes()))
}

pub const SHMEM: Target = Target {
    name: "shmem",
    reads: "OpenSHMEM's requests and replies between nodes, and the facts that PEs exchange",
    run: shmem,
    seeds: shmem_seeds,
};

fn shmem(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut flow = Flow::default();
    (0..3).for_each(|use_| assert!(flow.ask(use_) > 0));
    let mut last = 0;
    while let payload = input.any()
        && let Some((header, rest)) = input.0.split_first_chunk::<HEADER_BYTES>()
    {
        input.0 = rest;
        if let Some(request) = Operation::parse(header, payload as usize) {
            assert_eq!(request.header(), *header);
            let ranges = request.ranges(payload).expect("a request that was accepted");
            for range in ranges.into_iter().flatten().filter(|range| range.fits(1 << 20)) {
                assert!(range.start.offset <= 1 << 20 && range.bytes <= 1 << 20);
            }
            assert!(request.early().is_none() || ranges[0].is_some());
        }
        if let Some(reply) = Answer::parse(header, payload as usize) {
            assert_eq!(reply.header(), *header);
            let is_expected = flow.expected(reply.sequence).is_some();
            if let Some(use_) = flow.reply(reply.sequence) {
                assert!(is_expected && reply.sequence == last + 1 && use_ == last);
                last += 1;
            }
        }
    }
    let mut all = Vec::new();
    let mut input = Input(bytes);
    while !input.is_empty() && all.len() < 8 {
        all.push(input.bytes());
    }
    match Card::parse_all(all) {
        Ok(cards) => {
            let nodes = Nodes::new(&cards);
            assert_eq!(nodes.of_pe.len(), cards.len());
            assert!((0..nodes.n()).all(|node| nodes.of_pe[nodes.first(node)] == node));
        }
        Err(line) => is_one_line(&line),
    }
}

fn shmem_seeds() -> Seeds {
    use shmem_wire::message::{Op, Signal};
    let at = |area, offset| Place { area, offset };
    let signal = Signal { at: at(Area::Heap, 64), op: Op::Add, value: 3 };
    let atomic = |word, op, replies| {
        let (at, value, compare) = (at(Area::Block, 128), 5, 6);
        Action::Atomic { at, word, op, value, compare, replies }
    };
    let actions = [
        (Action::Put { to: at(Area::Heap, 8), is_early: true }, 100),
        (Action::PutSignal { to: at(Area::Data, 8), is_early: false, signal }, 12),
        (Action::Scatter { to: at(Area::Heap, 0), element: 4, stride: 12 }, 16),
        (Action::Get { from: at(Area::Heap, 0), bytes: 1 << 20 }, 0),
        (Action::Gather { from: at(Area::Data, 4), element: 8, stride: 8, n: 3 }, 0),
        (atomic(4, Op::CompareSwap, true), 0),
        (atomic(8, Op::Xor, false), 0),
        (Action::Flush, 0),
    ];
    let request = |(action, payload): (Action, u64)| {
        let header = Operation { pe: 1, sequence: 4, action }.header();
        Output::default().any(payload).raw(&header).0
    };
    let end = Operation { pe: 0, sequence: 0, action: Action::End { status: 3 } }.header();
    let results = [(Outcome::Data, 9), (Outcome::Word(7), 0), (Outcome::Flushed, 0)];
    let replies = results.into_iter().zip(1..).flat_map(|((result, payload), sequence)| {
        Output::default().any(payload).raw(&Answer { sequence, result }.header()).0
    });
    let card = Card {
        version: shmem_wire::card::VERSION,
        space: 7,
        host: "a".into(),
        pid: 3,
        secret: [1; 32],
        heap_bytes: 1 << 20,
        data_bytes: 4096,
        program: 5,
    };
    let other = Card { space: 8, ..card.clone() };
    let cards = [&card, &other, &card].map(|card| Output::default().bytes(&card.bytes()).0);
    let rest = [Output::default().any(0).raw(&end).0, replies.collect(), cards.concat()];
    numbered(actions.into_iter().map(request).chain(rest))
}
