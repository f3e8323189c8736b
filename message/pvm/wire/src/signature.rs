//! Data signatures: how a machine represents numbers. Raw messages carry their sender's, and
//! only machines with the same one read them.

use crate::items::Kind;

/// Bits of an integer's representation: log2 of the size, then 2 bits of byte order.
fn integer(size: usize, big_endian: bool) -> i32 {
    size.ilog2() as i32 | if big_endian { 3 << 3 } else { 0 }
}

/// This machine's signature: `short` from bit 0, `int` from bit 5, `long` from bit 10,
/// `float` from bit 15, `double` from bit 21; formats 1 and 2 are IEEE single and double.
pub fn signature() -> i32 {
    let big = cfg!(target_endian = "big");
    let float_order = if big { 3 << 4 } else { 0 };
    integer(Kind::Short.size(), big)
        | integer(Kind::Int.size(), big) << 5
        | integer(Kind::Long.size(), big) << 10
        | (1 | float_order) << 15
        | (2 | float_order) << 21
}

/// What a message carries that is encoded in XDR.
pub const XDR: i32 = 0x1000_0000;
/// What a message carries that lies in its sender's memory; sent, it is raw.
pub const IN_PLACE: i32 = 0x2000_0000;
/// What a trace event carries.
pub const TRACE: i32 = 0x4000_0000;

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_is_what_stock_pvm_says() {
        #[cfg(target_arch = "x86_64")]
        assert_eq!(super::signature(), 0x40_8c41);
    }
}
