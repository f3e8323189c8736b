//! Trace encoding: XDR with a word for the type before each array and, for more than one item, a
//! word for the count. A header marks a user-defined event and has its time. The numbers are
//! those of `pvmtev.h`.

use crate::error::Error;
use crate::items::{Kind, Source};
use crate::message::Message;
use crate::xdr;

const USER_EVENT: i32 = -9;
const USER_EVENT_END: i32 = -10;
const USER_DEFINED: i32 = 108;
const USER_DEFINED_NAME: &[u8] = b"user_defined\0";
const ARRAY: i32 = 0x80;

fn type_of(kind: Kind) -> i32 {
    match kind {
        Kind::Byte => 1,
        Kind::Complex => 2,
        Kind::DoubleComplex => 3,
        Kind::Double => 4,
        Kind::Float => 5,
        Kind::Int | Kind::UInt => 6,
        Kind::Long => 8,
        Kind::ULong => 9,
        Kind::Short | Kind::UShort => 10,
    }
}

fn put(message: &mut Message, number: i32) {
    // SAFETY: `number` is one `int` and outlives `source`; XDR copies it.
    let source = unsafe { Source::new(Kind::Int, (&raw const number).cast(), 1, 1) };
    xdr::pack(message, &source).expect("an int fits");
}

/// Packs the header; `seconds` and `microseconds` count from 1970.
pub(crate) fn begin(message: &mut Message, (seconds, microseconds): (i32, i32)) {
    put(message, USER_EVENT);
    put(message, USER_DEFINED);
    put(message, USER_DEFINED_NAME.len() as i32);
    // SAFETY: `USER_DEFINED_NAME` is static and has `count` bytes.
    let name = unsafe {
        let count = USER_DEFINED_NAME.len() as i32;
        Source::new(Kind::Byte, USER_DEFINED_NAME.as_ptr(), count, 1)
    };
    xdr::pack(message, &name).expect("bytes fit");
    put(message, seconds);
    put(message, microseconds);
}

/// Packs the end marker.
pub(crate) fn end(message: &mut Message) {
    put(message, USER_EVENT_END);
}

pub(crate) fn pack(message: &mut Message, source: &Source) -> Result<(), Error> {
    match source.len() {
        0 => return Ok(()),
        1 => put(message, type_of(source.kind)),
        n => {
            put(message, type_of(source.kind) | ARRAY);
            put(message, n as i32);
        }
    }
    xdr::pack(message, source)
}

#[cfg(test)]
mod tests {
    use crate::buffers::Buffers;
    use crate::constants::PvmDataTrace;
    use crate::items::{Kind, Source};

    /// The words that stock PVM 3.4.6 sends, with another time.
    #[test]
    fn an_event_is_what_stock_pvm_sends() {
        let mut buffers = Buffers::new(1, || (0x6b01_5275, 0x3_0a89));
        buffers.initsend(PvmDataTrace).expect("a buffer");
        let numbers = [7i32, 8];
        // SAFETY: the numbers outlive the source.
        let source = unsafe { Source::new(Kind::Int, numbers.as_ptr().cast(), 2, 1) };
        buffers.pack(&source).expect("packed");
        buffers.pack_string(c"abc").expect("packed");
        let mut words = Vec::new();
        for fragment in buffers.sending().expect("active").fragments() {
            for word in fragment.bytes().chunks_exact(4) {
                words.push(u32::from_be_bytes(word.try_into().expect("4 bytes")));
            }
        }
        let expected = [
            0xffff_fff7,
            0x6c,
            0xd,
            0x7573_6572,
            0x5f64_6566,
            0x696e_6564,
            0,
            0x6b01_5275,
            0x3_0a89,
            0x86,
            2,
            7,
            8,
            0x81,
            3,
            0x6162_6300,
        ];
        assert_eq!(words, expected);
    }
}
