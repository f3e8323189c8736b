//! Domains: memory of another task read in one domain and from another, and how many pages a
//! second many tasks touch and map where they share page tables and where they do not.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::Parser;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::machine::memory_available_mib;
use crate::programs;
use crate::progress::progress;
use crate::spread::Spread;
use crate::table::{Table, write_lines};

/// How much, and how many.
#[derive(Parser)]
pub struct Options {
    /// How often each is run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How much memory is read, in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    megabytes: u32,
    /// Tasks that touch and map pages at a time
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32, 64])]
    tasks: Vec<u32>,
    /// How long they do so
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
}

impl Options {
    /// The defaults.
    pub fn full() -> Self {
        Self::parse_from(["domains"])
    }

    /// As little as shows that everything runs.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.megabytes, self.milliseconds) = (1, 1, 5);
        self.tasks = vec![2];
        self
    }
}

const PATIENCE: Duration = Duration::from_secs(120);

/// How tasks have their page tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One set for all, and private memory: the usual space.
    Private,
    /// One set for all, and shared memory.
    One,
    /// One each.
    Several,
}

impl Way {
    const ALL: [Self; 3] = [Self::Private, Self::One, Self::Several];

    fn name(self) -> &'static str {
        match self {
            Self::Private => "one domain, private memory",
            Self::One => "one domain",
            Self::Several => "a domain each",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::One => "one",
            Self::Several => "several",
        }
    }

    /// `nagaya run` of so many tasks.
    fn command(self, nagaya: &Nagaya, tasks: u32) -> Command {
        let mut command = Command::new(&nagaya.command);
        command.arg("run").env_remove("PVAS_SHARED");
        match self {
            Self::Private => command.args(["-n", &tasks.to_string()]),
            Self::One => command.args(["--domains", &format!("all:{tasks}")]),
            Self::Several => {
                let each = vec!["all:1"; tasks as usize].join(",");
                command.args(["--domains", &each])
            }
        };
        command
    }
}

/// What reading another's memory costs: a row of the program's.
struct Read {
    what: String,
    way: Way,
    first_ns: f64,
    again_ns: f64,
    page_tables_kib: f64,
}

/// Pages or mappings of all tasks together, a second.
struct Rate {
    what: &'static str,
    tasks: u32,
    way: Way,
    per_second: f64,
}

/// Measures, prints tables, writes `domains-reads.csv` and `domains-rates.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    // Two pieces, each of which is there once.
    let needed = u64::from(options.megabytes) * 2 + 256;
    if memory_available_mib().is_some_and(|available| available < needed) {
        return Err(Failure::new(format!(
            "domains: {} MiB twice are not available; give smaller --megabytes",
            options.megabytes
        )));
    }
    let program = programs::compile_with_pvas("domains", nagaya, out)?;
    let (mut reads, mut rates) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        progress(&format!("domains, round {round} of {}", options.rounds));
        for way in Way::ALL {
            let mut command = way.command(nagaya, 2);
            command.arg(&program).args(["reads", &options.megabytes.to_string()]);
            reads.extend(read(&output_of(&mut command, PATIENCE)?, way)?);
        }
        for what in ["faults", "maps"] {
            for &tasks in &options.tasks {
                for way in Way::ALL {
                    let mut command = way.command(nagaya, tasks);
                    command.arg(&program).args([what, &options.milliseconds.to_string()]);
                    let output = output_of(&mut command, PATIENCE)?;
                    let per_second = sum(&output, what, tasks)?;
                    rates.push(Rate { what, tasks, way, per_second });
                }
            }
        }
    }
    progress("");
    report_reads(&reads, options, out)?;
    report_rates(&rates, options, out)
}

fn unexpected(output: &str) -> Failure {
    Failure::new(format!("domains: unexpected output: {output}"))
}

/// Lines of kind, first pass and second (ns a page), and page tables (KiB).
fn read(output: &str, way: Way) -> Result<Vec<Read>, Failure> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let what = words.next().filter(|what| ["touch", "scan"].contains(what))?;
        let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
        let [first_ns, again_ns, page_tables_kib] = numbers?[..] else { return None };
        Some(Read { what: what.to_string(), way, first_ns, again_ns, page_tables_kib })
    };
    let read: Option<Vec<Read>> = output.lines().map(one).collect();
    read.filter(|read| read.len() == 2).ok_or_else(|| unexpected(output))
}

/// The sum of what each task says.
fn sum(output: &str, what: &str, tasks: u32) -> Result<f64, Failure> {
    let one = |line: &str| line.strip_prefix(what)?.trim().parse::<f64>().ok();
    let all: Option<Vec<f64>> = output.lines().map(one).collect();
    let all = all.filter(|all| all.len() == tasks as usize).ok_or_else(|| unexpected(output))?;
    Ok(all.iter().sum())
}

fn report_reads(reads: &[Read], options: &Options, out: &Path) -> Result<(), Failure> {
    let mut table =
        Table::new(["", "", "first ns a page", "(min..max)", "again", "GB/s first", "VmPTE KiB"]);
    let mut lines = vec!["what,way,first_ns,first_min,first_max,again_ns,vmpte_kib".to_string()];
    for what in ["touch", "scan"] {
        for way in Way::ALL {
            let of = |field: fn(&Read) -> f64| {
                let mine = reads.iter().filter(|read| read.what == what && read.way == way);
                Spread::of(&mine.map(field).collect::<Vec<f64>>())
            };
            let (first, again) = (of(|read| read.first_ns), of(|read| read.again_ns));
            let tables = of(|read| read.page_tables_kib);
            table.row([
                what.to_string(),
                way.name().to_string(),
                format!("{:.0}", first.median),
                format!("({:.0}..{:.0})", first.min, first.max),
                format!("{:.0}", again.median),
                if what == "scan" {
                    format!("{:.1}", 4096.0 / first.median)
                } else {
                    String::new()
                },
                format!("{:.0}", tables.median),
            ]);
            lines.push(format!(
                "{what},{},{:.1},{:.1},{:.1},{:.1},{:.0}",
                way.key(),
                first.median,
                first.min,
                first.max,
                again.median,
                tables.median
            ));
        }
    }
    table.print(&format!(
        "{} MiB of another task's memory: a word of each page, all words",
        options.megabytes
    ));
    write_lines(&out.join("domains-reads.csv"), &lines)
}

fn report_rates(rates: &[Rate], options: &Options, out: &Path) -> Result<(), Failure> {
    let mut lines = vec!["what,tasks,way,per_second,min,max".to_string()];
    for (what, title) in [
        ("faults", "pages touched a second, 1 MiB mapped and unmapped at a time, thousands"),
        ("maps", "pages mapped and unmapped a second, thousands"),
    ] {
        let headings =
            ["tasks"].into_iter().chain(Way::ALL.map(Way::name)).chain(["each over one"]);
        let mut table = Table::new(headings);
        for &tasks in &options.tasks {
            let of = |way: Way| {
                let mine = rates
                    .iter()
                    .filter(|rate| rate.what == what && rate.tasks == tasks && rate.way == way);
                mine.map(|rate| rate.per_second).collect::<Vec<f64>>()
            };
            let mut cells = vec![tasks.to_string()];
            for way in Way::ALL {
                let rate = Spread::of(&of(way));
                cells.push(format!("{:.0}", rate.median / 1000.0));
                lines.push(format!(
                    "{what},{tasks},{},{:.0},{:.0},{:.0}",
                    way.key(),
                    rate.median,
                    rate.min,
                    rate.max
                ));
            }
            let over = Spread::of_quotients(&of(Way::Several), &of(Way::One));
            cells.push(format!("{:.2} ({:.2}..{:.2})", over.median, over.min, over.max));
            table.row(cells);
        }
        table.print(title);
    }
    write_lines(&out.join("domains-rates.csv"), &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_others_refused() {
        let all = read("touch 210.5 3.0 2100\nscan 500.0 300.0 4200\n", Way::One).unwrap();
        assert_eq!((all[0].what.as_str(), all[0].first_ns), ("touch", 210.5));
        assert_eq!((all[1].again_ns, all[1].page_tables_kib), (300.0, 4200.0));
        assert!(read("touch 210.5 3.0 2100\n", Way::One).is_err());
        assert_eq!(sum("faults 10\nfaults 20\n", "faults", 2).unwrap(), 30.0);
        assert!(sum("faults 10\n", "faults", 2).is_err());
    }
}
