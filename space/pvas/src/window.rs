//! The addresses of spaces: where a window lies, and whether it and the parts of tasks lie at
//! random addresses.
//!
//! A window takes no address space until something is mapped in it. So this file keeps a list of
//! the windows of this process, and reads the other mappings from `/proc/self/maps`. A window lies
//! in the largest gap: a random one at most [`WINDOW_SHIFT_MAX`] behind the gap's start, a fixed
//! one at its start.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use control::Control;
use nagaya_layout::{
    CONTROL_SIZE, PAGE_SIZE, REGION_END, REGION_START, SHARED_REGION_END, SHARED_SIZE_MAX,
    SpaceLayout, WINDOW_SHIFT_MAX, align_down, align_up,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::Error;
use crate::owner;

/// Step from a taken address to the next attempt, in bytes.
const ATTEMPT_STEP: u64 = 1 << 40;

/// Address ranges of the spaces of this process.
static WINDOWS: Mutex<Vec<Range<u64>>> = Mutex::new(Vec::new());

/// Returns true if a new space of this process gets fixed addresses: if NAGAYA_FIXED_ADDRESSES is
/// set, if this process was started without randomization (`setarch -R`, gdb), or if the kernel
/// has none.
pub fn wants_fixed_addresses() -> Result<bool, Error> {
    match std::env::var_os("NAGAYA_FIXED_ADDRESSES") {
        Some(value) if value == "1" => return Ok(true),
        Some(value) if value != "0" && !value.is_empty() => {
            return Err(Error::Invalid("NAGAYA_FIXED_ADDRESSES (0 or 1)"));
        }
        _ => {}
    }
    // SAFETY: this argument only asks for the personality.
    let personality = unsafe { libc::personality(0xffff_ffff) };
    let kernels = std::fs::read("/proc/sys/kernel/randomize_va_space");
    Ok(personality > 0 && personality & libc::ADDR_NO_RANDOMIZE != 0
        || kernels.is_ok_and(|text| text.starts_with(b"0")))
}

/// Returns the start of a window for a space of shared memory that several processes create at the
/// same address.
pub fn common_window(is_fixed: bool) -> Result<u64, Error> {
    let largest = SHARED_SIZE_MAX + CONTROL_SIZE;
    let shift =
        if is_fixed { 0 } else { random_shift(SHARED_REGION_END - REGION_START - largest)? };
    Ok(REGION_START + shift)
}

/// Returns a random multiple of the windows' alignment from 0 to `most`.
fn random_shift(most: u64) -> Result<u64, Error> {
    let mut number = [0u8; 8];
    // At most 256 bytes are never returned in part.
    getrandom(&mut number[..], GetRandomFlags::empty())
        .map_err(|errno| Error::System("getrandom", errno))?;
    Ok(u64::from_ne_bytes(number) % (most / CONTROL_SIZE + 1) * CONTROL_SIZE)
}

/// A window to be made.
pub(crate) struct Wanted<'a> {
    /// Bytes of a segment.
    pub segment_size: u64,
    /// The tasks' memory is shared memory.
    pub is_shared: bool,
    /// An empty file for the control area, if other programs are to map it.
    pub file: Option<BorrowedFd<'a>>,
    /// The addresses are fixed.
    pub is_fixed: bool,
    /// The required start.
    pub start: Option<u64>,
}

/// Maps a control area in a gap between the windows and the other mappings. `tasks` returns the
/// number of IDs that fit into a gap of the given size, if any.
pub(crate) fn take(
    wanted: &Wanted<'_>,
    tasks: impl Fn(u64) -> Option<u32>,
) -> Result<(Control, SpaceLayout), Error> {
    let mut windows = WINDOWS.lock().expect("no panic while held");
    let mut gaps = gaps(&windows, wanted.start);
    let mut blocked = None;
    loop {
        let size = |index: &usize| gaps[*index].end - gaps[*index].start;
        let largest = (0..gaps.len()).max_by_key(size);
        let Some((index, tasks_max)) = largest.and_then(|it| Some((it, tasks(size(&it))?))) else {
            return Err(blocked.unwrap_or(Error::NoAddressSpace));
        };
        let gap = gaps[index].clone();
        let size = SpaceLayout::window_size(wanted.segment_size, tasks_max)
            .map_err(|_| Error::NoAddressSpace)?;
        let start = gap.start + random_shift(shift_max(&gap, size, wanted))?;
        let layout = SpaceLayout::new(start, wanted.segment_size, tasks_max)
            .map_err(|_| Error::NoAddressSpace)?;
        match owner::create(&layout, wanted.is_shared, wanted.file, wanted.is_fixed) {
            Ok(control) => {
                windows.push(start..start + size);
                return Ok((control, layout));
            }
            // A mapping that was not there when the gaps were determined.
            Err(Error::System(_, Errno::EXIST)) if wanted.start.is_none() => {
                gaps[index].start = (start + ATTEMPT_STEP).min(gap.end);
            }
            Err(error) => {
                gaps.remove(index);
                blocked = Some(error);
            }
        }
    }
}

/// Removes a window from the list.
pub(crate) fn release(start: u64) {
    WINDOWS.lock().expect("no panic while held").retain(|window| window.start != start);
}

/// Returns how far a window of `size` bytes may begin behind the start of a gap that is large
/// enough for it.
fn shift_max(gap: &Range<u64>, size: u64, wanted: &Wanted<'_>) -> u64 {
    if wanted.is_fixed || wanted.start.is_some() {
        return 0;
    }
    let end = if wanted.is_shared { gap.end.min(SHARED_REGION_END) } else { gap.end };
    end.saturating_sub(gap.start + size).min(WINDOW_SHIFT_MAX)
}

/// Returns the parts of the region that hold no window and no other mapping, in ascending order and
/// cut to whole windows' alignments. If a window must begin at `start`, returns the free part from
/// there on.
fn gaps(windows: &[Range<u64>], start: Option<u64>) -> Vec<Range<u64>> {
    let is_window = |range: &Range<u64>| windows.iter().any(|window| overlap(window, range));
    let mappings = proc::maps::own().unwrap_or_default();
    let mappings = mappings.into_iter().map(|mapping| mapping.addresses);
    let mut taken: Vec<Range<u64>> = mappings.filter(|range| !is_window(range)).collect();
    taken.extend_from_slice(windows);
    taken.sort_by_key(|range| range.start);
    let from = start.unwrap_or(REGION_START);
    let mut gaps = free(&taken, from..REGION_END);
    gaps.retain(|gap| start.is_none_or(|start| gap.start == start));
    gaps
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Returns the parts of `region` outside the ranges in `taken`, which are in ascending order, cut
/// to multiples of [`CONTROL_SIZE`].
fn free(taken: &[Range<u64>], region: Range<u64>) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut start = region.start;
    let end = Range { start: region.end, end: region.end };
    for range in taken.iter().chain([&end]) {
        let gap = start..align_down(range.start.min(region.end), CONTROL_SIZE);
        if gap.start < gap.end {
            gaps.push(gap);
        }
        start = start.max(align_up(range.end, CONTROL_SIZE).unwrap_or(region.end));
    }
    gaps
}

const _: () = assert!(CONTROL_SIZE.is_multiple_of(PAGE_SIZE));

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn gaps_lie_between_mappings_and_are_whole_alignments() {
        let region = 10 * GIB..20 * GIB;
        let free = |taken: Vec<Range<u64>>| free(&taken, region.clone());
        assert_eq!(free(vec![]), vec![region.clone()]);
        assert_eq!(free(vec![0..5 * GIB, 30 * GIB..31 * GIB]), vec![region.clone()]);
        let page = 12 * GIB + 4096..12 * GIB + 8192;
        assert_eq!(free(vec![page.clone()]), vec![10 * GIB..12 * GIB, 13 * GIB..20 * GIB]);
        // Over the start, one in another, and to the end.
        let taken = vec![9 * GIB..14 * GIB, page, 14 * GIB + 1..15 * GIB, 17 * GIB..40 * GIB];
        assert_eq!(free(taken), vec![15 * GIB..17 * GIB]);
        assert_eq!(free(vec![Range { start: 0, end: u64::MAX }]), vec![]);
    }

    #[test]
    fn a_required_start_in_a_taken_range_gives_no_gap() {
        let window = REGION_START + 4 * GIB..REGION_START + 8 * GIB;
        let starts = |start| gaps(std::slice::from_ref(&window), Some(start));
        assert_eq!(starts(window.start + GIB), []);
        assert_eq!(starts(window.end).first().map(|gap| gap.start), Some(window.end));
        assert_eq!(starts(REGION_START).first(), Some(&(REGION_START..window.start)));
    }

    #[test]
    fn random_windows_stay_in_their_gap_and_below_the_places_of_others() {
        let wanted = |is_shared, is_fixed| Wanted {
            segment_size: 32 * GIB,
            is_shared,
            file: None,
            is_fixed,
            start: None,
        };
        let region = REGION_START..REGION_END;
        let half = align_down((REGION_END - REGION_START) / 2, CONTROL_SIZE);
        assert_eq!(shift_max(&region, half, &wanted(false, false)), WINDOW_SHIFT_MAX);
        assert_eq!(shift_max(&region, half, &wanted(false, true)), 0);
        let shared = SHARED_SIZE_MAX + CONTROL_SIZE;
        let most = shift_max(&region, shared, &wanted(true, false));
        assert!(most > 8 << 40 && REGION_START + most + shared <= SHARED_REGION_END);
        // A gap that just fits.
        let gap = 50 << 40..(50 << 40) + shared;
        assert_eq!(shift_max(&gap, shared, &wanted(true, false)), 0);
        for _ in 0..100 {
            let window = common_window(false).expect("getrandom");
            assert!(window + shared <= SHARED_REGION_END && window.is_multiple_of(CONTROL_SIZE));
        }
        assert_eq!(common_window(true).expect("no random number"), REGION_START);
    }
}
