//! Commands about tasks that run.

use pvm::error::text;
use pvm::tid::Tid;
use pvm::wire::TaskInfo;

use crate::console::{Console, Stop};
use crate::mailboxes;

/// A tid as users write it: in base 16, after a `t` or not.
pub fn parse_tid(word: &str) -> Option<Tid> {
    let digits = word.strip_prefix('t').unwrap_or(word);
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    // A sign is none of a tid's digits.
    if digits.starts_with('+') {
        return None;
    }
    u32::from_str_radix(digits, 16).ok().map(Tid)
}

/// Says that a word is no tid.
fn no_tid(console: &mut Console, command: &str, word: &str) {
    console.complain(&format!("{command}: {word:?} is no task id; ps -a lists them"));
}

/// Letters of a status's bits, from the highest.
const FLAGS: [(i32, char); 8] = [
    (1 << 10, 'T'),
    (1 << 9, 'H'),
    (1 << 8, 'R'),
    (1 << 5, 's'),
    (1 << 4, 'o'),
    (1 << 3, 'a'),
    (1 << 2, 'c'),
    (1 << 1, 'f'),
];

/// A status as number and letters.
fn flags(flags: i32) -> String {
    let letters: Vec<String> = FLAGS
        .iter()
        .filter(|(bit, _)| flags & bit != 0)
        .map(|(_, letter)| letter.to_string())
        .collect();
    if letters.is_empty() {
        format!("{flags:x}")
    } else {
        format!("{flags:x}/{}", letters.join(","))
    }
}

/// Heads what `print` prints.
pub fn print_heading(long: bool) {
    if long {
        println!("                    HOST      TID     PTID    PID   FLAG 0x COMMAND");
    } else {
        println!("                    HOST      TID   FLAG 0x COMMAND");
    }
}

/// Prints a task.
pub fn print(console: &mut Console, task: &TaskInfo, long: bool) {
    let host = console.host_name(task.host);
    let own = console.machine.tid();
    let named = |tid: Tid| match tid {
        tid if tid == own => "  (cons)".to_owned(),
        Tid(0) => "-".to_owned(),
        tid => format!("{:x}", tid.0),
    };
    let tid = if task.tid.0 == 0 { "0".to_owned() } else { named(task.tid) };
    let relatives =
        if long { format!(" {:>8} {:>6}", named(task.parent), task.pid) } else { String::new() };
    let program = if task.name.is_empty() { "-" } else { &task.name };
    println!("{host:>24} {tid:>8}{relatives} {:>9} {program:<12}", flags(task.flags));
}

/// The columns that `ps` shows.
#[derive(Debug, PartialEq, Eq)]
enum Of {
    ThisHost,
    All,
    Daemon(Tid),
    Host(String),
}

/// `ps [-ahlnx]`.
pub fn ps(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let (mut of, mut long, mut everything) = (Of::ThisHost, false, false);
    let letters = words.get(1).map_or("", String::as_str);
    for (at, letter) in letters.char_indices() {
        let rest = &letters[at + letter.len_utf8()..];
        match letter {
            '-' => {}
            'a' => of = Of::All,
            'l' => long = true,
            'x' => everything = true,
            'n' if rest == "." => break,
            'n' => {
                of = Of::Host(rest.to_owned());
                break;
            }
            'h' => {
                match parse_tid(rest) {
                    Some(tid) => of = Of::Daemon(tid),
                    None => {
                        console.complain(&format!(
                            "ps: {rest:?} is no task id of a pvmd; conf lists them as DTID"
                        ));
                        return Ok(());
                    }
                }
                break;
            }
            _ => console.refuse(&format!("unknown flag -{letter}"), "help ps"),
        }
    }
    let own = console.machine.tid();
    let which = match of {
        Of::All => Tid(0),
        Of::ThisHost => Tid::of_host(own.host()),
        Of::Daemon(tid) => tid,
        Of::Host(name) => {
            let Some(hosts) = console.heed("ps", |machine| machine.hosts())? else { return Ok(()) };
            match hosts.iter().find(|host| host.name == name) {
                Some(host) => host.tid,
                None => {
                    console.refuse(&format!("unknown host {name}"), "conf lists the hosts");
                    Tid::of_host(own.host())
                }
            }
        }
    };
    let Some(tasks) = console.heed("ps", |machine| machine.tasks(which))? else { return Ok(()) };
    print_heading(long);
    for task in &tasks {
        if everything || (task.tid != own && task.tid.0 != 0) {
            print(console, task, long);
        }
    }
    Ok(())
}

/// `pstat tid …`.
pub fn pstat(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    for word in &words[1..] {
        let Some(tid) = parse_tid(word) else {
            no_tid(console, "pstat", word);
            continue;
        };
        let status = match console.ask(|machine| machine.task_status(tid))? {
            Ok(()) => "run",
            Err(error) => {
                console.note_failure();
                text(error.code())
            }
        };
        println!("t{:8x}  {status}", tid.0);
    }
    Ok(())
}

/// `kill [-c] tid …`.
pub fn kill(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let mut words = &words[1..];
    let mut children = false;
    if let Some(letters) = words[0].strip_prefix('-') {
        words = &words[1..];
        for letter in letters.chars() {
            match letter {
                'c' => children = true,
                '-' => {}
                _ => console.refuse(&format!("unknown flag -{letter}"), "help kill"),
            }
        }
    }
    if words.is_empty() {
        console.refuse("incorrect arg count", "help kill");
        return Ok(());
    }
    let own = console.machine.tid();
    let mut all = Vec::new();
    if children {
        match console.heed("kill", |machine| machine.tasks(Tid(0)))? {
            Some(tasks) => all = tasks,
            None => return Ok(()),
        }
    }
    for word in words {
        match parse_tid(word) {
            None => no_tid(console, "kill", word),
            Some(parent) if children => {
                for task in all.iter().filter(|task| task.parent == parent && task.tid != own) {
                    console
                        .heed(&format!("kill {}", task.tid), |machine| machine.kill(task.tid))?;
                }
            }
            Some(tid) if tid == own => {
                println!("{tid}: that's me.");
                console.note_failure();
            }
            Some(tid) => {
                console.heed(&format!("kill {word}"), |machine| machine.kill(tid))?;
            }
        }
    }
    Ok(())
}

/// Largest number of a signal.
const SIGNAL_MAX: i32 = 64;

/// `sig number tid …`.
pub fn sig(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let signal = match words[1].parse() {
        Ok(signal) if (0..=SIGNAL_MAX).contains(&signal) => signal,
        _ => {
            let word = &words[1];
            console.complain(&format!(
                "sig: {word:?} is no number of a signal; 15 is SIGTERM, 9 SIGKILL"
            ));
            return Ok(());
        }
    };
    for word in &words[2..] {
        match parse_tid(word) {
            None => no_tid(console, "sig", word),
            Some(tid) => {
                console.heed(&format!("sig {word}"), |machine| machine.signal(tid, signal))?;
            }
        }
    }
    Ok(())
}

/// `reset`, `reset info [class [index]]`.
pub fn reset(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    match words {
        [_] => {
            console.heed("reset", |machine| machine.reset())?;
        }
        [_, info, class_and_index @ ..] if info == "info" => {
            mailboxes::reset(console, class_and_index)?
        }
        [_, other, ..] => {
            console.refuse(&format!("\"{other}\" arg to reset not valid"), "help reset");
        }
        [] => unreachable!("a command has a name"),
    }
    Ok(())
}

/// `tickle how [number …]`.
pub fn tickle(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let mut numbers = Vec::new();
    for word in &words[1..] {
        let number = match word.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).ok().map(|number| number as i32),
            None => word.parse().ok(),
        };
        match number {
            Some(number) => numbers.push(number),
            None => {
                console.complain(&format!("tickle: {word:?} is no number (help tickle)"));
                return Ok(());
            }
        }
    }
    if let Some(results) = console.heed("tickle", |machine| machine.tickle(&numbers))? {
        let results: String = results.iter().map(|result| format!(" {result}")).collect();
        println!("({results} )");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tids_are_hexadecimal() {
        assert_eq!(parse_tid("t40001"), Some(Tid(0x40001)));
        assert_eq!(parse_tid("40001"), Some(Tid(0x40001)));
        assert_eq!(parse_tid("0x4000A"), Some(Tid(0x4000a)));
        assert_eq!(parse_tid("t80040000"), Some(Tid(0x8004_0000)));
        for wrong in ["", "t", "zz", "t-1", "+4", "400000001", "4 ", "tt4"] {
            assert_eq!(parse_tid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn flags_have_letters_from_the_highest_bit() {
        assert_eq!(flags(6), "6/c,f");
        assert_eq!(flags(0x704), "704/T,H,R,c");
        assert_eq!(flags(0), "0");
    }
}
