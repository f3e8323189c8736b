//! Entry points of the fuzz targets (docs/fuzzing.md): what the kernel reports about the memory of
//! tasks, whose bounds a task can change. Nothing else uses them.

use nagaya_layout::SpaceLayout;

use crate::maps::{self, Bounds, Mapping};

/// Describes the mappings in the contents of /proc/PID/smaps.
pub fn mappings(smaps: &[u8], layout: &SpaceLayout, bounds: &[Bounds]) -> Vec<Mapping> {
    let found = maps::of_text(smaps, layout, bounds);
    for part in &found {
        assert!(part.start < part.end, "{part:x?}");
    }
    found
}
