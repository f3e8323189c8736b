//! Commands about hosts.

use pvm::error::{Error, text};
use pvm::wire::HostInfo;

use crate::console::{Console, Stop};

/// `conf`.
pub fn conf(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let Some(hosts) = console.heed(&words[0], |machine| machine.hosts())? else { return Ok(()) };
    let mut formats: Vec<i32> = hosts.iter().map(|host| host.signature).collect();
    formats.sort_unstable();
    formats.dedup();
    let plural = |count: usize| if count > 1 { "s" } else { "" };
    let (count, formats) = (hosts.len(), formats.len());
    println!("{count} host{}, {formats} data format{}", plural(count), plural(formats));
    println!("{HEADING}       DSIG");
    for host in &hosts {
        println!("{} 0x{:08x}", row(host), host.signature);
    }
    Ok(())
}

/// Heads [`row`]s.
const HEADING: &str = "                    HOST     DTID     ARCH   SPEED";

fn row(HostInfo { tid, name, architecture, speed, .. }: &HostInfo) -> String {
    format!("{name:>24} {:8x} {architecture:>8}{speed:>8}", tid.0 & !pvm::tid::DAEMON)
}

/// Prints the hosts that have joined, for notices of any kind.
pub fn announce(console: &mut Console, daemons: &[pvm::tid::Tid]) {
    let plural = if daemons.len() == 1 { "" } else { "s" };
    let mut text = format!("\nConsole: {} new host{plural} added\n{HEADING}\n", daemons.len());
    for host in console.machine.hosts().unwrap_or_default() {
        if daemons.contains(&host.tid) {
            text.push_str(&row(&host));
            text.push('\n');
        }
    }
    console.print_beside_prompt(&text);
}

/// `add host …`.
pub fn add(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let names = &words[1..];
    let Some(tids) = console.heed(&words[0], |machine| machine.add_hosts(names))? else {
        return Ok(());
    };
    println!("{} successful", tids.iter().filter(|&&tid| tid_of(tid).is_some()).count());
    println!("                    HOST     DTID");
    for (name, &result) in names.iter().zip(&tids) {
        match tid_of(result) {
            Some(tid) => println!("{name:>24} {tid:8x}"),
            None => println!("{name:>24} {:>8}", text(result)),
        }
    }
    for (name, &result) in names.iter().zip(&tids) {
        if result == Error::CantStart.code() {
            let host = name.split_whitespace().next().unwrap_or_default();
            console.complain(&format!(
                "add {host}: no pvmd could be started there; try ssh {host} nagaya --version, and see this pvmd's log"
            ));
        } else if tid_of(result).is_none() {
            console.note_failure();
        }
    }
    Ok(())
}

/// Decodes a result of pvm_addhosts: a daemon's tid without its highest bit, or an error.
fn tid_of(result: i32) -> Option<u32> {
    let error = (-36..0).contains(&result);
    (!error).then_some(result as u32 & !pvm::tid::DAEMON)
}

/// `delete host …`.
pub fn delete(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let names = &words[1..];
    let Some(results) = console.heed(&words[0], |machine| machine.delete_hosts(names))? else {
        return Ok(());
    };
    println!("{} successful", results.iter().filter(|&&result| result >= 0).count());
    println!("                    HOST  STATUS");
    for (name, &result) in names.iter().zip(&results) {
        if result < 0 {
            console.note_failure();
            println!("{name:>24}  {:>8}", text(result));
        } else {
            println!("{name:>24}  deleted");
        }
    }
    Ok(())
}

/// `mstat host …`.
pub fn mstat(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    for name in &words[1..] {
        let status = match console.ask(|machine| machine.host_status(name))? {
            Ok(()) => "ok",
            Err(error) => {
                console.note_failure();
                text(error.code())
            }
        };
        println!("{name:>24}  {status}");
    }
    Ok(())
}

/// `halt`.
pub fn halt(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    match console.heed(&words[0], |machine| machine.halt())? {
        Some(()) => Err(Stop::Halted),
        None => Ok(()),
    }
}
