//! The processes of a job over several nodes: hosts and placement as the user gives them, the
//! control channel, and the messages of agents to each other.

use std::net::IpAddr;

use launch::hosts;
use launch::messages::{self, Answer, Begun, Ended, Kind, Refusal};
use launch::placement::Domains;
use pvmd::hostfile::HostFile;
use span::talk;

use crate::input::{Input, Output};
use crate::target::{Seeds, Target, is_one_line, numbered, text};

pub const DSM: Target = Target {
    name: "dsm",
    reads: "messages of DSM's agents, and data that tasks exchange before",
    run: dsm,
    seeds: dsm_seeds,
};

fn dsm(bytes: &[u8]) {
    let mut input = Input(bytes);
    if let Some(frame) = dsm::frame::Frame::parse(bytes) {
        assert_eq!(frame.bytes(), bytes);
    }
    let mut all = Vec::new();
    while !input.is_empty() && all.len() < 8 {
        all.push(input.bytes());
    }
    dsm::fuzz::contributions(&all);
    dsm::fuzz::contributions(&[bytes]);
}

fn dsm_seeds() -> Seeds {
    use dsm::frame::{Address, Frame};
    let agreed = dsm::settings::Settings::of(|_| None).expect("defaults").agreed;
    let card = dsm::world::Card {
        space: [3; 16],
        machine: "m".into(),
        host: "h".into(),
        pid: 7,
        secret: [0; 32],
        ..dsm::world::Card::new(agreed)
    };
    let card = card.bytes();
    let frames = [
        Frame::Message(Address { from: 1, to: 0, tag: -3 }),
        Frame::Received { task: 7, bytes: 1 << 40 },
        Frame::Allocated(dsm::ledger::Allocation { bytes: 1 << 20, block: 4096, first: 1 }),
        Frame::Ended { task: 1, barriers: 3 },
        Frame::End(1),
        Frame::Alive,
    ];
    let cards = Output::default().bytes(&card).bytes(&card).0;
    let exchange = vec![1, 3, 1, 2, 3];
    numbered(frames.map(Frame::bytes).into_iter().chain([cards, card, exchange]))
}

/// Splits an input into a message's header and its body.
fn message(bytes: &[u8]) -> (&[u8], &[u8]) {
    let mut input = Input(bytes);
    let header = input.bytes();
    (header, input.rest())
}

pub const CLUSTER: Target = Target {
    name: "cluster",
    reads: "messages of agents of a space over several machines",
    run: |bytes| {
        let (header, body) = message(bytes);
        cluster::fuzz::message(header, body);
    },
    seeds: || {
        let word = |bytes: &[u8]| Output::default().bytes(bytes);
        let bits = word(&[2, 1, 3, 1]).raw(&[0x55; 64]);
        let each = (0..20).map(|number| word(&[2, number, 3, 1, 1, 1]));
        numbered(each.chain([bits, word(&[3]).raw(&[0; 80])]).map(|output| output.0))
    },
};

pub const SPAN: Target = Target {
    name: "span",
    reads: "messages of span's agents: headers, registers, signals, pages, counts",
    run: |bytes| {
        let (header, body) = message(bytes);
        span::fuzz::message(header, body);
    },
    seeds: span_seeds,
};

fn span_seeds() -> Seeds {
    let word = |bytes: &[u8]| Output::default().bytes(bytes);
    let each = (0..45).map(|number| word(&[2, number, 3, 1, 1, 1, 1, 1]).0);
    let ranges = postcard::to_allocvec(&vec![1..5u64, 9..12, 12..13]).expect("numbers");
    let mut signal = vec![0; 160];
    signal[32] = 11;
    // A thread's registers: 968 bytes of general ones, then the number of vector bytes.
    let mut registers = vec![0; 1024 + 512];
    registers[968..970].copy_from_slice(&512u16.to_le_bytes());
    let bodies = [ranges, signal, registers, vec![0; 2000]];
    let bodies = bodies.map(|body| word(&[2, 33]).raw(&body).0);
    numbered(each.chain(bodies))
}

pub const CONTROL: Target = Target {
    name: "control",
    reads: "the control channel between the starter of nodes and a node",
    run: control,
    seeds: control_seeds,
};

const KIND: Kind = Kind { name: "span", version: "1" };

fn control(bytes: &[u8]) {
    if let Ok(Some(version)) = KIND.greeted(&mut bytes.to_vec(), &mut 0) {
        assert!(!version.contains('\n'));
    }
    let mut input = Input(bytes);
    let what = input.byte();
    let mut rest = input.rest();
    // A stream ends at the first error.
    for _ in 0..4 {
        let error = match what % 8 {
            0 => messages::receive::<talk::Order>(&mut rest).err(),
            1 => messages::receive::<Answer<talk::Ready>>(&mut rest).err(),
            2 => messages::receive::<talk::Everybody>(&mut rest).err(),
            3 => messages::receive::<cluster::join::Order>(&mut rest).err(),
            4 => messages::receive::<Answer<cluster::join::Ready>>(&mut rest).err(),
            5 => messages::receive::<cluster::join::Everybody>(&mut rest).err(),
            6 => messages::receive::<Answer<Begun>>(&mut rest).err(),
            _ => messages::receive::<Ended>(&mut rest).err(),
        };
        if let Some(error) = error {
            return is_one_line(&error.to_string());
        }
    }
}

fn control_seeds() -> Seeds {
    fn sent(what: u8, message: &impl serde::Serialize) -> Vec<u8> {
        let mut bytes = vec![what];
        messages::send(&mut bytes, message).expect("into memory");
        bytes
    }
    let program = talk::Program {
        path: b"/bin/true".to_vec(),
        arguments: vec![b"true".to_vec()],
        place: span::place::Policy::Spread,
        memory: Some(1 << 30),
        fixed_addresses: false,
        report: None,
    };
    let order = talk::Order {
        node: 0,
        nodes: 2,
        secret: [7; 32],
        timeout: 20,
        host: Some("a".into()),
        processors: Some(4),
        variables: vec![("UCX_TLS".into(), "tcp".into())],
        all_are_here: true,
        program: Some(program),
    };
    let ready = talk::Ready {
        address: vec![1, 2, 3],
        processors: 2,
        features: vec!["avx".into()],
        name: "a".into(),
        ours: vec![1..2, 4..9],
        clocks: "time:[4026531834]".into(),
    };
    let refusal: Answer<Begun> = Err(Refusal { line: "no".into(), is_of_program: true });
    let everybody = talk::Everybody { nodes: vec![ready.clone()] };
    let machines =
        cluster::join::Everybody { machines: vec![cluster::join::Ready { address: vec![1] }] };
    let begun: Answer<talk::Ready> = Ok(ready);
    numbered([
        sent(0, &order),
        sent(1, &begun),
        sent(2, &everybody),
        sent(5, &machines),
        sent(6, &refusal),
        sent(7, &Ended { node: 1, status: 9 }),
        b"Welcome\nnagaya-span 0.1.0-3\nrest".to_vec(),
    ])
}

pub const HOSTS: Target = Target {
    name: "hosts",
    reads: "host lists (-H), host files, and PVM's host files",
    run: host_lists,
    seeds: || {
        let texts = [
            "a,me@b.c:4,::1,[fe::2]:2",
            "# all\na\n\nb slots=4 # big\n c:2\n",
            "* lo=guest ep=$HOME/bin\none sp=2000 wd=/tmp\n& two bx=/usr/bin/gdb\n&three ip=10.0.0.3\n",
            "$four id=x dx=/usr/bin/pvmd\nfive.cs so=pw\n",
        ];
        numbered(texts.map(|text| text.as_bytes().to_vec()))
    },
};

/// A name that is passed to ssh must be no option and no shell's text.
fn is_name(name: &str) {
    let is_address = name.parse::<IpAddr>().is_ok();
    let is_plain = |one: char| one.is_alphanumeric() || "._-@:%+[]".contains(one);
    assert!(!name.is_empty() && !name.starts_with('-'), "{name:?}");
    assert!(is_address || name.chars().all(is_plain), "{name:?}");
}

fn host_lists(bytes: &[u8]) {
    let text = &*text(bytes);
    for named in [hosts::list(text), hosts::file(text)] {
        match named {
            Ok(named) => {
                named.iter().for_each(|host| {
                    is_name(&host.name);
                    assert!(host.processors != Some(0));
                });
                let _ = hosts::nodes(named, |name| name == "a");
            }
            Err(line) => is_one_line(&line.replace('\n', " ")),
        }
    }
    match HostFile::parse(text) {
        Ok(file) => {
            for host in &file.hosts {
                is_name(&host.name);
                host.options.login.iter().chain(&host.options.address).for_each(|it| is_name(it));
                let wanted = file.wanted(&host.name).expect("a host of the file");
                assert_eq!(wanted.name, host.name);
                let _ = file.own(&host.name);
            }
            if let Ok(host) = file.wanted(text.lines().next().unwrap_or_default()) {
                is_name(&host.name);
            }
        }
        Err(fault) => {
            is_one_line(&fault.to_string());
            assert!((1..=text.lines().count()).contains(&fault.line));
        }
    }
}

pub const DOMAINS: Target = Target {
    name: "domains",
    reads: "--domains, --delegatee, and lists of processors in /sys",
    run: domains,
    seeds: || {
        let texts = [
            "0-1:4,2-3:4",
            "0-3,8:2",
            "all:4,@b:4,@c/node0:2",
            "big:1,little:3",
            "cgroup=/sys/fs/cgroup/a,b:2",
            "node1:7",
            "0-65535:1",
        ];
        numbered(texts.map(|text| text.as_bytes().to_vec()))
    },
};

fn domains(bytes: &[u8]) {
    let text = &*text(bytes);
    match text.parse::<Domains>() {
        Ok(domains) => {
            assert!(domains.count() > 0 && domains.tasks() as usize >= domains.count());
            match domains.machines() {
                Ok(Some(machines)) => {
                    for machine in machines {
                        if let Some(host) = &machine.host {
                            is_name(host);
                        }
                        let again: Domains = machine.domains.parse().expect("it was a domain");
                        assert_eq!(again.tasks(), machine.tasks);
                    }
                }
                Ok(None) => {}
                Err(line) => is_one_line(&line.to_string().replace(text, "")),
            }
        }
        Err(line) => assert!(!line.is_empty()),
    }
}
