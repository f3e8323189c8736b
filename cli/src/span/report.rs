//! `nagaya span --report`: prints the counters of the nodes as text, or as JSON for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

use nagaya_server::Failure;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::Serialize;
use span::estimate::{Bound, Estimate, Measured};
use span::report::{Access, Area, Counts, Page, Placed, Report, Thread, What, Why};

use crate::symbols::{Symbols, short};

/// Maximum number of lines of long lists.
const PAGES: usize = 8;
const THREADS: usize = 16;
const CALLS: usize = 5;
const PLACES: usize = 4;
const PLACED: usize = 16;
/// Minimum number of moves of a page between nodes for the report to name it.
const BOUNCES: u64 = 10;
/// Node counts of the estimate.
const NODES: [u32; 5] = [1, 2, 4, 8, 16];

/// A report that is to come.
pub struct Wanted {
    memory: File,
    to: PathBuf,
    file: Option<File>,
}

impl Wanted {
    /// For this file; `-` is the standard error.
    pub fn new(to: &Path) -> Result<Self, Failure> {
        let memory = memfd_create("nagaya-report", MemfdFlags::CLOEXEC)
            .map_err(|why| Failure::ours(format!("cannot make a memory file: {why}")))?;
        let file = match to.as_os_str() {
            path if path == "-" => None,
            path => Some(
                File::create(path)
                    .map_err(|why| Failure::ours(format!("{}: {why}", to.display())))?,
            ),
        };
        Ok(Self { memory: memory.into(), to: to.to_owned(), file })
    }

    /// Returns the file to which the origin, a child process, writes its counters.
    pub fn path(&self) -> Vec<u8> {
        format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd()).into_bytes()
    }

    /// Tells of a program that has ended.
    pub fn tell(mut self) -> Result<(), Failure> {
        let mut bytes = Vec::new();
        let read = self.memory.rewind().and_then(|()| self.memory.read_to_end(&mut bytes));
        let Some(report) = read.ok().and_then(|_| Report::parse(&bytes)) else {
            proc::error_line!("nagaya: span: no report: the program did not end by itself");
            return Ok(());
        };
        let is_json = self.to.extension().is_some_and(|of| of == "json");
        let text = if is_json { json(&report) } else { text(&report) };
        let Some(file) = &mut self.file else {
            proc::stderr::write(&text);
            return Ok(());
        };
        std::io::Write::write_all(file, text.as_bytes())
            .map_err(|why| Failure::ours(format!("{}: {why}", self.to.display())))
    }
}

fn estimates(report: &Report) -> Vec<Estimate> {
    let measured = Measured::of(report);
    NODES.iter().map(|&nodes| measured.on(nodes)).collect()
}

/// The report as JSON.
#[derive(Serialize)]
struct Json<'a> {
    run: &'a Report,
    estimates: Vec<Estimate>,
}

fn json(report: &Report) -> String {
    let all = Json { run: report, estimates: estimates(report) };
    let text = serde_json::to_string_pretty(&all).expect("numbers and strings only");
    format!("{text}\n")
}

macro_rules! line {
    ($text:expr, $($what:tt)*) => {
        writeln!($text, $($what)*).expect("into a string")
    };
}

fn text(report: &Report) -> String {
    let mut text = String::new();
    let threads = report.threads().count();
    line!(
        text,
        "span: {}, {:.3} s, {}",
        many(report.nodes.len(), "node"),
        report.seconds,
        many(threads, "thread")
    );
    for node in &report.nodes {
        node_lines(&mut text, node);
    }
    placed_lines(&mut text, report);
    bouncing(&mut text, report);
    estimate_lines(&mut text, report);
    text
}

fn many(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn seconds(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn node_lines(text: &mut String, node: &Counts) {
    let sum = |of: fn(&Thread) -> u64| node.threads.iter().map(of).sum::<u64>();
    line!(
        text,
        "{}: {}; running {}, stopped at pages {}; faults: {} to read, {} to write; pages: {} came, \
         {} went, {} copies dropped for a writer; {} messages of {}; {} calls made at the origin, \
         {} futex waits; {} waits that ended while the thread drove the engine; memory for \
         pages {} at most",
        node.name,
        many(node.processors as usize, "processor"),
        seconds(sum(|thread| thread.running_ns)),
        seconds(sum(|thread| thread.stopped_ns)),
        node.read_faults,
        node.write_faults,
        node.pages_in,
        node.pages_out,
        node.invalidated,
        node.messages,
        megabytes(node.bytes),
        sum(Thread::calls),
        sum(|thread| thread.futex_waits),
        sum(|thread| thread.driven),
        megabytes(node.memory_most),
    );
    let mut threads: Vec<&Thread> = node.threads.iter().collect();
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.running_ns + thread.stopped_ns));
    for thread in threads.iter().take(THREADS) {
        line!(
            text,
            "  thread {}: running {}, stopped at pages {}; faults: {} to read, {} to write; {} \
             futex waits{}",
            thread.tid,
            seconds(thread.running_ns),
            seconds(thread.stopped_ns),
            thread.reads,
            thread.writes,
            thread.futex_waits,
            calls(thread),
        );
    }
    if threads.len() > THREADS {
        line!(text, "  and {} more", many(threads.len() - THREADS, "thread"));
    }
}

/// When threads went to other nodes by themselves, and why.
fn placed_lines(text: &mut String, report: &Report) {
    for Placed { seconds, nodes, why, running, waited } in report.placed.iter().take(PLACED) {
        let nodes = many(*nodes as usize, "node");
        match why {
            Why::Expected(expected) => line!(
                text,
                "at {seconds:.3} s threads were packed on {nodes}: they ran on {running:.2} \
                 processors and waited for other nodes for {waited:.2}; there they would run on \
                 {expected:.2}"
            ),
            Why::Disproved(before) => line!(
                text,
                "at {seconds:.3} s threads went back to {nodes}: they ran on {running:.2} \
                 processors, before on {before:.2}"
            ),
            Why::Trial => line!(
                text,
                "at {seconds:.3} s {nodes} were tried: threads waited for processors, and ran on \
                 {running:.2}"
            ),
            Why::Failed(before) => line!(
                text,
                "at {seconds:.3} s threads were packed on {nodes} again: they ran on {running:.2} \
                 processors, packed on {before:.2}"
            ),
        }
    }
    if report.placed.len() > PLACED {
        line!(text, "and so on, {} times in all", report.placed.len());
    }
}

/// The system calls that a thread had made at the origin, the most frequent first.
fn calls(thread: &Thread) -> String {
    if thread.calls.is_empty() {
        return String::new();
    }
    let mut calls = thread.calls.clone();
    calls.sort_by_key(|&(number, times)| (std::cmp::Reverse(times), number));
    let one = |&(number, times): &(u64, u64)| format!("{} {times}", call_name(number));
    let most: Vec<String> = calls.iter().take(CALLS).map(one).collect();
    let more = if calls.len() > CALLS { ", ..." } else { "" };
    format!("; {} calls at the origin: {}{more}", thread.calls(), most.join(", "))
}

fn call_name(number: u64) -> String {
    match syscalls::Sysno::new(number as usize) {
        Some(call) => call.name().to_owned(),
        None => format!("call {number}"),
    }
}

/// A page, as the nodes together have seen it.
struct Shared<'a> {
    address: u64,
    /// By nodes.
    of: Vec<(usize, &'a Page)>,
}

impl Shared<'_> {
    /// Returns the number of times that the page returned to a node, or that its write access was
    /// renewed.
    fn bounces(&self) -> u64 {
        let stops = |page: &Page| (page.reads + page.writes).saturating_sub(1);
        let all = self.of.iter().map(|(_, page)| stops(page).min(page.came + page.writes));
        if self.of.len() < 2 { 0 } else { all.sum() }
    }
}

fn bouncing(text: &mut String, report: &Report) {
    let mut pages: BTreeMap<u64, Shared> = BTreeMap::new();
    for (number, node) in report.nodes.iter().enumerate() {
        for page in &node.pages {
            let address = page.address;
            let of = pages.entry(address).or_insert_with(|| Shared { address, of: Vec::new() });
            of.of.push((number, page));
        }
    }
    let is_written = |page: &Shared| page.of.iter().any(|(_, page)| page.writes > 0);
    let mut pages: Vec<Shared> =
        pages.into_values().filter(|page| is_written(page) && page.bounces() >= BOUNCES).collect();
    pages.sort_by_key(|page| std::cmp::Reverse(page.bounces()));
    let mut symbols = Symbols::default();
    if pages.is_empty() {
        line!(text, "no page goes back and forth between nodes");
    } else {
        line!(text, "pages that go back and forth between nodes:");
    }
    for page in pages.iter().take(PAGES) {
        page_lines(text, report, page, &mut symbols);
    }
}

fn page_lines(text: &mut String, report: &Report, page: &Shared, symbols: &mut Symbols) {
    let place = report.area(page.address).map_or("memory", |area| kind(area));
    line!(text, "  {:#x} ({place}): {} times", page.address, page.bounces());
    // The variables that each node uses, or addresses without a name.
    let mut used: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for (node, of) in &page.of {
        let mut places: BTreeMap<(String, bool, String), u64> = BTreeMap::new();
        for access in &of.accesses {
            let data = data(report, access.address, symbols);
            used.entry(data.clone()).or_default().insert(*node);
            *places.entry((data, access.writes, code(report, access, symbols))).or_default() +=
                access.times;
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
        line!(text, "    node {node}: {} to read, {} to write", of.reads, of.writes);
        for ((data, writes, code), _) in places.iter().take(PLACES) {
            let how = if *writes { "written" } else { "read" };
            line!(text, "      {data}, {how} by {code}");
        }
    }
    let alone: Vec<(&String, usize)> = used
        .iter()
        .filter(|(_, nodes)| nodes.len() == 1)
        .filter_map(|(data, nodes)| Some((data, *nodes.first()?)))
        .collect();
    let nodes: BTreeSet<usize> = alone.iter().map(|(_, node)| *node).collect();
    // All that was seen is used by one node only, and by different ones.
    if alone.len() == used.len() && nodes.len() > 1 {
        let (first, second) = (alone[0], alone.iter().find(|(_, node)| *node != alone[0].1));
        let second = second.expect("there is another node");
        line!(
            text,
            "    false sharing: node {} uses {}, node {} {}; separate pages would avoid that",
            first.1,
            first.0,
            second.1,
            second.0,
        );
    }
}

fn kind(area: &Area) -> &str {
    match &area.what {
        What::File { path, .. } => short(path),
        What::Heap => "heap",
        What::Stack => "stack",
    }
}

/// A variable, or what else stands at an address.
fn data(report: &Report, address: u64, symbols: &mut Symbols) -> String {
    let Some(area) = report.area(address) else { return format!("{address:#x}") };
    match &area.what {
        What::File { path, address: first } => {
            let own = address - area.start + first;
            match symbols.variable(path, own) {
                Some((name, 0)) => name.to_owned(),
                Some((name, at)) => format!("{name} + {at}"),
                None => format!("{} + {own:#x}", short(path)),
            }
        }
        What::Heap => format!("{address:#x} of the heap"),
        What::Stack => {
            let has = |thread: &&Thread| (area.start..area.end).contains(&thread.stack_pointer);
            match report.threads().find(has) {
                Some(thread) => format!("{address:#x} of thread {}'s stack", thread.tid),
                None => format!("{address:#x} of a stack"),
            }
        }
    }
}

/// The code that was stopped.
fn code(report: &Report, access: &Access, symbols: &mut Symbols) -> String {
    let place = match report.area(access.code) {
        Some(Area { start, what: What::File { path, address }, .. }) => {
            symbols.code(path, access.code - start + address)
        }
        _ => format!("{:#x}", access.code),
    };
    match access.call {
        Some(call) => format!("{place} in {}(2)", call_name(call)),
        None => place,
    }
}

fn estimate_lines(text: &mut String, report: &Report) {
    let is_packed = |placed: &&Placed| (placed.nodes as usize) < report.nodes.len();
    if let Some(Placed { nodes, .. }) = report.placed.last().filter(is_packed) {
        // The counters of different places.
        line!(
            text,
            "would this program scale? no: threads were packed on {}, since they ran no faster on \
             more; with --place spread there is an estimate",
            many(*nodes as usize, "node")
        );
        return;
    }
    let others = report.nodes.get(1..).unwrap_or_default();
    if !others.is_empty() && others.iter().all(|node| node.threads.is_empty()) {
        line!(
            text,
            "would this program scale? unknown: its threads did not wait for processors, and stayed \
             on one node; with --place spread there is an estimate"
        );
        return;
    }
    let all = estimates(report);
    let is_known = !others.is_empty();
    if is_known {
        line!(
            text,
            "estimate, if pages and calls took as long as here, and were elsewhere as often as \
             possible:"
        );
        for Estimate { nodes, seconds, speedup, .. } in &all {
            line!(text, "  {}: {seconds:.3} s, {speedup:.2} times", many(*nodes as usize, "node"));
        }
    }
    line!(text, "would this program scale? {}", verdict(&all, is_known));
}

/// The answer in a line.
fn verdict(all: &[Estimate], is_known: bool) -> String {
    if !is_known {
        return "run the program with --nodes 2: on one node no page moves".to_owned();
    }
    let best = all.iter().fold(
        &all[0],
        |best, it| {
            if it.speedup > 1.15 * best.speedup { it } else { best }
        },
    );
    let hindered = all.iter().find(|it| it.nodes > best.nodes).unwrap_or(best);
    let why = match hindered.bound {
        Bound::Computing => "it mostly computes",
        Bound::Threads => "it has no more threads",
        Bound::OneThread => "one thread computes longer than the others",
        Bound::Pages => "threads wait for pages of other nodes",
        Bound::Calls => "its threads make many system calls, which the origin makes",
    };
    match best.nodes {
        1 => format!("no: {why}"),
        nodes => format!("yes, to {nodes} nodes ({:.1} times); then: {why}", best.speedup),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stopped_ns: u64) -> Report {
        let thread = |tid| Thread {
            tid,
            running_ns: 2_000_000_000,
            stopped_ns,
            calls: vec![(0, 3), (1, 40)],
            ..Thread::default()
        };
        let page = |address, writes| Page {
            address: 0x5000,
            writes,
            came: writes,
            accesses: vec![Access { address, times: writes, writes: true, ..Access::default() }],
            ..Page::default()
        };
        let node = |tid, at| Counts {
            name: format!("node {tid}"),
            processors: 1,
            threads: vec![thread(tid)],
            pages: vec![page(at, 50)],
            ..Counts::default()
        };
        let nodes = vec![node(0, 0x5008), node(1, 0x5010)];
        Report { seconds: 2.5, nodes, ..Report::default() }
    }

    #[test]
    fn the_report_tells_if_a_program_would_scale() {
        let text = text(&report(0));
        assert!(
            text.contains("yes, to 2 nodes (2.0 times); then: it has no more threads"),
            "{text}"
        );
        assert!(text.contains("write 40, read 3"), "{text}");
        assert!(super::text(&report(9_000_000_000)).contains("scale? no: threads wait for pages"));
    }

    #[test]
    fn nothing_is_estimated_for_threads_that_stayed_on_one_node() {
        let mut local = report(0);
        local.nodes[1].threads.clear();
        let text = text(&local);
        assert!(text.contains("scale? unknown: its threads did not wait for processors"), "{text}");
        assert!(!text.contains("estimate, if pages"), "{text}");
    }

    #[test]
    fn the_report_tells_when_and_why_threads_were_packed() {
        let mut packed = report(0);
        let placed =
            |seconds, nodes, why| Placed { seconds, nodes, why, running: 0.5, waited: 1.25 };
        packed.placed.push(placed(0.3, 1, Why::Expected(1.0)));
        let first = text(&packed);
        for words in [
            "at 0.300 s threads were packed on 1 node: they ran on 0.50 processors and waited for \
             other nodes for 1.25; there they would run on 1.00",
            "scale? no: threads were packed on 1 node",
        ] {
            assert!(first.contains(words), "{first}");
        }
        for _ in 0..PLACED {
            packed.placed.push(placed(2.0, 2, Why::Trial));
        }
        assert!(text(&packed).contains("\nand so on, 17 times in all\n"));
        assert!(!text(&report(0)).contains("packed"));
    }

    #[test]
    fn false_sharing_is_when_nodes_use_different_addresses() {
        let mut shared = report(0);
        let says = |report: &Report| text(report).contains("false sharing: node 0 uses 0x5008");
        assert!(says(&shared));
        shared.nodes[1].pages[0].accesses[0].address = 0x5008;
        assert!(!says(&shared) && text(&shared).contains("back and forth"));
    }

    #[test]
    fn json_has_all_of_it() {
        let json: serde_json::Value = serde_json::from_str(&json(&report(0))).expect("JSON");
        assert_eq!(json["run"]["nodes"][1]["threads"][0]["tid"], 1);
        assert_eq!(json["estimates"][1]["nodes"], 2);
    }
}
