//! Domains: reads of another task's memory in the same domain, in another one, and on another
//! machine; and rates of page faults and mappings of many tasks with common and with separate page
//! tables.

use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
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

/// The amounts and the number of runs.
#[derive(Parser)]
pub struct Options {
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Memory to read, in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    megabytes: u32,
    /// Numbers of tasks that touch and map pages at the same time
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8, 16, 32, 64])]
    tasks: Vec<u32>,
    /// Duration of such a run, in milliseconds
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
}

impl Options {
    /// Returns the defaults.
    pub fn full() -> Self {
        Self::parse_from(["domains"])
    }

    /// Reduces the run to a smoke test.
    pub fn quick(mut self) -> Self {
        (self.rounds, self.megabytes, self.milliseconds) = (1, 1, 5);
        self.tasks = vec![2];
        self
    }
}

const TIME_LIMIT: Duration = Duration::from_secs(120);

/// The configuration of page tables.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PageTables {
    /// One set for all tasks, and private memory: the default of a space.
    Private,
    /// One set for all tasks, and shared memory.
    One,
    /// One set for each task.
    Several,
    /// Separate machines: two processes, connected over loopback.
    Machines,
    /// Machines that share memory.
    Pool,
}

/// Memory to read from another machine, in MiB. That is enough to know the cost of a page.
const FETCHED_MIB_MAX: u32 = 32;

impl PageTables {
    /// Configurations of one machine.
    const HERE: [Self; 3] = [Self::Private, Self::One, Self::Several];
    const ALL: [Self; 5] = [Self::Private, Self::One, Self::Several, Self::Machines, Self::Pool];

    fn name(self) -> &'static str {
        match self {
            Self::Private => "one domain, private memory",
            Self::One => "one domain",
            Self::Several => "a domain each",
            Self::Machines => "a machine each",
            Self::Pool => "a machine each, a pool",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::One => "one",
            Self::Several => "several",
            Self::Machines => "machines",
            Self::Pool => "pool",
        }
    }

    /// Returns the command for `tasks` tasks. Two machines have one task each.
    fn command(self, nagaya: &Nagaya, tasks: u32, host: &Host) -> Command {
        let mut command = Command::new(&nagaya.command);
        command.arg("run").env_remove("PVAS_SHARED");
        match self {
            Self::Private => command.args(["-n", &tasks.to_string()]),
            Self::One => command.args(["--domains", &format!("all:{tasks}")]),
            Self::Several => {
                let each = vec!["all:1"; tasks as usize].join(",");
                command.args(["--domains", &each])
            }
            Self::Machines => host.second(&mut command),
            Self::Pool => host.second(&mut command).arg("--pool").arg(&host.pool),
        };
        command
    }
}

/// This machine, used as a second one, too.
struct Host {
    /// A substitute for ssh.
    shell: PathBuf,
    pool: PathBuf,
}

impl Host {
    /// Makes a pool with room for the memory to read.
    fn new(megabytes: u32, out: &Path) -> Result<Self, Failure> {
        let shell = out.join("here");
        let failed = |path: &Path, why| Failure::new(format!("{}: {why}", path.display()));
        let text = "#!/bin/sh\nwhile :; do case $1 in -*) shift ;; *) break ;; esac; done\n\
                    shift\nexec sh -c \"$*\"\n";
        std::fs::write(&shell, text).map_err(|why| failed(&shell, why))?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&shell, mode).map_err(|why| failed(&shell, why))?;
        let pool = PathBuf::from(format!("/dev/shm/nagaya-bench.{}", std::process::id()));
        let mut new = std::fs::OpenOptions::new();
        let file = new.write(true).create_new(true).mode(0o600).open(&pool);
        // Each machine has half of it.
        let size = u64::from(megabytes * 4 + 128) << 20;
        file.and_then(|file| file.set_len(size)).map_err(|why| failed(&pool, why))?;
        Ok(Self { shell, pool })
    }

    fn second<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        // The shell may run in any directory.
        let shell = std::path::absolute(&self.shell).unwrap_or_else(|_| self.shell.clone());
        command.env("NAGAYA_RSH", shell).args(["--domains", "all:1,@here:1"])
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.pool);
    }
}

/// The cost of reading another task's memory: a line of the program.
struct Read {
    what: String,
    page_tables: PageTables,
    first_ns: f64,
    again_ns: f64,
    page_tables_kib: f64,
}

/// The cost of mapping another domain's memory: by touching a part, all pages, or by one call.
struct Mapped {
    what: String,
    microseconds: f64,
    page_tables_kib: f64,
}

/// Kinds of mapping: the program's names, and descriptions.
const MAPPED: [(&str, &str); 3] = [
    ("hundredth", "on demand, one page in 100 touched"),
    ("each", "on demand, each page touched"),
    ("whole", "all at once (MADV_POPULATE_READ)"),
];

/// Pages or mappings of all tasks per second.
struct Rate {
    what: &'static str,
    tasks: u32,
    page_tables: PageTables,
    per_second: f64,
}

/// Measures, prints tables, writes `domains-reads.csv`, `domains-mapped.csv` and
/// `domains-rates.csv`.
pub fn run(options: &Options, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    // Two pieces, each resident once.
    let needed = u64::from(options.megabytes) * 2 + 256;
    if memory_available_mib().is_some_and(|available| available < needed) {
        return Err(Failure::new(format!(
            "domains: {} MiB twice are not available; give smaller --megabytes",
            options.megabytes
        )));
    }
    let program = programs::compile_with_pvas("domains", nagaya, out)?;
    let host = Host::new(options.megabytes, out)?;
    let (mut reads, mut mapped, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        progress(&format!("domains, round {round} of {}", options.rounds));
        for page_tables in PageTables::ALL {
            let megabytes = match page_tables {
                PageTables::Machines => options.megabytes.min(FETCHED_MIB_MAX),
                _ => options.megabytes,
            };
            let mut command = page_tables.command(nagaya, 2, &host);
            command.arg(&program).args(["reads", &megabytes.to_string()]);
            reads.extend(read(&output_of(&mut command, TIME_LIMIT)?, page_tables)?);
        }
        let mut command = PageTables::Several.command(nagaya, 2, &host);
        command.arg(&program).args(["maps_of", &options.megabytes.to_string()]);
        mapped.extend(mapped_of(&output_of(&mut command, TIME_LIMIT)?)?);
        for what in ["faults", "maps"] {
            for &tasks in &options.tasks {
                for page_tables in PageTables::HERE {
                    let mut command = page_tables.command(nagaya, tasks, &host);
                    command.arg(&program).args([what, &options.milliseconds.to_string()]);
                    let output = output_of(&mut command, TIME_LIMIT)?;
                    let per_second = sum(&output, what, tasks)?;
                    rates.push(Rate { what, tasks, page_tables, per_second });
                }
            }
        }
    }
    progress("");
    report_reads(&reads, options, out)?;
    report_mapped(&mapped, options, out)?;
    report_rates(&rates, options, out)
}

fn unexpected(output: &str) -> Failure {
    Failure::new(format!("domains: unexpected output: {output}"))
}

/// Parses lines of kind, first and second pass (ns per page), and page tables (KiB).
fn read(output: &str, page_tables: PageTables) -> Result<Vec<Read>, Failure> {
    let one = |line: &str| {
        let mut words = line.split_whitespace();
        let what = words.next().filter(|what| ["touch", "scan"].contains(what))?;
        let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
        let [first_ns, again_ns, page_tables_kib] = numbers?[..] else { return None };
        Some(Read { what: what.to_string(), page_tables, first_ns, again_ns, page_tables_kib })
    };
    let read: Option<Vec<Read>> = output.lines().map(one).collect();
    read.filter(|read| read.len() == 2).ok_or_else(|| unexpected(output))
}

/// Parses lines of kind, microseconds and page tables (KiB).
fn mapped_of(output: &str) -> Result<Vec<Mapped>, Failure> {
    let one = |(line, (what, _)): (&str, &(&str, &str))| {
        let mut words = line.split_whitespace();
        words.next().filter(|word| word == what)?;
        let mut next = || words.next()?.parse().ok();
        let (microseconds, page_tables_kib) = (next()?, next()?);
        Some(Mapped { what: what.to_string(), microseconds, page_tables_kib })
    };
    let mapped: Option<Vec<Mapped>> = output.lines().zip(&MAPPED).map(one).collect();
    mapped.filter(|it| it.len() == MAPPED.len()).ok_or_else(|| unexpected(output))
}

/// Returns the sum over all tasks.
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
        for page_tables in PageTables::ALL {
            let of = |field: fn(&Read) -> f64| {
                let mine = reads
                    .iter()
                    .filter(|read| read.what == what && read.page_tables == page_tables);
                Spread::of(&mine.map(field).collect::<Vec<f64>>())
            };
            let (first, again) = (of(|read| read.first_ns), of(|read| read.again_ns));
            let tables = of(|read| read.page_tables_kib);
            table.row([
                what.to_string(),
                page_tables.name().to_string(),
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
                page_tables.key(),
                first.median,
                first.min,
                first.max,
                again.median,
                tables.median
            ));
        }
    }
    table.print(&format!(
        "{} MiB of another task's memory: a word of each page, all words (at most {FETCHED_MIB_MAX} MiB \
         are fetched from another machine)",
        options.megabytes
    ));
    write_lines(&out.join("domains-reads.csv"), &lines)
}

fn report_mapped(mapped: &[Mapped], options: &Options, out: &Path) -> Result<(), Failure> {
    let mut table = Table::new(["", "ms", "(min..max)", "VmPTE KiB"]);
    let mut lines = vec!["what,us,us_min,us_max,vmpte_kib".to_string()];
    for (what, name) in MAPPED {
        let of = |field: fn(&Mapped) -> f64| {
            let mine = mapped.iter().filter(|it| it.what == what);
            Spread::of(&mine.map(field).collect::<Vec<f64>>())
        };
        let (time, tables) = (of(|it| it.microseconds), of(|it| it.page_tables_kib));
        table.row([
            name.to_string(),
            format!("{:.2}", time.median / 1e3),
            format!("({:.2}..{:.2})", time.min / 1e3, time.max / 1e3),
            format!("{:.0}", tables.median),
        ]);
        let Spread { median, min, max, .. } = time;
        lines.push(format!("{what},{median:.1},{min:.1},{max:.1},{:.0}", tables.median));
    }
    let title = format!("{} MiB of another domain's memory, mapped", options.megabytes);
    table.print(&title);
    write_lines(&out.join("domains-mapped.csv"), &lines)
}

fn report_rates(rates: &[Rate], options: &Options, out: &Path) -> Result<(), Failure> {
    let mut lines = vec!["what,tasks,way,per_second,min,max".to_string()];
    for (what, title) in [
        ("faults", "pages touched a second, 1 MiB mapped and unmapped at a time, thousands"),
        ("maps", "pages mapped and unmapped a second, thousands"),
    ] {
        let headings = ["tasks"]
            .into_iter()
            .chain(PageTables::HERE.map(PageTables::name))
            .chain(["each over one"]);
        let mut table = Table::new(headings);
        for &tasks in &options.tasks {
            let of = |page_tables: PageTables| {
                let mine = rates.iter().filter(|rate| {
                    rate.what == what && rate.tasks == tasks && rate.page_tables == page_tables
                });
                mine.map(|rate| rate.per_second).collect::<Vec<f64>>()
            };
            let mut cells = vec![tasks.to_string()];
            for page_tables in PageTables::HERE {
                let rate = Spread::of(&of(page_tables));
                cells.push(format!("{:.0}", rate.median / 1000.0));
                lines.push(format!(
                    "{what},{tasks},{},{:.0},{:.0},{:.0}",
                    page_tables.key(),
                    rate.median,
                    rate.min,
                    rate.max
                ));
            }
            let over = Spread::of_quotients(&of(PageTables::Several), &of(PageTables::One));
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
        let all = read("touch 210.5 3.0 2100\nscan 500.0 300.0 4200\n", PageTables::One).unwrap();
        assert_eq!((all[0].what.as_str(), all[0].first_ns), ("touch", 210.5));
        assert_eq!((all[1].again_ns, all[1].page_tables_kib), (300.0, 4200.0));
        assert!(read("touch 210.5 3.0 2100\n", PageTables::One).is_err());
        assert_eq!(sum("faults 10\nfaults 20\n", "faults", 2).unwrap(), 30.0);
        assert!(sum("faults 10\n", "faults", 2).is_err());
    }
}
