//! The documentation shows the rules as they are.

use coherence::{scope, sequential};

/// The diagram of the section that begins with this heading is this one.
fn is_shown(heading: &str, diagram: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/coherence.md");
    let text = std::fs::read_to_string(path).expect("docs/coherence.md");
    let section = text.find(heading).expect("the section");
    let (before, rest) = text[section..].split_once("```mermaid\n").expect("a diagram begins");
    let (old, after) = rest.split_once("```").expect("and ends");
    if std::env::var_os("NAGAYA_WRITE").is_some() {
        let before = &text[..section + before.len()];
        std::fs::write(path, format!("{before}```mermaid\n{diagram}```{after}")).expect(path);
    } else {
        assert_eq!(old, diagram, "run this test with NAGAYA_WRITE=1 to write it anew");
    }
}

#[test]
fn the_diagrams_in_the_documentation_are_those_of_the_rules() {
    is_shown("\n## Scope consistency\n", &scope::page::diagram());
    is_shown("\n## Sequential consistency\n", &sequential::page::diagram());
}
