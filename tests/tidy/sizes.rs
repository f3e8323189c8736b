//! Files, functions and comments have a readable size, and no dead code is kept.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use crate::assert_only;
use crate::sources::{files, is_test, members, syntax, text};

/// The most lines of a file.
const FILE_LINES: usize = 700;
/// The most lines of a function.
const FUNCTION_LINES: usize = 80;
/// The most columns of a comment line.
const COMMENT_COLUMNS: usize = 100;

/// Files with more lines: tables of system calls and of operations, and programs that test a whole
/// interface.
const LONG_FILES: &[&str] = &[
    "space/gate/tests/c/memory_model.c",
    "tests/programs/api.c",
    "tests/programs/ofi.c",
    "tests/programs/posix.c",
];

/// The directories with code.
const WINGS: &[&str] = &[
    "sync", "net", "launch", "space", "memory", "message", "tools", "cli", "bench", "fuzz",
    "tests", "include", "examples", "python",
];

/// All files with code.
fn code() -> Vec<String> {
    WINGS.iter().flat_map(|wing| files(wing, &["rs", "c", "h", "S", "cc", "hpp", "py"])).collect()
}

#[test]
fn files_are_short() {
    let is_long = |file: &String| text(file).lines().count() > FILE_LINES;
    let found: Vec<String> = code().into_iter().filter(is_long).collect();
    assert_only(&found, LONG_FILES, "a file has at most 700 lines");
}

#[test]
fn comment_lines_are_short() {
    let mut found = Vec::new();
    for file in code() {
        for (number, line) in text(&file).lines().enumerate() {
            let line = line.trim_end();
            let start = line.trim_start();
            let is_comment = ["//", "*", "# "].iter().any(|it| start.starts_with(it));
            // A table's row cannot be wrapped.
            let is_row = start.trim_start_matches(['/', '!', '*', ' ']).starts_with('|');
            if is_comment && !is_row && line.chars().count() > COMMENT_COLUMNS {
                found.push(format!("{file}:{}", number + 1));
            }
        }
    }
    assert_only(&found, &[], "a comment line has at most 100 columns");
}

/// The long functions of a file.
struct Functions {
    file: String,
    found: Vec<String>,
}

impl Functions {
    fn look_at(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let lines = body.span().end().line - body.span().start().line + 1;
        if lines > FUNCTION_LINES {
            self.found.push(format!("{}: {}", self.file, signature.ident));
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_test(&function.attrs) {
            self.look_at(&function.sig, &function.block);
        }
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.look_at(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
}

#[test]
fn functions_are_short() {
    let mut found = Vec::new();
    for member in members() {
        for file in member.sources() {
            let mut functions = Functions { file: file.clone(), found: Vec::new() };
            functions.visit_file(&syntax(&file));
            found.append(&mut functions.found);
        }
    }
    assert_only(&found, &[], "a function has at most 80 lines");
}

#[test]
fn no_code_is_dead() {
    let word = ["allow(dead", "_code)"].concat();
    let has = |file: &String| text(file).contains(&word);
    let found: Vec<String> = code().into_iter().filter(has).collect();
    assert_only(&found, &[], "no code is kept that nothing uses");
}
