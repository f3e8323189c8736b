//! Messages of sequential consistency: a fixed header, and a body that depends on the operation.
//!
//! All numbers are little endian. Received messages are not trusted: parsing checks their form, and
//! [`Node::step`](super::Node::step) refuses those that violate the protocol.
//!
//! | operation | body |
//! |---|---|
//! | AskRead, AskWrite | runs of pages to prefetch |
//! | GrantRead, GrantWrite | runs of prefetched pages; a bit mask of pages of zeros; page bytes |
//! | Invalidate, Acknowledge | empty |
//!
//! The lowest bit of the mask is the first page. The bytes are those of all other pages: first the
//! requested page, then the prefetched pages.

use std::convert::Infallible;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::message::{NodeId, Page};
use crate::run::{self, Run};

/// Version of the message format. Both sides must use the same; every change of headers or bodies
/// increments it.
pub const VERSION: u8 = 1;

/// Maximum number of pages that a message names. A 64-bit mask marks the pages of zeros.
pub const PAGES_MAX: u32 = u64::BITS;

/// The operation of a message. The numbers are part of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u16)]
pub enum Op {
    /// To the last known owner: `node` requests a copy of the page.
    AskRead = 1,
    /// To the last known owner: `node` requests ownership of the page. `whole` is true if it has a
    /// copy.
    AskWrite = 2,
    /// A copy of the page.
    GrantRead = 3,
    /// Ownership of the page. The receiver may write when the nodes of `set` have acknowledged. If
    /// `whole` is false, the receiver's copy is the page. This also answers a read request for a
    /// page that no task has used.
    GrantWrite = 4,
    /// To a node with a copy: `node` will write the page.
    Invalidate = 5,
    /// To the node that will write the page: the sender's copy is gone.
    Acknowledge = 6,
}

impl Op {
    /// All operations, in the order of their numbers.
    pub const ALL: [Op; 6] =
        [Op::AskRead, Op::AskWrite, Op::GrantRead, Op::GrantWrite, Op::Invalidate, Op::Acknowledge];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Op::AskRead => "ASK_READ",
            Op::AskWrite => "ASK_WRITE",
            Op::GrantRead => "GRANT_READ",
            Op::GrantWrite => "GRANT_WRITE",
            Op::Invalidate => "INVALIDATE",
            Op::Acknowledge => "ACKNOWLEDGE",
        }
    }

    /// Returns true if the message can carry pages.
    fn grants(self) -> bool {
        matches!(self, Op::GrantRead | Op::GrantWrite)
    }
}

/// The header of a message. Fields that an operation does not need are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Header {
    /// The operation.
    pub op: Op,
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The node that requests the page or will write it.
    pub node: NodeId,
    /// The page.
    pub page: Page,
    /// A set of nodes, as a bit mask.
    pub set: u64,
    /// In a request: the requester has a copy. In a grant: the message carries the page's bytes.
    pub whole: bool,
    /// Number of times that a request was forwarded.
    pub hops: u16,
    /// Number of runs at the beginning of the body.
    pub runs: u16,
}

/// The wire format of a header.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
struct Raw {
    op: U16,
    version: u8,
    whole: u8,
    hops: U16,
    runs: U16,
    from: U32,
    to: U32,
    node: U32,
    zero: U32,
    page: U64,
    set: U64,
}

impl Header {
    /// Size of a header in bytes.
    pub const BYTES: usize = size_of::<Raw>();

    /// Encodes the header.
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let raw = Raw {
            op: (self.op as u16).into(),
            version: VERSION,
            whole: self.whole.into(),
            hops: self.hops.into(),
            runs: self.runs.into(),
            from: self.from.into(),
            to: self.to.into(),
            node: self.node.into(),
            zero: 0.into(),
            page: self.page.into(),
            set: self.set.into(),
        };
        zerocopy::transmute!(raw)
    }

    /// Decodes a header. Returns `None` if `bytes` is not a valid header of this version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let raw = Raw::ref_from_bytes(bytes).ok()?;
        if raw.version != VERSION || raw.zero.get() != 0 || raw.whole > 1 {
            return None;
        }
        let op = *Op::ALL.get(usize::from(raw.op.get()).checked_sub(1)?)?;
        Some(Self {
            op,
            from: raw.from.get(),
            to: raw.to.get(),
            node: raw.node.get(),
            page: raw.page.get(),
            set: raw.set.get(),
            whole: raw.whole == 1,
            hops: raw.hops.get(),
            runs: raw.runs.get(),
        })
    }

    /// Returns the number of pages that the message carries, with these prefetched pages.
    fn aboard(&self, rides: &[Run]) -> u64 {
        u64::from(self.whole) + rides.iter().map(|run| run.pages).sum::<u64>()
    }
}

/// The part of a message's body that concerns the protocol: its runs.
pub type Content = Vec<Run>;

/// The pages that a message carries.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    zeros: u64,
    bytes: &'a [u8],
    page_bytes: usize,
}

impl<'a> Pages<'a> {
    /// Returns the bytes of the page with this index, as in [`Action::Fill`](super::Action::Fill).
    /// Returns `None` if the page is all zeros.
    ///
    /// # Panics
    /// The message has no such page.
    pub fn get(&self, place: usize) -> Option<&'a [u8]> {
        self.run(place, 1).1
    }

    /// Returns the length of the first run among `count` pages from index `place` on. Its pages are
    /// either all pages of zeros, or all carried as bytes. In the second case the bytes are
    /// returned too, one page after the other.
    ///
    /// # Panics
    /// The message has no such pages.
    pub fn run(&self, place: usize, count: usize) -> (usize, Option<&'a [u8]>) {
        let here = self.zeros >> place;
        if here & 1 == 1 {
            return (count.min(here.trailing_ones() as usize), None);
        }
        let count = count.min(here.trailing_zeros() as usize);
        let before = place - (self.zeros & ((1 << place) - 1)).count_ones() as usize;
        let bytes = &self.bytes[before * self.page_bytes..];
        (count, Some(&bytes[..count * self.page_bytes]))
    }
}

/// Decodes a body that came with `header`. Returns `None` if it is malformed. `page_bytes` is the
/// page size.
pub fn parse<'a>(
    header: &Header,
    body: &'a [u8],
    page_bytes: usize,
) -> Option<(Content, Pages<'a>)> {
    let (runs, rest) = body.split_at_checked(usize::from(header.runs) * Run::BYTES)?;
    let runs = run::decode(runs, u64::MAX)?;
    let is_named = |pages: u64| pages <= u64::from(PAGES_MAX);
    let named = runs.iter().try_fold(0, |sum: u64, run| sum.checked_add(run.pages))?;
    if !is_named(named) {
        return None;
    }
    if !header.op.grants() {
        let none = Pages { zeros: 0, bytes: &[], page_bytes };
        let asks = matches!(header.op, Op::AskRead | Op::AskWrite);
        return (rest.is_empty() && (asks || runs.is_empty())).then_some((runs, none));
    }
    let aboard = header.aboard(&runs);
    let (zeros, bytes) = U64::ref_from_prefix(rest).ok()?;
    let zeros = zeros.get();
    let beyond = zeros.checked_shr(aboard as u32).unwrap_or(0);
    let full = aboard.checked_sub(u64::from(zeros.count_ones()))?;
    if !is_named(aboard) || beyond != 0 || bytes.len() as u64 != full * page_bytes as u64 {
        return None;
    }
    Some((runs, Pages { zeros, bytes, page_bytes }))
}

/// Decodes a batch of messages, each encoded by [`Body::encode_for_batch`]. Returns `None` if it is
/// malformed, or if a message carries pages.
pub fn parse_batch(mut bytes: &[u8]) -> Option<Vec<(Header, Content)>> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (header, rest) = bytes.split_at_checked(Header::BYTES)?;
        let header = Header::parse(header)?;
        let word = if header.op.grants() { size_of::<U64>() } else { 0 };
        let (body, rest) = rest.split_at_checked(usize::from(header.runs) * Run::BYTES + word)?;
        let (content, _) = parse(&header, body, 0)?;
        if header.op.grants() && header.aboard(&content) > 0 {
            return None;
        }
        messages.push((header, content));
        bytes = rest;
    }
    Some(messages)
}

/// The body of a message to send.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Body {
    /// Pages to prefetch; empty for operations without a body.
    Runs(Vec<Run>),
    /// Page contents.
    Pages {
        /// The requested page, if its bytes are to be sent.
        asked: Option<Page>,
        /// The prefetched pages.
        rides: Vec<Run>,
    },
    /// Pages that no task has used: the requested page, and these prefetched pages. They are sent
    /// as pages of zeros.
    New(Vec<Run>),
}

impl Body {
    /// Returns the runs of the body.
    pub fn runs(&self) -> &[Run] {
        match self {
            Body::Runs(runs) | Body::Pages { rides: runs, .. } | Body::New(runs) => runs,
        }
    }

    /// Returns true if the body carries no pages, so that the message can be batched.
    pub fn is_letter(&self) -> bool {
        match self {
            Body::Runs(_) => true,
            Body::Pages { asked, rides } => asked.is_none() && rides.is_empty(),
            Body::New(_) => false,
        }
    }

    /// Encodes header and body for a batch: see [`parse_batch`]. The body must carry no pages.
    pub fn encode_for_batch(&self, header: &Header) -> Vec<u8> {
        let mut bytes = header.bytes().to_vec();
        bytes.extend(self.bytes(|_, _| unreachable!("a message of a batch brings no pages")));
        bytes
    }

    /// Encodes the body. `read` appends the bytes of neighbouring pages.
    pub fn bytes(&self, mut read: impl FnMut(Range<Page>, &mut Vec<u8>)) -> Vec<u8> {
        let Ok(bytes) = self.try_bytes(|pages, bytes| {
            read(pages, bytes);
            Ok::<(), Infallible>(())
        });
        bytes
    }

    /// Encodes the body as [`bytes`](Self::bytes) does, with a `read` that may fail.
    ///
    /// # Errors
    /// The first error of `read`. The message must not be sent then.
    pub fn try_bytes<E>(
        &self,
        mut read: impl FnMut(Range<Page>, &mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Vec<u8>, E> {
        let mut bytes = run::encode(self.runs());
        if let Body::Pages { asked, rides } = self {
            let word = bytes.len();
            bytes.extend([0; 8]);
            let (mut zeros, mut place) = (0u64, 0);
            let asked = asked.iter().map(|&page| page..page + 1);
            for pages in joined(asked.chain(rides.iter().map(Run::range))) {
                let (count, before) = ((pages.end - pages.start) as usize, bytes.len());
                read(pages, &mut bytes)?;
                let page_bytes = (bytes.len() - before) / count;
                let mut kept = before;
                for page in 0..count {
                    let from = before + page * page_bytes;
                    if are_zeros(&bytes[from..from + page_bytes]) {
                        zeros |= 1 << (place + page);
                        continue;
                    }
                    if kept < from {
                        bytes.copy_within(from..from + page_bytes, kept);
                    }
                    kept += page_bytes;
                }
                bytes.truncate(kept);
                place += count;
            }
            bytes[word..word + 8].copy_from_slice(&zeros.to_le_bytes());
        } else if let Body::New(runs) = self {
            let pages = 1 + runs.iter().map(|run| run.pages).sum::<u64>();
            bytes.extend((u64::MAX >> (u64::from(PAGES_MAX) - pages)).to_le_bytes());
        }
        Ok(bytes)
    }
}

/// Merges successive ranges that are neighbours.
fn joined(ranges: impl Iterator<Item = Range<Page>>) -> Vec<Range<Page>> {
    let mut joined: Vec<Range<Page>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

fn are_zeros(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().all(|block| *block == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::NOBODY;
    use proptest::prelude::*;

    #[test]
    fn an_operation_s_number_is_its_place() {
        for (at, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!(op as usize, at + 1, "{}", op.name());
        }
    }

    fn header(op: Op, whole: bool, runs: u16) -> Header {
        Header { op, from: 1, to: 2, node: 3, page: 500, set: 0, whole, hops: 0, runs }
    }

    proptest! {
        #[test]
        fn headers_come_as_they_were_sent(op in 0..Op::ALL.len(), from: u32, to: u32, node: u32, page: u64, set: u64, whole: bool, hops: u16, runs: u16) {
            let header = Header { op: Op::ALL[op], from, to, node, page, set, whole, hops, runs };
            prop_assert_eq!(Header::parse(&header.bytes()), Some(header));
        }

        #[test]
        fn pages_come_as_they_were_sent(whole: bool, rides in proptest::collection::btree_map(0..200u64, 0..3u8, 0..20)) {
            const PAGE: usize = 96;
            let runs = run::of(rides.keys().map(|&page| (page, NOBODY)));
            let header = header(Op::GrantRead, whole, runs.len() as u16);
            let body = Body::Pages { asked: whole.then_some(500), rides: runs.clone() };
            let value = |page| rides.get(&page).copied().unwrap_or(9);
            let bytes = body.bytes(|pages, bytes| {
                pages.for_each(|page| bytes.extend([value(page); PAGE]));
            });
            let (content, pages) = parse(&header, &bytes, PAGE).expect("ours");
            prop_assert_eq!(content, runs);
            let all = whole.then_some(500).into_iter().chain(rides.keys().copied());
            let all: Vec<_> = all.collect();
            for (place, &page) in all.iter().enumerate() {
                prop_assert_eq!(pages.get(place).map_or(0, |bytes| bytes[PAGE - 1]), value(page));
            }
            let mut place = 0;
            while place < all.len() {
                let (count, bytes) = pages.run(place, all.len() - place);
                let together = all[place..place + count].iter().flat_map(|&page| [value(page); PAGE]);
                let is_zero = bytes.is_none();
                prop_assert_eq!(together.collect::<Vec<_>>(), bytes.map_or(vec![0; count * PAGE], <[u8]>::to_vec));
                place += count;
                prop_assert!(place == all.len() || is_zero == (value(all[place]) != 0));
            }
            prop_assert!(parse(&header, &bytes[..bytes.len() - 1], PAGE).is_none());
            prop_assert!(parse(&header, &[&bytes[..], &[0]].concat(), PAGE).is_none());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, body in proptest::collection::vec(0..4u8, 0..200), op in 0..Op::ALL.len(), whole: bool, runs in 0..5u16) {
            let _ = Header::parse(&bytes);
            let header = header(Op::ALL[op], whole, runs);
            let _ = parse(&header, &body, 4);
            let _ = parse_batch(&[&header.bytes()[..], &body, &bytes].concat());
        }
    }

    #[test]
    fn unused_pages_arrive_as_zeros() {
        for rides in [0, 7, 63] {
            let runs = run::of((0..rides).map(|page| (501 + page, NOBODY)));
            let header = header(Op::GrantWrite, true, runs.len() as u16);
            let bytes = Body::New(runs).bytes(|_, _| unreachable!("nobody has used them"));
            let (_, pages) = parse(&header, &bytes, 96).expect("ours");
            assert_eq!(pages.run(0, 64), (1 + rides as usize, None));
        }
    }

    #[test]
    fn pages_that_cannot_be_read_are_not_sent() {
        let rides = run::of([502, 503, 600, 700].map(|page| (page, NOBODY)));
        let body = Body::Pages { asked: Some(500), rides };
        let firsts = [500, 502, 600, 700];
        for (fails, first) in firsts.into_iter().enumerate() {
            let mut read = Vec::new();
            let result = body.try_bytes(|pages, bytes| {
                read.push(pages.start);
                bytes.resize(bytes.len() + 96 * (pages.end - pages.start) as usize, 1);
                if pages.start == first { Err("broken") } else { Ok(()) }
            });
            assert_eq!(result, Err("broken"), "the runs after it can be read");
            assert_eq!(read, firsts[..=fails]);
        }
    }

    #[test]
    fn letters_come_as_they_were_sent_and_bring_no_pages() {
        let hopes = vec![Run { first: 7, pages: 3, writer: NOBODY }];
        let none = || Body::Pages { asked: None, rides: Vec::new() };
        let sent = [
            (header(Op::Invalidate, false, 0), Body::Runs(Vec::new())),
            (header(Op::AskRead, false, 1), Body::Runs(hopes.clone())),
            (header(Op::GrantWrite, false, 0), none()),
            (header(Op::Acknowledge, false, 0), Body::Runs(Vec::new())),
        ];
        let bytes: Vec<u8> =
            sent.iter().flat_map(|(header, body)| body.encode_for_batch(header)).collect();
        let came = parse_batch(&bytes).expect("ours");
        let said = sent.iter().map(|(header, body)| (*header, body.runs().to_vec()));
        assert!(sent.iter().all(|(_, body)| body.is_letter()));
        assert_eq!(came, said.collect::<Vec<_>>());
        let is_whole = |cut: usize| parse_batch(&bytes[..cut]).is_some();
        assert_eq!((0..bytes.len()).filter(|&cut| is_whole(cut)).count(), sent.len());
        for (whole, rides) in [(true, vec![]), (false, hopes)] {
            let header = header(Op::GrantWrite, whole, rides.len() as u16);
            let body = Body::Pages { asked: None, rides: rides.clone() };
            assert!(
                parse_batch(
                    &[&none().encode_for_batch(&header)[..40], &body.bytes(|_, _| ())].concat()
                )
                .is_none()
            );
        }
        assert!(!Body::New(Vec::new()).is_letter());
        assert!(!Body::Pages { asked: Some(1), rides: Vec::new() }.is_letter());
    }

    #[test]
    fn a_message_names_no_more_pages_than_there_may_be() {
        let of = |pages| {
            let run = Run { first: 7, pages, writer: NOBODY };
            parse(&header(Op::AskRead, false, 1), &run::encode(&[run]), 4).is_some()
        };
        assert!(of(64) && !of(65) && !of(u64::MAX - 7));
    }
}
