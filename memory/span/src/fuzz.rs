//! Entry points of the fuzz targets (docs/fuzzing.md): messages of other nodes, text that a node
//! reads from its own files, and programs. Nothing else uses them.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::File;
use std::ops::Range;
use std::path::Path;

use coherence::message::Page;
use nagaya_layout::Seed;
use nagaya_loader::Program;

use crate::context::Context;
use crate::frame::Frame;
use crate::image;
use crate::ranges::Ranges;
use crate::report::Counts;
use crate::signal::Signal;
use crate::texts::{Name, Texts};

/// Reads a message of another node: its header, and its body as each body that a message has.
/// Returns true if the header is one.
pub fn message(header: &[u8], body: &[u8]) -> bool {
    if let Some(signal) = Signal::parse(body) {
        assert_eq!(signal.bytes(), body, "a signal is sent as it came");
    }
    set_context(body);
    let _ = postcard::from_bytes::<Name>(body);
    let _ = postcard::from_bytes::<Counts>(body);
    if let Ok(pages) = postcard::from_bytes::<Vec<Range<Page>>>(body) {
        let mut used = Ranges::default();
        pages.into_iter().for_each(|pages| used.insert(pages));
        let mut end = None;
        for range in used.iter() {
            assert!(range.start < range.end && end < Some(range.start), "{range:?} after {end:?}");
            end = Some(range.end);
        }
    }
    let frame = Frame::parse(header);
    if let Some(frame) = frame {
        assert_eq!(Frame::parse(&frame.bytes()), Some(frame));
    }
    frame.is_some()
}

/// Decodes the registers of a thread.
fn set_context(body: &[u8]) {
    let layout = Layout::new::<Context>();
    // SAFETY: new memory of the size and alignment of a context, which nothing else uses. `bytes`
    // reads what `set` has accepted.
    unsafe {
        let memory = alloc_zeroed(layout);
        assert!(!memory.is_null(), "no memory");
        let context = memory.cast::<Context>();
        if Context::set(context, body) {
            assert_eq!(Context::bytes(context), body, "a context is sent as it came");
        }
        dealloc(memory, layout);
    }
}

/// The texts of a node.
#[derive(Default)]
pub struct TextCache {
    texts: Texts,
    /// Pages that were read.
    pub pages: usize,
}

impl TextCache {
    /// The origin announces that these pages show this file from `offset` on. Returns false if that
    /// is refused, or if the file has no build-id.
    pub fn announce(
        &mut self,
        (path, file): (&Path, &File),
        pages: Range<u64>,
        offset: u64,
        bytes: u64,
    ) -> bool {
        let Some(name) = Name::of(path, file) else { return false };
        let name = postcard::to_allocvec(&name).expect("it has a length");
        let name = postcard::from_bytes(&name).expect("just written");
        self.texts.insert(pages, name, offset, bytes)
    }

    /// A thread reads a page.
    pub fn read(&mut self, page: u64) {
        let mut read = 0;
        self.texts.read(page, |page| page % 5 != 0, |_, _| read += 1);
        self.pages += read;
    }

    /// These pages change.
    pub fn remove(&mut self, pages: Range<u64>) {
        for page in self.texts.remove(pages.clone()) {
            assert!(pages.contains(&page) && !self.texts.has(page), "page {page} of {pages:?}");
        }
    }
}

/// Lays out a program as the origin does, at random places by `seed`. Returns the bytes that were
/// written, or the error.
pub fn load(program: &Program, seed: u64) -> Result<u64, String> {
    let mut written = 0;
    let seed = Seed { image: seed, heap: !seed, mmap: seed.rotate_left(16), stack: seed };
    let start = image::start(program, seed);
    let image = image::load(program, &[], seed, 8 << 20, |at, bytes| {
        assert!(at >= start && at.checked_add(bytes.len() as u64).is_some(), "{at:#x}");
        written += bytes.len() as u64;
        Ok(())
    });
    let image = image.map_err(|error| error.to_string())?;
    assert!(image.stack.contains(&image.stack_pointer), "{image:x?}");
    for part in &image.parts {
        assert!(part.bytes > 0 && part.start % 4096 == 0 && part.bytes % 4096 == 0, "{part:x?}");
        assert!(part.start.checked_add(part.bytes).is_some(), "{part:x?}");
    }
    Ok(written)
}
