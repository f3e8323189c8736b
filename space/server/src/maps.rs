//! What lies in the segments of a space: `/proc/self/smaps` of its owner, read with the
//! layout in mind.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use nagaya_layout::{EXPORT_SIZE, PAGE_SIZE, SpaceLayout};
use serde::{Deserialize, Serialize};

/// One mapping in a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mapping {
    /// Task that the segment belongs to.
    pub id: u32,
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// As in /proc: `rwxp`.
    pub permissions: String,
    /// Offset in the file.
    pub offset: u64,
    /// `export`, `control`, `image`, `heap`, `mmap` or `stack`.
    pub part: String,
    /// Resident bytes.
    pub resident: u64,
    /// The file, if it is one.
    pub file: String,
}

/// Where a task's program and mappings begin; what the layout alone does not say.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// ID.
    pub id: u32,
    /// The heap begins here.
    pub heap: u64,
    /// The mmap area begins here.
    pub mmap: u64,
    /// It ends here, and what follows is stack.
    pub mmap_end: u64,
}

/// All mappings in the segments of `layout`, which this process owns.
pub fn read(layout: &SpaceLayout, bounds: &[Bounds]) -> io::Result<Vec<Mapping>> {
    let mut mappings: Vec<Mapping> = Vec::new();
    let mut wanted = false;
    for line in BufReader::new(File::open("/proc/self/smaps")?).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        match header(&line) {
            Some((start, end, rest)) => {
                let id = layout.id_of(start);
                wanted = id.is_some();
                if let Some(id) = id {
                    mappings.extend(describe(layout, bounds, id, (start, end), rest));
                }
            }
            None if wanted => {
                // The export area shares its mapping with the control block, and has
                // been counted by itself.
                let split_off = match mappings.as_slice() {
                    [.., export, last] if export.end == last.start && export.part == "export" => {
                        export.resident
                    }
                    _ => 0,
                };
                let Some(value) = line.strip_prefix("Rss:") else { continue };
                let kib = value.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
                if let Some(last) = mappings.last_mut() {
                    last.resident = (kib << 10).saturating_sub(split_off);
                }
            }
            None => {}
        }
    }
    name_images(&mut mappings);
    Ok(mappings)
}

/// Libraries lie in the mmap area; what a file that is mapped executable fills is an image.
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

/// Resident bytes of `start..end`, anonymous memory of this mm.
fn resident(start: u64, end: u64) -> u64 {
    let mut pages = vec![0u8; ((end - start) / PAGE_SIZE) as usize];
    // SAFETY: writes a byte for each page of the range; a gap in it is ENOMEM.
    let result =
        unsafe { libc::mincore(start as *mut _, (end - start) as usize, pages.as_mut_ptr()) };
    let counted = pages.iter().filter(|&&page| page & 1 == 1).count() as u64;
    if result == 0 { counted * PAGE_SIZE } else { 0 }
}

/// Splits `start-end rest`; `None` for the other lines of smaps.
fn header(line: &str) -> Option<(u64, u64, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?, rest))
}

fn describe(
    layout: &SpaceLayout,
    bounds: &[Bounds],
    id: u32,
    (start, end): (u64, u64),
    rest: &str,
) -> Vec<Mapping> {
    let mut fields = rest.splitn(5, ' ');
    let permissions = fields.next().unwrap_or_default().to_string();
    let offset = fields.next().and_then(|o| u64::from_str_radix(o, 16).ok()).unwrap_or(0);
    let file = fields.nth(2).unwrap_or_default().trim().to_string();
    let segment = layout.segment(id).expect("id_of gave it");
    let bounds = bounds.iter().find(|b| b.id == id);
    let part = if start < segment.start() + EXPORT_SIZE && end <= segment.task_block() {
        "export"
    } else if start < segment.image() {
        "control"
    } else {
        match bounds {
            Some(b) if start >= b.mmap_end => "stack",
            Some(b) if start >= b.mmap => "mmap",
            Some(b) if start >= b.heap => "heap",
            _ => "image",
        }
    };
    let whole =
        Mapping { id, start, end, permissions, offset, part: part.into(), resident: 0, file };
    let export_end = segment.start() + EXPORT_SIZE;
    if start < export_end && export_end < end {
        let export = Mapping {
            end: export_end,
            part: "export".into(),
            resident: resident(start, export_end),
            ..whole.clone()
        };
        return vec![export, Mapping { start: export_end, ..whole }];
    }
    vec![whole]
}
