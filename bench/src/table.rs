//! Tables: aligned on the terminal, and as CSV files.

use std::fs;
use std::path::Path;

use crate::failure::Failure;

/// Rows of text under a heading, printed with aligned columns.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Returns a table with these column headings.
    pub fn new<'a>(headings: impl IntoIterator<Item = &'a str>) -> Self {
        Table { rows: vec![headings.into_iter().map(str::to_string).collect()] }
    }

    /// Adds a row with a cell for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.rows[0].len(), "a cell for each column");
        self.rows.push(cells);
    }

    /// Prints the table with a title. The first and the last column are left-aligned, the others
    /// right-aligned.
    pub fn print(&self, title: &str) {
        println!("\n{title}");
        let last = self.rows[0].len() - 1;
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..=last).map(width).collect();
        for (at, row) in self.rows.iter().enumerate() {
            let cells: Vec<String> = row
                .iter()
                .enumerate()
                .map(|(column, cell)| {
                    let width = widths[column];
                    if column == last {
                        cell.clone()
                    } else if column == 0 {
                        format!("{cell:<width$}")
                    } else {
                        format!("{cell:>width$}")
                    }
                })
                .collect();
            println!("  {}", cells.join("  "));
            if at == 0 {
                let rule: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
                println!("  {}", rule.join("  "));
            }
        }
    }
}

/// Writes the lines of a text or CSV file.
pub fn write_lines(file: &Path, lines: &[String]) -> Result<(), Failure> {
    fs::write(file, lines.join("\n") + "\n")
        .map_err(|error| Failure::new(format!("{}: cannot be written: {error}", file.display())))
}

/// Formats a number with three significant digits.
pub fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        0.0..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let values = [0.314, 9.994, 9.996, 99.96, 1234.5];
        assert_eq!(values.map(three_digits), ["0.31", "9.99", "10.0", "100", "1234"]);
    }
}
