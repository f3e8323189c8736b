//! Every C symbol of the headers is named in a man page.

use std::collections::BTreeSet;

use crate::sources::{files, root, text};

/// Headers whose calls belong to another project's interface, with the pages that describe them.
/// PVM's calls have pages in PVM's own documentation, MPI's and UCX's in theirs. OpenSHMEM's calls
/// are in its specification.
const FOREIGN: &[&str] =
    &["include/pvm3/", "include/shmem", "include/nagaya_shmem", "include/pshmem", "include/mpp/"];

/// Returns the text of a header without comments and preprocessor lines.
fn code(header: &str) -> String {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    code.push_str(rest);
    let mut continued = false;
    let is_code = |line: &&str| {
        let is_directive = continued || line.trim_start().starts_with('#');
        continued = is_directive && line.ends_with('\\');
        !is_directive
    };
    let lines: Vec<&str> = code.lines().filter(is_code).collect();
    lines.join("\n")
}

/// The names of the functions that a header declares or defines outside any other function.
fn functions(header: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut depth = 0;
    let text = code(header).replace("extern \"C\" {", "");
    let mut word = String::new();
    let mut parentheses = 0;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            // The end of `extern "C"` has no beginning here.
            '}' => depth = (depth - 1).max(0),
            '(' => {
                let is_name = word.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
                // `__attribute__` is none, and a name with `_` at its end is internal.
                let is_public = is_name && !word.ends_with('_');
                if depth == 0 && parentheses == 0 && is_public {
                    names.insert(word.clone());
                }
                parentheses += 1;
            }
            ')' => parentheses -= 1,
            _ => {}
        }
        match c {
            c if c.is_alphanumeric() || c == '_' => word.push(c),
            ' ' if word.is_empty() => {}
            // `name (` is a declaration, too; but `*name` begins a new word.
            _ => word.clear(),
        }
    }
    names
}

/// All man pages in one text, without troff's escapes.
fn manuals() -> String {
    let entries = std::fs::read_dir(root().join("man")).expect("man/").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let pages: Vec<String> = names.map(|name| text(&format!("man/{name}"))).collect();
    pages.join("\n").replace("\\-", "-").replace("\\&", "")
}

/// Returns true if the text has the name as a whole word.
fn names(text: &str, name: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + name.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

#[test]
fn every_c_function_is_named_in_a_man_page() {
    let manuals = manuals();
    let mut missing = Vec::new();
    let mut count = 0;
    for header in files("include", &["h"]) {
        if FOREIGN.iter().any(|foreign| header.starts_with(foreign)) {
            continue;
        }
        for function in functions(&text(&header)) {
            count += 1;
            if !names(&manuals, &function) {
                missing.push(format!("{header}: {function}"));
            }
        }
    }
    assert!(count > 100, "only {count} functions were found");
    assert!(missing.is_empty(), "no man page names\n  {}", missing.join("\n  "));
}

#[test]
fn functions_of_a_header_are_found() {
    let header = "#define A(x) f(x) \\\n  g(x)\n/* h(1) */\nint one(int (*callback)(int));\n\
                  extern \"C\" {\nvoid *two(void);\n}\nstatic inline int three(void)\n{\n\
                  return other(1);\n}\nint four_(void);\n";
    let wanted = ["one", "three", "two"].map(str::to_owned);
    assert_eq!(functions(header), BTreeSet::from(wanted));
}
