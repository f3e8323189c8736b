//! Whatever a file holds, reading it as a program gives headers that can be mapped or one
//! error; it never panics. Overflow checks are on in this build, so arithmetic that wraps
//! shows as a panic.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use nagaya_layout::PAGE_SIZE;
use nagaya_loader::elf::Headers;
use nagaya_loader::{LoadError, Program};
use proptest::prelude::*;
use proptest::sample::Index;

/// Addresses in headers must be below this, so that adding a bias cannot overflow.
const ADDRESS_END: u64 = 1 << 47;
const FILE_HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
/// Length of the head that `Program::open` passes to `Headers::read`: the kernel's
/// BINPRM_BUF_SIZE.
const HEAD_SIZE: usize = 256;

/// Removed at the end of its scope.
struct TestFile(PathBuf);

impl TestFile {
    fn new(bytes: &[u8]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("hostile-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(bytes).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }

    fn headers(&self) -> Result<Headers, LoadError> {
        let file = File::open(&self.0).unwrap();
        let length = file.metadata().unwrap().len();
        let bytes = fs::read(&self.0).unwrap();
        Headers::read(&self.0, &file, &bytes[..bytes.len().min(HEAD_SIZE)], length)
    }

    fn open(&self) -> Result<Program, LoadError> {
        Program::open(&self.0, vec![CString::new("program").unwrap()])
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A real PIE.
fn real() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| fs::read("/bin/true").unwrap())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Bytes of the file header and the program headers of `real()`.
fn headers_size() -> usize {
    let count = u16::from_le_bytes(real()[56..58].try_into().unwrap());
    FILE_HEADER_SIZE + usize::from(count) * PROGRAM_HEADER_SIZE
}

/// Checks the invariants of a file whose headers are accepted.
fn check(headers: &Headers, length: u64) -> Result<(), TestCaseError> {
    prop_assert!(!headers.loads.is_empty());
    prop_assert!(headers.align.is_power_of_two() && headers.align >= PAGE_SIZE);
    let mut end = 0;
    for load in &headers.loads {
        prop_assert!(load.address >= end, "overlap, or out of order: {headers:x?}");
        prop_assert!(load.memory_size > 0 && load.memory_size <= ADDRESS_END);
        prop_assert!(load.file_size <= load.memory_size);
        prop_assert!(load.offset.checked_add(load.file_size).is_some_and(|end| end <= length));
        prop_assert_eq!(load.offset % PAGE_SIZE, load.address % PAGE_SIZE);
        prop_assert!(load.protection < 8);
        end = load.address.checked_add(load.memory_size).expect("checked by the reader");
        prop_assert!(end <= ADDRESS_END);
    }
    prop_assert!(headers.start() <= headers.loads[0].address);
    prop_assert!(headers.start() + headers.span() >= end);
    prop_assert!(headers.start() + headers.span() < end + PAGE_SIZE);
    let entry = headers.entry;
    let holds_entry =
        |l: &nagaya_loader::elf::Load| (l.address..l.address + l.memory_size).contains(&entry);
    prop_assert!(headers.loads.iter().any(holds_entry));
    Ok(())
}

/// Reads the file in both ways. An accepted file must be sound, and a refusal must give its reason
/// in one line.
fn read_both_ways(bytes: &[u8]) -> Result<(), TestCaseError> {
    let file = TestFile::new(bytes);
    if let Ok(headers) = file.headers() {
        check(&headers, bytes.len() as u64)?;
    }
    match file.open() {
        Ok(program) => check(&program.executable.headers, u64::MAX)?,
        Err(error) => {
            let line = error.to_string();
            prop_assert!(!line.is_empty() && !line.contains('\n'), "{}", line);
            prop_assert!(error.errno().raw_os_error() > 0);
        }
    }
    Ok(())
}

/// One change to a file.
#[derive(Debug, Clone)]
enum Change {
    /// This byte of the headers becomes that.
    Byte(Index, u8),
    /// The 64-bit word at this byte becomes that; not only at multiples of eight.
    Word(Index, u64),
    /// The same for the words of one program header: header, field, value.
    Field(Index, usize, u64),
    /// Two program headers are exchanged.
    Swap(Index, Index),
    /// The file ends here.
    Truncate(Index),
    /// It ends within or right behind its headers.
    TruncateHeaders(Index),
}

/// Numbers at which arithmetic goes wrong.
fn numbers() -> impl Strategy<Value = u64> {
    let edges = prop::sample::select(vec![
        0,
        1,
        2,
        7,
        PAGE_SIZE - 1,
        PAGE_SIZE,
        PAGE_SIZE + 1,
        1 << 30,
        u64::from(u32::MAX),
        1 << 32,
        ADDRESS_END - PAGE_SIZE,
        ADDRESS_END - 1,
        ADDRESS_END,
        ADDRESS_END + 1,
        1 << 63,
        i64::MAX as u64,
        u64::MAX - PAGE_SIZE,
        u64::MAX - 1,
        u64::MAX,
    ]);
    prop_oneof![
        4 => edges.clone(),
        1 => any::<u64>(),
        2 => (0..64u32).prop_map(|shift| 1 << shift),
        2 => (edges, 0..4 * PAGE_SIZE).prop_map(|(edge, more)| edge.wrapping_sub(more)),
        2 => 0..64 * PAGE_SIZE,
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, value)| Change::Byte(at, value)),
        4 => (any::<Index>(), numbers()).prop_map(|(at, value)| Change::Word(at, value)),
        12 => (any::<Index>(), 0..7usize, numbers()).prop_map(|(h, f, v)| Change::Field(h, f, v)),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(a, b)| Change::Swap(a, b)),
        1 => any::<Index>().prop_map(Change::Truncate),
        1 => any::<Index>().prop_map(Change::TruncateHeaders),
    ]
}

fn apply(change: &Change, bytes: &mut Vec<u8>) {
    let all = bytes.len();
    let headers = headers_size().min(all);
    let count = headers.saturating_sub(FILE_HEADER_SIZE) / PROGRAM_HEADER_SIZE;
    let header = |index: &Index| FILE_HEADER_SIZE + index.index(count) * PROGRAM_HEADER_SIZE;
    match change {
        Change::Byte(at, value) if headers > 0 => bytes[at.index(headers)] = *value,
        Change::Word(at, value) if headers > 8 => {
            let at = at.index(headers - 8);
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        Change::Field(index, field, value) if count > 0 => {
            // Words 1 to 6 are offset, addresses, sizes and alignment; word 0 is type and
            // flags, which stay of the right kind.
            let at = header(index) + field * 8;
            let value = if *field == 0 { ((value % 8) << 32) | (value % 7) } else { *value };
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        Change::Swap(a, b) if count > 0 => {
            let (a, b) = (header(a), header(b));
            for byte in 0..PROGRAM_HEADER_SIZE {
                bytes.swap(a + byte, b + byte);
            }
        }
        Change::Truncate(at) if all > 0 => bytes.truncate(at.index(all)),
        Change::TruncateHeaders(at) if headers > 0 => bytes.truncate(at.index(headers) + 1),
        _ => {}
    }
}

/// A file of PT_LOADs that are mostly right.
fn loads() -> impl Strategy<Value = Vec<u8>> {
    let near = |n: u64| prop_oneof![6 => Just(n), 1 => numbers()];
    let load = (0..8u64, 1..6u64, 0..PAGE_SIZE, 0..3 * PAGE_SIZE, 0..3 * PAGE_SIZE);
    let load = load.prop_flat_map(move |(flags, page, in_page, file_size, more)| {
        let offset = page * PAGE_SIZE + in_page;
        (
            Just(1 | flags << 32),
            near(offset),
            near(offset),
            Just(0),
            near(file_size),
            near(file_size + more),
            near(PAGE_SIZE),
        )
    });
    (prop::collection::vec(load, 0..8), any::<bool>()).prop_map(|(mut loads, sorted)| {
        if sorted {
            loads.sort_by_key(|load| load.2);
        }
        let mut bytes = real()[..FILE_HEADER_SIZE].to_vec();
        let entry = loads.first().map_or(0, |load| load.2);
        bytes[24..32].copy_from_slice(&entry.to_le_bytes());
        bytes[56..58].copy_from_slice(&(loads.len() as u16).to_le_bytes());
        for (a, b, c, d, e, f, g) in &loads {
            for value in [a, b, c, d, e, f, g] {
                bytes.extend_from_slice(&value.to_le_bytes());
            }
        }
        bytes.resize(8 * PAGE_SIZE as usize, 0);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_program_is_sound_or_refused(
        changes in prop::collection::vec(changes(), 1..6),
    ) {
        let mut bytes = real().to_vec();
        for change in &changes {
            apply(change, &mut bytes);
        }
        read_both_ways(&bytes)?;
    }

    #[test]
    fn made_up_loads_are_sound_or_refused(bytes in loads()) {
        read_both_ways(&bytes)?;
    }

    #[test]
    fn random_bytes_are_refused_or_sound(
        magic in any::<bool>(),
        rest in prop::collection::vec(any::<u8>(), 0..1024),
    ) {
        let mut bytes = if magic { real()[..20].to_vec() } else { Vec::new() };
        bytes.extend(rest);
        read_both_ways(&bytes)?;
    }

    /// `#!` lines of odd shapes: blanks, no end, zero bytes, names that do not exist.
    #[test]
    fn scripts_of_any_shape_are_opened_or_refused(
        line in prop::collection::vec(prop::sample::select(b" \t\n\0/bintrue-".to_vec()), 0..300),
    ) {
        let bytes = [b"#!", &line[..]].concat();
        read_both_ways(&bytes)?;
    }
}

/// The properties above would hold of a reader that refuses everything.
#[test]
fn the_program_itself_is_accepted() {
    let file = TestFile::new(real());
    assert_eq!(word(real(), 32), FILE_HEADER_SIZE as u64, "headers behind the file header");
    check(&file.headers().unwrap(), real().len() as u64).unwrap();
    file.open().unwrap();
}

/// And of one that hardly ever sees a sound file.
#[test]
fn many_made_up_files_are_accepted() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let accepted = (0..500).filter(|_| {
        let bytes = loads().new_tree(&mut runner).unwrap().current();
        TestFile::new(&bytes).headers().is_ok()
    });
    let accepted = accepted.count();
    assert!(accepted > 25, "only {accepted} of 500");
}
