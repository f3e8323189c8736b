//! Places in files as functions, source lines and variables, by symbols and DWARF.

use std::collections::HashMap;

use addr2line::Loader;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

/// The symbols that were read from files so far.
#[derive(Default)]
pub struct Symbols {
    files: HashMap<String, Option<File>>,
}

struct File {
    loader: Loader,
    /// Offset in the file, bytes, address.
    segments: Vec<(u64, u64, u64)>,
    /// Address, bytes, name.
    variables: Vec<(u64, u64, String)>,
}

impl Symbols {
    /// Returns the function and line at this offset of a file: `main at mm.c:72`, or the part of
    /// it that the file has.
    pub fn name(&mut self, file: &str, offset: u64) -> String {
        match self.file(file).and_then(|known| known.address(offset)) {
            Some(address) => self.code(file, address),
            None => format!("{} + {offset:#x}", short(file)),
        }
    }

    /// As above, by the address that the linker gave it.
    pub fn code(&mut self, file: &str, address: u64) -> String {
        let Some(known) = self.file(file) else {
            return format!("{} + {address:#x}", short(file));
        };
        let symbol = known.loader.find_symbol(address).map(str::to_owned);
        let location = known.loader.find_location(address).ok().flatten();
        let line = location.and_then(|of| Some(format!("{}:{}", short(of.file?), of.line?)));
        match (symbol, line) {
            (Some(symbol), Some(line)) => format!("{symbol} at {line}"),
            (None, Some(line)) => line,
            (Some(symbol), None) => format!("{symbol} in {}", short(file)),
            (None, None) => format!("{} + {address:#x}", short(file)),
        }
    }

    /// The variable at an address that the linker gave, and which of its bytes.
    pub fn variable(&mut self, file: &str, address: u64) -> Option<(&str, u64)> {
        let known = self.file(file)?;
        let has = |(at, bytes, _): &&(u64, u64, String)| (*at..at + bytes).contains(&address);
        let (at, _, name) = known.variables.iter().find(has)?;
        Some((name, address - at))
    }

    fn file(&mut self, path: &str) -> Option<&File> {
        self.files.entry(path.to_owned()).or_insert_with(|| File::open(path)).as_ref()
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
        let variables = file.symbols().chain(file.dynamic_symbols());
        let variables = variables.filter(|of| of.kind() == SymbolKind::Data && of.size() > 0);
        let named =
            |of: object::Symbol| Some((of.address(), of.size(), of.name().ok()?.to_owned()));
        let variables = variables.filter_map(named).collect();
        Some(Self { loader: Loader::new(path).ok()?, segments, variables })
    }

    /// Returns the link-time address of this file offset.
    fn address(&self, offset: u64) -> Option<u64> {
        let has = |(from, bytes, _): &&(u64, u64, u64)| (*from..from + bytes).contains(&offset);
        let (from, _, address) = self.segments.iter().find(has)?;
        Some(offset - from + address)
    }
}

/// The last part of a path.
pub fn short(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
