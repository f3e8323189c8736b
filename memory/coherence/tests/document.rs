//! The diagrams in the documentation equal the transition tables.

use coherence::{scope, sequential};

/// Checks the diagram of the section with this heading. NAGAYA_WRITE=1 writes it instead.
fn is_shown(heading: &str, diagram: &str) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/coherence.md");
    let text = std::fs::read_to_string(path).expect("docs/coherence.md");
    let section = text.find(heading).expect("the section");
    let (before, rest) =
        text[section..].split_once("```mermaid\n").expect("the start of a diagram");
    let (old, after) = rest.split_once("```").expect("the end of the diagram");
    if std::env::var_os("NAGAYA_WRITE").is_some() {
        let before = &text[..section + before.len()];
        std::fs::write(path, format!("{before}```mermaid\n{diagram}```{after}")).expect(path);
    } else {
        assert_eq!(old, diagram, "run this test with NAGAYA_WRITE=1 to update the diagram");
    }
}

#[test]
fn the_diagrams_in_the_documentation_are_those_of_the_rules() {
    is_shown("\n## Scope consistency\n", &scope::page::TABLE.diagram());
    is_shown("\n## Sequential consistency\n", &sequential::page::TABLE.diagram());
}
