//! Random changes to inputs, for runs without libFuzzer. A seed gives the same inputs again.

use fastrand::Rng;

/// Longest mutated input.
const BYTES_MAX: usize = 4096;
/// Numbers at which parsers break.
const NUMBERS: [u64; 12] = [
    0,
    1,
    4095,
    4096,
    0x7f,
    0xff,
    0x7fff_ffff,
    0xffff_ffff,
    1 << 47,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Returns a mutation of an input of the corpus.
pub fn mutate(corpus: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = corpus.get(random.usize(..corpus.len().max(1))).cloned().unwrap_or_default();
    for _ in 0..1 << random.u32(0..5) {
        change(&mut bytes, corpus, random);
    }
    bytes.truncate(BYTES_MAX);
    bytes
}

fn change(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Rng) {
    let length = bytes.len();
    let at = random.usize(..=length);
    let part = |random: &mut Rng| {
        let end = length.min(at + 1 + random.usize(..32));
        at..end
    };
    match random.u32(..9) {
        0 if at < length => bytes[at] ^= 1 << random.u32(..8),
        1 if at < length => bytes[at] = random.u8(..),
        2 if at < length => bytes[at] = bytes[at].wrapping_add(random.u8(..16)).wrapping_sub(8),
        3 => {
            let number = NUMBERS[random.usize(..NUMBERS.len())].to_le_bytes();
            let size = [1, 2, 4, 8][random.usize(..4)];
            let end = length.min(at + size);
            bytes.splice(at..end, number[..size].iter().copied());
        }
        4 => drop(bytes.drain(part(random))),
        5 => {
            let copy = bytes[part(random)].to_vec();
            bytes.splice(at..at, copy);
        }
        6 => {
            let new: Vec<u8> = (0..1 + random.usize(..16)).map(|_| random.u8(..)).collect();
            bytes.splice(at..at, new);
        }
        7 => {
            let other = &corpus[random.usize(..corpus.len().max(1)) % corpus.len().max(1)];
            let from = random.usize(..=other.len());
            let to = random.usize(from..=other.len());
            bytes.splice(at..at, other[from..to].iter().copied());
        }
        _ => bytes.truncate(at),
    }
}
