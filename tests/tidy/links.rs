//! Links and anchors of the documents exist, and the site's table of contents has every page.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use crate::sources::{files, root, text};

/// Returns all documents: those of the repository's root, and of the directories with pages.
fn documents() -> Vec<String> {
    let entries = std::fs::read_dir(root()).expect("the repository").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut all: Vec<String> = names.filter(|name| name.ends_with(".md")).collect();
    for directory in ["docs", "bench", "examples"] {
        all.extend(files(directory, &["md"]));
    }
    all.sort();
    all
}

/// The lines of a page that are not inside a fenced block.
fn prose(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let mut is_prose = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    };
    text.lines().filter(|line| is_prose(line)).collect()
}

/// The targets of links and images, such as `span.md#limits`.
fn targets(text: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(text) {
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            if let Some(end) = rest.find(')') {
                targets.push(rest[..end].to_owned());
            }
        }
    }
    targets
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let Some(heading) = line.trim_start_matches('#').strip_prefix(' ') else { continue };
        if !line.starts_with('#') {
            continue;
        }
        let kept = |c: char| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        };
        let anchor: String = heading.trim().to_lowercase().chars().filter_map(kept).collect();
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// Removes `.` and `..` from a path within the repository.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(normal.pop(), "{} leaves the tree", path.display()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// Returns the reason why a link of a page is dead.
fn dead(page: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let directory = Path::new(page).parent().expect("a directory");
    let file = match path {
        "" => PathBuf::from(page),
        path => normal(&directory.join(path)),
    };
    if !root().join(&file).exists() {
        return Some(format!("{page}: {target}: no such file"));
    }
    let is_page = file.extension().is_some_and(|it| it == "md");
    let has_anchor = || anchors(&text(file.to_str().expect("a path in UTF-8"))).contains(anchor);
    let is_dead = !anchor.is_empty() && is_page && !has_anchor();
    is_dead.then(|| format!("{page}: {target}: no such heading"))
}

#[test]
fn links_and_anchors_exist() {
    let mut found = Vec::new();
    let mut count = 0;
    for page in documents() {
        for target in targets(&text(&page)) {
            count += 1;
            found.extend(dead(&page, &target));
        }
    }
    assert!(found.is_empty(), "dead links:\n  {}", found.join("\n  "));
    assert!(count > 200, "only {count} links were found");
}

#[test]
fn the_contents_of_the_site_have_every_page() {
    let listed: BTreeSet<PathBuf> = targets(&text("docs/SUMMARY.md"))
        .iter()
        .map(|target| normal(&Path::new("docs").join(target)))
        .collect();
    let pages = documents().into_iter().filter(|page| page != "docs/SUMMARY.md");
    let missing: Vec<String> = pages.filter(|page| !listed.contains(Path::new(page))).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md lacks {missing:?}");
}

#[test]
fn headings_have_the_anchors_of_github() {
    let page = "# A `b` (c)\n```\n# no\n```\n## 2. Run it\n## Same\n## Same\n";
    let wanted = ["2-run-it", "a-b-c", "same", "same-1"].map(str::to_owned);
    assert_eq!(anchors(page), BTreeSet::from(wanted));
}
