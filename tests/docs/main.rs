//! The commands and programs that the documentation shows, run as its readers run them.
//!
//! Every fenced block of the pages below is run, or written to a file that a later block uses, or
//! compared with the output of the block before it. A comment in front of a block gives the exact
//! treatment (see [`page`]). A block that a test cannot run has a reason.

mod manuals;
mod page;
mod prefix;
mod session;

use std::path::Path;

use page::{Block, Treatment};
use session::Session;

/// The repository's directory.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// Runs all blocks of a page, in order, in one scratch directory.
///
/// # Panics
/// If a block has no treatment, fails, or prints something else than the page shows.
fn run_page(path: &str) {
    let text = std::fs::read_to_string(root().join(path)).expect("a page");
    let blocks = page::blocks(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut session = Session::new(path);
    for block in &blocks {
        session.take(block);
    }
}

macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        $(
            #[test]
            fn $name() {
                run_page($path);
            }
        )*

        /// The pages that have a test above.
        const PAGES: &[&str] = &[$($path),*];
    };
}

pages! {
    readme: "README.md",
    install: "docs/install.md",
    tutorial_mpi: "docs/tutorials/mpi.md",
    tutorial_pvm: "docs/tutorials/pvm.md",
    tutorial_dsm: "docs/tutorials/dsm.md",
    tutorial_shmem: "docs/tutorials/shmem.md",
    tutorial_span: "docs/tutorials/span.md",
    tutorial_runtime: "docs/tutorials/runtime.md",
    tutorial_teaching: "docs/tutorials/teaching.md",
    howto_slurm: "docs/howto/slurm.md",
    howto_containers: "docs/howto/containers.md",
    howto_hosts: "docs/howto/hosts.md",
    howto_gdb: "docs/howto/gdb.md",
    howto_perf: "docs/howto/perf.md",
    troubleshooting: "docs/troubleshooting.md",
    bindings: "docs/bindings.md",
    architecture: "ARCHITECTURE.md",
    coherence: "docs/coherence.md",
    simulator: "docs/simulator.md",
    bench: "bench/README.md",
    peers: "docs/peers.md",
    contributing: "CONTRIBUTING.md",
}

/// The pages of the site that have a fenced block.
fn pages_with_blocks() -> Vec<String> {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the site");
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let paths = links.map(|(link, _)| match link.strip_prefix("../") {
        Some(path) => path.to_owned(),
        None => format!("docs/{link}"),
    });
    let has_block = |path: &String| {
        let text = std::fs::read_to_string(root().join(path)).expect("a page of the site");
        text.lines().any(|line| line.trim_start().starts_with("```"))
    };
    paths.filter(has_block).collect()
}

#[test]
fn every_page_of_the_site_is_run() {
    let pages = pages_with_blocks();
    assert!(pages.len() >= PAGES.len() / 2, "docs/SUMMARY.md has other links than this test knows");
    for page in pages {
        assert!(PAGES.contains(&&*page), "no test runs {page}: add it to `pages!`");
    }
}

#[test]
fn most_blocks_are_run() {
    let mut run = 0;
    let mut not_run = 0;
    for path in PAGES {
        let text = std::fs::read_to_string(root().join(path)).expect("a page");
        for block in page::blocks(&text).unwrap_or_else(|error| panic!("{path}: {error}")) {
            match block.treatment {
                Treatment::NotRun(_) => not_run += 1,
                _ => run += 1,
            }
        }
    }
    // Other machines, clusters and container runtimes; new blocks should be runnable.
    assert!(run >= 2 * not_run, "{not_run} blocks are not run, {run} are");
}

#[test]
fn a_block_without_treatment_is_an_error() {
    let error = |text: &str| page::blocks(text).expect_err("an error");
    assert!(error("```\nls\n```\n").contains("line 1"));
    assert!(error("```c\nint x;\n```\n").contains("file:"));
    assert!(error("<!-- not run: -->\n```sh\nls\n```\n").contains("reason"));
    assert!(error("<!-- expect: x -->\n\ntext\n").contains("no block"));
    assert!(error("```sh\nls\n").contains("no end"));
    assert!(error("<!-- output -->\n```text\nx\n```\n").contains("no command"));
}

#[test]
fn a_block_has_the_treatment_of_its_comments() {
    let text = "a\n<!-- expect: two words -->\n<!-- needs: cc -->\n```sh\ntrue\nls\n```\n\
                <!-- output -->\n```text\na …\n```\n<!-- file: x.c -->\n```c\nint x;\n```\n";
    let blocks: Vec<Block> = page::blocks(text).expect("blocks");
    assert_eq!(blocks.len(), 3);
    assert_eq!(blocks[0].text, "true\nls\n");
    assert_eq!(blocks[0].needs, ["cc"]);
    assert_eq!(blocks[0].treatment, Treatment::Run { status: 0, expect: vec!["two words".into()] });
    assert_eq!(blocks[1].treatment, Treatment::Output);
    assert_eq!(blocks[2].treatment, Treatment::File("x.c".into()));
}

#[test]
fn lines_of_an_output_match_in_order_and_with_gaps() {
    let printed = "task 0 of 2\nother\ntask 1 of 2\n";
    assert_eq!(session::missing_line("task 0 of …\ntask 1 of 2\n", printed), None);
    assert_eq!(session::missing_line("… 1 of 2\n…\n", printed), None);
    let missing = session::missing_line("task 1 of 2\ntask 0 of 2\n", printed);
    assert_eq!(missing.as_deref(), Some("task 0 of 2"));
    assert_eq!(session::missing_line("task 0\n", printed).as_deref(), Some("task 0"));
    assert_eq!(session::missing_line("task … 3\n", printed).as_deref(), Some("task … 3"));
}
