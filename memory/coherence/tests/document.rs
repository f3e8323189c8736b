//! The documentation shows the rules as they are.

use coherence::scope::page::diagram;

#[test]
fn the_diagram_in_the_documentation_is_that_of_the_rules() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/coherence.md");
    let text = std::fs::read_to_string(path).expect("docs/coherence.md");
    let (before, rest) = text.split_once("```mermaid\n").expect("a diagram begins");
    let (old, after) = rest.split_once("```").expect("and ends");
    if std::env::var_os("NAGAYA_WRITE").is_some() {
        std::fs::write(path, format!("{before}```mermaid\n{}```{after}", diagram())).expect(path);
    } else {
        assert_eq!(old, diagram(), "run this test with NAGAYA_WRITE=1 to write it anew");
    }
}
