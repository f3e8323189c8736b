//! Copy plans: the gate's copy loop for each size on this processor. `nagaya tune` measures a plan
//! and stores it. Without a stored plan, the kind of processor decides.
//!
//! A plan file has a section for each processor model, so that machines with a shared home
//! directory can share the file:
//! ```text
//! processor AuthenticAMD 26.2.1
//! 0 string
//! 65536 vector
//! ```
//! A row `SIZE LOOP` selects the loop for copies of at least SIZE bytes.

use std::arch::x86_64::{__cpuid_count, CpuidResult};
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

pub use nagaya_gate::CopyLoop;

use crate::error::Error;

const LOOPS: [(CopyLoop, &str); 3] =
    [(CopyLoop::String, "string"), (CopyLoop::Vector, "vector"), (CopyLoop::Stream, "stream")];

/// The copy loop for every size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPlan {
    /// Indexed by the position of the size's highest bit.
    loops: [CopyLoop; 64],
}

/// The origin of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The environment variable NAGAYA_COPY.
    Environment,
    /// `nagaya tune` measured it on this machine and stored it in this file.
    Measured(PathBuf),
    /// The known behaviour of this kind of processor.
    Kind(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("by NAGAYA_COPY"),
            Self::Measured(path) => write!(f, "measured, {}", path.display()),
            Self::Kind(kind) => write!(f, "by kind: {kind}; nagaya tune measures"),
        }
    }
}

impl CopyPlan {
    /// Returns a plan with one loop for all sizes.
    pub fn uniform(by: CopyLoop) -> Self {
        Self { loops: [by; 64] }
    }

    /// Returns the loop for copies of `size` bytes.
    pub fn at(&self, size: u64) -> CopyLoop {
        self.loops[63 - size.max(1).leading_zeros() as usize]
    }

    /// Selects a loop for copies of at least `size` bytes, a power of two.
    pub fn set_from(&mut self, size: u64, by: CopyLoop) {
        self.loops[63 - size.max(1).leading_zeros() as usize..].fill(by);
    }

    /// Returns the plan as rows `(size, loop)`, each for copies of at least `size` bytes.
    pub fn rows(&self) -> Vec<(u64, CopyLoop)> {
        let mut rows = vec![(0, self.loops[0])];
        for bit in 1..64 {
            if self.loops[bit] != self.loops[bit - 1] {
                rows.push((1 << bit, self.loops[bit]));
            }
        }
        rows
    }

    pub(crate) fn loops(&self) -> &[CopyLoop; 64] {
        &self.loops
    }

    /// Parses the section for `processor` in the text of a plan file. Returns `None` if the section
    /// is missing or invalid, or needs a feature that this processor lacks.
    fn parse(text: &str, processor: &str) -> Option<Self> {
        let rows = section(text, processor)?;
        let mut plan = None;
        for row in rows.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
            let (size, by) = row.split_once(' ')?;
            let size: u64 = size.parse().ok()?;
            let by = by_name(by.trim()).filter(|&by| is_available(by))?;
            if size == 0 {
                plan = Some(Self::uniform(by));
            } else if size.is_power_of_two() {
                plan.as_mut()?.set_from(size, by);
            } else {
                return None;
            }
        }
        plan
    }

    /// Returns the text of a plan file with this plan for `processor` and the other sections of
    /// `before`.
    pub fn write_into(&self, before: &str, processor: &str) -> String {
        let mut text = String::new();
        let mut others = true;
        for line in before.lines() {
            if let Some(name) = line.strip_prefix("processor ") {
                others = name.trim() != processor;
            }
            if others {
                text.push_str(line);
                text.push('\n');
            }
        }
        if text.is_empty() {
            text.push_str("# What copies messages in a space; written by nagaya tune.\n");
        }
        let _ = writeln!(text, "processor {processor}");
        for (size, by) in self.rows() {
            let _ = writeln!(text, "{size} {}", name(by));
        }
        text
    }
}

/// Formats the plan for users: `string; from 64 KiB vector`.
impl fmt::Display for CopyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (size, by) in self.rows() {
            match size {
                0 => write!(f, "{}", name(by))?,
                _ if size >= 1 << 10 => write!(f, "; from {} KiB {}", size >> 10, name(by))?,
                _ => write!(f, "; from {size} B {}", name(by))?,
            }
        }
        Ok(())
    }
}

fn section<'a>(text: &'a str, processor: &str) -> Option<&'a str> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        at += line.len();
        if line.strip_prefix("processor ").is_some_and(|name| name.trim() == processor) {
            let rest = &text[at..];
            return Some(rest.find("processor ").map_or(rest, |end| &rest[..end]));
        }
    }
    None
}

/// Returns the loop's name in plan files: `string`, `vector` or `stream`.
pub fn name(by: CopyLoop) -> &'static str {
    LOOPS[by as usize].1
}

fn by_name(name: &str) -> Option<CopyLoop> {
    LOOPS.iter().find(|(_, n)| *n == name).map(|(by, _)| *by)
}

/// Returns the registers that CPUID sets for a leaf and a subleaf.
#[allow(unused_unsafe, reason = "the intrinsic is unsafe in Rust 1.88, and safe in newer versions")]
fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    // SAFETY: all x86-64 processors have CPUID. It writes registers only.
    unsafe { __cpuid_count(leaf, subleaf) }
}

/// Returns true if the processor and the kernel support the loop. `vector` and `stream` need AVX2,
/// and XGETBV with ECX = 1 to restore the upper halves of the registers.
pub fn is_available(by: CopyLoop) -> bool {
    by == CopyLoop::String || (is_x86_feature_detected!("avx2") && cpuid(0xd, 1).eax & 4 != 0)
}

/// Returns vendor, family, model and stepping of this processor, such as `AuthenticAMD 26.2.1`.
pub fn processor() -> String {
    let Signature { vendor, family, model, stepping } = signature();
    format!("{vendor} {family}.{model}.{stepping}")
}

struct Signature {
    vendor: String,
    family: u32,
    model: u32,
    stepping: u32,
}

fn signature() -> Signature {
    let leaf = cpuid(0, 0);
    let vendor = [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).concat();
    let vendor = String::from_utf8_lossy(&vendor).into_owned();
    let version = cpuid(1, 0).eax;
    let (mut family, mut model) = (version >> 8 & 15, version >> 4 & 15);
    if family == 15 {
        family += version >> 20 & 255;
    }
    if family >= 15 || family == 6 {
        model += (version >> 16 & 15) << 4;
    }
    Signature { vendor, family, model, stepping: version & 15 }
}

/// Speed of the processor's string instructions by CPUID: no flag, `erms`, or `erms` and `fsrm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strings {
    Slow,
    Enhanced,
    Fast,
}

fn strings() -> Strings {
    const ERMS: u32 = 1 << 9; // EBX
    const FSRM: u32 = 1 << 4; // EDX
    if cpuid(0, 0).eax < 7 {
        return Strings::Slow;
    }
    let features = cpuid(7, 0);
    match (features.ebx & ERMS != 0, features.edx & FSRM != 0) {
        (true, true) => Strings::Fast,
        (true, false) => Strings::Enhanced,
        _ => Strings::Slow,
    }
}

/// Returns the best loop for a kind of processor, and the reason.
fn by_kind(vendor: &str, family: u32, strings: Strings) -> (CopyLoop, &'static str) {
    match (vendor, family, strings) {
        // String instructions are several times slower there for unaligned destinations (glibc bug
        // 30994).
        ("AuthenticAMD", 0x19, _) => (CopyLoop::Vector, "string instructions slow when unaligned"),
        (_, _, Strings::Fast) => (CopyLoop::String, "fast string instructions"),
        ("GenuineIntel", _, Strings::Enhanced) => {
            (CopyLoop::String, "enhanced string instructions")
        }
        _ => (CopyLoop::Vector, "no fast string instructions"),
    }
}

/// Returns the paths of plan files, the user's file first.
pub fn files() -> Vec<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    let own = config.or_else(home).map(|config| config.join("nagaya/copy"));
    own.into_iter().chain([PathBuf::from("/etc/nagaya/copy")]).collect()
}

/// Returns the plan for spaces that this process creates, and its origin.
///
/// # Errors
/// NAGAYA_COPY names no loop, or a loop that this processor cannot run.
pub fn current() -> Result<(CopyPlan, Source), Error> {
    match std::env::var("NAGAYA_COPY") {
        Ok(value) if !value.is_empty() => {
            return match by_name(&value) {
                None => Err(Error::Invalid("NAGAYA_COPY (string, vector or stream)")),
                Some(by) if !is_available(by) => {
                    Err(Error::Invalid("NAGAYA_COPY (vector and stream need AVX2; use string)"))
                }
                Some(by) => Ok((CopyPlan::uniform(by), Source::Environment)),
            };
        }
        _ => {}
    }
    let processor = processor();
    for path in files() {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(plan) = CopyPlan::parse(&text, &processor) {
            return Ok((plan, Source::Measured(path)));
        }
    }
    let Signature { vendor, family, .. } = signature();
    let (by, kind) = match by_kind(&vendor, family, strings()) {
        (by, _) if !is_available(by) => (CopyLoop::String, "no AVX2"),
        known => known,
    };
    Ok((CopyPlan::uniform(by), Source::Kind(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> CopyPlan {
        let mut plan = CopyPlan::uniform(CopyLoop::String);
        plan.set_from(1 << 16, CopyLoop::Vector);
        plan.set_from(1 << 25, CopyLoop::Stream);
        plan
    }

    #[test]
    fn sizes_find_their_loop() {
        let plan = plan();
        for (size, by) in [
            (0, CopyLoop::String),
            (65535, CopyLoop::String),
            (65536, CopyLoop::Vector),
            ((1 << 25) - 1, CopyLoop::Vector),
            (1 << 25, CopyLoop::Stream),
            (u64::MAX, CopyLoop::Stream),
        ] {
            assert_eq!(plan.at(size), by, "{size}");
        }
        assert_eq!(plan.to_string(), "string; from 64 KiB vector; from 32768 KiB stream");
    }

    #[test]
    fn written_data_is_read_back_and_neighbours_stay() {
        let text = plan().write_into("", "A 1.2.3");
        let text = CopyPlan::uniform(CopyLoop::String).write_into(&text, "B 4.5.6");
        let text = plan().write_into(&text, "A 1.2.3");
        assert_eq!(text.matches("processor A 1.2.3\n").count(), 1, "{text}");
        if is_available(CopyLoop::Stream) {
            assert_eq!(CopyPlan::parse(&text, "A 1.2.3"), Some(plan()));
        }
        let uniform = CopyPlan::uniform(CopyLoop::String);
        assert_eq!(CopyPlan::parse(&text, "B 4.5.6"), Some(uniform));
        assert_eq!(CopyPlan::parse(&text, "A 1.2.4"), None);
    }

    #[test]
    fn processors_of_other_kinds_get_other_loops() {
        for (vendor, family, strings, by) in [
            ("AuthenticAMD", 0x17, Strings::Slow, CopyLoop::Vector), // Zen, Zen 2
            ("AuthenticAMD", 0x19, Strings::Fast, CopyLoop::Vector), // Zen 3, Zen 4
            ("AuthenticAMD", 0x1a, Strings::Fast, CopyLoop::String), // Zen 5
            ("GenuineIntel", 6, Strings::Enhanced, CopyLoop::String), // Haswell to Cascade Lake
            ("GenuineIntel", 6, Strings::Fast, CopyLoop::String),    // Ice Lake and later
            ("GenuineIntel", 6, Strings::Slow, CopyLoop::Vector),
        ] {
            assert_eq!(by_kind(vendor, family, strings).0, by, "{vendor} {family:#x} {strings:?}");
        }
    }

    #[test]
    fn random_text_is_no_plan() {
        for rows in ["", "vector\n", "0 fast\n", "4096 string\n", "0 string\n5000 string\n", "x\n"]
        {
            let text = format!("processor A 1.2.3\n{rows}");
            assert_eq!(CopyPlan::parse(&text, "A 1.2.3"), None, "{rows}");
        }
    }
}
