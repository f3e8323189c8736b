//! A file whose headers were accepted is mapped into its segment, or refused; nothing
//! outside the segment changes, and the owner lives on, whatever the headers say.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use nagaya_layout::Seed;
use nagaya_loader::{Program, TaskInfo};
use proptest::prelude::*;
use proptest::sample::Index;
use pvas::{Space, SpaceOptions};

const FILE_HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;

fn space() -> &'static Space {
    static SPACE: OnceLock<Space> = OnceLock::new();
    SPACE.get_or_init(|| {
        let options =
            SpaceOptions { segment_size: Some(64 << 20), tasks_max: Some(3), ..Default::default() };
        Space::create(options).unwrap()
    })
}

/// Lines of /proc/self/maps in the segments of the space: those of `id`, and of others.
fn mappings(id: u32) -> (usize, usize) {
    let layout = space().layout();
    let mut counts = (0, 0);
    for line in fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let start = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        match layout.id_of(start) {
            Some(found) if found == id => counts.0 += 1,
            Some(_) => counts.1 += 1,
            None => {}
        }
    }
    counts
}

/// Returns other numbers with each call, the same in every run.
fn next_seed() -> Seed {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let number = CALLS.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Seed { image: number, heap: number >> 3, mmap: number >> 7, stack: number >> 11 }
}

/// Loads the file as the middle one of three tasks, without starting it. Whether that
/// worked.
fn load(path: &Path) -> Result<bool, TestCaseError> {
    let id = 1;
    let Ok(program) = Program::open(path, vec![CString::new("program").unwrap()]) else {
        return Ok(false);
    };
    let segment = space().layout().segment(id).unwrap();
    let info = TaskInfo {
        seed: next_seed(),
        id,
        pid: 1,
        environment: &[],
        stack_limit: 8 << 20,
        sigmask: 0,
        export_mapped: false,
    };
    // SAFETY: only this test uses the space, and the segment is empty.
    let loaded = unsafe { nagaya_loader::load(space().gate(), segment, &program, &info) };
    let (own, others) = mappings(id);
    let result = loaded.map(|task| {
        // SAFETY: `load` filled in `task` in the segment, which stays mapped until `munmap` below.
        unsafe { ((*task).start.sp, (*task).mmap_start, (*task).mmap_end) }
    });
    // SAFETY: no process was started in the segment, and only this test uses the space.
    unsafe { libc::munmap(segment.start() as *mut _, segment.size() as usize) };
    prop_assert_eq!(others, 0, "mappings outside of the segment");
    if let Ok((sp, mmap_start, mmap_end)) = result {
        // Its image, its stack and its block. Parts with the same protection are one mapping.
        prop_assert!(own >= 3, "{own} mappings");
        prop_assert!(segment.image() < mmap_start && mmap_start < mmap_end);
        prop_assert!(mmap_end < sp && sp < segment.end());
    }
    Ok(result.is_ok())
}

struct TestFile(PathBuf);

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(bytes).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Changes that leave many files acceptable: to single fields of PT_LOADs, by steps.
fn changes() -> impl Strategy<Value = Vec<(Index, usize, u64)>> {
    let value = prop_oneof![
        (0..64u64).prop_map(|pages| pages << 12),
        0..0x10000u64,
        (12..48u32).prop_map(|shift| 1 << shift),
        (0..47u32, 0..0x2000u64).prop_map(|(shift, less)| (1u64 << shift).saturating_sub(less)),
    ];
    prop::collection::vec((any::<Index>(), 1..7usize, value), 0..4)
}

// One property only: the space is shared by all cases, one after the other.
proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn an_accepted_file_stays_within_its_segment(
        changes in changes(),
        flags in prop::collection::vec((any::<Index>(), 0..8u32), 0..2),
        length in prop_oneof![3 => Just(None), 1 => any::<Index>().prop_map(Some)],
        linker in any::<bool>(),
    ) {
        let source = if linker { "/lib64/ld-linux-x86-64.so.2" } else { "/bin/true" };
        let mut bytes = fs::read(source).unwrap();
        let count = usize::from(u16::from_le_bytes(bytes[56..58].try_into().unwrap()));
        let header = |index: &Index| FILE_HEADER_SIZE + index.index(count) * PROGRAM_HEADER_SIZE;
        for (index, field, value) in &changes {
            let at = header(index) + field * 8;
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        for (index, value) in &flags {
            let at = header(index) + 4;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(length) = length {
            let length = length.index(bytes.len());
            bytes.truncate(length);
        }
        let file = TestFile::new("hostile-image", &bytes);
        let loaded = load(&file.0)?;
        if changes.is_empty() && flags.is_empty() && length.is_none() {
            prop_assert!(loaded, "{source} as it is");
        }
    }
}
