//! `nagaya dsm report`: it names the lines, pages and nodes that a run's fetches are due to.

use std::fs;
use std::time::Duration;

use nagaya_tests::program::{c_with_libraries, source_dir};
use nagaya_tests::{Cmd, WorkDir, nagaya, tool};

const LIMIT: Duration = nagaya_tests::TIME_LIMIT;
const SOURCE: &str = "dsm/report.c";

/// Returns the report of a run of the program on this many nodes.
fn report(nodes: usize) -> String {
    report_with(nodes, "normal")
}

fn report_with(nodes: usize, rides: &str) -> String {
    let dir = WorkDir::new();
    let program = c_with_libraries(SOURCE, &["jia"]);
    let job = Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n", &nodes.to_string()]);
    let job = job.arg(program).env("NAGAYA_DSM_REPORT", dir.join("run"));
    job.env("NAGAYA_DSM_RIDES", rides).time_limit(LIMIT).run().ok();
    nagaya("dsm").arg("report").arg(dir.join("run")).run().ok()
}

/// The place of the program's fetches, as the report names it.
fn fetches_at() -> String {
    format!("fetch_all at report.c:{}", line_with("they are fetched here"))
}

/// The number of the program's line that has these words.
fn line_with(words: &str) -> usize {
    let source = fs::read_to_string(source_dir().join(SOURCE)).expect("the source");
    source.lines().position(|line| line.contains(words)).expect("the line") + 1
}

#[test]
fn lines_and_pages_that_fetch_are_named() {
    let said = report(2);
    // Ten pages in each of five turns.
    assert!(said.contains(&format!("      50        50  {}\n", fetches_at())), "{said}");
    let page = |page: u64| {
        let byte = page * 8192;
        let at = fetches_at();
        format!("       5  page {page}, byte {byte} of allocation 1, home 0, by 1 nodes: {at}\n")
    };
    for number in [0, 7] {
        assert!(said.contains(&page(number)), "{said}");
    }
    // The ten are five pairs, and two and a half fours.
    let saved = |kilobytes: u64| {
        let words = format!("pages of {kilobytes} KB would save ");
        let number = said.split(&words).nth(1).expect("it says so").split(' ').next();
        number.expect("a number").parse::<u64>().expect("a number")
    };
    assert!(saved(16) >= 25 && saved(32) >= 35, "{said}");
    // Pages that only the other node writes.
    assert!(said.contains("page 11, home 0 → 1\n"), "{said}");
}

#[test]
fn calls_that_allocate_what_is_fetched_are_named() {
    let said = report(2);
    let at = line_with("char *pages = ");
    let wanted = format!("      50  allocation 1, 81920 B: main at report.c:{at}\n");
    assert!(said.contains(&wanted), "{said}");
    assert!(said.contains("allocation 3, 8192 B: main at report.c:"), "{said}");
}

#[test]
fn the_estimate_for_smaller_pages_lies_between_two_bounds() {
    // Each of 52 fetches is for one half; the home's writes in the other half are not recorded.
    let wanted = "pages of 4 KB would be fetched 52 to 104 times (208 to 416 KB), in place of 52 \
                  (416 KB)\n";
    let said = report(2);
    assert!(said.contains(wanted), "{said}");
    // Two nodes write halves of one page in each turn: of small pages, each would fetch its own
    // once.
    let said = report(3);
    assert!(said.contains("pages of 4 KB would be fetched 53 to "), "{said}");
    assert!(said.contains("in place of 61 ("), "{said}");
    assert!(!report_with(2, "ainori1").contains("pages of 4 KB would"), "it cannot be said");
}

#[test]
fn the_outcome_of_rides_is_reported_for_each_page() {
    let said = report_with(2, "ainori1");
    let (_, pages) = said.split_once("pages that rode along, ").expect("some did");
    // They are read one after the other, so only rides at the end are useless.
    let is_used = |line: &str| line.contains("of allocation 1, used ") && !line.contains("used 0");
    assert!(pages.lines().any(is_used), "{said}");
    assert!(!report(2).contains("rode along"), "none ride");
}

#[test]
fn pages_that_are_shared_falsely_are_named() {
    let said = report(3);
    // Both of the others, in every turn, in different halves of 4 KB.
    assert!(said.contains("       5  page 10, byte 0 of allocation 2 (5; 5)\n"), "{said}");
}

#[test]
fn a_file_that_is_no_report_gets_one_line() {
    let dir = WorkDir::new();
    let missing = nagaya("dsm").arg("report").arg(dir.join("none")).run();
    missing.refused(125, &["none.0.json", "NAGAYA_DSM_REPORT="]);
    fs::write(dir.join("bad.0.json"), "{}\n").expect("written");
    let bad = nagaya("dsm").arg("report").arg(dir.join("bad")).run();
    bad.refused(125, &["bad.0.json", "not the statistics file of a node"]);
}
