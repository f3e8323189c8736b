//! Data signatures: a machine's representation of numbers. A raw message carries its sender's
//! signature, and only machines with the same signature can read it.

use crate::items::Kind;

/// Returns the bits of an integer's representation: log2 of the size, then 2 bits of byte order.
fn integer(size: usize, big_endian: bool) -> i32 {
    size.ilog2() as i32 | if big_endian { 3 << 3 } else { 0 }
}

/// Returns this machine's signature: `short` from bit 0, `int` from bit 5, `long` from bit 10,
/// `float` from bit 15, `double` from bit 21. Formats 1 and 2 are IEEE single and double.
pub fn signature() -> i32 {
    let big = cfg!(target_endian = "big");
    let float_order = if big { 3 << 4 } else { 0 };
    integer(Kind::Short.size(), big)
        | integer(Kind::Int.size(), big) << 5
        | integer(Kind::Long.size(), big) << 10
        | (1 | float_order) << 15
        | (2 | float_order) << 21
}

/// Encoding of a message in XDR.
pub const XDR: i32 = 0x1000_0000;
/// Encoding of a message in its sender's memory; it becomes raw when sent.
pub const IN_PLACE: i32 = 0x2000_0000;
/// Encoding of a trace event.
pub const TRACE: i32 = 0x4000_0000;

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_is_what_stock_pvm_says() {
        #[cfg(target_arch = "x86_64")]
        assert_eq!(super::signature(), 0x40_8c41);
    }
}
