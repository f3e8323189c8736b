//! `nagaya dsm`: what runs with shared memory between nodes leave.

mod counted;
mod smaller;
mod text;

use std::path::{Path, PathBuf};

use nagaya_server::Failure;

use counted::Counted;

/// Report what a run with shared memory between nodes has sent, and why
///
/// See nagaya-dsm(1).
#[derive(Debug, clap::Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Say what a run has sent and why: rides, the pages and source lines that fetch most, pages
    /// shared falsely, what other pages and homes would save
    Report {
        /// The beginning of the files' names, as in NAGAYA_DSM_REPORT=FILE
        #[arg(value_name = "FILE")]
        beginning: PathBuf,
        /// How many pages and lines are shown
        #[arg(short, long, value_name = "N", default_value_t = 10)]
        most: usize,
    },
}

/// Does what is asked.
pub fn dsm(options: &Options) -> Result<i32, Failure> {
    let Command::Report { beginning, most } = &options.command;
    let nodes = read(beginning)?;
    print!("{}", text::report(&nodes, *most));
    Ok(0)
}

/// What the nodes of a run have left, in their order.
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
            .map_err(|why| at_file(&format!("not what a node leaves at its end: {why}")))?;
        nodes.push(node);
    }
    Ok(nodes)
}
