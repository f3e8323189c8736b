//! The messages of the programs of `examples/dsm` between nodes: counted by the library in one run
//! of each, and by `nagaya sim`, which runs the same protocol.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mpi::Mpi;
use crate::programs;

/// A program. A full run uses its defaults, which are the sizes of the Ainori paper, if that has
/// the program.
pub struct Program {
    /// The name of its file.
    pub name: &'static str,
    /// Its arguments in a quick run.
    pub small: &'static str,
}

/// All programs.
pub const PROGRAMS: [Program; 7] = [
    Program { name: "mm", small: "--size 128" },
    Program { name: "sor", small: "--rows 64 --columns 1024 --iterations 4" },
    Program { name: "lu", small: "--size 128" },
    Program { name: "is", small: "--integers 10000 --iterations 2" },
    Program { name: "ep", small: "--exponent 12" },
    Program { name: "tsp", small: "--cities 10" },
    Program { name: "water", small: "--molecules 64 --steps 2" },
];

const TIME_LIMIT: Duration = Duration::from_secs(300);

/// The parameters of a run.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The name of the program's file.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'a str,
    /// The policy of rides.
    pub rides: &'a str,
}

/// The messages of a program on several nodes with one task each.
pub struct Traffic {
    /// The program.
    pub name: &'static str,
    /// Number of nodes.
    pub nodes: usize,
    /// Its time as printed by itself.
    pub seconds: f64,
    /// The real run.
    pub real: Counts,
    /// The simulated run.
    pub simulated: Counts,
}

/// The sums over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Fetched pages.
    pub pages: u64,
    /// OP_GETPGRANT, OP_BARRGRANT and OP_PUSH.
    pub page_messages: u64,
    /// Messages of all kinds.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Diffs.
    pub diffs: u64,
}

impl Traffic {
    /// Runs the program once for real and once in the simulator.
    pub fn of(
        wanted: &Wanted<'_>,
        nodes: usize,
        nagaya: &Nagaya,
        out: &Path,
    ) -> Result<Self, Failure> {
        let Wanted { name, arguments, rides } = *wanted;
        let place = out.join("statistics");
        let begin = format!("{name}-{nodes}");
        fs::create_dir_all(&place)
            .map_err(|error| Failure::new(format!("{}: {error}", place.display())))?;
        for file in files(&place, &begin)? {
            let _ = fs::remove_file(file); // from an earlier run
        }
        let compiled = programs::compile_with_jia(name, nagaya, out)?;
        let mut command = Mpi::Ompi4.nodes(nodes, &compiled)?;
        command.env("NAGAYA_DSM_STATISTICS", place.join(&begin));
        command.env("NAGAYA_DSM_RIDES", rides);
        command.args(arguments.split_whitespace());
        let output = output_of(&mut command, TIME_LIMIT)?;
        let seconds = seconds_of(&output)
            .ok_or_else(|| Failure::new(format!("{name}: unexpected output: {output}")))?;
        let reports = files(&place, &begin)?;
        if reports.len() != nodes {
            let seen = reports.len();
            return Err(Failure::new(format!("{name}: statistics of {seen} nodes, not {nodes}")));
        }
        let mut real = Counts::default();
        for file in reports {
            real.add(&read(&file)?).ok_or_else(|| {
                Failure::new(format!("{}: not the statistics of a node", file.display()))
            })?;
        }

        let csv = place.join(format!("{begin}.csv"));
        let mut command = Command::new(&nagaya.command);
        command.arg("sim").arg(name).args(parameters(arguments));
        let _ = fs::remove_file(&csv); // from an earlier run
        command.args(["--rides", rides, "-n", &nodes.to_string(), "--csv"]).arg(&csv);
        output_of(&mut command, TIME_LIMIT)?;
        let simulated = Counts::simulated(&read(&csv)?).ok_or_else(|| {
            Failure::new(format!("{}: not a table of `nagaya sim`", csv.display()))
        })?;
        Ok(Traffic { name, nodes, seconds, real, simulated })
    }
}

impl Counts {
    /// Adds the counts of one node, which are JSON.
    fn add(&mut self, report: &str) -> Option<()> {
        let report: serde_json::Value = serde_json::from_str(report).ok()?;
        let total = |name: &str| report["totals"][name].as_u64();
        let sent = |op: &str| {
            let of_op = report["sent"].as_array()?.iter().find(|sent| sent[0] == op);
            of_op.map_or(Some(0), |sent| sent[1].as_u64())
        };
        self.pages += total("page_messages")?;
        let grants = sent("OP_GETPGRANT")? + sent("OP_BARRGRANT")?;
        self.page_messages += grants + sent("OP_PUSH")?;
        self.messages += total("messages")?;
        self.bytes += total("bytes")?;
        self.diffs += total("diffs")?;
        Some(())
    }

    /// Parses the last line of a table of the simulator. (Names with commas may precede the columns
    /// that are read.)
    fn simulated(table: &str) -> Option<Self> {
        let of = |name: &str| cell(table, name);
        Some(Counts {
            pages: of("pages")?,
            page_messages: of("page_messages")?,
            messages: of("messages")?,
            bytes: of("bytes")?,
            diffs: of("diffs")?,
        })
    }
}

/// Returns a number in the last line of such a table.
pub fn cell<T: FromStr>(table: &str, name: &str) -> Option<T> {
    cell_of(table, table.lines().last()?, name)
}

/// Returns a number in a line of such a table.
pub fn cell_of<T: FromStr>(table: &str, line: &str, name: &str) -> Option<T> {
    let at = table.lines().next()?.rsplit(',').position(|heading| heading == name)?;
    line.rsplit(',').nth(at)?.parse().ok()
}

/// Translates `--size 128` to `size=128`.
pub fn parameters(arguments: &str) -> Vec<String> {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    words.chunks(2).map(|of| of.join("=").trim_start_matches('-').to_string()).collect()
}

/// Reads the text of a file.
pub fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

/// Returns the files with this name and a suffix.
fn files(place: &Path, begin: &str) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(place)
        .map_err(|error| Failure::new(format!("{}: {error}", place.display())))?;
    let names = entries.flatten().map(|entry| entry.path());
    let ours = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(&format!("{begin}.")))
    };
    Ok(names.filter(ours).collect())
}

/// Returns the seconds at the end of a line such as `mm: 2048 x 2048, 2 tasks: 1.748 s`.
pub fn seconds_of(output: &str) -> Option<f64> {
    output.lines().next()?.strip_suffix(" s")?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_statistics_of_nodes_add_up() {
        let mut all = Counts::default();
        let report = r#"{"totals":{"page_messages":3,"messages":8,"bytes":100,"diffs":1},
                         "sent":[["OP_GETP",3],["OP_GETPGRANT",2],["OP_BARRGRANT",1]]}"#;
        all.add(report).expect("numbers");
        all.add(report).expect("numbers");
        assert_eq!(all, Counts { pages: 6, page_messages: 6, messages: 16, bytes: 200, diffs: 2 });
        assert!(all.add("{}").is_none());
        assert_eq!(seconds_of("mm: 2048 x 2048, 2 tasks: 1.748 s\n"), Some(1.748));
    }

    #[test]
    fn the_simulators_output_is_parsed() {
        let table = "program,cluster,nodes,pages,page_messages,messages,bytes,diffs,work\n\
                     mm,\"now, here\",2,16,19,38,132288,0,71.1\n";
        let wanted =
            Counts { pages: 16, page_messages: 19, messages: 38, bytes: 132_288, diffs: 0 };
        assert_eq!(Counts::simulated(table), Some(wanted));
        assert_eq!(Counts::simulated("program,cluster\n"), None);
        assert_eq!(parameters("--size 128 --block 16"), ["size=128", "block=16"]);
    }
}
