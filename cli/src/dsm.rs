//! `nagaya dsm`: reports from the statistics that a run with shared memory between nodes wrote.

mod counted;
mod smaller;
mod text;

use std::path::{Path, PathBuf};

use nagaya_server::Failure;

use counted::Counted;

const EXAMPLES: &str = "\
Examples:
  NAGAYA_DSM_REPORT=run mpirun -n 4 ./sum   writes run.0.json to run.3.json
  nagaya dsm report run                     reads them";

/// Report what a run with shared memory between nodes has sent, and why
///
/// See nagaya-dsm(1).
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Report the messages of a run, and their causes
    ///
    /// The report has the rides, the pages and source lines with the most fetches, false sharing,
    /// and the messages that other page sizes and homes would save.
    Report {
        /// Prefix of the file names, as in NAGAYA_DSM_REPORT=FILE
        #[arg(value_name = "FILE")]
        beginning: PathBuf,
        /// Number of pages and lines to show
        #[arg(short, long, value_name = "N", default_value_t = 10)]
        most: usize,
    },
}

/// Prints the report.
pub fn dsm(options: &Options) -> Result<i32, Failure> {
    let Command::Report { beginning, most } = &options.command;
    let nodes = read(beginning)?;
    print!("{}", text::report(&nodes, *most));
    Ok(0)
}

/// Reads the statistics of a run's nodes, in the order of the nodes.
fn read(beginning: &Path) -> Result<Vec<Counted>, Failure> {
    let mut nodes: Vec<Counted> = Vec::new();
    for number in 0.. {
        let file = PathBuf::from(format!("{}.{number}.json", beginning.display()));
        let at_file =
            |why: &dyn std::fmt::Display| Failure::ours(format!("{}: {why}", file.display()));
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && number > 0 => break,
            Err(error) => {
                return Err(at_file(&format!(
                    "{error}; run the program with NAGAYA_DSM_REPORT={}",
                    beginning.display()
                )));
            }
        };
        // Programs can have it written more than once: the last line has all.
        let line = text.lines().last().unwrap_or_default();
        let node = serde_json::from_str(line)
            .map_err(|why| at_file(&format!("not the statistics file of a node: {why}")))?;
        nodes.push(node);
    }
    Ok(nodes)
}
