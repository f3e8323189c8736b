//! XDR encoding (RFC 4506), as in libpvm 3.4.6. Integers of up to 32 bits and floats take 4
//! bytes, most significant first; doubles take 8. The bytes of *each call* are padded to 4. A
//! `long` is reduced to its low 32 bits, mostly without an error, and is unpacked without its
//! sign. libpvm does the same with libtirpc, with which all current builds are linked.
//!
//! A packed item never spans two fragments. A transfer may cut fragments between any two words,
//! so a double may have to be reassembled.

use crate::error::Error;
use crate::items::{Kind, Source, Target};
use crate::message::{Message, Position};
use crate::raw;

const WORD: usize = 4;

fn padded(size: usize) -> usize {
    size.next_multiple_of(WORD)
}

/// Errors: Overflow, but only for a long that loses bits when the fragment is full, as in
/// libpvm.
pub(crate) fn pack(message: &mut Message, source: &Source) -> Result<(), Error> {
    match source.kind {
        Kind::Byte => {
            pack_bytes(message, source);
            return Ok(());
        }
        Kind::Double | Kind::DoubleComplex => {
            put_array::<8>(message, source);
            return Ok(());
        }
        Kind::Short | Kind::UShort => {
            for i in 0..source.len() {
                let short = i16::from_ne_bytes(source.item(i).try_into().expect("2 bytes"));
                put(message, &i32::from(short).to_ne_bytes());
            }
        }
        Kind::Long | Kind::ULong => {
            for i in 0..source.len() {
                let long = i64::from_ne_bytes(source.item(i).try_into().expect("8 bytes"));
                let fits = match source.kind {
                    Kind::Long => i32::try_from(long).is_ok(),
                    _ => u32::try_from(long).is_ok(),
                };
                if !fits && room(message) < WORD {
                    let at = message.xdr.at;
                    message.last().set_len(at);
                    return Err(Error::Overflow);
                }
                put(message, &(long as i32).to_ne_bytes());
            }
        }
        Kind::Int | Kind::UInt | Kind::Float | Kind::Complex => {
            put_array::<WORD>(message, source);
        }
    }
    // Also without items: a message whose packing restarts is truncated here.
    let at = message.xdr.at;
    message.last().set_len(at);
    Ok(())
}

/// Returns the room in the current fragment, in bytes.
fn room(message: &Message) -> usize {
    let Position { fragment, at } = message.xdr;
    message.fragments[fragment].capacity().saturating_sub(at)
}

/// Writes numbers of `N` bytes; an item has one or two of them.
fn put_array<const N: usize>(message: &mut Message, source: &Source) {
    if source.contiguous() {
        put_all::<N>(message, source.all());
    } else {
        for i in 0..source.len() {
            put_all::<N>(message, source.item(i));
        }
    }
}

/// Writes one number.
fn put<const N: usize>(message: &mut Message, number: &[u8; N]) {
    put_all::<N>(message, number);
}

/// Writes numbers of `N` bytes, as many at once as the current fragment has room for. Adds a
/// fragment if there is no room for a number.
fn put_all<const N: usize>(message: &mut Message, mut numbers: &[u8]) {
    while !numbers.is_empty() {
        if room(message) < N {
            if N == WORD {
                let at = message.xdr.at;
                message.last().set_len(at);
            }
            message.extend();
            message.xdr = Position { fragment: message.fragments.len() - 1, at: 0 };
        }
        let (now, later) = numbers.split_at(numbers.len().min(room(message) / N * N));
        let Position { fragment, at } = message.xdr;
        message.fragments[fragment].write_with(at, now.len(), |to| turn::<N>(now, to));
        message.xdr.at += now.len();
        let at = message.xdr.at;
        message.last().set_len(at);
        numbers = later;
    }
}

/// Reverses the bytes of each number on little-endian machines, for packing and unpacking.
fn turn<const N: usize>(from: &[u8], to: &mut [u8]) {
    for (from, to) in from.chunks_exact(N).zip(to.chunks_exact_mut(N)) {
        to.copy_from_slice(from);
        if cfg!(target_endian = "little") {
            to.reverse();
        }
    }
}

fn pack_bytes(message: &mut Message, source: &Source) {
    let fragments = message.fragments.len();
    raw::pack(message, source);
    if message.fragments.len() != fragments {
        message.xdr.fragment = message.fragments.len() - 1;
    }
    let len = padded(message.last().len());
    message.last().set_len(len);
    if len <= message.fragments[message.xdr.fragment].capacity() {
        message.xdr.at = len;
    }
}

pub(crate) fn unpack(message: &mut Message, target: &mut Target) -> Result<(), Error> {
    if target.kind == Kind::Byte {
        return unpack_bytes(message, target);
    }
    message.settle_at(message.cursor)?;
    message.settle_at(message.xdr)?;
    match target.kind {
        Kind::Double | Kind::DoubleComplex => return unpack_doubles(message, target),
        _ => {}
    }
    let result = unpack_words(message, target);
    message.cursor.at = message.xdr.at;
    result
}

fn unpack_doubles(message: &mut Message, target: &mut Target) -> Result<(), Error> {
    let halves = target.kind.size() / 8;
    let mut done = 0;
    while done < target.len() * halves {
        if target.contiguous() {
            done += take_all::<8>(message, target, done);
            message.cursor.at = message.xdr.at;
            if done == target.len() * halves {
                break;
            }
        }
        let (i, at) = (done / halves, done % halves * 8);
        if let Some(word) = high_word(message) {
            // As in libpvm, this half of the target changes even if the rest is missing.
            let high = if cfg!(target_endian = "little") { WORD } else { 0 };
            target.write(i, at + high, &word.to_ne_bytes());
        }
        let double = f64::from_bits(u64::from_be_bytes(get(message)?));
        message.cursor.at = message.xdr.at;
        target.write(i, at, &double.to_ne_bytes());
        done += 1;
    }
    Ok(())
}

fn unpack_words(message: &mut Message, target: &mut Target) -> Result<(), Error> {
    let words = match target.kind {
        Kind::Complex => 2,
        _ => 1,
    };
    let as_they_are = target.kind.size() == words * WORD && target.contiguous();
    let mut done = 0;
    while done < target.len() * words {
        if as_they_are {
            done += take_all::<WORD>(message, target, done);
            if done == target.len() * words {
                break;
            }
        }
        let (i, at) = (done / words, done % words * WORD);
        let word = u32::from_be_bytes(get(message)?);
        match target.kind {
            Kind::Short | Kind::UShort => target.write(i, 0, &(word as u16).to_ne_bytes()),
            Kind::Long | Kind::ULong => target.write(i, 0, &u64::from(word).to_ne_bytes()),
            _ => target.write(i, at, &word.to_ne_bytes()),
        }
        done += 1;
    }
    Ok(())
}

/// Reads numbers of `N` bytes from the current fragment into an array with stride 1, after the
/// first `done`. Returns the count.
fn take_all<const N: usize>(message: &mut Message, target: &mut Target, done: usize) -> usize {
    let wanted = target.len() * (target.kind.size() / N) - done;
    let count = wanted.min(message.left(message.xdr) / N);
    let Position { fragment, at } = message.xdr;
    if count == 0 {
        return 0;
    }
    let bytes = &message.fragments[fragment].bytes()[at..at + count * N];
    let (offset, size) = (done * N, target.kind.size());
    target.write_with(offset / size, offset % size, bytes.len(), |to| turn::<N>(bytes, to));
    message.xdr.at += count * N;
    count
}

/// Reads one number.
fn get<const N: usize>(message: &mut Message) -> Result<[u8; N], Error> {
    if message.left(message.xdr) < N {
        if N == WORD {
            message.cursor.at = message.xdr.at;
        } else if message.left(message.xdr) >= WORD {
            // The first half is lost if the second is missing.
            message.xdr.at += WORD;
        }
        step(message)?;
        if message.left(message.xdr) < N {
            return Err(Error::NoData);
        }
    }
    let Position { fragment, at } = message.xdr;
    message.xdr.at += N;
    let bytes = &message.fragments[fragment].bytes()[at..at + N];
    Ok(bytes.try_into().expect("N bytes"))
}

/// Returns the high word of a double whose low word is not in the same fragment.
fn high_word(message: &Message) -> Option<u32> {
    let Position { fragment, at } = message.xdr;
    let rest = message.fragments.get(fragment)?.bytes().get(at..)?;
    let word = rest.get(..WORD).filter(|_| rest.len() < 2 * WORD)?;
    Some(u32::from_be_bytes(word.try_into().expect("4 bytes")))
}

/// Moves to the next fragment, and prepends the rest of the current one to it.
fn step(message: &mut Message) -> Result<(), Error> {
    let left = match message.fragments.get(message.cursor.fragment) {
        Some(fragment) => fragment.bytes().get(message.cursor.at..).unwrap_or_default().to_vec(),
        None => Vec::new(),
    };
    message.next_fragment()?;
    message.settle_at(message.cursor)?;
    if !left.is_empty() {
        message.fragments[message.cursor.fragment].prepend(&left);
    }
    message.xdr = message.cursor;
    Ok(())
}

fn unpack_bytes(message: &mut Message, target: &mut Target) -> Result<(), Error> {
    let fragment = message.cursor.fragment;
    raw::unpack(message, target)?;
    if message.cursor.fragment != fragment {
        message.xdr = Position { fragment: message.cursor.fragment, at: 0 };
    }
    message.cursor.at = padded(message.cursor.at);
    let xdr_len = message.left(Position { fragment: message.xdr.fragment, at: 0 });
    if message.cursor.at <= xdr_len {
        message.xdr.at = message.cursor.at;
    }
    Ok(())
}
