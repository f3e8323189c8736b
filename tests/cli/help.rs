//! The help of each command, errors that name the help, and the lists of nagaya(1).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nagaya_tests::{Cmd, Output, WorkDir, nagaya};

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

/// The string literals in a source that are names of variables of Nagaya, PVM or OpenSHMEM.
fn variables(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for prefix in ["NAGAYA_", "PVAS_", "JIA_", "PVM", "SHMEM_"] {
        for (at, _) in text.match_indices(&format!("\"{prefix}")) {
            let rest = &text[at + 1..];
            let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let name = &rest[..end];
            if rest[end..].starts_with('"') && name != "PVM" && !name.ends_with('_') {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

/// The product's sources, without their tests.
fn sources(directory: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if !["tests", "examples", "target", "settings"].iter().any(|other| name == *other) {
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

/// The names in the sources that are environment variables of Nagaya.
fn used_variables() -> BTreeSet<String> {
    let mut texts = Vec::new();
    for directory in ["cli", "launch", "net", "sync", "space", "message", "memory"] {
        sources(&repository().join(directory), &mut texts);
    }
    let mut used: BTreeSet<String> = texts.iter().flat_map(|it| variables(it)).collect();
    let rows = nagaya_dsm_settings();
    used.extend(rows.into_iter().map(|name| format!("NAGAYA_DSM_{name}")));
    used
}

/// The first string of each row of the settings of shared memory between nodes.
fn nagaya_dsm_settings() -> Vec<String> {
    let settings = repository().join("memory/dsm/src/settings.rs");
    let settings = std::fs::read_to_string(settings).expect("settings");
    let (_, table) = settings.split_once("VARIABLES: ").expect("the table");
    let (table, _) = table.split_once("];").expect("its end");
    let rows = table.split("    (").skip(1);
    rows.filter_map(|row| Some(row.split('"').nth(1)?.to_owned())).collect()
}

#[test]
fn the_table_of_settings_has_every_variable_that_the_sources_read_and_no_other() {
    let table: BTreeSet<String> = settings::all().map(|setting| setting.name.into()).collect();
    let used = used_variables();
    assert!(used.len() > 40, "{used:?}");
    let stray: Vec<&String> = used.difference(&table).collect();
    assert!(stray.is_empty(), "not in the table (space/settings): {stray:?}");
    let dead: Vec<&String> = table.difference(&used).collect();
    assert!(dead.is_empty(), "in the table, and read nowhere: {dead:?}");
    assert_eq!(table.len(), settings::all().count(), "a variable is there twice");
}

#[test]
fn the_manual_and_the_command_describe_every_variable() {
    let page = std::fs::read_to_string(repository().join("man/nagaya-env.7")).expect("the page");
    let page = page.replace("\\-", "-");
    let list = nagaya("info").arg("--env").run().ok();
    let json = nagaya("info").args(["--env", "--json"]).env("NAGAYA_WAIT", "spin").run().ok();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let rows = json.as_array().expect("an array");
    for setting in settings::all() {
        let entry = format!(".BR {} \" ({})\"\n", setting.name, setting.unit);
        let (_, text) = page.split_once(&entry).unwrap_or_else(|| panic!("the page lacks {entry}"));
        let text = text.split("\n.TP").next().expect("text").to_lowercase();
        assert!(text.contains(&setting.meaning.to_lowercase()), "{}: {text}", setting.name);
        let default = setting.default.to_lowercase();
        assert!(text.contains(&default), "{}: default {default}: {text}", setting.name);
        assert!(list.contains(&format!("  {} (", setting.name)), "{}: {list}", setting.name);
        let row = rows.iter().find(|row| row["name"] == setting.name).expect("a row");
        assert_eq!(row["meaning"], setting.meaning);
        let value = (setting.name == "NAGAYA_WAIT").then_some("spin");
        if let Some(value) = value {
            assert_eq!(row["value"], value);
        }
    }
    let entries = page.lines().filter(|line| line.starts_with(".BR ") && line.ends_with(")\""));
    assert_eq!(entries.count(), settings::all().count(), "the page has others");
}

#[test]
fn the_defaults_of_shared_memory_are_those_of_its_own_table() {
    let file = repository().join("memory/dsm/src/settings.rs");
    let text = std::fs::read_to_string(file).expect("settings");
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for setting in settings::all().filter(|it| it.name.starts_with("NAGAYA_DSM_")) {
        let name = &setting.name["NAGAYA_DSM_".len()..];
        let row = format!("\"{name}\", \"{}\"", setting.default);
        assert!(text.contains(&row), "{row}");
    }
}

/// Runs a shell that reads a script, if it is installed.
fn checked_by(shell: &str, script: &Path) {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .any(|directory| directory.join(shell).is_file());
    if !found {
        return;
    }
    Cmd::new(shell).arg("-n").arg(script).run().ok();
}

#[test]
fn shells_get_scripts_that_complete_every_command() {
    let dir = WorkDir::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = nagaya("completions").arg(shell).run().ok();
        for (name, _) in commands() {
            assert!(script.contains(&name), "{shell} does not know {name}");
        }
        for option in ["rounds", "segment-size", "trace-limit"] {
            assert!(script.contains(option), "{shell} does not know --{option}");
        }
        assert!(!script.contains("delegatee-socket"), "{script}");
        checked_by(shell, &dir.write(shell, &script));
    }
    // The completion of `nagaya exec --rep`.
    let script = dir.join("bash");
    let typed = format!(
        ". {}; COMP_WORDS=(nagaya exec --rep); COMP_CWORD=2; _nagaya nagaya --rep exec; \
         echo ${{COMPREPLY[@]}}",
        script.display()
    );
    Cmd::new("bash").args(["-c", &typed]).run().prints("--report\n");
    nagaya("completions").arg("csh").run().refused(125, &["csh"]);
}
