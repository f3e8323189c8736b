//! The report.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::counted::{Counted, Page, Place, Rides, pages, rides};
use super::smaller::{Smaller, smaller};
use crate::symbols::Symbols;

/// Returns a report of all nodes, with at most `most` pages and lines.
pub fn report(nodes: &[Counted], most: usize) -> String {
    let mut text = String::new();
    totals(&mut text, nodes);
    ride_lines(&mut text, nodes);
    let pages = pages(nodes);
    let mut symbols = Symbols::default();
    lines(&mut text, nodes, most, &mut symbols);
    page_lines(&mut text, nodes, &pages, most, &mut symbols);
    allocations(&mut text, nodes, &pages, most, &mut symbols);
    ridden(&mut text, nodes, &pages, most);
    shared(&mut text, nodes, most);
    smaller_pages(&mut text, nodes);
    sizes(&mut text, nodes);
    homes(&mut text, &pages, most);
    text
}

macro_rules! line {
    ($text:expr, $($what:tt)*) => {
        writeln!($text, $($what)*).expect("into a string")
    };
}

fn totals(text: &mut String, nodes: &[Counted]) {
    let sum = |of: fn(&Counted) -> u64| nodes.iter().map(of).sum::<u64>();
    line!(
        text,
        "{} nodes, {:.3} s, pages of {} B: {} fetched, {} messages of {} B, {} diffs",
        nodes.len(),
        nodes.iter().map(|node| node.seconds).fold(0.0, f64::max),
        nodes[0].page_bytes,
        sum(|node| node.totals.page_messages),
        sum(|node| node.totals.messages),
        sum(|node| node.totals.bytes),
        sum(|node| node.totals.diffs),
    );
}

fn ride_lines(text: &mut String, nodes: &[Counted]) {
    let rides = rides(nodes);
    if rides.is_empty() {
        line!(text, "rides: none");
    }
    for ((carrier, by), of) in rides {
        let used = of.used as f64 * 100.0 / of.sent.max(1) as f64;
        line!(
            text,
            "rides by {carrier}, predicted by {by}: predicted {}, sent {}, used {} ({used:.1} %), \
             wasted {}, late {}",
            of.predicted,
            of.sent,
            of.used,
            of.wasted,
            of.late,
        );
    }
}

/// Lists, for each place in the code, the number of fetches and of faults.
fn lines(text: &mut String, nodes: &[Counted], most: usize, symbols: &mut Symbols) {
    let mut places: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for observed in nodes.iter().filter_map(|node| node.observed.as_ref()) {
        for of in observed.code.iter().flat_map(|(_, of)| of) {
            let Some(place) = observed.places.get(of.place) else { continue };
            let sums = places.entry(symbols.name(&place.file, place.offset)).or_default();
            *sums = [sums[0] + of.fetched, sums[1] + of.stopped];
        }
    }
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_by_key(|(_, of)| Reverse(*of));
    if places.is_empty() {
        line!(text, "code: not recorded; run the program with NAGAYA_DSM_REPORT=FILE");
        return;
    }
    line!(text, "code that fetched pages, and how often it was stopped at pages in all:");
    for (name, [fetched, stopped]) in places.iter().take(most) {
        line!(text, "  {fetched:>8}  {stopped:>8}  {name}");
    }
}

fn page_lines(
    text: &mut String,
    nodes: &[Counted],
    pages: &BTreeMap<u64, Page>,
    most: usize,
    symbols: &mut Symbols,
) {
    let mut fetched: Vec<_> = pages.iter().filter(|(_, page)| page.fetches() > 0).collect();
    fetched.sort_by_key(|(_, page)| Reverse(page.fetches()));
    line!(text, "pages that were fetched most, of {}:", fetched.len());
    for (number, page) in fetched.into_iter().take(most) {
        let mut code: BTreeMap<&Place, u64> = BTreeMap::new();
        for observed in nodes.iter().filter_map(|node| node.observed.as_ref()) {
            let of_page = observed.code.iter().filter(|of| of.0 == *number);
            for of in of_page.flat_map(|of| &of.1).filter(|of| of.fetched > 0) {
                if let Some(place) = observed.places.get(of.place) {
                    *code.entry(place).or_default() += of.fetched;
                }
            }
        }
        let at = code.into_iter().max_by_key(|(_, times)| *times);
        let at = at
            .map(|(place, _)| format!(": {}", symbols.name(&place.file, place.offset)))
            .unwrap_or_default();
        let of = allocation(nodes, *number);
        line!(
            text,
            "  {:>8}  page {number}, {of}home {}, by {} nodes{at}",
            page.fetches(),
            page.home,
            page.fetched.iter().filter(|times| **times > 0).count(),
        );
    }
}

/// Lists the pages that messages carried, those with the most useless rides first.
fn ridden(text: &mut String, nodes: &[Counted], pages: &BTreeMap<u64, Page>, most: usize) {
    let mut ridden: Vec<_> = pages.iter().filter(|(_, page)| page.rides.sent > 0).collect();
    if ridden.is_empty() {
        return;
    }
    let vain = |page: &Page| page.rides.wasted + page.rides.late;
    ridden.sort_by_key(|(_, page)| Reverse((vain(page), page.rides.sent)));
    line!(text, "pages that rode along, {} of them; those in vain most often:", ridden.len());
    for (number, page) in ridden.into_iter().take(most) {
        let of = allocation(nodes, *number);
        let Rides { sent, used, wasted, late, .. } = page.rides;
        line!(text, "  {sent:>8}  page {number}, {of}used {used}, wasted {wasted}, late {late}");
    }
}

/// Lists the calls that allocated the memory with the most fetches.
fn allocations(
    text: &mut String,
    nodes: &[Counted],
    pages: &BTreeMap<u64, Page>,
    most: usize,
    symbols: &mut Symbols,
) {
    let page_bytes = nodes[0].page_bytes as u64;
    let mut fetched: Vec<_> = Vec::new();
    for (at, &(first, bytes, caller)) in nodes[0].allocations.iter().enumerate() {
        let of_it = pages.range(first..first + bytes.div_ceil(page_bytes));
        fetched.push((of_it.map(|(_, page)| page.fetches()).sum::<u64>(), at + 1, bytes, caller));
    }
    fetched.sort_by_key(|(fetches, number, ..)| (Reverse(*fetches), *number));
    line!(text, "allocations whose pages were fetched most, of {}:", fetched.len());
    let places = nodes[0].observed.as_ref().map_or(&[][..], |observed| &observed.places);
    for (fetches, number, bytes, caller) in fetched.into_iter().take(most) {
        let place = caller.and_then(|caller| places.get(caller));
        let at = place
            .map(|place| format!(": {}", symbols.name(&place.file, place.offset)))
            .unwrap_or_default();
        line!(text, "  {fetches:>8}  allocation {number}, {bytes} B{at}");
    }
}

/// `byte 8192 of allocation 2, `.
fn allocation(nodes: &[Counted], page: u64) -> String {
    let page_bytes = nodes[0].page_bytes as u64;
    let holds = |(first, bytes, _): &(u64, u64, Option<usize>)| {
        (*first..first + bytes.div_ceil(page_bytes)).contains(&page)
    };
    let allocations = &nodes[0].allocations;
    let Some(at) = allocations.iter().position(holds) else { return String::new() };
    let byte = (page - allocations[at].0) * page_bytes;
    format!("byte {byte} of allocation {}, ", at + 1)
}

fn shared(text: &mut String, nodes: &[Counted], most: usize) {
    let observed = nodes.iter().filter_map(|node| node.observed.as_ref());
    let mut shared: Vec<_> = observed.flat_map(|observed| &observed.shared).collect();
    if shared.is_empty() {
        return;
    }
    shared.sort_by_key(|(_, of)| Reverse(of.times));
    line!(
        text,
        "pages that several nodes wrote between the same barriers, {} of them (in brackets: other \
         nodes than the home wrote different bytes; so with pages of 4 KB):",
        shared.len()
    );
    for (page, of) in shared.into_iter().take(most) {
        let place = allocation(nodes, *page);
        let place = place.trim_end_matches(", ");
        line!(
            text,
            "  {:>8}  page {page}, {place} ({}; {})",
            of.times,
            of.bytes_differ,
            of.small_pages_differ
        );
    }
}

fn smaller_pages(text: &mut String, nodes: &[Counted]) {
    let ride = nodes.iter().any(|node| !node.rides.is_empty());
    let Some(Smaller { fetches, least, most, unknown }) = smaller(nodes).filter(|_| !ride) else {
        return;
    };
    let kib = nodes[0].page_bytes as u64 / 1024;
    let moved = match unknown {
        0 => String::new(),
        _ => format!("; without {unknown} pages whose home moved"),
    };
    line!(
        text,
        "pages of 4 KB would be fetched {least} to {most} times ({} to {} KB), in place of {fetches} \
         ({} KB){moved}",
        least * 4,
        most * 4,
        fetches * kib
    );
}

fn sizes(text: &mut String, nodes: &[Counted]) {
    let mut saved: BTreeMap<usize, u64> = BTreeMap::new();
    for observed in nodes.iter().filter_map(|node| node.observed.as_ref()) {
        for (bytes, of) in &observed.larger {
            *saved.entry(*bytes).or_default() += of;
        }
    }
    let fetched: u64 = nodes.iter().map(|node| node.totals.page_messages).sum();
    for (bytes, of) in saved {
        line!(
            text,
            "pages of {} KB would save {of} of {fetched} fetches (those of neighbours between the \
             same locks and barriers; if no more pages are shared falsely)",
            bytes / 1024
        );
    }
}

fn homes(text: &mut String, pages: &BTreeMap<u64, Page>, most: usize) {
    let better =
        pages.iter().filter_map(|(number, page)| Some((number, page, page.better_home()?)));
    let mut better: Vec<_> = better.collect();
    better.sort_by_key(|(_, _, (_, saved))| Reverse(*saved));
    let saved: u64 = better.iter().map(|(_, _, (_, saved))| saved).sum();
    if saved == 0 {
        line!(text, "homes: the counters show no better home");
        return;
    }
    line!(
        text,
        "other homes would save {saved} fetches and diffs at least, of {} pages:",
        better.len()
    );
    for (number, page, (node, saved)) in better.into_iter().take(most) {
        line!(text, "  {saved:>8}  page {number}, home {} → {node}", page.home);
    }
}
