//! The crates and files of this workspace.

use std::path::Path;

use house::workspace;
pub use house::workspace::{Member, is_test};

/// The workspace's directory.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

/// Returns all crates of the workspace.
pub fn members() -> Vec<Member> {
    workspace::members(root())
}

/// Returns the files below a directory with one of these extensions, in order.
pub fn files(directory: &str, extensions: &[&str]) -> Vec<String> {
    workspace::files(root(), directory, extensions)
}

/// Returns the text of a file of the workspace.
pub fn text(path: &str) -> String {
    workspace::text(root(), path)
}

/// Returns the syntax tree of a Rust file.
pub fn syntax(path: &str) -> syn::File {
    workspace::syntax(root(), path)
}
