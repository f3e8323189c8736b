//! Sets of addresses and of pages.

pub use pager::Ranges;
