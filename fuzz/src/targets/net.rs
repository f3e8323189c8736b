//! Messages between nodes, their addresses, and the launchers by which they find each other.

use net::fuzz::fabric::Scene;
use net::fuzz::{self, Records, SharedMemory};
use net::hex;
use net::pmi::{self, Gathered, Lines, Reply};
use net::wire::{Address, CarrierKind, Section, sections};

use crate::input::{Input, Output};
use crate::target::{Seeds, Target, is_one_line, numbered, text};

pub const LOCAL_RING: Target = Target {
    name: "local_ring",
    reads: "records of the local carrier, and the shared memory that a peer can write",
    run: local_ring,
    seeds: local_ring_seeds,
};

fn local_ring(bytes: &[u8]) {
    let (mut input, mut memory) = (Input(bytes), SharedMemory::new());
    while !input.is_empty() {
        match input.byte() % 5 {
            0 | 1 => memory.send(input.bytes()),
            2 => {
                let (of_own, place, index) = (input.is(), input.byte(), input.number(2));
                memory.write(of_own, place, index as u32, input.any());
            }
            3 => memory.answer(input.bytes().to_vec()),
            _ => {
                let accepts = input.is();
                while memory.receive(accepts) {
                    let before = memory.received;
                    if !memory.receive(accepts) {
                        return;
                    }
                    if memory.received == before {
                        break;
                    }
                }
            }
        }
    }
}

/// The first record of a message: the lengths of its header and its payload, and both.
fn record(header: &[u8], payload: &[u8], claimed: u64) -> Vec<u8> {
    let lengths = [&(header.len() as u16).to_le_bytes()[..], &claimed.to_le_bytes()].concat();
    [&lengths[..], header, payload].concat()
}

fn local_ring_seeds() -> Seeds {
    let short = record(b"head", b"payload", 7);
    let message = Output::default().raw(&[0]).bytes(&short).raw(&[4, 1]);
    let long = Output::default().raw(&[0]).bytes(&record(b"head", b"", 9000)).raw(&[4, 1]);
    let long = [4000, 4000, 1000]
        .iter()
        .fold(long, |long, &bytes| long.raw(&[0]).bytes(&vec![3; bytes]).raw(&[4, 1]));
    let refused = Output(long.0.iter().map(|&byte| if byte == 1 { 0 } else { byte }).collect());
    let corrupt = Output::default().raw(&[2, 1, 0, 0, 0]).any(5 | 1 << 40).raw(&[4, 0]);
    let replies = Output::default().raw(&[3]).bytes(&[1; 40]).raw(&[2, 0, 3, 0, 0]).any(99);
    numbered([message, long, refused, corrupt, replies].map(|it| it.0))
}

pub const TCP_HANDSHAKE: Target = Target {
    name: "tcp_handshake",
    reads: "bytes of a TCP connection before its handshake is complete",
    run: tcp_handshake,
    seeds: tcp_handshake_seeds,
};

fn tcp_handshake(bytes: &[u8]) {
    let mut input = Input(bytes);
    let is_caller = input.is();
    let mut pieces = Vec::new();
    while !input.is_empty() {
        pieces.push(input.bytes());
    }
    assert!(!fuzz::tcp_before_handshake(is_caller, &pieces), "it has no secret");
}

fn tcp_handshake_seeds() -> Seeds {
    let shake = |bytes: usize| Output::default().raw(&[0]).bytes(&vec![9; bytes]).0;
    let answer = Output::default().raw(&[1]).bytes(&[0; 20]).bytes(&[255; 40]).0;
    numbered([shake(48), shake(200), shake(3), answer])
}

pub const TCP_RECORDS: Target = Target {
    name: "tcp_records",
    reads: "sealed records of a TCP peer that holds the secret, and unsealed bytes",
    run: tcp_records,
    seeds: tcp_records_seeds,
};

fn tcp_records(bytes: &[u8]) {
    let (mut input, mut records) = (Input(bytes), Records::new());
    while !input.is_empty() {
        match input.byte() % 4 {
            0 | 1 => records.send(input.bytes()),
            2 => records.send_unsealed(input.bytes()),
            _ => {
                let accepts = input.is();
                if !records.receive(accepts) {
                    return;
                }
            }
        }
    }
}

fn tcp_records_seeds() -> Seeds {
    let short = Output::default().raw(&[0]).bytes(&record(b"h", b"payload", 7)).raw(&[3, 1]);
    let long = Output::default().raw(&[0]).bytes(&record(b"h", b"", 8500));
    let long = long.raw(&[0]).bytes(&[1; 8000]).raw(&[3, 1]).raw(&[0]).bytes(&[2; 500]);
    let forged = Output::default().raw(&[2]).bytes(&[0, 40]).raw(&[2]).bytes(&[7; 40]).raw(&[3, 0]);
    let empty = Output::default().raw(&[2]).bytes(&[0, 16]).raw(&[3, 0]);
    numbered([short, long.raw(&[3, 1]), forged, empty].map(|it| it.0))
}

pub const FABRIC: Target = Target {
    name: "fabric",
    reads: "UCX's messages: of strangers, of peers that hold the secret; and its completions",
    run: fabric,
    seeds: fabric_seeds,
};

fn fabric(bytes: &[u8]) {
    let (mut input, mut scene) = (Input(bytes), Scene::new());
    while !input.is_empty() {
        match input.byte() % 10 {
            0 => {
                let announced = input.is();
                let header = input.bytes();
                scene.come(header, input.bytes().to_vec(), announced);
            }
            1 => {
                let (from, session) = (input.any().wrapping_add(2), input.any());
                let sections = input.bytes();
                let sections = (!sections.is_empty()).then_some(sections);
                scene.say_hello(from, session, sections);
            }
            2 => drop(scene.agree()),
            3..=5 => {
                let (link, kind) = (input.byte(), input.byte());
                let sequence = (kind & 64 != 0).then(|| input.any());
                let user = input.bytes();
                scene.send(link.into(), kind, sequence, user, input.bytes().to_vec());
            }
            6 => scene.complete(input.byte(), input.is()),
            7 => {
                let address = input.bytes();
                scene.connect((!address.is_empty()).then_some(address));
            }
            8 => {
                let (what, peer) = (input.byte(), input.byte());
                scene.act(what, peer.into(), input.bytes());
            }
            _ => scene.poll(),
        }
    }
    scene.poll();
}

fn fabric_seeds() -> Seeds {
    let called = Output::default().raw(&[1, 0, 7, 0, 9, 2]);
    let ready = |script: Output| script.raw(&[3, 0, 0, 0, 0, 9]);
    let data = |script: Output| script.raw(&[3, 0, 4]).bytes(b"user").bytes(b"payload").raw(&[9]);
    let served = data(ready(called.clone())).raw(&[8, 0, 0]).bytes(b"answer").raw(&[9]);
    let closed = data(ready(called.clone())).raw(&[3, 0, 1, 0, 0, 9, 6, 0, 1, 9]);
    let calls = Output::default().raw(&[7, 0, 8, 0, 0]).bytes(b"early").raw(&[2, 9]);
    let calls = ready(calls).raw(&[8, 1, 0, 0, 9, 3, 0, 1, 0, 0, 9]);
    let slow = Output::default().raw(&[6, 3, 1]);
    let slow = data(ready(slow.raw(&called.0))).raw(&[6, 0, 1, 6, 1, 1, 9, 6, 2, 0, 9]);
    let late = called.raw(&[3, 0, 4 | 64, 3]).bytes(b"").bytes(b"late").raw(&[9]);
    let stranger = Output::default().raw(&[0, 0]).bytes(b"NG\x01\x04").bytes(b"x").raw(&[9]);
    numbered([served, closed, calls, slow, late, stranger].map(|it| it.0))
}

pub const ADDRESS: Target = Target {
    name: "address",
    reads: "addresses of nodes, as launchers pass them on",
    run: address,
    seeds: address_seeds,
};

fn address(bytes: &[u8]) {
    if let Some(written) = fuzz::tcp_address(bytes) {
        assert_eq!(written, bytes);
    }
    if let Some((_, parts)) = Address::parse(bytes) {
        for section in sections(parts) {
            let _ = fuzz::tcp_address(section.bytes);
        }
    }
    let read: usize = sections(bytes).map(|section| 5 + section.bytes.len()).sum();
    assert!(read <= bytes.len());
    if let Some(decoded) = hex::decode(&text(bytes)) {
        assert_eq!(hex::encode(&decoded), text(bytes).to_lowercase());
    }
}

fn address_seeds() -> Seeds {
    let tcp = [&[1; 16][..], &[4, 10, 0, 0, 1, 0x1f, 0x90], &[6], &[0xfe; 16], &[0, 80]].concat();
    let mut parts = Vec::new();
    Section::write(&mut parts, CarrierKind::Tcp, &tcp);
    Section::write(&mut parts, CarrierKind::Ucx, &[7; 30]);
    let whole = [&b"nagayaF2"[..], &[1; 8], &[2; 16], &parts].concat();
    numbered([tcp, parts, whole, b"00ffA0".to_vec()])
}

pub const PMI: Target = Target {
    name: "pmi",
    reads: "PMI-1's lines of a launcher, and values of other processes",
    run: pmi,
    seeds: pmi_seeds,
};

fn pmi(bytes: &[u8]) {
    let (mut lines, mut gathered) = (Lines::default(), Some(Gathered::default()));
    let (half, rest) = bytes.split_at(bytes.len() / 2);
    for piece in [half, rest] {
        lines.push(piece);
        while let Some(reply) = lines.reply() {
            let reply = match reply {
                Ok(reply) => reply,
                Err(violation) => {
                    is_one_line(&violation.to_string());
                    continue;
                }
            };
            match reply {
                Reply::Value(Some(value)) => {
                    let pushed = gathered.as_mut().map(|gathered| gathered.push(&value));
                    // After the last value, or a violation, there are no more.
                    if !matches!(pushed, Some(Ok(None))) {
                        gathered = None;
                    }
                }
                Reply::Maxes { key_bytes, value_bytes } => {
                    if let Some(bytes) = pmi::value_bytes("kvs_1", key_bytes, value_bytes) {
                        assert!(!pmi::values(&[1, 2, 3], bytes).is_empty());
                    }
                }
                _ => {}
            }
        }
    }
}

fn pmi_seeds() -> Seeds {
    let init = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
                cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n\
                cmd=my_kvsname kvsname=kvs_1_0_7_vm\ncmd=put_result rc=0 msg=success\n\
                cmd=barrier_out\n";
    let values: String = pmi::values(&[1, 2, 3, 255], 16)
        .iter()
        .map(|value| format!("cmd=get_result rc=0 msg=success value={value}\n"))
        .collect();
    let port = "cmd=initack rc=0\ncmd=set size=4\r\ncmd=set rank=1\ncmd=set debug=0\n";
    let missing = "cmd=get_result rc=-1 msg=key_n_not_found value=unknown\ncmd=finalize_ack\n";
    numbered([init, &values, port, missing].map(|text| text.as_bytes().to_vec()))
}

pub const PMIX: Target =
    Target { name: "pmix", reads: "PMIx's values", run: pmix, seeds: pmix_seeds };

fn pmix(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (r#type, has_memory) = (input.byte(), input.is());
    let content = input.rest();
    let (number, read) = fuzz::pmix_value(r#type.into(), has_memory.then_some(content));
    assert!(number.is_none() || read.is_none(), "a number has no bytes");
    if let Some(read) = read {
        assert!(content.starts_with(&read));
    }
}

fn pmix_seeds() -> Seeds {
    let value = |r#type: u8, has_memory: u8, bytes: &[u8]| {
        Output::default().raw(&[r#type, has_memory]).raw(bytes).0
    };
    numbered([
        value(3, 1, b"a-host"),
        value(13, 1, &[5, 0]),
        value(14, 1, &[1, 2, 3, 4]),
        value(27, 1, &[9; 40]),
        value(27, 1, b""),
        value(1, 1, &[1]),
    ])
}

pub const LAUNCHER: Target = Target {
    name: "launcher",
    reads: "environment variables of launchers",
    run: |bytes| {
        if let Some(line) = fuzz::launcher(&text(bytes)) {
            is_one_line(&line);
        }
    },
    seeds: || {
        let texts = [
            "PMI_RANK=1\nPMI_SIZE=4\nPMI_FD=6",
            "PMI_RANK=4\nPMI_SIZE=4\nPMI_FD=6",
            "PMI_RANK=1\nPMI_SIZE=4\nPMI_FD=5",
            "PMIX_NAMESPACE=a\nPMIX_RANK=0",
            "PMI_PORT=host:4711\nPMI_ID=3",
            "PMI_PORT=host:4711",
            "SLURM_STEP_NUM_TASKS=4\nSLURM_PROCID=2",
            "OMPI_COMM_WORLD_RANK=1",
        ];
        numbered(texts.map(|text| text.as_bytes().to_vec()))
    },
};
