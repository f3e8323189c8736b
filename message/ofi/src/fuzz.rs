//! Entry points of the fuzz targets (docs/fuzzing.md): addresses that programs exchange. Nothing
//! else uses them.

use crate::engine::address::{Format, SIZE, Target};

/// Bytes of an address.
pub const ADDRESS_BYTES: usize = SIZE;

/// Reads an address in this provider's format, or returns `None`.
pub fn address(bytes: &[u8; SIZE]) -> Option<()> {
    same(Target::parse(bytes)?);
    Some(())
}

/// Reads an address that is a string, or returns `None`.
pub fn text(text: &str) -> Option<()> {
    same(Target::parse_text(text)?);
    Some(())
}

/// Checks that both formats give the same address back.
fn same(target: Target) {
    let written = target.written(Format::Own);
    let bytes = written.first_chunk().expect("an address has its size");
    assert_eq!(Target::parse(bytes).as_ref(), Some(&target));
    let written = target.written(Format::String);
    let text = written.strip_suffix(&[0]).expect("a string ends with a zero");
    let text = std::str::from_utf8(text).expect("text");
    assert_eq!(Target::parse_text(text), Some(target));
}
