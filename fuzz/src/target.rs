//! A fuzz target, and what all targets need.

/// A fuzz target.
pub struct Target {
    /// Its name, which is also that of its corpus.
    pub name: &'static str,
    /// The bytes that it reads, and their sender.
    pub reads: &'static str,
    /// Runs on an input, and panics if it finds a defect.
    pub run: fn(&[u8]),
    /// Returns valid inputs and their names.
    pub seeds: fn() -> Seeds,
}

/// Valid inputs, each with a name.
pub type Seeds = Vec<(String, Vec<u8>)>;

/// Returns seeds of these inputs, which are numbered.
pub fn numbered(inputs: impl IntoIterator<Item = Vec<u8>>) -> Seeds {
    inputs.into_iter().enumerate().map(|(number, input)| (number.to_string(), input)).collect()
}

/// Returns the text of an input.
pub fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Checks that an error is one line.
pub fn is_one_line(line: &str) {
    assert!(!line.is_empty() && !line.contains('\n'), "{line:?} is not one line");
}
