//! The crates of a workspace and their source files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate of the workspace.
pub struct Member {
    /// The workspace's directory.
    pub root: PathBuf,
    /// The crate's directory, relative to the workspace: `memory/span`.
    pub directory: String,
    /// The crate's manifest.
    pub manifest: toml::Table,
}

/// Reads a TOML file.
fn table(path: &Path) -> toml::Table {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.parse().unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// Returns all crates of the workspace in `root`.
///
/// # Panics
/// If a manifest is missing or malformed.
pub fn members(root: &Path) -> Vec<Member> {
    let workspace = table(&root.join("Cargo.toml"));
    let directories = workspace["workspace"]["members"].as_array().expect("members").clone();
    let member = |directory: toml::Value| {
        let directory = directory.as_str().expect("a directory").to_owned();
        let manifest = table(&root.join(&directory).join("Cargo.toml"));
        Member { root: root.to_owned(), directory, manifest }
    };
    directories.into_iter().map(member).collect()
}

impl Member {
    /// The package's name.
    ///
    /// # Panics
    /// If the manifest has none.
    pub fn name(&self) -> &str {
        self.manifest["package"]["name"].as_str().expect("a name")
    }

    /// The packages in a section of the manifest: `dependencies`, `dev-dependencies`.
    pub fn dependencies(&self, section: &str) -> BTreeSet<String> {
        let table = self.manifest.get(section).and_then(toml::Value::as_table);
        let package = |(key, value): (&String, &toml::Value)| {
            let renamed = value.get("package").and_then(toml::Value::as_str);
            renamed.unwrap_or(key).to_owned()
        };
        table.into_iter().flatten().map(package).collect()
    }

    /// The names of the other members that this one uses, in order.
    pub fn uses(&self, members: &[Member]) -> Vec<String> {
        let mut used = self.dependencies("dependencies");
        used.retain(|name| members.iter().any(|member| member.name() == name));
        used.into_iter().collect()
    }

    /// Its Rust files below `src`, relative to the workspace, in order.
    pub fn sources(&self) -> Vec<String> {
        files(&self.root, &format!("{}/src", self.directory), &["rs"])
    }
}

/// Returns the files below `directory` with one of these extensions, relative to the workspace in
/// `root`, in order.
///
/// # Panics
/// If the directory cannot be read.
pub fn files(root: &Path, directory: &str, extensions: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![root.join(directory)];
    while let Some(path) = open.pop() {
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries {
            let entry = entry.expect("a directory entry");
            let kind = entry.file_type().expect("its type");
            if kind.is_dir() {
                // Benchmarks write there, and compile copies of programs.
                if entry.file_name() != "out" {
                    open.push(entry.path());
                }
            } else if kind.is_file() {
                let path = entry.path();
                let extension = path.extension().and_then(|one| one.to_str()).unwrap_or("");
                if extensions.contains(&extension) {
                    let path = path.strip_prefix(root).expect("a path of the workspace");
                    found.push(path.to_str().expect("UTF-8").to_owned());
                }
            }
        }
    }
    found.sort();
    found
}

/// Returns the text of a file of the workspace.
///
/// # Panics
/// If it cannot be read.
pub fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the syntax tree of a Rust file.
///
/// # Panics
/// If it cannot be read or parsed.
pub fn syntax(root: &Path, path: &str) -> syn::File {
    syn::parse_file(&text(root, path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns true if an item is compiled for tests only.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|one| {
        one.path().is_ident("test")
            || one.path().is_ident("cfg")
                && one.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}
