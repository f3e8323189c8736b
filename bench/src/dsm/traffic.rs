//! What the programs of `examples/dsm` send between nodes: counted by the library, in one run
//! of each.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::mpi::Mpi;
use crate::programs;

/// A program, and its arguments in a quick run. In a full one it has its defaults, which are
/// the sizes of the Ainori paper where that has the program.
pub struct Program {
    /// As its file is called.
    pub name: &'static str,
    small: &'static str,
}

/// All of them.
pub const PROGRAMS: [Program; 7] = [
    Program { name: "mm", small: "--size 128" },
    Program { name: "sor", small: "--rows 64 --columns 1024 --iterations 4" },
    Program { name: "lu", small: "--size 128" },
    Program { name: "is", small: "--integers 10000 --iterations 2" },
    Program { name: "ep", small: "--exponent 12" },
    Program { name: "tsp", small: "--cities 10" },
    Program { name: "water", small: "--molecules 64 --steps 2" },
];

const PATIENCE: Duration = Duration::from_secs(300);

/// What all nodes together have sent.
pub struct Traffic {
    /// The program.
    pub name: &'static str,
    /// Nodes, each of one task.
    pub nodes: usize,
    /// How long it took, as it says itself.
    pub seconds: f64,
    /// Pages that were fetched.
    pub pages: u64,
    /// Messages of all kinds.
    pub messages: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Pages whose changes were sent.
    pub diffs: u64,
}

impl Traffic {
    /// Of one run.
    pub fn of(
        program: &Program,
        nodes: usize,
        small: bool,
        nagaya: &Nagaya,
        out: &Path,
    ) -> Result<Self, Failure> {
        let name = program.name;
        let place = out.join("statistics");
        let begin = format!("{name}-{nodes}-");
        fs::create_dir_all(&place)
            .map_err(|error| Failure::new(format!("{}: {error}", place.display())))?;
        for file in files(&place, &begin)? {
            let _ = fs::remove_file(file); // an earlier run's
        }
        let compiled = programs::compile_with_jia(name, nagaya, out)?;
        let mut command = Mpi::Ompi4.nodes(nodes, &compiled)?;
        command.env("NAGAYA_DSM_STATISTICS", place.join(&begin));
        if small {
            command.args(program.small.split_whitespace());
        }
        let output = output_of(&mut command, PATIENCE)?;
        let seconds = seconds_of(&output)
            .ok_or_else(|| Failure::new(format!("{name}: unexpected output: {output}")))?;
        let reports = files(&place, &begin)?;
        if reports.len() != nodes {
            let seen = reports.len();
            return Err(Failure::new(format!("{name}: statistics of {seen} nodes, not {nodes}")));
        }
        let mut all = Traffic { name, nodes, seconds, pages: 0, messages: 0, bytes: 0, diffs: 0 };
        for file in reports {
            let text = fs::read_to_string(&file)
                .map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
            all.add(&text).ok_or_else(|| {
                Failure::new(format!("{}: not the statistics of a node", file.display()))
            })?;
        }
        Ok(all)
    }

    /// Adds what one node has sent, which it tells in JSON.
    fn add(&mut self, report: &str) -> Option<()> {
        let report: serde_json::Value = serde_json::from_str(report).ok()?;
        let total = |name: &str| report["totals"][name].as_u64();
        self.pages += total("page_messages")?;
        self.messages += total("messages")?;
        self.bytes += total("bytes")?;
        self.diffs += total("diffs")?;
        Some(())
    }
}

fn files(place: &Path, begin: &str) -> Result<Vec<std::path::PathBuf>, Failure> {
    let entries = fs::read_dir(place)
        .map_err(|error| Failure::new(format!("{}: {error}", place.display())))?;
    let names = entries.flatten().map(|entry| entry.path());
    let ours = |path: &std::path::PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
    };
    Ok(names.filter(ours).collect())
}

/// The end of its line: `mm: 2048 x 2048, 2 tasks: 1.748 s`.
fn seconds_of(output: &str) -> Option<f64> {
    output.lines().next()?.strip_suffix(" s")?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nodes_say_adds_up() {
        let mut all = Traffic {
            name: "mm",
            nodes: 2,
            seconds: seconds_of("mm: 2048 x 2048, 2 tasks: 1.748 s\n").expect("a time"),
            pages: 0,
            messages: 0,
            bytes: 0,
            diffs: 0,
        };
        let report = r#"{"totals":{"page_messages":3,"messages":8,"bytes":100,"diffs":1}}"#;
        all.add(report).expect("numbers");
        all.add(report).expect("numbers");
        assert_eq!((all.seconds, all.pages, all.messages), (1.748, 6, 16));
        assert_eq!((all.bytes, all.diffs), (200, 2));
        assert!(all.add("{}").is_none());
    }
}
