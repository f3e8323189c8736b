//! PVM's messages: between daemons, from tasks to daemons, and the data of messages.

use pvm::buffers::Buffers;
use pvm::constants::{PvmDataDefault, PvmDataRaw};
use pvm::envelope::{Envelope, Part, SIZE, What};
use pvm::fragment::Fragment;
use pvm::items::{Kind, Source, Target as Items};
use pvm::message::{Header, Message};
use pvm::parcel::{self, Reader};
use pvm::signature::{TRACE, XDR, signature};
use pvm::tid::{PVMD, Tid};
use pvm::wire::{Answer, Control, Frame, GroupRequest, Notice, Request, Welcome};
use pvm3::task::handlers::Handlers;
use pvm3::task::intake::Intake;
use pvmd::invitation::{Acceptance, Invitation, Line as _, Place};

use crate::input::{Input, Output};
use crate::target::{Seeds, Target, numbered, text};

pub const LINES: Target = Target {
    name: "pvmd_lines",
    reads: "lines between PVM's daemons: invitations, acceptances, calls",
    run: |bytes| {
        pvmd::fuzz::line(&text(bytes));
    },
    seeds: lines_seeds,
};

/// A host's name and address.
pub fn place(number: u16) -> Place {
    let info = pvm::wire::HostInfo {
        tid: Tid::of_host(number),
        name: format!("host{number}"),
        architecture: "LINUX64".into(),
        speed: 1000,
        signature: signature(),
    };
    Place { info, address: vec![1, 2, 3] }
}

fn lines_seeds() -> Seeds {
    let invitation = Invitation::new(place(1), [9; 32], 2, "two".into()).to_line();
    let (yes, no): (Acceptance, Acceptance) = (Ok(place(2)), Err("no UCX".into()));
    let call = format!("nagaya-pvmd-call {}\n", "12".to_owned() + &"02".repeat(34));
    numbered([invitation, yes.to_line(), no.to_line(), call].map(String::into_bytes))
}

pub const FRAMES: Target = Target {
    name: "pvmd_frames",
    reads: "the stream of a task's frames to PVM's daemon, and the daemon's messages to a task",
    run: frames,
    seeds: frames_seeds,
};

fn frames(bytes: &[u8]) {
    let (half, rest) = bytes.split_at(bytes.len() / 3);
    let (cut, is_broken) = pvmd::fuzz::frames(&[half, rest]);
    let (whole, was_broken) = pvmd::fuzz::frames(&[bytes]);
    assert_eq!((cut, is_broken), (whole, was_broken), "a cut changes the frames");
    let _ = postcard::from_bytes::<Result<Welcome, i32>>(bytes);
    let _ = postcard::from_bytes::<Control>(bytes);
}

/// A frame in a stream.
pub fn framed(frame: &Frame) -> Vec<u8> {
    let bytes = postcard::to_allocvec(frame).expect("it has a length");
    [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
}

fn frames_seeds() -> Seeds {
    let enroll = Request::Enroll { version: 5, started_as: Some(1), name: "a".into() };
    let request = |request| framed(&Frame { id: 1, request });
    let both = [request(enroll), request(Request::Config)].concat();
    let answer = Control::Answer(1, Ok(Answer::Hosts(vec![place(1).info])));
    let notice = Control::Notice(Notice::Gone(Tid::task(1, 7)));
    let control = |control| postcard::to_allocvec(&control).expect("it has a length");
    let join = Request::Group(GroupRequest::Join("g".into()));
    numbered([both, request(join), control(answer), control(notice)])
}

pub const MESSAGE: Target = Target {
    name: "pvm_message",
    reads: "the data of PVM's messages: every call that unpacks",
    run: message,
    seeds: message_seeds,
};

const KINDS: [Kind; 11] = [
    Kind::Byte,
    Kind::Short,
    Kind::Int,
    Kind::Long,
    Kind::UShort,
    Kind::UInt,
    Kind::ULong,
    Kind::Float,
    Kind::Double,
    Kind::Complex,
    Kind::DoubleComplex,
];

fn no_clock() -> (i32, i32) {
    (0, 0)
}

/// Calls that unpack, as an input gives them. `bytes` is the length of the message.
fn unpack(buffers: &mut Buffers, input: &mut Input<'_>, id: i32, bytes: usize) {
    for _ in 0..64 {
        if input.is_empty() {
            return;
        }
        match input.byte() % 16 {
            11 => {
                // Longer than any string that the message can hold.
                let mut room = vec![0; 2 * bytes + 64];
                // SAFETY: room for all of the message.
                let _ = unsafe { buffers.unpack_string(room.as_mut_ptr()) };
            }
            12 => {
                if let Ok(inner) = buffers.unpack_message() {
                    buffers.freebuf(inner).expect("it was given to us");
                }
            }
            13 => {
                // From the start again.
                let _ = (buffers.setsbuf(id), buffers.setrbuf(id));
            }
            kind => {
                let kind = KINDS[usize::from(kind) % KINDS.len()];
                let (count, stride) =
                    (usize::from(input.byte() % 64), 1 + input.byte() as usize % 3);
                let mut array = vec![0; (count * stride).max(1) * kind.size()];
                let (room, count, stride) = (array.as_mut_ptr(), count as i32, stride as i32);
                // SAFETY: the array has `count × stride` items and outlives the call.
                let mut target = unsafe { Items::new(kind, room, count, stride) };
                let _ = buffers.unpack(&mut target);
            }
        }
    }
}

fn message(bytes: &[u8]) {
    let mut input = Input(bytes);
    let encoding = [XDR, TRACE, signature(), 0x20c_ffff][usize::from(input.byte() % 4)];
    let mut pieces = Vec::new();
    for _ in 0..input.byte() % 8 {
        pieces.push(input.bytes().to_vec());
    }
    let mut buffers = Buffers::new(1, no_clock);
    let length = pieces.iter().map(Vec::len).sum();
    let fragments = pieces.into_iter().map(Fragment::full).collect();
    let message = Message::received(Header::default(), encoding, fragments, 4080);
    let Ok(id) = buffers.receive(message) else { return };
    unpack(&mut buffers, &mut input, id, length);
}

fn message_seeds() -> Seeds {
    let packed = |encoding: i32, number: u8| {
        let mut buffers = Buffers::new(1, no_clock);
        buffers.initsend(encoding).expect("an encoding");
        buffers.pack_string(c"a string").expect("packed");
        let numbers = [1.5f64, -2.0, 3.25];
        // SAFETY: the array has three items and outlives the call.
        let source = unsafe { Source::new(Kind::Double, numbers.as_ptr().cast(), 3, 1) };
        buffers.pack(&source).expect("packed");
        let inner = buffers.mkbuf(encoding).expect("a buffer");
        buffers.pack_message(inner).expect("packed");
        let message = buffers.sending().expect("active");
        let bytes: Vec<u8> =
            message.fragments().iter().flat_map(Fragment::bytes).copied().collect();
        let (one, two) = bytes.split_at(bytes.len() / 8 * 4);
        let output = Output::default().raw(&[number, 2]).bytes(one).bytes(two);
        output.raw(&[11, 8, 3, 0, 12, 13, 11, 0, 40, 1]).0
    };
    numbered([packed(PvmDataDefault, 0), packed(PvmDataRaw, 2), packed(PvmDataRaw, 3)])
}

pub const INTAKE: Target = Target {
    name: "pvm_intake",
    reads: "messages that arrive at PVM's library: whole, split, in parts, and of the daemon",
    run: intake,
    seeds: intake_seeds,
};

/// The host of the task.
const HOST: u16 = 1;

fn intake(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut buffers = Buffers::new(Tid::task(HOST, 1).as_int(), no_clock);
    let mut intake = Intake::new(HOST, Handlers::default());
    while !input.is_empty() {
        let senders = [PVMD, Tid::daemon(HOST), Tid::task(HOST, 7), Tid::task(2, 1)];
        let what = input.byte();
        let sender = senders[usize::from(what >> 4) % senders.len()];
        let head = input.bytes();
        match what % 4 {
            0 => drop(intake.take_whole(sender, head.to_vec(), &mut buffers)),
            1 => {
                let data = input.bytes().to_vec();
                intake.take_far(sender, head, data, &mut buffers);
            }
            2 => intake.gone(|tid| tid == sender, &mut buffers),
            _ => {
                if let Ok(mut reader) = Reader::new(head) {
                    while !reader.is_at_end() && reader.int().is_ok() && reader.string().is_ok() {}
                }
                let _ = parcel::addressee(head);
            }
        }
    }
    // The program receives and unpacks all.
    for id in std::mem::take(&mut intake.arrived) {
        let message = buffers.take(id).expect("it has arrived");
        let length = message.fragments().iter().map(Fragment::len).sum();
        if let Ok(id) = buffers.receive(message) {
            unpack(&mut buffers, &mut Input(&[0, 9, 0, 2, 3, 1, 11, 13, 12, 11]), id, length);
        }
    }
}

/// A message in XDR from one task to another.
pub fn sent(from: Tid, number: u32, fragments: &[&[u8]]) -> Vec<u8> {
    let header = Header { source: from.as_int(), tag: 3, ..Header::default() };
    let count = fragments.len() as u32;
    let envelope =
        Envelope { what: What::Message, header, number, encoding: XDR, fragments: count };
    let lengths = fragments.iter().map(|fragment| (fragment.len() as u32).to_le_bytes());
    let table = if count == 1 { Vec::new() } else { lengths.collect::<Vec<_>>().concat() };
    [&envelope.to_bytes()[..], &table, &fragments.concat()].concat()
}

fn intake_seeds() -> Seeds {
    let from = Tid::task(HOST, 7);
    let one = sent(from, 2, &[&[0, 0, 0, 9]]);
    let first = sent(from, 1, &[&[0, 0, 0, 1], &[0, 0, 0, 4, b'a', b'b', b'c', 0]]);
    let order = Output::default().raw(&[0x20]).bytes(&one).raw(&[0x20]).bytes(&first).0;
    let (head, data) = first.split_at(SIZE + 8);
    let far = Output::default().raw(&[0x21]).bytes(head).bytes(data).raw(&[0x22]).bytes(&[]).0;
    let control = Control::Notice(Notice::HostGone(2));
    let control = postcard::to_allocvec(&control).expect("it has a length");
    let control = parcel::control(Tid::task(HOST, 1), &control);
    let daemon = Output::default().raw(&[0]).bytes(&control).0;
    let data = parcel::Data::default().int(7).string("a text").parcel(from);
    let parcel = Output::default().raw(&[3]).bytes(&data).0;
    let (source, destination) = (from.as_int(), Tid::task(HOST, 1).as_int());
    let part = Part { source, destination, serial: 1, offset: 0, total: 9 };
    let part = [&part.to_bytes()[..], &[1; 4]].concat();
    let part = Output::default().raw(&[0x20]).bytes(&part).0;
    numbered([order, far, daemon, parcel, part])
}
