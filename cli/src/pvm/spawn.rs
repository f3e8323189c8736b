//! `spawn`: starts tasks, and directs their output and trace events.

use std::fs::{File, OpenOptions};

use pvm::constants::{PvmHostCompl, PvmNoSpawnParent, PvmTaskArch, PvmTaskDebug, PvmTaskHost};
use pvm::error::text;
use pvm::tid::Tid;
use pvm::wire::{Inheritance, Sink, Spawn};

use crate::console::{Console, Stop};
use crate::events::{self, Record};
use crate::job::{To, Traced};
use crate::jobs::Jobs;
use crate::machine;

/// The destination of output or trace events.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    Console,
    File(String),
    EndOf(String),
}

/// A command line of spawn.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    count: u32,
    flags: i32,
    place: String,
    output: Option<Wanted>,
    trace: Option<Wanted>,
    program: String,
    arguments: Vec<String>,
}

impl Line {
    /// Reads the words after `spawn`, or returns an error message.
    fn read(words: &[String]) -> Result<Line, String> {
        let mut line = Line {
            count: 1,
            flags: PvmNoSpawnParent,
            place: String::new(),
            output: None,
            trace: None,
            program: String::new(),
            arguments: Vec::new(),
        };
        let mut words = words.iter();
        loop {
            let Some(word) = words.next() else { return Err("incorrect arg count".into()) };
            match word.strip_prefix('-') {
                Some(option) => line.option(option)?,
                None => {
                    line.program = word.clone();
                    line.arguments = words.cloned().collect();
                    return Ok(line);
                }
            }
        }
    }

    /// Reads an option, without its `-`.
    fn option(&mut self, option: &str) -> Result<(), String> {
        let (complement, option) = match option.strip_prefix('~') {
            Some(rest) => (PvmHostCompl, rest),
            None => (0, option),
        };
        self.flags |= complement;
        let named = |name: &str| name.to_owned();
        if let Some(host) = option.strip_prefix("-host=") {
            self.place = named(host);
            self.flags |= PvmTaskHost;
            return Ok(());
        }
        let to =
            |name: &str| if name.is_empty() { Wanted::Console } else { Wanted::File(named(name)) };
        match option.chars().next() {
            // A number, or a host such as 127.0.0.1.
            Some('0'..='9') if option.chars().all(|letter| letter.is_ascii_digit()) => {
                self.count = match option.parse() {
                    Ok(count @ 1..) => count,
                    _ => return Err(format!("-{option}: not a valid number of tasks")),
                };
            }
            Some('.' | 'a'..='z' | '0'..='9') => {
                self.place = named(option);
                self.flags |= PvmTaskHost;
            }
            Some(':') => self.place = named(option),
            Some('A'..='Z') => {
                self.place = named(option);
                self.flags |= PvmTaskArch;
            }
            Some('?') => self.flags |= PvmTaskDebug,
            Some('>') => {
                self.output = Some(match option[1..].strip_prefix('>') {
                    Some("") => Wanted::Console,
                    Some(name) => Wanted::EndOf(named(name)),
                    None => to(&option[1..]),
                });
            }
            Some('@') => self.trace = Some(to(&option[1..])),
            _ => return Err(format!("unknown option -{option}")),
        }
        Ok(())
    }
}

/// Opens what something goes to.
fn open(wanted: &Wanted) -> Result<To, String> {
    let (name, file) = match wanted {
        Wanted::Console => return Ok(To::Console),
        Wanted::File(name) => (name, File::create(name)),
        Wanted::EndOf(name) => (name, OpenOptions::new().append(true).create(true).open(name)),
    };
    file.map(To::File).map_err(|error| format!("{name}: {error}"))
}

/// `spawn [options] program [arg …]`.
pub fn spawn(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let line = match Line::read(&words[1..]) {
        Ok(line) => line,
        Err(why) => {
            console.refuse(&why, "help spawn");
            return Ok(());
        }
    };
    let sinks = line.output.as_ref().map(open).transpose();
    let sinks = sinks.and_then(|output| Ok((output, line.trace.as_ref().map(open).transpose()?)));
    let (output, trace) = match sinks {
        Ok(sinks) => sinks,
        Err(why) => {
            console.complain(&format!("spawn: {why}"));
            return Ok(());
        }
    };
    let mut inheritance = Inheritance::default();
    let job = if output.is_some() || trace.is_some() {
        let traced = trace.is_some();
        let number = console.jobs.begin(output.unwrap_or(To::Nowhere), trace);
        println!("[{number}]");
        let (tid, context) = (console.machine.tid().as_int(), console.machine.context());
        inheritance.output = Sink { tid, context, tag: Jobs::tag(number) };
        if traced {
            inheritance.trace = Sink { tid, context, tag: Jobs::tag(number) + 1 };
            inheritance.trace_mask = console.tracing.mask();
            inheritance.trace_buffer = console.tracing.buffer;
            inheritance.trace_options = console.tracing.options;
            begin_trace(console, number);
        }
        Some(number)
    } else {
        None
    };
    let request = Spawn {
        file: line.program.clone(),
        directory: directory(),
        arguments: line.arguments,
        flags: line.flags,
        place: line.place,
        count: line.count,
        environment: console.environment.for_tasks(),
        inheritance,
    };
    let spawned =
        console.heed(&format!("spawn {}", line.program), |machine| machine.spawn(request))?;
    let tids = spawned.iter().flat_map(|(tids, _)| tids);
    let started = tids.filter(|tid| **tid > 0);
    let started: Vec<Tid> = started.map(|tid| Tid(*tid as u32)).collect();
    match job {
        Some(number) if started.is_empty() => console.jobs.forget(number),
        Some(number) => console.jobs.expect(number, started.iter().copied()),
        None => {}
    }
    if let Some((tids, why)) = spawned {
        println!("{} successful", started.len());
        for tid in tids {
            if tid > 0 {
                println!("t{tid:x}");
            } else {
                console.note_failure();
                println!("{}", text(tid));
            }
        }
        for why in why {
            console.complain(&format!("spawn: {why}"));
        }
    }
    Ok(())
}

/// The console's directory, in which relative names of programs are looked for.
fn directory() -> String {
    let directory = std::env::current_dir().ok();
    directory
        .and_then(|directory| directory.into_os_string().into_string().ok())
        .unwrap_or_default()
}

/// Writes the heading of a trace: date, tracer and hosts.
fn begin_trace(console: &mut Console, number: i32) {
    let own = console.machine.tid();
    let hosts = console.machine.hosts().unwrap_or_default();
    let named = console.options.shows_tids();
    let (tag, now) = (Jobs::tag(number) + 1, machine::clock());
    let mut out = Vec::new();
    let heading = events::heading(&machine::date(), machine::VERSION);
    console.jobs.trace(tag, own, Traced::Heading(&heading), named, &mut out);
    for host in &hosts {
        let record = Record::host(host, now);
        console.jobs.trace(tag, host.tid, Traced::Record(&record), named, &mut out);
    }
    print!("{}", String::from_utf8_lossy(&out));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Line, String> {
        Line::read(&crate::words::split(text).unwrap())
    }

    #[test]
    fn options_come_before_the_program() {
        let line = read("-3 -LINUX64:/tmp -> -@ file -2 b").unwrap();
        assert_eq!((line.count, line.place.as_str()), (3, "LINUX64:/tmp"));
        assert_eq!(line.flags, PvmNoSpawnParent | PvmTaskArch);
        assert_eq!((line.output, line.trace), (Some(Wanted::Console), Some(Wanted::Console)));
        assert_eq!(
            (line.program.as_str(), line.arguments),
            ("file", vec!["-2".into(), "b".into()])
        );
    }

    #[test]
    fn places_are_told_apart() {
        let of = |text: &str| {
            let line = read(text).unwrap();
            (line.flags & !PvmNoSpawnParent, line.place, line.count)
        };
        assert_eq!(of("a"), (0, "".into(), 1));
        assert_eq!(of("-. a"), (PvmTaskHost, ".".into(), 1));
        assert_eq!(of("-node1:/tmp a"), (PvmTaskHost, "node1:/tmp".into(), 1));
        assert_eq!(of("-127.0.0.1 a"), (PvmTaskHost, "127.0.0.1".into(), 1));
        assert_eq!(of("--host=Node1 a"), (PvmTaskHost, "Node1".into(), 1));
        assert_eq!(of("-:/tmp a"), (0, ":/tmp".into(), 1));
        assert_eq!(of("-~. a"), (PvmTaskHost | PvmHostCompl, ".".into(), 1));
        assert_eq!(of("-? -007 a"), (PvmTaskDebug, "".into(), 7));
    }

    #[test]
    fn output_goes_to_the_console_or_a_file() {
        let of = |text: &str| read(text).unwrap().output;
        assert_eq!(of("-> a"), Some(Wanted::Console));
        assert_eq!(of("->> a"), Some(Wanted::Console));
        assert_eq!(of("->o a"), Some(Wanted::File("o".into())));
        assert_eq!(of("->>o a"), Some(Wanted::EndOf("o".into())));
        assert_eq!(read("-@t a").unwrap().trace, Some(Wanted::File("t".into())));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (text, why) in [
            ("", "incorrect arg count"),
            ("-> -3", "incorrect arg count"),
            ("-0 a", "-0: not a valid number of tasks"),
            ("-99999999999 a", "-99999999999: not a valid number of tasks"),
            ("-% a", "unknown option -%"),
            ("- a", "unknown option -"),
        ] {
            assert_eq!(read(text).unwrap_err(), why);
        }
    }
}
