//! Figures of jobs without and with Nagaya: a table with the worst ratio first, and a CSV file.

use std::path::Path;

use crate::failure::Failure;
use crate::launch::Side;
use crate::mpi::Mpi;
use crate::ranks::oversubscribed;
use crate::spread::Spread;
use crate::table::{Table, three_digits, write_lines};

/// A figure of a job, in all rounds.
pub struct Gain {
    /// The MPI.
    pub mpi: Mpi,
    /// Number of ranks.
    pub ranks: usize,
    /// Name and unit of the figure.
    pub what: String,
    /// True if more is better.
    pub is_rate: bool,
    /// The figure of both sides in each round.
    pub rounds: Vec<[f64; 2]>,
    /// Remark in the table.
    pub remark: String,
}

impl Gain {
    /// Returns the values of a side.
    fn of(&self, side: Side) -> Vec<f64> {
        self.rounds.iter().map(|round| round[side as usize]).collect()
    }

    /// Returns the ratio, above 1 if Nagaya is better.
    fn ratio(&self) -> Spread {
        let [plain, tasks] = Side::BOTH.map(|side| self.of(side));
        match self.is_rate {
            true => Spread::of_quotients(&tasks, &plain),
            false => Spread::of_quotients(&plain, &tasks),
        }
    }

    /// Returns true if Nagaya is worse in every round, by more than `noise`.
    fn is_loss(&self, noise: f64) -> bool {
        self.ratio().max < 1.0 - noise
    }
}

/// Differences below this are noise between runs of the same program.
const NOISE: f64 = 0.03;

/// Prints the figures, the worst ratio first, and the number of those that got worse.
pub fn print(title: &str, gains: &[Gain]) {
    let mut sorted: Vec<&Gain> = gains.iter().collect();
    sorted.sort_by(|a, b| a.ratio().median.total_cmp(&b.ratio().median));
    let mut table = Table::new(["MPI", "ranks", "figure", "plain", "nagaya", "ratio", ""]);
    for gain in &sorted {
        let [plain, tasks] = Side::BOTH.map(|side| spread(Spread::of(&gain.of(side))));
        let Spread { median, min, max } = gain.ratio();
        table.row([
            gain.mpi.name().to_string(),
            format!("{}{}", gain.ranks, oversubscribed(gain.ranks)),
            gain.what.clone(),
            plain,
            tasks,
            format!("{median:.2} ({min:.2}..{max:.2})"),
            gain.remark.clone(),
        ]);
    }
    table.print(&format!(
        "{title}; median (min..max), worst first; ratio above 1: Nagaya is better"
    ));
    let worse = gains.iter().filter(|gain| gain.is_loss(NOISE)).count();
    println!(
        "{} figures: worse by more than {:.0} % in every round: {worse}",
        gains.len(),
        100.0 * NOISE
    );
}

fn spread(Spread { median, min, max }: Spread) -> String {
    format!("{} ({}..{})", three_digits(median), three_digits(min), three_digits(max))
}

/// Writes the figures as a CSV file.
pub fn write(gains: &[Gain], file: &Path) -> Result<(), Failure> {
    let headings = "mpi,ranks,oversubscribed,figure,plain,plain_min,plain_max,\
                    nagaya,nagaya_min,nagaya_max,ratio,ratio_min,ratio_max";
    let mut lines = vec![headings.to_string()];
    for gain in gains {
        let [plain, tasks] = Side::BOTH.map(|side| Spread::of(&gain.of(side)));
        let numbers = [plain, tasks, gain.ratio()]
            .map(|Spread { median, min, max }| format!("{median:.6},{min:.6},{max:.6}"));
        let (mpi, what) = (gain.mpi.key(), gain.what.replace(',', ";"));
        let crowded = !oversubscribed(gain.ranks).is_empty();
        lines.push(format!("{mpi},{},{crowded},{what},{}", gain.ranks, numbers.join(",")));
    }
    write_lines(file, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gain(is_rate: bool, rounds: &[[f64; 2]]) -> Gain {
        Gain {
            mpi: Mpi::Ompi4,
            ranks: 2,
            what: String::new(),
            is_rate,
            rounds: rounds.to_vec(),
            remark: String::new(),
        }
    }

    #[test]
    fn a_ratio_above_one_is_better_for_times_and_rates() {
        assert_eq!(gain(false, &[[4.0, 2.0]]).ratio().median, 2.0);
        assert_eq!(gain(true, &[[2.0, 4.0]]).ratio().median, 2.0);
    }

    #[test]
    fn a_loss_is_one_in_every_round() {
        assert!(gain(false, &[[1.0, 1.1], [1.0, 1.2]]).is_loss(NOISE));
        assert!(!gain(false, &[[1.0, 1.1], [1.0, 1.0]]).is_loss(NOISE));
    }
}
