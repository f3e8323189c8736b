//! Speed-ups of the programs on simulated clusters of many nodes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::launch::{Nagaya, output_of};
use crate::progress::progress;
use crate::table::write_lines;

/// Clusters of `nagaya sim`, and numbers of nodes.
const CLUSTERS: [(&str, &str); 2] =
    [("paper", "1,2,4,8,16,32"), ("current", "1,2,4,8,16,32,64,128,256,512,1024")];

const TIME_LIMIT: Duration = Duration::from_secs(1200);

/// Prints the tables; writes `sim-CLUSTER.txt` and `sim-CLUSTER.svg`.
pub fn run(small: bool, nagaya: &Nagaya, out: &Path) -> Result<(), Failure> {
    for (cluster, nodes) in CLUSTERS {
        progress(&format!("dsm, speed-ups in the simulator, cluster {cluster}"));
        let file = |end: &str| out.join(format!("sim-{cluster}.{end}"));
        let nodes = if small { "1,2" } else { nodes };
        let mut command = Command::new(&nagaya.command);
        command.args(["sim", "all", "-c", cluster, "-n", nodes, "--plot"]).arg(file("svg"));
        let output = output_of(&mut command, TIME_LIMIT)?;
        print!("\n{output}");
        write_lines(&file("txt"), &output.lines().map(String::from).collect::<Vec<_>>())?;
    }
    progress("");
    Ok(())
}
