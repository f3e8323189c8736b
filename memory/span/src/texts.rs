//! Text that a node reads from its own file, if that has the origin's build-id, instead of
//! fetching it.
//!
//! The protocol does not know of such a copy. So it exists only as long as the text cannot be
//! written. Any change of these addresses on all nodes, the origin's own threads included, ends
//! the text there before the change (see `agent/texts.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use coherence::message::Page;
use object::LittleEndian;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use serde::{Deserialize, Serialize};

use crate::addresses::PAGE;
use crate::stubs::{CHANGED_REACH, may_be_patched};

/// Bytes at the beginning of a file in which linkers put a build-id.
const HEAD_BYTES: usize = 64 << 10;
/// Longest file: the kernel's offsets are signed.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Pages that are read at once.
const TOGETHER: u64 = 16;

/// The file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Name {
    /// Its path at the origin.
    path: Vec<u8>,
    /// Its build-id there.
    build_id: Vec<u8>,
}

impl Name {
    /// Of a file that is called so and has a build-id.
    pub fn of(path: &Path, file: &File) -> Option<Self> {
        let path = path.as_os_str().as_bytes().to_vec();
        Some(Self { path, build_id: build_id(file)? })
    }
}

/// The build-id of an ELF file, if it has one.
fn build_id(file: &File) -> Option<Vec<u8>> {
    let mut head = vec![0; HEAD_BYTES];
    let count = file.read_at(&mut head, 0).ok()?;
    let data = &head[..count];
    let elf = FileHeader64::<LittleEndian>::parse(data).ok()?;
    for segment in elf.program_headers(LittleEndian, data).ok()? {
        let Ok(Some(mut notes)) = segment.notes(LittleEndian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == ELF_NOTE_GNU && note.n_type(LittleEndian) == NT_GNU_BUILD_ID {
                return Some(note.desc().to_vec());
            }
        }
    }
    None
}

/// A part of a file that stands in the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Text {
    name: Name,
    end: Page,
    /// The offset of the first page in the file, and the number of the file's bytes from there;
    /// zeros follow.
    offset: u64,
    bytes: u64,
}

/// A node's.
#[derive(Debug, Default)]
pub struct Texts {
    /// By first page.
    all: BTreeMap<Page, Text>,
    /// Pages that hold what was read here.
    read: BTreeSet<Page>,
    /// Files that were looked for; those that are the same.
    files: HashMap<Name, Option<File>>,
}

impl Texts {
    /// Pages hold a part of a file, from `offset` on: `bytes` of it, and then zeros. Returns false
    /// if no file is so long.
    pub fn insert(&mut self, pages: Range<Page>, name: Name, offset: u64, bytes: u64) -> bool {
        self.remove(pages.clone());
        let length = pages.end.checked_sub(pages.start).and_then(|count| count.checked_mul(PAGE));
        let end = length.and_then(|length| offset.checked_add(length));
        if end.is_none_or(|end| end > FILE_BYTES_MAX) {
            return false;
        }
        self.all.insert(pages.start, Text { name, end: pages.end, offset, bytes });
        true
    }

    /// Pages hold no text any more; those of them that were read here.
    pub fn remove(&mut self, pages: Range<Page>) -> Vec<Page> {
        let met = self.all.range(..pages.end).rev().take_while(|(_, text)| text.end > pages.start);
        let met: Vec<Page> = met.map(|(&first, _)| first).collect();
        for first in met {
            let text = self.all.remove(&first).expect("it was met");
            if first < pages.start {
                self.all.insert(first, Text { end: pages.start, ..text.clone() });
            }
            if text.end > pages.end {
                let skipped = (pages.end - first) * PAGE;
                let (offset, bytes) = (text.offset + skipped, text.bytes.saturating_sub(skipped));
                self.all.insert(pages.end, Text { offset, bytes, ..text });
            }
        }
        let mut read = self.read.split_off(&pages.start);
        self.read.append(&mut read.split_off(&pages.end));
        read.into_iter().collect()
    }

    /// Returns true if the page was read here.
    pub fn has(&self, page: Page) -> bool {
        self.read.contains(&page)
    }

    /// The protocol installs or removes this page. Returns true if it was read here.
    pub fn forget(&mut self, page: Page) -> bool {
        self.read.remove(&page)
    }

    /// Reads what the page holds, and pages behind it, from this node's file: first to last, until
    /// one is wanted no more. Nothing, if there is no such file.
    pub fn read(
        &mut self,
        page: Page,
        is_wanted: impl Fn(Page) -> bool,
        mut take: impl FnMut(Page, &[u8]),
    ) -> bool {
        let Some((&first, text)) = self.all.range(..=page).next_back() else { return false };
        if page >= text.end {
            return false;
        }
        let file = self.files.entry(text.name.clone()).or_insert_with_key(same);
        let Some(file) = file else { return false };
        const AROUND: u64 = CHANGED_REACH as u64;
        let mut bytes = [0; PAGE as usize + 2 * CHANGED_REACH];
        for next in page..text.end.min(page + TOGETHER) {
            let done = (next - first) * PAGE;
            // The bytes around the page show whether the origin may have patched it.
            let before = AROUND.min(text.offset + done);
            let there = (text.bytes.saturating_sub(done) + before).min(before + PAGE + AROUND);
            bytes[there as usize..].fill(0);
            let read = &mut bytes[..there as usize];
            let is_read = file.read_exact_at(read, text.offset + done - before);
            let is_other = is_read.is_err() || may_be_patched(&bytes);
            if is_other || next > page && !is_wanted(next) {
                return next > page;
            }
            self.read.insert(next);
            take(next, &bytes[before as usize..][..PAGE as usize]);
        }
        true
    }
}

/// This node's file, if it is the same.
fn same(name: &Name) -> Option<File> {
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(&name.path));
    let file = File::open(path).ok()?;
    (build_id(&file)? == name.build_id).then_some(file)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    /// A copy of the dynamic linker, without system calls but for one at this place. It is deleted
    /// with the descriptor.
    fn elf_with_call(at: Option<usize>) -> (PathBuf, File) {
        let mut bytes = std::fs::read("/lib64/ld-linux-x86-64.so.2").expect("the dynamic linker");
        for two in 1..bytes.len() {
            if bytes[two - 1..=two] == [0x0f, 0x05] {
                bytes[two] = 0x0b;
            }
        }
        if let Some(at) = at {
            bytes[at..at + 2].copy_from_slice(&[0x0f, 0x05]);
        }
        let file = rustix::fs::memfd_create("elf", rustix::fs::MemfdFlags::empty()).unwrap();
        let file = File::from(file);
        file.write_all_at(&bytes, 0).unwrap();
        (PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())), file)
    }

    fn elf() -> (PathBuf, File) {
        elf_with_call(None)
    }

    fn read(texts: &mut Texts, page: Page) -> Vec<(Page, Vec<u8>)> {
        let mut all = Vec::new();
        texts.read(page, |_| true, |page, bytes| all.push((page, bytes.to_vec())));
        all
    }

    #[test]
    fn pages_are_what_the_file_has_there_and_zeros_behind() {
        let (path, file) = elf();
        let name = Name::of(&path, &file).expect("a build-id");
        let mut texts = Texts::default();
        texts.insert(10..14, name, PAGE, 2 * PAGE + 5);
        assert!(read(&mut texts, 9).is_empty() && read(&mut texts, 14).is_empty());
        let all = read(&mut texts, 11);
        assert_eq!(all.iter().map(|(page, _)| *page).collect::<Vec<_>>(), [11, 12, 13]);
        let mut wanted = vec![0; 3 * PAGE as usize];
        file.read_exact_at(&mut wanted[..PAGE as usize + 5], 2 * PAGE).unwrap();
        assert_eq!(all.into_iter().flat_map(|(_, bytes)| bytes).collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn removed_ranges_are_no_text() {
        let (path, file) = elf();
        let name = Name::of(&path, &file).expect("a build-id");
        let mut texts = Texts::default();
        texts.insert(0..10, name, 0, 100 * PAGE);
        let before = read(&mut texts, 6);
        assert_eq!(texts.remove(3..7), [6]);
        assert!(read(&mut texts, 3).is_empty() && read(&mut texts, 6).is_empty());
        assert_eq!(read(&mut texts, 7)[0], before[1]);
        assert_eq!(read(&mut texts, 2).len(), 1);
        assert!(texts.has(2) && texts.forget(2) && !texts.has(2));
        assert_eq!(texts.remove(0..20), [7, 8, 9]);
    }

    #[test]
    fn code_near_a_system_call_is_not_read() {
        let (path, file) = elf_with_call(Some(5 * PAGE as usize + 10));
        let name = Name::of(&path, &file).expect("a build-id");
        let mut texts = Texts::default();
        texts.insert(0..10, name, 0, 100 * PAGE);
        let pages = |texts: &mut Texts, page| {
            read(texts, page).iter().map(|(page, _)| *page).collect::<Vec<_>>()
        };
        assert_eq!(pages(&mut texts, 2), [2, 3], "the next page ends before the call");
        assert!(pages(&mut texts, 4).is_empty() && pages(&mut texts, 5).is_empty());
        assert_eq!(pages(&mut texts, 6), [6, 7, 8, 9]);
    }

    #[test]
    fn another_file_is_not_read() {
        let (path, file) = elf();
        let name = Name::of(&path, &file).expect("a build-id");
        let mut texts = Texts::default();
        let other = Name { build_id: vec![1; 20], ..name.clone() };
        texts.insert(0..1, other, 0, PAGE);
        texts.insert(1..2, Name { path: b"/nowhere".to_vec(), ..name.clone() }, 0, PAGE);
        texts.insert(2..3, name, 1 << 40, PAGE);
        for page in 0..3 {
            assert!(read(&mut texts, page).is_empty());
        }
        assert!(Name::of(&path, &File::open("/etc/passwd").unwrap()).is_none());
    }
}
