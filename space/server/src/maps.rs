//! The mappings in the segments of a space. They come from `smaps` of one process of each domain,
//! cut by the layout of segments.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

use nagaya_layout::{EXPORT_SIZE, PAGE_SIZE, SpaceLayout};
use proc::maps;
use serde::{Deserialize, Serialize};

/// One mapping in a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mapping {
    /// ID of the task that owns the segment.
    pub id: u32,
    /// First address.
    pub start: u64,
    /// Address behind the last byte.
    pub end: u64,
    /// As in /proc: `rwxp`.
    pub permissions: String,
    /// Offset in the file.
    pub offset: u64,
    /// `export`, `control`, `image`, `heap`, `mmap` or `stack`.
    pub part: String,
    /// Resident bytes.
    pub resident: u64,
    /// Path of the mapped file; empty for anonymous memory.
    pub file: String,
}

/// Start addresses of a task's areas, which the layout does not determine.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// ID.
    pub id: u32,
    /// Start of the program's mappings.
    pub own: u64,
    /// Start of the heap.
    pub heap: u64,
    /// Start of the mmap area.
    pub mmap: u64,
    /// End of the mmap area; the stack follows.
    pub mmap_end: u64,
}

/// Resident bytes of the space as seen by a process in a domain's mm.
#[derive(Debug, Default)]
pub struct Resident {
    /// In the domain's own segments, by ID.
    pub own: HashMap<u32, u64>,
    /// In views of other domains' segments.
    pub far: u64,
}

/// Returns the mappings of a process in the segments of `layout`, about `most` of them. `is_own`
/// returns true for the IDs of the process's domain.
pub fn read(
    pid: u32,
    layout: &SpaceLayout,
    is_own: impl Fn(u32) -> bool,
    bounds: &[Bounds],
    most: usize,
) -> io::Result<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    walk(pid, layout, |id, found, resident| {
        if !is_own(id) || mappings.len() >= most {
            return;
        }
        let mut parts = describe(layout, bounds, id, found);
        // `describe` has set the resident bytes of all parts but the last.
        let others: u64 = parts.iter().map(|part| part.resident).sum();
        if let Some(last) = parts.last_mut() {
            last.resident = resident.saturating_sub(others);
        }
        mappings.extend(parts);
    })?;
    name_images(&mut mappings);
    Ok(mappings)
}

/// Returns the resident bytes of a process in the segments of `layout`. `is_own` returns true for
/// the IDs of the process's domain.
pub fn resident(
    pid: u32,
    layout: &SpaceLayout,
    is_own: impl Fn(u32) -> bool,
) -> io::Result<Resident> {
    let mut sums = Resident::default();
    walk(pid, layout, |id, _, resident| match is_own(id) {
        true => *sums.own.entry(id).or_default() += resident,
        false => sums.far += resident,
    })?;
    Ok(sums)
}

/// Calls `each` with each mapping of a process in the segments of `layout`: the ID of the segment,
/// the mapping, and its resident bytes.
fn walk(
    pid: u32,
    layout: &SpaceLayout,
    each: impl FnMut(u32, maps::Mapping, u64),
) -> io::Result<()> {
    walk_lines(BufReader::new(File::open(format!("/proc/{pid}/smaps"))?), layout, each)
}

/// Does the same with the contents of smaps.
fn walk_lines(
    text: impl BufRead,
    layout: &SpaceLayout,
    mut each: impl FnMut(u32, maps::Mapping, u64),
) -> io::Result<()> {
    let mut current = None;
    for line in text.split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        if let Some(found) = maps::Mapping::parse(&line) {
            current = layout.id_of(found.addresses.start).map(|id| (id, found));
        } else if let Some(resident) = size(&line, "Rss:")
            && let Some((id, found)) = current.take()
        {
            each(id, found, resident);
        }
    }
    Ok(())
}

/// Reads the contents of smaps (see `fuzz`).
pub(crate) fn of_text(text: &[u8], layout: &SpaceLayout, bounds: &[Bounds]) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    let read = walk_lines(text, layout, |id, found, _| {
        mappings.extend(describe(layout, bounds, id, found));
    });
    read.expect("memory can be read");
    name_images(&mut mappings);
    mappings
}

/// Returns the bytes in a line of smaps if the line has this field.
fn size(line: &str, field: &str) -> Option<u64> {
    let value = line.strip_prefix(field)?;
    Some(value.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10)
}

/// Sets the part of libraries, which lie in the mmap area, to `image`. A file counts as a library
/// if one of its mappings is executable.
fn name_images(mappings: &mut [Mapping]) {
    let runs = |m: &&Mapping| m.permissions.contains('x') && m.file.starts_with('/');
    let images: HashSet<(u32, String)> =
        mappings.iter().filter(runs).map(|m| (m.id, m.file.clone())).collect();
    for mapping in mappings.iter_mut().filter(|m| m.part == "mmap" && !m.file.is_empty()) {
        if images.contains(&(mapping.id, mapping.file.clone())) {
            mapping.part = "image".into();
        }
    }
}

/// Returns the resident bytes of `start..end`, anonymous memory of this mm.
fn resident_between(start: u64, end: u64) -> u64 {
    let mut pages = vec![0u8; ((end - start) / PAGE_SIZE) as usize];
    // SAFETY: mincore writes one byte for each page of the range, as `pages` has. A gap in the
    // range gives ENOMEM.
    let result =
        unsafe { libc::mincore(start as *mut _, (end - start) as usize, pages.as_mut_ptr()) };
    let counted = pages.iter().filter(|&&page| page & 1 == 1).count() as u64;
    if result == 0 { counted * PAGE_SIZE } else { 0 }
}

/// Describes a mapping of the kernel, cut at the borders of the segment's parts. Such borders are
/// the end of the export area and, in shared memory, the start of the heap. The last part's
/// resident bytes are not known yet.
fn describe(
    layout: &SpaceLayout,
    bounds: &[Bounds],
    id: u32,
    found: maps::Mapping,
) -> Vec<Mapping> {
    let permissions = found.permissions();
    let maps::Mapping { addresses: Range { start, end }, offset, path: file, .. } = found;
    let segment = layout.segment(id).expect("id_of gave it");
    let bounds = bounds.iter().find(|b| b.id == id);
    let export_end = segment.start() + EXPORT_SIZE;
    let part = |start: u64| {
        if start < export_end {
            return "export";
        }
        match bounds {
            _ if start < bounds.map_or(segment.image(), |b| b.own) => "control",
            Some(b) if start >= b.mmap_end => "stack",
            Some(b) if start >= b.mmap => "mmap",
            Some(b) if start >= b.heap => "heap",
            _ => "image",
        }
    };
    let cuts = [Some(export_end), bounds.map(|b| b.heap)];
    let cuts = cuts.into_iter().flatten().filter(|&cut| start < cut && cut < end);
    let mut ends: Vec<u64> = cuts.chain([end]).collect();
    // A task can write any start of the heap into its control block.
    ends.sort_unstable();
    ends.dedup();
    let mut from = start;
    let mut parts: Vec<Mapping> = Vec::new();
    for to in ends {
        parts.push(Mapping {
            id,
            start: from,
            end: to,
            permissions: permissions.clone(),
            offset: offset + (from - start),
            part: part(from).into(),
            resident: if to < end { resident_between(from, to) } else { 0 },
            file: file.clone(),
        });
        from = to;
    }
    parts
}
