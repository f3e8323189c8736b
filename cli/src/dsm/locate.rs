//! Places in files as functions and source lines, by symbols and DWARF.

use std::collections::HashMap;

use addr2line::Loader;
use object::{Object as _, ObjectSegment as _};

use super::counted::Place;

/// What was found in files so far.
#[derive(Default)]
pub struct Symbols {
    files: HashMap<String, Option<File>>,
}

struct File {
    loader: Loader,
    /// Offset in the file, bytes, address.
    segments: Vec<(u64, u64, u64)>,
}

impl Symbols {
    /// `main at mm.c:72`, or as much of that as the file knows.
    pub fn name(&mut self, place: &Place) -> String {
        let Place { file, offset } = place;
        let short = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
        let bare = format!("{} + {offset:#x}", short(file));
        let known = self.files.entry(file.clone()).or_insert_with(|| File::open(file));
        let Some((known, address)) = known.as_ref().and_then(|of| Some((of, of.address(*offset)?)))
        else {
            return bare;
        };
        let symbol = known.loader.find_symbol(address).map(str::to_owned);
        let location = known.loader.find_location(address).ok().flatten();
        let line = location.and_then(|of| Some(format!("{}:{}", short(of.file?), of.line?)));
        match (symbol, line) {
            (Some(symbol), Some(line)) => format!("{symbol} at {line}"),
            (None, Some(line)) => line,
            (Some(symbol), None) => format!("{symbol} in {}", short(file)),
            (None, None) => bare,
        }
    }
}

impl File {
    fn open(path: &str) -> Option<Self> {
        let bytes = std::fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, bytes) = segment.file_range();
            (offset, bytes, segment.address())
        });
        let segments = segments.collect();
        Some(Self { loader: Loader::new(path).ok()?, segments })
    }

    /// Where the linker put what stands there.
    fn address(&self, offset: u64) -> Option<u64> {
        let has = |(from, bytes, _): &&(u64, u64, u64)| (*from..from + bytes).contains(&offset);
        let (from, _, address) = self.segments.iter().find(has)?;
        Some(offset - from + address)
    }
}
