//! What must hold of every message, without stock PVM: what is packed comes back, and no
//! bytes that come make us panic or read beyond them.

use proptest::prelude::*;
use pvm::buffers::Buffers;
use pvm::constants::{PvmDataDefault, PvmDataInPlace, PvmDataRaw};
use pvm::error::Error;
use pvm::fragment::Fragment;
use pvm::items::{Kind, Source, Target};
use pvm::message::{Header, Message};
use pvm::signature::{TRACE, XDR, signature};

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

/// Packs, as one message, and moves it to the receive side in fragments of at most `cut`
/// words.
fn sent(buffers: &mut Buffers, cut: usize) {
    let message = buffers.sending().expect("active");
    message.address(2, 3);
    let whole: Vec<u8> = message.fragments().iter().flat_map(Fragment::bytes).copied().collect();
    let fragments = whole.chunks(cut * 4).map(|piece| Fragment::full(piece.to_vec()));
    let (header, encoding) = (message.header, message.encoding_sent());
    let message = Message::received(header, encoding, fragments.collect(), 4080);
    buffers.receive(message).expect("received");
}

/// Unpacks `count` items with the stride; `None` for what was not written.
fn unpacked(
    buffers: &mut Buffers,
    kind: Kind,
    count: usize,
    stride: usize,
) -> Result<Vec<u8>, Error> {
    let mut array = vec![0xaa; (count * stride).max(1) * kind.size()];
    // SAFETY: the array has `count × stride` items and outlives the call.
    let mut target = unsafe { Target::new(kind, array.as_mut_ptr(), count as i32, stride as i32) };
    buffers.unpack(&mut target)?;
    let lead = stride * kind.size();
    let items = (0..count).flat_map(|i| array[i * lead..i * lead + kind.size()].to_vec());
    Ok(items.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packed_values_unpack_to_the_same(
        runs in prop::collection::vec(
            (prop::sample::select(&KINDS[..]), 0usize..300, 1usize..4, 1usize..4), 1..8),
        encoding in prop::sample::select(vec![PvmDataDefault, PvmDataRaw, PvmDataInPlace]),
        cut in 2usize..1100,
        fragment_size in 64usize..5000,
        bytes in prop::collection::vec(any::<u8>(), 300 * 16 * 3),
    ) {
        let mut bytes = bytes;
        if encoding == PvmDataDefault {
            // What XDR carries of a long.
            for long in bytes.chunks_exact_mut(8) {
                long[3] &= 0x7f;
                long[4..].fill(0);
            }
        }
        let mut buffers = Buffers::new(1, no_clock);
        buffers.fragment_size = fragment_size & !3;
        buffers.initsend(encoding).expect("an encoding");
        for &(kind, count, stride, _) in &runs {
            let stride = if encoding == PvmDataInPlace { 1 } else { stride };
            // SAFETY: 300 items of 16 bytes with a stride of 3 are there, until the end.
            let source = unsafe { Source::new(kind, bytes.as_ptr(), count as i32, stride as i32) };
            buffers.pack(&source).expect("packed");
        }
        // In place, messages are cut between items; XDR between words.
        let cut = if encoding == PvmDataDefault { cut } else { cut * 4 };
        sent(&mut buffers, cut);
        for &(kind, count, from, to) in &runs {
            let from = if encoding == PvmDataInPlace { 1 } else { from };
            let lead = from * kind.size();
            let packed: Vec<u8> = (0..count)
                .flat_map(|i| bytes[i * lead..i * lead + kind.size()].to_vec())
                .collect();
            prop_assert_eq!(unpacked(&mut buffers, kind, count, to), Ok(packed));
        }
        prop_assert_eq!(unpacked(&mut buffers, Kind::Byte, 1, 1), Err(Error::NoData));
    }

    #[test]
    fn no_bytes_make_us_panic(
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6),
        encoding in prop::sample::select(vec![XDR, TRACE, signature(), 0x20c_ffff]),
        calls in prop::collection::vec((0usize..16, 0usize..30, 1usize..3), 1..20),
    ) {
        let mut buffers = Buffers::new(1, no_clock);
        let available: usize = pieces.iter().map(Vec::len).sum();
        let fragments = pieces.into_iter().map(Fragment::full).collect();
        let message = Message::received(Header::default(), encoding, fragments, 4080);
        let id = buffers.receive(message).expect("received");
        for (call, count, stride) in calls {
            match call {
                11 => {
                    // Longer than any string that the message can hold.
                    let mut room = vec![0; 2 * available + 64];
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
                    buffers.setsbuf(id).expect("ours");
                    buffers.setrbuf(id).expect("ours");
                }
                14 => {
                    buffers.setsbuf(id).expect("ours");
                    let number = 5i32;
                    // SAFETY: one int, which outlives the call.
                    let one = unsafe { Source::new(Kind::Int, (&raw const number).cast(), 1, 1) };
                    let _ = buffers.pack(&one);
                    buffers.setrbuf(id).expect("ours");
                }
                15 => {
                    let into = buffers.mkbuf(PvmDataRaw).expect("a buffer");
                    buffers.setsbuf(into).expect("ours");
                    buffers.pack_message(id).expect("any message can be nested");
                    buffers.freebuf(into).expect("ours");
                }
                kind => {
                    let _ = unpacked(&mut buffers, KINDS[kind], count, stride);
                }
            }
        }
    }
}

#[test]
fn wrong_numbers_of_buffers_are_errors() {
    let mut buffers = Buffers::new(1, no_clock);
    assert_eq!(buffers.mkbuf(77), Err(Error::BadParam));
    assert_eq!(buffers.freebuf(-1), Err(Error::BadParam));
    assert_eq!(buffers.freebuf(0), Ok(()));
    assert_eq!(buffers.freebuf(3), Err(Error::NoSuchBuf));
    assert_eq!(buffers.setsbuf(i32::MAX), Err(Error::NoSuchBuf));
    assert_eq!(buffers.info(0), Err(Error::BadParam));
    assert_eq!(buffers.sending().map(|_| ()), Err(Error::NoBuf));
    assert_eq!(buffers.pack_message(1), Err(Error::NoSuchBuf));
}

#[test]
fn a_message_has_a_longest_length() {
    let mut buffers = Buffers::new(1, no_clock);
    buffers.initsend(PvmDataInPlace).expect("a buffer");
    // SAFETY: refused before anything is read.
    let source = unsafe { Source::new(Kind::Double, std::ptr::dangling(), i32::MAX, 1) };
    assert_eq!(buffers.pack(&source), Err(Error::NoMem));
}
