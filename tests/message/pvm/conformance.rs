//! Programs of `tests/programs/pvm/` print the same under stock PVM and under Nagaya, line by
//! line, except for [`DIFFERENCES`].

use nagaya_tests::pvm::Machine;
use nagaya_tests::{program, same_lines};

/// A line of Nagaya that differs on purpose.
struct Difference {
    program: &'static str,
    stock: &'static str,
    ours: &'static str,
    /// The defect of stock PVM, or the reason why the lines cannot be the same.
    why: &'static str,
}

/// All of them.
const DIFFERENCES: &[Difference] = &[
    Difference {
        program: "halting",
        stock: "told to end yes",
        ours: "told to end no",
        why: "who asks for the end gets SIGTERM there, and seldom learns that it has worked",
    },
    Difference {
        program: "packing",
        stock: "both 42004",
        ours: "both 42043",
        why: "it loses what is packed behind pvm_pkmesgbody",
    },
    Difference {
        program: "traced",
        stock: r#"event 107 profiling describes 106:6 time 107:6 time 88:6 task 120:6 9 121:140 "exit" "initsend" "mytid" "parent" "pkint" "recv" "send" "setopt" "upkint" 77:134 1 6 2 2 6 6 6 2 6, ends with -6"#,
        ours: r#"event 107 profiling describes 106:6 time 107:6 time 88:6 task 120:6 9 121:140 "exit" "initsend" "mytid" "parent" "pkint" "recv" "send" "setopt" "upkint" 77:134 1 3 1 1 3 3 3 1 3, ends with -6"#,
        why: "it counts each call twice, and means the time of the last event; its manual says otherwise",
    },
    Difference {
        program: "traced",
        stock: r#"event 106 timing describes 106:6 time 107:6 time 88:6 task 120:6 9 121:140 "exit" "initsend" "mytid" "parent" "pkint" "recv" "send" "setopt" "upkint" 108:134 time time time time time time time time time 109:134 time time time time time time time time time 77:134 1 6 2 2 6 6 6 2 6, ends with -6"#,
        ours: r#"event 106 timing describes 106:6 time 107:6 time 88:6 task 120:6 9 121:140 "exit" "initsend" "mytid" "parent" "pkint" "recv" "send" "setopt" "upkint" 108:134 time time time time time time time time time 109:134 time time time time time time time time time 77:134 1 3 1 1 3 3 3 1 3, ends with -6"#,
        why: "it counts each call twice, and means the time of the last event; its manual says otherwise",
    },
    Difference {
        program: "traced",
        stock: r#"event 107 profiling describes 106:6 time 107:6 time 88:6 task 120:6 3 121:140 "getrbuf" "getsbuf" "setopt" 77:134 2 2 2, ends with -6"#,
        ours: r#"event 107 profiling describes 106:6 time 107:6 time 88:6 task 120:6 3 121:140 "getrbuf" "getsbuf" "setopt" 77:134 1 1 1, ends with -6"#,
        why: "it counts each call twice, and means the time of the last event; its manual says otherwise",
    },
];

/// By which messages go inside a host.
const PROTOCOLS: [&str; 3] = ["fcp2", "fcp", "fcp-plus"];

/// Programs whose tasks cannot live in a space, and why.
const NOT_IN_SPACE: &[(&str, &str)] = &[(
    "hosts",
    "its task ends the daemon, which it takes for its parent: that is the space's server \
     (`pvm_hosts` has a test of two hosts with spaces)",
)];

/// Runs a program under stock PVM and under Nagaya, there also in a space.
fn compare(name: &str) {
    let flags = ["-Wextra", "-Werror"];
    let program = program::c_pvm(&format!("pvm/{name}.c"), &flags);
    let search = [program.parent().expect("a directory")];
    let differences: Vec<_> = DIFFERENCES.iter().filter(|it| it.program == name).collect();
    let theirs = || -> String {
        let stock = Machine::stock(&search).task(&program).run().ok();
        assert!(stock.lines().count() > 5, "{stock}");
        for Difference { stock: line, why, .. } in &differences {
            assert!(stock.lines().any(|it| it == *line), "stock does not print `{line}` ({why})");
        }
        let ours = |line| differences.iter().find(|it| it.stock == line).map_or(line, |it| it.ours);
        stock.lines().flat_map(|line| [ours(line), "\n"]).collect()
    };
    let mut wanted = theirs();
    for protocol in PROTOCOLS {
        let ours = Machine::ours_by(protocol, &search).task(&program).run().ok();
        // Stock PVM has races: a message of a direct route was once missed for a whole run.
        if ours != wanted {
            wanted = theirs();
        }
        same_lines(&format!("{name}, {protocol}"), &ours, &wanted);
    }
    if let Some((_, why)) = NOT_IN_SPACE.iter().find(|(program, _)| *program == name) {
        eprintln!("{name} does not run in a space: {why}");
        return;
    }
    let machine = Machine::in_space(&search);
    let in_space = machine.task(&program).run().ok();
    same_lines(&format!("{name} in a space"), &in_space, &wanted);
    assert!(!machine.log().contains("ordinary process"), "not all tasks live in the space");
}

macro_rules! programs {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            compare(stringify!($name));
        })*

        const PROGRAMS: &[&str] = &[$(include_str!(concat!("../../programs/pvm/", stringify!($name), ".c"))),*];
    };
}

programs! {
    boundaries caught contexts fds groups halting handlers hoster hosts mailboxes manager noreset notices
    options output packing receive routes spawning tasker threads traced tracing
}

/// Stock PVM crashes or waits in this one, so Nagaya's expected output is stored.
#[test]
fn beyond_stock() {
    let program = program::c_pvm("pvm/beyond.c", &["-Wextra", "-Werror", "-Wno-format"]);
    let machine = Machine::ours(&[program.parent().expect("a directory")]);
    let printed = machine.task(&program).run().ok();
    same_lines("beyond", &printed, include_str!("../../programs/pvm/beyond.expected"));
}

/// Stock PVM's other hosts only ask it if they were added after it had registered.
#[test]
fn a_manager_on_another_host_is_asked_as_one_on_this() {
    let printed = |name: &str| {
        let program = program::c_pvm(&format!("pvm/{name}.c"), &["-Wextra", "-Werror"]);
        Machine::ours(&[program.parent().expect("a directory")]).task(&program).run().ok()
    };
    same_lines("farmanager", &printed("farmanager"), &format!("added 1\n{}", printed("manager")));
}

#[test]
fn every_call_is_made_by_some_program() {
    let header = program::include_dir().join("pvm3/pvm3.h");
    let header = std::fs::read_to_string(header).expect("our header");
    let sources = PROGRAMS.concat() + include_str!("../../programs/pvm/say.h");
    let mut calls = 0;
    for line in
        header.lines().filter(|line| line.contains('(') && !line.starts_with([' ', '\t', '#', '/']))
    {
        let Some(start) = line.find("pvm_").or_else(|| line.find("Pvm")) else { continue };
        let name = line[start..].split(|c: char| !c.is_alphanumeric() && c != '_').next();
        let name = name.expect("a split has a first part");
        calls += 1;
        assert!(sources.contains(name), "no program calls {name}");
    }
    assert!(calls >= 110, "{calls}");
}
