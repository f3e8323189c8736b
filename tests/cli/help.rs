//! The help of each command, errors that name the help, and the lists of nagaya(1).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nagaya_tests::{Output, nagaya};

fn help_of(words: &[&str]) -> String {
    nagaya(words[0]).args(&words[1..]).run().ok()
}

/// The commands in `nagaya --help`, each with its description.
fn commands() -> Vec<(String, String)> {
    let help = help_of(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let (list, _) = list.split_once("\n\n").expect("an end");
    let command = |line: &str| {
        let (name, about) = line.trim().split_once(' ').expect("a description");
        (name.to_owned(), about.trim().to_owned())
    };
    list.lines().map(command).collect()
}

#[test]
fn the_help_of_a_command_begins_with_what_the_command_does() {
    let commands = commands();
    assert!(commands.len() >= 13, "{commands:?}");
    for (name, about) in &commands {
        let long = help_of(&[name, "--help"]);
        assert_eq!(long.lines().next(), Some(about.as_str()), "{name} --help:\n{long}");
        let short = help_of(&[name, "-h"]);
        assert_eq!(short.lines().next(), Some(about.as_str()), "{name} -h:\n{short}");
    }
}

#[test]
fn the_help_of_a_command_ends_with_examples() {
    for (name, _) in commands() {
        // `nagaya help` has no options.
        if name == "help" {
            continue;
        }
        for option in ["-h", "--help"] {
            let help = help_of(&[&name, option]);
            let (_, examples) = help.split_once("\nExamples:\n").expect(&name);
            let lines: Vec<&str> = examples.lines().collect();
            assert!(lines.len() >= 2, "{name} {option}:\n{help}");
            for line in lines {
                assert!(line.starts_with("  ") && line.len() <= 80, "{name} {option}: {line}");
            }
            assert!(examples.contains(&format!("nagaya {name}")), "{name} {option}:\n{help}");
        }
    }
}

/// The headings of groups of options in a help text.
fn option_groups(help: &str) -> Vec<&str> {
    let (_, options) = help.split_once("Usage: ").expect("a usage");
    let (options, _) = options.split_once("\nExamples:\n").expect("examples");
    let headings = options.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':'));
    headings.filter(|line| !["Arguments:", "Commands:"].contains(line)).collect()
}

#[test]
fn long_helps_group_their_options() {
    let groups = |name: &str| {
        let help = help_of(&[name, "--help"]);
        option_groups(&help).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let run = ["Options:", "Tasks:", "Other machines:", "Shared memory between nodes:"];
    let run = [&run[..], &["Environment, input and output:"]].concat();
    assert_eq!(BTreeSet::from_iter(groups("run")), run.iter().map(|&it| it.to_owned()).collect());
    for (name, at_least) in [("exec", 2), ("span", 4), ("pvm", 3)] {
        let groups = groups(name);
        assert!(groups.len() >= at_least, "{name}: {groups:?}");
    }
}

#[test]
fn help_is_a_command_too() {
    assert_eq!(help_of(&["help"]), help_of(&["--help"]));
    for (name, _) in commands() {
        assert_eq!(help_of(&["help", &name]), help_of(&[&name, "--help"]));
    }
    nagaya("help").arg("nosuch").run().refused(125, &["'nosuch'", "(see nagaya --help)"]);
}

#[test]
fn a_wrong_command_line_is_one_line_with_all_tips() {
    let line = |words: &[&str]| -> String {
        let output: Output = nagaya(words[0]).args(&words[1..]).run();
        output.clone().refused(125, &[]);
        output.stderr
    };
    assert_eq!(
        line(&["ps", "--parsible"]),
        "nagaya: unexpected argument '--parsible' found; tip: a similar argument exists: \
         '--parsable' (see nagaya ps --help)\n"
    );
    assert_eq!(
        line(&["spann"]),
        "nagaya: unrecognized subcommand 'spann'; tip: a similar subcommand exists: 'span' (see \
         nagaya --help)\n"
    );
    assert_eq!(
        line(&["span", "--node", "2", "true"]),
        "nagaya: unknown option --node (see nagaya span --help)\n"
    );
    let missing = line(&["exec"]);
    assert!(missing.contains("<PROGRAM>..."), "{missing}");
    assert!(missing.ends_with("(see nagaya exec --help)\n"), "{missing}");
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository").to_owned()
}

/// A section of nagaya(1), without troff's escapes.
fn manual(section: &str) -> String {
    let text = std::fs::read_to_string(repository().join("man/nagaya.1")).expect("nagaya.1");
    let (_, rest) = text.split_once(&format!(".SH {section}\n")).expect("the section");
    rest.split("\n.SH ").next().expect("text").replace("\\-", "-")
}

#[test]
fn the_manual_lists_every_command() {
    let listed = manual("COMMANDS");
    for (name, _) in commands() {
        let entry = match &*name {
            "help" => ".BR \"help \"".to_owned(),
            name => format!("\n.BR nagaya-{name} (1)\n"),
        };
        assert!(listed.contains(&entry), "nagaya(1) lacks {name}");
    }
}

/// Names of variables in a text: `NAGAYA_` or `PVAS_` and capitals, after `before`.
fn variables(text: &str, before: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for prefix in ["NAGAYA_", "PVAS_"] {
        for (at, _) in text.match_indices(&format!("{before}{prefix}")) {
            let name = text[at + before.len()..].chars();
            let name =
                name.take_while(|c| c.is_ascii_uppercase() || *c == '_' || c.is_ascii_digit());
            names.insert(name.collect::<String>());
        }
    }
    names.retain(|name| !name.ends_with('_'));
    names
}

/// The product's sources, without their tests.
fn sources(directory: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "tests" && name != "examples" && name != "target" {
                sources(&path, texts);
            }
        } else if name != "tests.rs"
            && path.extension().is_some_and(|e| ["rs", "c", "h"].iter().any(|&it| e == it))
        {
            let text = std::fs::read_to_string(&path).expect("a source");
            let product = text.split("#[cfg(test)]\nmod tests {").next().expect("text");
            texts.push(product.to_owned());
        }
    }
}

#[test]
fn the_manual_lists_every_environment_variable() {
    let mut texts = Vec::new();
    for directory in ["cli", "launch", "net", "sync", "space", "message", "memory"] {
        sources(&repository().join(directory), &mut texts);
    }
    let mut used: BTreeSet<String> = texts.iter().flat_map(|it| variables(it, "\"")).collect();
    let settings = repository().join("memory/dsm/src/settings.rs");
    let settings = std::fs::read_to_string(settings).expect("settings");
    let (_, table) = settings.split_once("VARIABLES: ").expect("the table");
    let (table, _) = table.split_once("];").expect("its end");
    // The first string of each row.
    let rows = table.split("    (").skip(1).filter_map(|row| row.split('"').nth(1));
    used.extend(rows.map(|name| format!("NAGAYA_DSM_{name}")));
    assert!(used.len() > 20, "{used:?}");
    assert_eq!(variables(&manual("ENVIRONMENT"), ""), used);
}
