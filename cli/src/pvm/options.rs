//! `getopt` and `setopt`: options of the console's own task.

use pvm::constants::{PvmNoReset, PvmShowTids, PvmTraceFull};

use crate::console::{Console, Stop};

/// Options by number, from 1. Two have a meaning on other machines only.
const NAMES: [&str; 25] = [
    "PvmRoute",
    "PvmDebugMask",
    "PvmAutoErr",
    "PvmOutputTid",
    "PvmOutputCode",
    "PvmTraceTid",
    "PvmTraceCode",
    "PvmTraceBuffer",
    "PvmTraceOptions",
    "PvmFragSize",
    "PvmResvTids",
    "PvmSelfOutputTid",
    "PvmSelfOutputCode",
    "PvmSelfTraceTid",
    "PvmSelfTraceCode",
    "PvmSelfTraceBuffer",
    "PvmSelfTraceOptions",
    "PvmShowTids",
    "",
    "",
    "PvmOutputContext",
    "PvmTraceContext",
    "PvmSelfOutputContext",
    "PvmSelfTraceContext",
    "PvmNoReset",
];

/// The values of the options. `PvmShowTids` and `PvmNoReset` affect the console. The others are
/// only stored.
#[derive(Debug)]
pub struct Options([i32; NAMES.len()]);

impl Options {
    /// As stock PVM's console begins.
    pub fn new() -> Options {
        let value = |name| match name {
            "PvmRoute" | "PvmAutoErr" | "PvmResvTids" | "PvmShowTids" | "PvmNoReset" => 1,
            "PvmOutputTid" | "PvmTraceTid" | "PvmSelfOutputTid" | "PvmSelfTraceTid" => -1,
            "PvmTraceOptions" => PvmTraceFull,
            "PvmFragSize" => 4080,
            _ => 0,
        };
        Options(NAMES.map(value))
    }

    /// Returns true if lines of output start with job and task.
    pub fn shows_tids(&self) -> bool {
        self.0[PvmShowTids as usize - 1] != 0
    }
}

fn names() -> impl Iterator<Item = (i32, &'static str)> {
    (1..).zip(NAMES).filter(|(_, name)| !name.is_empty())
}

/// Returns the option's number, or prints that it does not exist.
fn find(console: &mut Console, wanted: &str) -> Option<i32> {
    let found = names().find(|(_, name)| *name == wanted).map(|(number, _)| number);
    if found.is_none() {
        console.refuse(&format!("PVM Option \"{wanted}\" Unknown."), "getopt lists them");
    }
    found
}

/// `getopt [option]`.
pub fn getopt(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let wanted = match words.get(1) {
        None => names().collect(),
        Some(name) => match find(console, name) {
            Some(number) => vec![(number, NAMES[number as usize - 1])],
            None => return Ok(()),
        },
    };
    for (number, name) in wanted {
        println!("{name} Currently Set to {}", console.options.0[number as usize - 1]);
    }
    Ok(())
}

/// `setopt option value`.
pub fn setopt(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let [_, name, value] = words else { unreachable!("the table of commands says three words") };
    let Some(number) = find(console, name) else { return Ok(()) };
    let Ok(value) = value.parse() else {
        console.complain(&format!("setopt: {value:?} is no number"));
        return Ok(());
    };
    if number == PvmNoReset {
        console.heed(name, |machine| machine.set_no_reset(value != 0))?;
    }
    let before = std::mem::replace(&mut console.options.0[number as usize - 1], value);
    println!("{name} Changed from {before} to {value}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::NAMES;

    #[test]
    fn names_have_the_numbers_of_the_header() {
        assert_eq!(NAMES[pvm::constants::PvmRoute as usize - 1], "PvmRoute");
        assert_eq!(NAMES[pvm::constants::PvmShowTids as usize - 1], "PvmShowTids");
        assert_eq!(NAMES[pvm::constants::PvmSelfTraceContext as usize - 1], "PvmSelfTraceContext");
        assert_eq!(NAMES[pvm::constants::PvmNoReset as usize - 1], "PvmNoReset");
    }
}
