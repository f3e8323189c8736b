//! Diffs: the changes of pages, as runs of bytes that differ from the page's twin.
//!
//! A body is a sequence of diffs. Each has the page number and its length in bytes, and for each
//! run the offset, the length and the bytes. Runs are exact to the byte. Two nodes may change
//! neighbouring bytes of a page concurrently, and neither change may overwrite the other.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::message::Page;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    page: U64,
    bytes: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RunHead {
    at: U32,
    bytes: U32,
}

/// Number of bytes that are compared at once.
const WORD: usize = 32;

/// Appends the diff of `page` from `twin` to `now` to `body`. Returns the number of changed bytes.
/// Appends nothing if no byte changed. `twin` and `now` must have the same length.
pub fn append(body: &mut Vec<u8>, page: Page, twin: &[u8], now: &[u8]) -> usize {
    assert_eq!(twin.len(), now.len(), "a twin is as long as its page");
    let start = body.len();
    body.extend_from_slice(Head { page: page.into(), bytes: 0.into() }.as_bytes());
    let mut changed = 0;
    let mut at = next(twin, now, 0, false);
    while at < now.len() {
        let end = next(twin, now, at, true);
        let run = RunHead { at: (at as u32).into(), bytes: ((end - at) as u32).into() };
        body.extend_from_slice(run.as_bytes());
        body.extend_from_slice(&now[at..end]);
        changed += end - at;
        at = next(twin, now, end, false);
    }
    if changed == 0 {
        body.truncate(start);
        return 0;
    }
    let bytes = (body.len() - start - size_of::<Head>()) as u32;
    body[start + 8..start + 12].copy_from_slice(&bytes.to_le_bytes());
    changed
}

/// Returns the size of an encoded diff with runs of these lengths. Returns 0 if there are no runs.
pub fn size(runs: impl Iterator<Item = usize>) -> usize {
    let runs: usize = runs.map(|bytes| size_of::<RunHead>() + bytes).sum();
    if runs == 0 { 0 } else { size_of::<Head>() + runs }
}

/// Returns the first offset from `at` at which `twin` and `now` are equal (or differ, if `equal` is
/// false), or the length.
fn next(twin: &[u8], now: &[u8], mut at: usize, equal: bool) -> usize {
    while !equal && at + WORD <= now.len() && twin[at..at + WORD] == now[at..at + WORD] {
        at += WORD;
    }
    let differ = twin[at..].iter().zip(&now[at..]).position(|(old, new)| (old == new) == equal);
    differ.map_or(now.len(), |places| at + places)
}

/// The error for a malformed body of diffs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Splits a body into pages, each with its encoded runs for [`apply`]. Checks the whole body for
/// pages of `size` bytes before it returns any.
pub fn pages(body: &[u8], size: usize) -> Result<Vec<(Page, &[u8])>, Malformed> {
    let mut pages = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (head, after) = Head::ref_from_prefix(rest).map_err(|_| Malformed)?;
        let (runs, after) = after.split_at_checked(head.bytes.get() as usize).ok_or(Malformed)?;
        let mut left = runs;
        while !left.is_empty() {
            let (at, bytes, after) = run(left).ok_or(Malformed)?;
            if at.checked_add(bytes.len()).is_none_or(|end| end > size) || bytes.is_empty() {
                return Err(Malformed);
            }
            left = after;
        }
        pages.push((head.page.get(), runs));
        rest = after;
    }
    Ok(pages)
}

/// Applies runs that [`pages`] returned to `page`.
pub fn apply(runs: &[u8], page: &mut [u8]) {
    each(runs, |at, bytes| page[at..at + bytes.len()].copy_from_slice(bytes));
}

/// Calls `change` for each of the runs that [`pages`] returned. Use this for memory that programs
/// write concurrently, which no slice may refer to.
pub fn each(mut runs: &[u8], mut change: impl FnMut(usize, &[u8])) {
    while let Some((at, bytes, rest)) = run(runs) {
        change(at, bytes);
        runs = rest;
    }
}

fn run(runs: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let (head, rest) = RunHead::ref_from_prefix(runs).ok()?;
    let (bytes, rest) = rest.split_at_checked(head.bytes.get() as usize)?;
    Some((head.at.get() as usize, bytes, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn changed(page: &[u8], places: &[(usize, u8)]) -> Vec<u8> {
        let mut page = page.to_vec();
        for &(at, byte) in places {
            page[at] = byte;
        }
        page
    }

    proptest! {
        #[test]
        fn two_nodes_changes_of_one_page_meet(
            twin in proptest::collection::vec(any::<u8>(), 300),
            places in proptest::collection::btree_map(0..300usize, (any::<u8>(), any::<bool>()), 0..60),
        ) {
            let of = |side| places.iter().filter(|place| place.1.1 == side).map(|place| (*place.0, place.1.0)).collect::<Vec<_>>();
            let both = changed(&changed(&twin, &of(true)), &of(false));
            let mut home = twin.clone();
            for side in [true, false] {
                let mut body = Vec::new();
                append(&mut body, 7, &twin, &changed(&twin, &of(side)));
                for (page, runs) in pages(&body, 300).expect("ours") {
                    prop_assert_eq!(page, 7);
                    apply(runs, &mut home);
                }
            }
            prop_assert_eq!(home, both);
        }

        #[test]
        fn no_body_makes_it_panic(body: Vec<u8>, size in 0..300usize) {
            let mut page = vec![0; size];
            for (_, runs) in pages(&body, size).unwrap_or_default() {
                apply(runs, &mut page);
            }
        }
    }

    #[test]
    fn a_body_cut_anywhere_or_too_long_for_the_page_is_refused() {
        let (twin, now) = (vec![0u8; 64], (0..64u8).map(|at| at % 5).collect::<Vec<_>>());
        let mut body = Vec::new();
        assert_eq!(append(&mut body, 1, &twin, &now), 51);
        append(&mut body, 2, &twin, &now);
        let first = body.len() / 2;
        for cut in (1..body.len()).filter(|&cut| cut != first) {
            assert_eq!(pages(&body[..cut], 64), Err(Malformed), "{cut}");
        }
        assert_eq!(pages(&body, 63), Err(Malformed));
        assert_eq!(pages(&body, 64).map(|pages| pages.len()), Ok(2));
    }
}
