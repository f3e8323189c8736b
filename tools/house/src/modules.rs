//! The modules of a crate, and the modules that they use.
//!
//! A module is a file. It uses another one if a path in it leads there. A path through a re-export
//! of the crate's root leads to the module of the re-exported item. Code for tests does not count.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::workspace::{Member, is_test, syntax};

/// A module's name: its path within the crate, the root's is empty.
pub type Name = Vec<String>;

/// The modules that each module uses.
pub type Graph = BTreeMap<Name, BTreeSet<Name>>;

/// The paths in a file, those of `use` in full.
#[derive(Default)]
struct Paths {
    found: Vec<Vec<String>>,
}

impl Paths {
    fn add_tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_tree(before, tree));
            }
            syn::UseTree::Name(name) => self.add(before, &name.ident),
            syn::UseTree::Rename(name) => self.add(before, &name.ident),
            syn::UseTree::Glob(_) => self.found.push(before.clone()),
        }
    }

    fn add(&mut self, before: &[String], last: &syn::Ident) {
        let mut path = before.to_vec();
        path.push(last.to_string());
        self.found.push(path);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test(attributes) {
            visit::visit_item(self, item);
        }
    }

    /// `pub(super)` names a module and uses nothing of it.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_tree(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|one| one.ident.to_string());
        self.found.push(names.collect());
        visit::visit_path(self, path);
    }
}

/// The module that a file holds.
fn module(member: &Member, file: &str) -> Name {
    let inner = file.strip_prefix(&format!("{}/src/", member.directory)).expect("its file");
    let inner = inner.strip_suffix(".rs").expect("a Rust file");
    let mut name: Name = inner.split('/').map(str::to_owned).collect();
    if name.last().is_some_and(|last| last == "mod") || inner == "lib" || inner == "main" {
        name.pop();
    }
    name
}

/// Finds the module in which the item of a path of `from` lies, if it is of this crate.
fn resolve(
    from: &Name,
    path: &[String],
    modules: &BTreeSet<Name>,
    exports: &BTreeMap<String, Name>,
) -> Option<Name> {
    let mut at = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => from.clone(),
        "super" => from[..from.len().checked_sub(1)?].to_vec(),
        first => {
            let child: Name = from.iter().cloned().chain([first.to_owned()]).collect();
            if !modules.contains(&child) {
                return None;
            }
            child
        }
    };
    for name in &path[1..] {
        if name == "super" {
            at.pop()?;
            continue;
        }
        let child: Name = at.iter().cloned().chain([name.clone()]).collect();
        if modules.contains(&child) {
            at = child;
        } else if at.is_empty() && exports.contains_key(name) {
            return exports.get(name).cloned();
        } else {
            break;
        }
    }
    Some(at)
}

/// Returns the modules of a crate, and the modules that each of them uses.
///
/// # Panics
/// If a file cannot be parsed.
pub fn graph(member: &Member) -> Graph {
    let files = member.sources();
    let modules: BTreeSet<Name> = files.iter().map(|file| module(member, file)).collect();
    let mut paths = BTreeMap::new();
    for file in &files {
        let mut found = Paths::default();
        found.visit_file(&syntax(&member.root, file));
        paths.entry(module(member, file)).or_insert_with(Vec::new).extend(found.found);
    }
    let mut exports = BTreeMap::new();
    for path in paths.get(&Vec::new()).into_iter().flatten() {
        if path.len() > 1
            && let Some(at) = resolve(&Vec::new(), path, &modules, &BTreeMap::new())
            && !at.is_empty()
        {
            exports.insert(path.last().expect("a name").clone(), at);
        }
    }
    let uses = |(name, paths): (&Name, &Vec<Vec<String>>)| {
        let used = paths.iter().filter_map(|path| resolve(name, path, &modules, &exports));
        (name.clone(), used.filter(|used| used != name).collect())
    };
    paths.iter().map(uses).collect()
}

/// The modules that are reached from one, by one step or more.
fn reached<'a>(graph: &'a Graph, from: &'a Name) -> BTreeSet<&'a Name> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for next in graph.get(at).into_iter().flatten() {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

/// Returns the modules that lie on a cycle.
pub fn cyclic(graph: &Graph) -> Vec<&Name> {
    graph.keys().filter(|name| reached(graph, name).contains(name)).collect()
}

/// Returns the edges that lie on a cycle, as pairs of a module and the one that it uses.
pub fn cyclic_edges(graph: &Graph) -> Vec<(&Name, &Name)> {
    let edges = graph.iter().flat_map(|(name, used)| used.iter().map(move |used| (name, used)));
    edges.filter(|(name, used)| reached(graph, used).contains(name)).collect()
}
