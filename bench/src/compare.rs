//! `compare`: two sets of results beside each other, as of two kinds of processors or two versions.
//!
//! A result is a column of a CSV file with least and greatest value beside it: `us`, `us_min` and
//! `us_max`. The columns without such neighbours name the row. Other files have no results.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::table::{Table, three_digits};

/// Options of the comparison.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// Directory of the first results, as --out of an earlier run named it
    a: PathBuf,
    /// Directory of the second results
    b: PathBuf,
    /// Least difference that is printed, in percent; ranges that overlap are no difference
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    least: f64,
    /// Print all results
    #[arg(long)]
    all: bool,
}

/// A median with its range.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figure {
    median: f64,
    min: f64,
    max: f64,
}

impl Figure {
    fn text(&self) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(three_digits);
        format!("{median} ({min}..{max})")
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// The results of a file by the name of row and column.
type Figures = BTreeMap<(String, String), Figure>;

/// Compares, and prints.
pub fn run(options: &Options) -> Result<(), Failure> {
    print_machines(&options.a, &options.b)?;
    let names = files(&options.a)?;
    let others = files(&options.b)?;
    let mut is_any = false;
    for name in names.iter().filter(|name| others.contains(name)) {
        let [a, b] = [&options.a, &options.b].map(|directory| read(&directory.join(name)));
        let (a, b) = (figures(name, &a?)?, figures(name, &b?)?);
        if a.keys().any(|key| b.contains_key(key)) {
            is_any = true;
            print(name, &a, &b, options);
        }
    }
    if !is_any {
        return Err(Failure::new(format!(
            "{} and {} have no result in common; were both written with --out?",
            options.a.display(),
            options.b.display()
        )));
    }
    Ok(())
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

/// Returns the names of the CSV files of a directory, in order.
fn files(directory: &Path) -> Result<Vec<String>, Failure> {
    let failed = |error| Failure::new(format!("{}: {error}", directory.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".csv") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Prints the facts about both machines, which each run writes.
fn print_machines(a: &Path, b: &Path) -> Result<(), Failure> {
    let facts = |directory: &Path| -> Result<Vec<(String, String)>, Failure> {
        let text = read(&directory.join("machine.txt"))?;
        let facts = text.lines().filter_map(|line| line.split_once("  "));
        Ok(facts.map(|(name, fact)| (name.to_owned(), fact.trim().to_owned())).collect())
    };
    let (ours, theirs) = (facts(a)?, facts(b)?);
    let mut table = Table::new(["", &a.display().to_string(), &b.display().to_string()]);
    for (name, fact) in &ours {
        let other = theirs.iter().find(|(other, _)| other == name);
        let other = other.map_or("", |(_, fact)| fact);
        table.row([name.clone(), fact.clone(), other.to_owned()]);
    }
    table.print("machines");
    Ok(())
}

/// Reads the results of a CSV file.
fn figures(name: &str, text: &str) -> Result<Figures, Failure> {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let headings = lines.next().unwrap_or_default();
    let place = |heading: &str| headings.iter().position(|it| *it == heading);
    let range = |heading: &str| {
        Some([place(&format!("{heading}_min"))?, place(&format!("{heading}_max"))?])
    };
    let results: Vec<_> = (0..headings.len())
        .filter_map(|at| Some((at, headings[at], range(headings[at])?)))
        .collect();
    let is_result =
        |at: usize| results.iter().any(|(it, _, range)| *it == at || range.contains(&at));
    // A percentile, or a judgement about the result.
    let is_other = |at: usize| {
        let heading = headings[at];
        let of_result =
            |(_, result, _): &(usize, &str, _)| heading.starts_with(&format!("{result}_"));
        results.iter().any(of_result) || heading == "verdict"
    };
    let names: Vec<_> = (0..headings.len()).filter(|&at| !is_result(at) && !is_other(at)).collect();
    let mut figures = Figures::new();
    for (number, cells) in (2..).zip(lines) {
        if cells.len() != headings.len() {
            let (has, wants) = (cells.len(), headings.len());
            return Err(Failure::new(format!(
                "{name}, line {number}: {has} cells below {wants} headings"
            )));
        }
        let row = names.iter().map(|&at| cells[at]).collect::<Vec<_>>().join(" ");
        for &(at, heading, [min, max]) in &results {
            // Cells of peers that were not measured are empty.
            if let [Ok(median), Ok(min), Ok(max)] = [at, min, max].map(|at| cells[at].parse()) {
                let figure = Figure { median, min, max };
                figures.insert((row.clone(), heading.to_owned()), figure);
            }
        }
    }
    Ok(figures)
}

/// Prints the results of a file that differ.
fn print(name: &str, a: &Figures, b: &Figures, options: &Options) {
    let mut table = Table::new(["result", "column", "A", "B", "B/A", ""]);
    let (mut compared, mut higher, mut lower, mut printed) = (0, 0, 0, 0);
    for ((row, column), first) in a {
        let Some(second) = b.get(&(row.clone(), column.clone())) else { continue };
        compared += 1;
        let ratio = second.median / first.median;
        let differs = !first.overlaps(second) && (ratio - 1.0).abs() * 100.0 >= options.least;
        higher += u32::from(differs && ratio > 1.0);
        lower += u32::from(differs && ratio < 1.0);
        if differs || options.all {
            printed += 1;
            let mark = if differs { "" } else { "≈" };
            let ratio = if ratio.is_finite() { three_digits(ratio) } else { "-".to_owned() };
            let cells = [row, column, &first.text(), &second.text(), &ratio, mark];
            table.row(cells.map(|cell| cell.to_owned()));
        }
    }
    let title = format!("{name}: {compared} results, in B {higher} are higher and {lower} lower");
    if printed > 0 { table.print(&title) } else { println!("\n{title}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_columns_with_a_range() {
        let text = "step,nodes,us,us_min,us_max,us_99\nlock,2,15.0,14.5,15.5,30\nlock,4,,,,\n";
        let found = figures("dsm.csv", text).expect("well-formed");
        let key = ("lock 2".to_owned(), "us".to_owned());
        assert_eq!(found.keys().collect::<Vec<_>>(), [&key]);
        assert_eq!(found[&key], Figure { median: 15.0, min: 14.5, max: 15.5 });
        assert!(figures("counts.csv", "what,ours\nlines,4\n").expect("well-formed").is_empty());
    }

    #[test]
    fn a_broken_line_is_named() {
        let text = "step,us,us_min,us_max\nlock,1\n";
        let line = figures("dsm.csv", text).expect_err("a cell lacks").to_string();
        assert!(line.contains("dsm.csv, line 2"), "{line}");
    }

    #[test]
    fn ranges_that_overlap_are_no_difference() {
        let figure = |min, max| Figure { median: min, min, max };
        assert!(figure(1.0, 2.0).overlaps(&figure(2.0, 3.0)));
        assert!(!figure(1.0, 2.0).overlaps(&figure(2.1, 3.0)));
    }
}
