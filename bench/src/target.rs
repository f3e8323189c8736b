//! Targets: bounds of ratios, and if the measured ratios meet them.

use std::path::Path;

use crate::failure::Failure;
use crate::spread::Spread;
use crate::table::{Table, write_lines};

/// The bound of a ratio.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Bound {
    /// The ratio is at least this.
    AtLeast(f64),
    /// The ratio is at most this.
    AtMost(f64),
}

/// A target.
pub struct Target {
    /// Its description.
    pub what: String,
    /// Its bound.
    pub bound: Bound,
    /// The measured ratio; `None` if one side could not be measured.
    pub ratio: Option<Spread>,
}

impl Target {
    /// Returns its text in the table.
    fn verdict(&self) -> &'static str {
        match (self.bound, self.ratio) {
            (_, None) => "not measured",
            (Bound::AtLeast(least), Some(ratio)) if ratio.median >= least => "met",
            (Bound::AtMost(most), Some(ratio)) if ratio.median <= most => "met",
            _ => "MISSED",
        }
    }
}

/// Prints a line for each target and the number of those that are met. Writes them as a CSV file.
pub fn report(title: &str, targets: &[Target], file: &Path) -> Result<(), Failure> {
    let mut table = Table::new(["", "bound", "measured", "(min..max)", ""]);
    let mut lines = vec!["target,asked,bound,ratio,ratio_min,ratio_max,verdict".to_string()];
    for target in targets {
        let (sign, word, bound) = match target.bound {
            Bound::AtLeast(least) => ("≥", "at_least", least),
            Bound::AtMost(most) => ("≤", "at_most", most),
        };
        let [median, min, max] = match target.ratio {
            Some(ratio) => [ratio.median, ratio.min, ratio.max].map(|of| format!("{of:.2}")),
            None => ["", "", ""].map(str::to_string),
        };
        let verdict = target.verdict();
        let what = target.what.replace(',', ";");
        lines.push(format!(
            "{what},{word},{bound:.3},{median},{min},{max},{}",
            verdict.to_lowercase()
        ));
        let range = target.ratio.map(|_| format!("({min}..{max})")).unwrap_or_default();
        let bound = format!("{sign} {bound:.2}");
        table.row([target.what.clone(), bound, median, range, verdict.to_string()]);
    }
    table.print(title);
    let count = |verdict: &str| targets.iter().filter(|of| of.verdict() == verdict).count();
    let [met, missed, unknown] = ["met", "MISSED", "not measured"].map(count);
    println!("targets: {met} met, {missed} missed, {unknown} not measured");
    write_lines(file, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_met_from_its_bound_on() {
        let target = |bound, median| Target {
            what: String::new(),
            bound,
            ratio: Some(Spread { median, min: 0.0, max: 100.0 }),
        };
        assert_eq!(target(Bound::AtLeast(15.0), 15.0).verdict(), "met");
        assert_eq!(target(Bound::AtLeast(15.0), 14.9).verdict(), "MISSED");
        assert_eq!(target(Bound::AtMost(1.4), 1.4).verdict(), "met");
        assert_eq!(target(Bound::AtMost(1.4), 1.41).verdict(), "MISSED");
        let unknown = Target { ratio: None, ..target(Bound::AtMost(1.4), 1.0) };
        assert_eq!(unknown.verdict(), "not measured");
    }
}
