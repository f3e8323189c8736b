//! Lines of product code: Rust, C and assembly outside tests.
//!
//! A line counts if it has code, so blank lines and comments do not. Items under `#[cfg(test)]` and
//! `#[cfg(loom)]` do not count, nor do the files of such modules.

use std::collections::BTreeSet;
use std::path::Path;

use syn::spanned::Spanned as _;

use crate::workspace::{files, text};

/// Directories without product code, wherever they lie in a crate.
const NO_PRODUCT: &[&str] = &["tests", "benches", "examples", "programs", "target"];

/// Returns the lines of product code below `directory`, without those below `nested` directories.
///
/// # Panics
/// If a file cannot be parsed.
pub fn product(root: &Path, directory: &str, nested: &[&str]) -> usize {
    let is_product = |file: &String| {
        let inner = file.strip_prefix(directory).unwrap_or(file);
        let in_nested = nested.iter().any(|one| file.starts_with(&format!("{one}/")));
        !in_nested && !inner.split('/').any(|part| NO_PRODUCT.contains(&part))
    };
    let mut files = files(root, directory, &["rs", "c", "h", "S"]);
    files.retain(is_product);
    let mut tests = BTreeSet::new();
    let mut lines = Vec::new();
    for file in &files {
        let text = text(root, file);
        let mut skipped = Vec::new();
        if file.ends_with(".rs") {
            let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
            for item in &syntax.items {
                if is_for_tests(item) {
                    skipped.push(item.span().start().line..=item.span().end().line);
                    tests.extend(module_path(file, item));
                }
            }
        }
        let code = code_lines(&text);
        let counted = code.iter().filter(|line| !skipped.iter().any(|one| one.contains(*line)));
        lines.push((file, counted.count()));
    }
    let is_test = |file: &str| tests.iter().any(|test: &String| is_of_module(file, test));
    lines.iter().filter(|(file, _)| !is_test(file)).map(|(_, count)| count).sum()
}

/// Returns true if an item is compiled for tests or models only.
fn is_for_tests(item: &syn::Item) -> bool {
    let attributes = match item {
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => return false,
    };
    attributes.iter().any(|attribute| {
        let syn::Meta::List(list) = &attribute.meta else { return false };
        let tokens = list.tokens.to_string();
        let names = tokens.split(|one: char| !one.is_ascii_alphanumeric() && one != '_');
        attribute.path().is_ident("cfg")
            && !tokens.starts_with("not")
            && names.into_iter().any(|name| ["test", "loom"].contains(&name))
    })
}

/// Returns the path of a module in a separate file, without the extension.
fn module_path(file: &str, item: &syn::Item) -> Option<String> {
    let syn::Item::Mod(module) = item else { return None };
    if module.content.is_some() {
        return None;
    }
    let parent = file.strip_suffix(".rs")?;
    let directory = match parent.rsplit_once('/') {
        Some((directory, "lib" | "main" | "mod")) => directory,
        _ => parent,
    };
    Some(format!("{directory}/{}", module.ident))
}

/// Returns true if a file belongs to a module or to a module below it.
fn is_of_module(file: &str, module: &str) -> bool {
    let rest = file.strip_prefix(module);
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Returns the numbers, from 1, of the lines that have code.
fn code_lines(text: &str) -> Vec<usize> {
    let mut in_comment = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut line = line.trim();
        if in_comment {
            let Some((_, rest)) = line.split_once("*/") else { continue };
            in_comment = false;
            line = rest.trim();
        }
        if line.starts_with("/*") && !line.contains("*/") {
            in_comment = true;
            continue;
        }
        let is_comment = line.starts_with("//") || line.starts_with("/*") && line.ends_with("*/");
        if !line.is_empty() && !is_comment {
            lines.push(number);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_are_no_code() {
        let text =
            "//! A file.\n\n/* one */\n/* two\n * three\n */\nint a; /* four */\n  // five\n";
        assert_eq!(code_lines(text), [7]);
    }

    #[test]
    fn files_of_test_modules_belong_to_them() {
        let item: syn::Item = syn::parse_quote! { #[cfg(all(test, loom))] mod models; };
        assert!(is_for_tests(&item));
        let path = module_path("sync/src/ring.rs", &item).expect("a file of its own");
        assert_eq!(path, "sync/src/ring/models");
        assert!(is_of_module("sync/src/ring/models.rs", &path));
        assert!(!is_of_module("sync/src/ring/models_of.rs", &path));
    }
}
