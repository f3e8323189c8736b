//! Bodies of the messages of scope consistency, as the state machine gets them.

use serde::{Deserialize, Serialize};

use crate::diff;
use crate::message::{Header, Op, Page};
use crate::ride::{self, Ride};
use crate::run::{self, Run};

/// The part of a message's body that concerns the protocol.
///
/// A body begins with the bytes of pages: first the requested page, then the pages that
/// [ride] along. Then follow the data of the operation, and the ride records.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Content {
    /// The operation has no data.
    Empty,
    /// The bytes of a page.
    Page,
    /// Changes of these pages.
    Diffs(Vec<Page>),
    /// Runs of pages.
    Runs(Vec<Run>),
}

impl Content {
    /// Decodes a body that came with `header`, and its ride records. Returns `None` if the body is
    /// malformed. `page_bytes` is the page size.
    pub fn parse(header: &Header, body: &[u8], page_bytes: usize) -> Option<(Self, Vec<Ride>)> {
        let (body, rides) = ride::split(body, header.rides)?;
        let body = body.get(ride::aboard(&rides) * page_bytes..)?;
        Some((Self::parse_rest(header.op, body, page_bytes)?, rides))
    }

    fn parse_rest(op: Op, body: &[u8], page_bytes: usize) -> Option<Self> {
        match op {
            Op::GetPageGrant => (body.len() == page_bytes).then_some(Content::Page),
            Op::Diff => {
                let pages = diff::pages(body, page_bytes).ok()?;
                Some(Content::Diffs(pages.into_iter().map(|(page, _)| page).collect()))
            }
            Op::AcquireGrant
            | Op::Invalidate
            | Op::WriteNotice
            | Op::Release
            | Op::Barrier
            | Op::BarrierGrant
            | Op::Set
            | Op::WaitGrant => run::decode(body, u64::MAX).map(Content::Runs),
            _ => body.is_empty().then_some(Content::Empty),
        }
    }
}
