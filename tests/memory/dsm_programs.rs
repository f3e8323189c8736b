//! The programs of `examples/dsm` on several nodes: their results are those of one task, and
//! they send the pages that the heads of their files say.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::program::c_with_libraries;
use nagaya_tests::{Cmd, WorkDir, nagaya, tool};

/// Programs of the library, each with arguments that make it small.
const PROGRAMS: [(&str, &str); 7] = [
    ("mm", "--size 150"),
    ("sor", "--rows 60 --columns 1500 --iterations 4"),
    ("lu", "--size 150 --block 16"),
    ("is", "--integers 20000 --iterations 3"),
    ("ep", "--exponent 14"),
    ("tsp", "--cities 10 --depth 2"),
    ("water", "--molecules 70 --steps 3"),
];

/// Time limit of a job.
const LIMIT: Duration = Duration::from_secs(120);

fn program(name: &str) -> PathBuf {
    c_with_libraries(&format!("../../examples/dsm/{name}.c"), &["jia", "m"])
}

/// One node for each of this many tasks.
fn job(nodes: usize, name: &str, arguments: &str) -> Cmd {
    let launcher = Cmd::new(tool("mpirun.openmpi")).args(["--oversubscribe", "-n"]);
    let job = launcher.arg(nodes.to_string()).arg(program(name));
    job.args(arguments.split_whitespace()).time_limit(LIMIT)
}

/// It compares its result with one task's.
fn is_right(job: Cmd, name: &str) {
    let said = job.arg("--verify").run().ok();
    assert!(said.ends_with(&format!("{name}: the same on one task\n")), "{said}");
}

#[test]
fn programs_need_no_launcher() {
    for (name, arguments) in PROGRAMS {
        let alone = Cmd::new(program(name)).args(arguments.split_whitespace());
        is_right(alone.time_limit(LIMIT), name);
    }
}

#[test]
fn results_are_those_of_one_task() {
    for nodes in [2, 3, 4] {
        for (name, arguments) in PROGRAMS {
            is_right(job(nodes, name, arguments), name);
        }
    }
}

#[test]
fn so_they_are_with_pages_that_ride_along() {
    for (nodes, rides) in [(2, "ainori1"), (2, "ainori2"), (3, "ainori3"), (4, "ainori3")] {
        for (name, arguments) in PROGRAMS {
            is_right(job(nodes, name, arguments).env("NAGAYA_DSM_RIDES", rides), name);
        }
    }
}

#[test]
fn so_they_are_with_several_tasks_a_node() {
    for (name, arguments) in PROGRAMS {
        let run = nagaya("run").args(["--nodes", "2", "-n", "5"]).arg(program(name));
        is_right(run.args(arguments.split_whitespace()).time_limit(LIMIT), name);
    }
}

#[test]
fn so_they_are_with_small_pages_and_homes_that_move() {
    for (name, arguments) in PROGRAMS {
        let job = job(3, name, arguments).env("NAGAYA_DSM_PAGE", "4K");
        is_right(job.env("NAGAYA_DSM_MIGRATE", "1"), name);
    }
}

#[test]
fn more_tasks_than_work_is_right_too() {
    let tiny = [
        ("mm", "--size 3"),
        ("sor", "--rows 2 --columns 1 --iterations 3"),
        ("lu", "--size 5 --block 4"),
        ("is", "--integers 2 --range 3"),
        ("ep", "--exponent 0"),
        ("tsp", "--cities 3"),
        ("water", "--molecules 3 --steps 2"),
    ];
    for (name, arguments) in tiny {
        is_right(job(4, name, arguments), name);
    }
}

#[test]
fn the_sums_of_ep_are_those_that_nas_publishes() {
    let said = job(2, "ep", "--exponent 24").run().ok();
    let sums: Vec<f64> = said.split([' ', ',']).filter_map(|word| word.parse().ok()).collect();
    let near = |at: f64, wanted: f64| ((at - wanted) / wanted).abs() < 1e-8;
    assert!(near(sums[0], -3.24783465203474e3) && near(sums[1], -6.958407078382297e3), "{said}");
}

/// Of each node, how many pages it fetched.
fn fetched(nodes: usize, name: &str, arguments: &str) -> Vec<u64> {
    let dir = WorkDir::new();
    let job = job(nodes, name, arguments);
    let job = job.env("NAGAYA_DSM_STATISTICS", dir.join("node"));
    job.env("NAGAYA_DSM_RIDES", "normal").run().ok();
    let count = |node: usize| {
        let file = dir.join(&format!("node.{node}.json"));
        let text =
            fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let count = text.split("\"page_messages\":").nth(1).expect("a count");
        let digits = count.find(|c: char| !c.is_ascii_digit()).expect("its end");
        count[..digits].parse().expect("a number")
    };
    (0..nodes).map(count).collect()
}

#[test]
fn mm_fetches_the_other_tasks_bands_once() {
    // A row of B is one page of 8 KB, a band 1024 / nodes of them.
    assert_eq!(fetched(2, "mm", "--size 1024"), [512; 2]);
    assert_eq!(fetched(4, "mm", "--size 1024"), [768; 4]);
}

#[test]
fn sor_fetches_a_row_of_each_neighbour_twice_an_iteration() {
    // A row of one colour is two pages. The last sweep's are fetched no more.
    assert_eq!(fetched(2, "sor", "--rows 8 --columns 4000 --iterations 5"), [20; 2]);
    assert_eq!(fetched(3, "sor", "--rows 9 --columns 4000 --iterations 5"), [20, 40, 20]);
}

#[test]
fn lu_fetches_what_its_blocks_are_made_of() {
    // Two by two blocks of a page on two adjacent tasks: (1,1) is task 1's. It needs (0,0) to
    // solve (0,1), and (1,0), which are task 0's. Task 0 needs nothing.
    assert_eq!(fetched(2, "lu", "--size 64 --block 32"), [0, 2]);
}

#[test]
fn is_fetches_the_counters_after_the_lock_and_after_the_barrier() {
    // 16 pages on task 0. Task 1 reads and writes them under the lock, and reads them after
    // the barrier, if task 0 had the lock after it.
    let [none, pages] = fetched(2, "is", "--integers 1000 --iterations 4")[..] else {
        panic!("two nodes")
    };
    assert_eq!(none, 0);
    assert!((4 * 16..=4 * 32).contains(&pages), "{pages}");
}

#[test]
fn ep_fetches_one_page() {
    assert_eq!(fetched(3, "ep", "--exponent 10"), [0, 1, 1]);
}

#[test]
fn bad_options_are_one_line() {
    let cases = [
        ("mm", "--size 0", "--size wants a number from 1 to 65536, not '0'"),
        ("mm", "--size", "--size wants a number from 1 to 65536, not ''"),
        ("lu", "--block 3x", "--block wants a number from 1 to 4096, not '3x'"),
        ("sor", "--row 3", "--row: no such option; see --help"),
        ("water", "7", "7: no such option; see --help"),
    ];
    for (name, arguments, wanted) in cases {
        let output = job(3, name, arguments).run().ends_with(1);
        let ours: Vec<&str> =
            output.stderr.lines().filter(|line| line.contains(&format!("/{name}"))).collect();
        let [line] = ours[..] else { panic!("{}", output.stderr) };
        assert!(line.ends_with(wanted), "{line}");
    }
}

#[test]
fn each_program_explains_its_options() {
    for (name, _) in PROGRAMS {
        let said = Cmd::new(program(name)).arg("--help").run().ok();
        assert!(said.contains("usage: mpirun") && said.contains("--verify"), "{said}");
    }
}
