//! Names that the user gives to commands.

use std::collections::BTreeMap;

/// All aliases, by name.
#[derive(Debug, Default)]
pub struct Aliases(BTreeMap<String, Vec<String>>);

/// An alias that leads back to itself.
#[derive(Debug, PartialEq, Eq)]
pub struct Loop;

impl Aliases {
    /// `name` means `words`, at least one, from now on.
    pub fn define(&mut self, name: &str, words: &[String]) {
        assert!(!words.is_empty());
        self.0.insert(name.to_owned(), words.to_vec());
    }

    /// Forgets a name.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Iterates over names and their commands.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(name, words)| (name.as_str(), words.as_slice()))
    }

    /// The command that `words` mean, after as many aliases as it takes. One whose first word
    /// is its own name (`alias ps ps -a`) is the end.
    pub fn resolve(&self, mut words: Vec<String>) -> Result<Vec<String>, Loop> {
        let mut met = Vec::new();
        while let Some((name, meaning)) = words.first().and_then(|word| self.0.get_key_value(word))
        {
            if met.contains(&name) {
                return Err(Loop);
            }
            met.push(name);
            words.splice(..1, meaning.iter().cloned());
            if meaning[0] == *name {
                break;
            }
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn aliases_lead_to_commands() {
        let mut aliases = Aliases::default();
        aliases.define("e", &words("echo hello"));
        aliases.define("f", &words("e big"));
        aliases.define("ps", &words("ps -a"));
        assert_eq!(aliases.resolve(words("f world")), Ok(words("echo hello big world")));
        assert_eq!(aliases.resolve(words("ps -x")), Ok(words("ps -a -x")));
        assert_eq!(aliases.resolve(words("id e")), Ok(words("id e")));
        assert_eq!(aliases.resolve(Vec::new()), Ok(Vec::new()));
        aliases.remove("e");
        assert_eq!(aliases.resolve(words("f")), Ok(words("e big")));
    }

    #[test]
    fn loops_end() {
        let mut aliases = Aliases::default();
        aliases.define("a", &words("b 1"));
        aliases.define("b", &words("a 2"));
        assert_eq!(aliases.resolve(words("a")), Err(Loop));
    }
}
