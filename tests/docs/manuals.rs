//! The man page of each command names all options of its `--help`.

use std::collections::BTreeSet;

use nagaya_tests::nagaya;

use crate::root;

fn help_of(words: &[&str]) -> String {
    nagaya(words[0]).args(&words[1..]).run().ok()
}

/// The commands in `nagaya --help`, without `help`.
fn commands() -> Vec<String> {
    let help = help_of(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let (list, _) = list.split_once("\n\n").expect("an end");
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// The long and short options in a help text, such as `--label` and `-l`.
fn options(help: &str) -> BTreeSet<String> {
    let mut options = BTreeSet::new();
    for line in help.lines().map(str::trim_start).filter(|line| line.starts_with('-')) {
        // `-l, --label <NAME>  Text`: the options end at two spaces or at the value.
        let spelled = line.split("  ").next().expect("a first part");
        for word in spelled.split([' ', ',', '[', '=']) {
            let name = word.trim_start_matches('-');
            if word.starts_with('-') && name.starts_with(char::is_alphabetic) {
                options.insert(word.to_owned());
            }
        }
    }
    options
}

#[test]
fn the_manual_of_a_command_names_all_of_its_options() {
    let mut count = 0;
    for name in commands() {
        let page = root().join(format!("man/nagaya-{name}.1"));
        let page = std::fs::read_to_string(&page)
            .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        let page = page.replace("\\-", "-").replace("\\fB", " ").replace("\\fR", " ");
        let words: BTreeSet<&str> =
            page.split(|c: char| !c.is_alphanumeric() && !"-_+".contains(c)).collect();
        let options = options(&help_of(&[&name, "--help"]));
        count += options.len();
        // nagaya(1) has those of every command.
        let of_all = ["-h", "--help"];
        let named = |it: &&String| of_all.contains(&it.as_str()) || words.contains(it.as_str());
        let missing: Vec<&String> = options.iter().filter(|it| !named(it)).collect();
        assert!(missing.is_empty(), "nagaya-{name}(1) lacks {missing:?}");
    }
    assert!(count > 60, "only {count} options were found");
}

#[test]
fn options_of_a_help_text_are_found() {
    let help = "Options:\n  -l, --label\n          Text with -- and -x\n      --mpi[=<LAUNCHER>]\n\
                \x20 -n <N>  the -m\n";
    let wanted = ["--label", "--mpi", "-l", "-n"].map(str::to_owned);
    assert_eq!(options(help), BTreeSet::from(wanted));
}
