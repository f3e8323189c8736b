//! Debian's unmodified clients of PVM, under stock PVM and under Nagaya: the examples that PVM
//! ships, NetPIPE, the timetable solver Tablix, S-Lang's module. They find Nagaya by library path
//! and environment alone.

use std::path::Path;
use std::time::Duration;

use nagaya_tests::pvm::Machine;
use nagaya_tests::{Output, program, same_lines, tool};

/// The parts of an example's output that may differ between runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Varies {
    /// Tids only.
    Tids,
    /// Tids, and the order of lines.
    Order,
    /// Tids, and all other numbers: it measures.
    Numbers,
}
use Varies::{Numbers, Order, Tids};

/// An example: its command line, what it reads, what may differ.
struct Example(&'static str, &'static str, Varies);

/// In this order: stock PVM's group server, once started, has a mailbox.
const EXAMPLES: &[Example] = &[
    Example("gmbi", "", Tids),
    Example("master1", "", Order),
    Example("fmaster1", "3\n", Order),
    Example("spmd", "", Tids),
    Example("fspmd", "", Tids),
    Example("hello.pvm", "", Tids),
    Example("timing", "", Numbers),
    Example("gexample", "3\n4\n", Tids),
    Example("fgexample", "4\n3\n", Tids),
    Example("gexamp 3", "", Order),
    Example("ge 3", "", Order),
    Example("joinleave", "", Tids),
    Example("trsg", "3\n4\n", Tids),
    Example("frsg", "3\n4\n", Tids),
    Example("thb 3", "", Tids),
    Example("tst", "", Tids),
    Example("tjf", "", Tids),
    Example("tjl 3", "", Tids),
    Example("hitc", "", Numbers),
    Example("inherit1", "", Tids),
    Example("lmbi 3 p e", "", Tids),
    Example("lmbi 3 mo e", "", Tids),
];

/// The name that a computer has, where an example prints it.
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns an output without the parts that may differ.
fn essence(text: &str, varies: Varies) -> String {
    let is_tid = |word: &str| {
        let digits = word.trim_start_matches('t').trim_start_matches("0x");
        let number = if digits.len() == word.len() {
            word.parse::<u32>().ok()
        } else {
            u32::from_str_radix(digits, 16).ok()
        };
        number.is_some_and(|number| (0x40001..0x100000).contains(&number))
    };
    let host = host_name();
    let word = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        // A tid may stand at the beginning of a name.
        let digits = bare.bytes().take(6).filter(u8::is_ascii_hexdigit).count();
        if bare == host {
            word.replace(bare, "HOST")
        } else if varies == Numbers && bare.starts_with(|c: char| c.is_ascii_digit()) {
            // Or a tid, which looks the same.
            "NUMBER".to_owned()
        } else if is_tid(bare) {
            word.replace(bare, "TID")
        } else if bare.len() > 6 && digits == 5 && is_tid(&bare[..6]) {
            word.replace(&bare[..6], "TID")
        } else {
            word.to_owned()
        }
    };
    let mut lines: Vec<String> = text
        .lines()
        // One of frsg's sums is another in each run on some machines, under stock PVM, too.
        .filter(|line| !line.contains("Sum of Squares") && !line.contains("calculated by Sum1"))
        .map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" "))
        .collect();
    if varies != Tids {
        lines.sort();
    }
    if varies == Numbers {
        lines.dedup();
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

/// Runs one example.
fn example(machine: &Machine, Example(line, input, _): &Example) -> Output {
    let mut words = line.split(' ');
    let name = words.next().expect("a program");
    tool(name);
    machine.task(name).args(words).stdin(input).time_limit(Duration::from_secs(60)).run()
}

#[test]
fn examples_print_the_same() {
    let stock_machine = Machine::stock(&[]);
    let our_machine = Machine::ours(&[]);
    for it in EXAMPLES {
        let Example(line, _, varies) = it;
        let stock = example(&stock_machine, it);
        let ours = example(&our_machine, it);
        same_lines(line, &essence(&ours.stdout, *varies), &essence(&stock.stdout, *varies));
        assert_eq!(ours.code(), stock.code(), "{line}\n{ours}\n{stock}");
    }
}

fn machines() -> [Machine; 2] {
    [Machine::stock(&[]), Machine::ours(&[])]
}

#[test]
fn message_handlers_serve_another_program() {
    let printed = machines().into_iter().map(|machine| {
        let mut server = machine.task(tool("mhf_server")).spawn();
        server.wait_for_word("startup");
        // Its menu: show the handlers, twice; end.
        let tickle = machine.task(tool("mhf_tickle")).stdin("0\n0\n9\n");
        let tickle = tickle.time_limit(Duration::from_secs(20)).run();
        let _ = server.wait();
        essence(&tickle.stdout, Numbers)
    });
    let printed: Vec<_> = printed.collect();
    assert!(printed.iter().all(|text| text == &printed[0]), "{printed:#?}");
}

/// NetPIPE's two sides; it compares received with sent data (`-i`).
#[test]
fn netpipe_finds_every_byte() {
    for machine in machines() {
        let command = || {
            let limits = ["-i", "-n", "3", "-u", "100000"];
            machine.task(tool("NPpvm")).args(limits).time_limit(Duration::from_secs(60))
        };
        let receiver = command().spawn();
        // It must be there first, and says nothing.
        std::thread::sleep(Duration::from_millis(300));
        let sender = command().args(["-h", "it"]).run();
        assert!(sender.status.success(), "{sender}");
        let text = sender.stderr.clone() + &sender.stdout;
        assert!(text.lines().filter(|line| line.contains("-->")).count() > 20, "{sender}");
        assert!(!text.contains("ntegrity check failed"), "{sender}");
        let _ = receiver.wait();
    }
}

#[test]
fn tablix_solves_a_timetable() {
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs/timetable.xml");
    for machine in machines() {
        let solver =
            machine.task(tool("tablix2")).args(["-n", "2", "-d", "4", "-t", "1"]).arg(&input).run();
        let text = solver.stdout.clone() + &solver.stderr;
        assert!(text.contains("All results were received"), "{solver}");
        for result in ["result0.xml", "result1.xml"] {
            let result = std::fs::read_to_string(machine.dir().join(result)).expect("a result");
            let placed = result.matches("resource type=\"time\" name=").count();
            assert_eq!(placed, 4, "{result}");
        }
    }
}

#[test]
fn slang_sends_objects() {
    let script = program::source_dir().join("pvm/objects.sl");
    let printed: Vec<_> = machines()
        .iter()
        .map(|machine| machine.task(tool("slsh")).arg(&script).run().ok())
        .collect();
    assert!(printed[0].lines().count() >= 5, "{printed:?}");
    assert!(printed.iter().all(|text| text == &printed[0]), "{printed:#?}");
}
