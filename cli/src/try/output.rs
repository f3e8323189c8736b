//! Compares the output of two runs.

use serde::Serialize;

/// The result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum Comparison {
    /// Each byte is the same.
    Same,
    /// The lines are the same, in another order: ranks print at the same time.
    SameInOtherOrder,
    /// Lines differ.
    Different {
        /// The first line that only the run without Nagaya has.
        without: Option<String>,
        /// The first line that only the run with Nagaya has.
        with: Option<String>,
    },
}

impl Comparison {
    /// Compares the output of the run without Nagaya with the other one.
    pub fn of(without: &[u8], with: &[u8]) -> Self {
        if without == with {
            return Self::Same;
        }
        let lines = |text: &[u8]| -> Vec<String> {
            String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
        };
        let [one, two] = [lines(without), lines(with)];
        // The first line of `some` that `others` lack, or have less often.
        let only = |some: &[String], others: &[String]| {
            let mut left: Vec<&String> = others.iter().collect();
            some.iter()
                .find(|line| match left.iter().position(|other| other == line) {
                    Some(at) => {
                        left.swap_remove(at);
                        false
                    }
                    None => true,
                })
                .cloned()
        };
        match (only(&one, &two), only(&two, &one)) {
            (None, None) => Self::SameInOtherOrder,
            (without, with) => Self::Different { without, with },
        }
    }

    /// Returns true if both runs printed the same lines.
    pub fn is_same(&self) -> bool {
        !matches!(self, Self::Different { .. })
    }

    /// Describes the result in a line.
    pub fn text(&self) -> String {
        match self {
            Self::Same => "the same".into(),
            Self::SameInOtherOrder => "the same lines in another order".into(),
            Self::Different { without, with } => {
                let quoted = |line: &Option<String>| match line {
                    Some(line) => format!("{:?}", shortened(line)),
                    None => "nothing more".into(),
                };
                format!("differs: without {}, with {}", quoted(without), quoted(with))
            }
        }
    }
}

/// Most characters of a line that is shown.
const SHOWN: usize = 60;

fn shortened(line: &str) -> String {
    let shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() { shown + "..." } else { shown }
}
