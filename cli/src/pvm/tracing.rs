//! `trace`: which events of libpvm spawned tasks trace, and how.

use pvm::constants::{PvmTraceCount, PvmTraceFull, PvmTraceTime};

use crate::console::{Console, Stop};

/// Events by number (`pvmtev.h`).
#[rustfmt::skip]
const EVENTS: [&str; 109] = [
    "addhosts", "barrier", "bcast", "bufinfo", "config", "delete", "delhosts", "exit",
    "freebuf", "getfds", "getinst", "getopt", "getrbuf", "getsbuf", "gettid", "gsize", "halt",
    "initsend", "insert", "joingroup", "kill", "lookup", "lvgroup", "mcast", "mkbuf", "mstat",
    "mytid", "notify", "nrecv", "parent", "perror", "pkbyte", "pkcplx", "pkdcplx", "pkdouble",
    "pkfloat", "pkint", "pkuint", "pklong", "pkulong", "pkshort", "pkushort", "pkstr", "probe",
    "pstat", "recv", "recvf", "send", "sendsig", "setopt", "setrbuf", "setsbuf", "spawn",
    "start_pvmd", "tasks", "tickle", "tidtohost", "trecv", "upkbyte", "upkcplx", "upkdcplx",
    "upkdouble", "upkfloat", "upkint", "upkuint", "upklong", "upkulong", "upkshort",
    "upkushort", "upkstr", "version", "reg_hoster", "reg_rm", "reg_tasker", "reg_tracer",
    "newtask", "endtask", "spntask", "archcode", "catchout", "getmwid", "gettmask", "hostsync",
    "packf", "precv", "psend", "reduce", "setmwid", "settmask", "unpackf", "gather", "scatter",
    "putinfo", "getinfo", "delinfo", "getmboxinfo", "newcontext", "freecontext", "setcontext",
    "getcontext", "siblings", "getminfo", "setminfo", "addmhf", "delmhf", "mhf_invoke",
    "timing", "profiling", "user_defined",
];

/// Events of the daemon, which come unasked, and events of old versions: `trace` does not list
/// them.
const UNLISTED: [&str; 5] = ["newtask", "endtask", "spntask", "timing", "profiling"];

/// Those that XPVM draws.
#[rustfmt::skip]
const XPVM: [&str; 24] = [
    "barrier", "bcast", "joingroup", "lvgroup", "mytid", "parent", "siblings", "spawn",
    "sendsig", "kill", "exit", "mcast", "send", "recv", "recvf", "nrecv", "psend", "precv",
    "trecv", "probe", "addmhf", "delmhf", "mhf_invoke", "user_defined",
];

/// A set of events. As text, as tasks get it: four events a letter, from `@` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mask(u128);

impl Mask {
    const ALL: Mask = Mask((1 << EVENTS.len()) - 1);

    fn of(names: &[&str]) -> Mask {
        Mask(names.iter().filter_map(|name| number(name)).fold(0, |mask, event| mask | 1 << event))
    }

    fn holds(self, event: usize) -> bool {
        self.0 & 1 << event != 0
    }
}

/// Letters of a mask's text.
const TEXT_LENGTH: usize = 35;

impl std::fmt::Display for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let letter = |at: usize| {
            (b'@' + (self.0.checked_shr(4 * at as u32).unwrap_or(0) & 15) as u8) as char
        };
        f.write_str(&(0..TEXT_LENGTH).map(letter).collect::<String>())
    }
}

/// The calls that tasks spawned with `-@` trace.
#[derive(Debug)]
pub struct Tracing {
    mask: Mask,
    /// Bytes that are gathered before they are sent.
    pub buffer: i32,
    /// `PvmTraceFull` and so on.
    pub options: i32,
}

impl Tracing {
    /// Traces the events that XPVM draws, in full and without a buffer.
    pub fn new() -> Tracing {
        Tracing { mask: Mask::of(&XPVM), buffer: 0, options: PvmTraceFull }
    }

    /// The events, as tasks get them.
    pub fn mask(&self) -> String {
        self.mask.to_string()
    }
}

/// The event with this name, with `pvm_` before it or not.
fn number(name: &str) -> Option<usize> {
    let name = name.strip_prefix("pvm_").unwrap_or(name);
    EVENTS.iter().position(|event| *event == name)
}

/// Rows and columns of the list of events.
const COLUMNS: usize = 4;

/// All events by name, down the columns; `*` marks those in the mask.
fn list(mask: Mask) -> String {
    let mut names: Vec<&str> =
        EVENTS.iter().copied().filter(|name| !UNLISTED.contains(name)).collect();
    names.sort_unstable();
    let rows = names.len().div_ceil(COLUMNS);
    let cell = |name: &str| {
        let mark = if number(name).is_some_and(|event| mask.holds(event)) { '*' } else { ' ' };
        format!(" {mark} {name:<15}")
    };
    let row = |row: usize| {
        let cells: Vec<String> =
            names.iter().skip(row).step_by(rows).map(|name| cell(name)).collect();
        cells.join(" ") + "\n"
    };
    (0..rows).map(row).collect()
}

/// `trace …`.
pub fn trace(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    if words.len() == 1 {
        print!("{}", list(console.tracing.mask));
    }
    let mut mask = console.tracing.mask;
    let mut adding = true;
    let mut words = words[1..].iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "+" => adding = true,
            "-" => adding = false,
            "*" => mask = if adding { Mask::ALL } else { Mask(0) },
            "xpvm" => mask = Mask::of(&XPVM),
            "buf" => buffer(console, words.next()),
            "opt" => detail(console, words.next()),
            name => match number(name) {
                Some(event) if adding => mask.0 |= 1 << event,
                Some(event) => mask.0 &= !(1 << event),
                None => console.refuse(&format!("no such event \"{name}\""), "trace lists them"),
            },
        }
    }
    console.tracing.mask = mask;
    Ok(())
}

/// `trace buf [bytes]`.
fn buffer(console: &mut Console, bytes: Option<&str>) {
    match bytes.map(str::parse::<i32>) {
        None => println!("\nTrace Buffering set to {} bytes\n", console.tracing.buffer),
        Some(Ok(bytes @ 0..)) => console.tracing.buffer = bytes,
        Some(_) => console.complain("trace buf: how many bytes? (help trace)"),
    }
}

/// The levels of detail for a call, and their names.
const DETAILS: [(i32, &str); 3] =
    [(PvmTraceFull, "full"), (PvmTraceTime, "time"), (PvmTraceCount, "count")];

/// `trace opt [full|time|count]`.
fn detail(console: &mut Console, wanted: Option<&str>) {
    let Some(wanted) = wanted else {
        let name = DETAILS.iter().find(|(number, _)| *number == console.tracing.options);
        println!("\nTrace Options set to \"{}\"\n", name.expect("only these are set").1);
        return;
    };
    match DETAILS.iter().find(|(_, name)| *name == wanted) {
        Some((number, _)) => console.tracing.options = *number,
        None => {
            println!("\nError:  Unknown Trace Option \"{wanted}\"\n");
            console.note_failure();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_letters_of_four_events() {
        assert_eq!(Mask(0).to_string(), "@".repeat(35));
        assert_eq!(&Mask::of(&["addhosts", "bufinfo", "pvm_config"]).to_string()[..3], "IA@");
        assert_eq!(&Mask::ALL.to_string()[25..], "OOA@@@@@@@");
        assert_eq!(Mask::of(&XPVM).0.count_ones() as usize, XPVM.len());
    }

    #[test]
    fn the_list_goes_down_its_columns() {
        let list = list(Mask::of(&["addmhf"]));
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.len(), 26);
        assert_eq!(
            lines[0],
            "   addhosts           gettid             pkfloat            setopt         "
        );
        assert!(lines[1].starts_with(" * addmhf             gettmask "), "{}", lines[1]);
    }
}
