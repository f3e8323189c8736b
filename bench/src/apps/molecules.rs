//! Molecular dynamics: LAMMPS on two shipped inputs, GROMACS on water.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::application::{
    Application, Figure, Outcome, installed, lines, number_behind, replaced, shipped, write,
};
use crate::failure::Failure;
use crate::launch::output_of;

const EXAMPLES: &str = "/usr/share/lammps/examples";
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// LAMMPS and GROMACS.
pub fn all() -> Vec<Application> {
    vec![
        Application {
            name: "LAMMPS melt",
            package: "lammps",
            program: |_| installed("lmp", "lammps lammps-examples"),
            arguments: ["-in", "in.melt"].map(str::to_string).to_vec(),
            prepare: |dir, quick| {
                let input = shipped(&format!("{EXAMPLES}/melt/in.melt"), "lammps-examples")?;
                let (small, large) = ("block 0 10 0 10 0 10", "block 0 24 0 24 0 24");
                let size = if quick { small } else { large };
                write(dir, "in.melt", &replaced(&input, small, size)?)
            },
            read: lammps,
        },
        Application {
            name: "LAMMPS peptide",
            package: "lammps",
            program: |_| installed("lmp", "lammps lammps-examples"),
            arguments: ["-in", "in.peptide"].map(str::to_string).to_vec(),
            prepare: |dir, _| {
                ["in.peptide", "data.peptide"].iter().try_for_each(|name| {
                    let file = format!("{EXAMPLES}/peptide/{name}");
                    write(dir, name, &shipped(&file, "lammps-examples")?)
                })
            },
            read: lammps,
        },
        Application {
            name: "GROMACS water",
            package: "gromacs",
            program: |_| installed("gmx_mpi", "gromacs"),
            arguments: "mdrun -s water.tpr -reprod -ntomp 1 -noconfout"
                .split(' ')
                .map(str::to_string)
                .collect(),
            prepare: water,
            read: gromacs,
        },
    ]
}

/// Parses the thermodynamic output, and LAMMPS's breakdown of its time.
fn lammps(_: &Path, printed: &str) -> Option<Outcome> {
    let from = printed.find("Step ")?;
    let to = printed.find("Loop time")?;
    let results = printed[from..to].lines().map(|line| line.split("CPU").next().unwrap_or(""));
    let whole = number_behind(printed, "Loop time of", 0)?;
    let messages = number_behind(printed, "\nComm    |", 2)?;
    Some(Outcome {
        results: results.map(str::to_string).collect(),
        figures: vec![Figure { name: "communication, ms", value: 1e3 * messages, is_rate: false }],
        in_messages: Some(messages / whole),
    })
}

/// Writes an input of several boxes of water in equilibrium, which GROMACS ships.
fn water(dir: &Path, quick: bool) -> Result<(), Failure> {
    let steps = if quick { "nsteps        = 60" } else { "nsteps        = 3000" };
    let input = include_str!("../../../tests/inputs/water.mdp");
    write(dir, "water.mdp", &replaced(input, "nsteps        = 60", steps)?)?;
    write(dir, "water.top", include_str!("../../../tests/inputs/water.top"))?;
    let gmx = installed("gmx", "gromacs")?;
    let run = |arguments: &str| {
        let mut command = Command::new(&gmx);
        output_of(command.args(arguments.split(' ')).current_dir(dir), TIME_LIMIT)
    };
    run("genconf -f /usr/share/gromacs/top/spc216.gro -nbox 2 2 2 -o water.gro")?;
    run("grompp -f water.mdp -c water.gro -p water.top -o water.tpr")?;
    Ok(())
}

/// Parses the energies, and GROMACS's breakdown of its time.
fn gromacs(dir: &Path, _: &str) -> Option<Outcome> {
    let log = fs::read_to_string(dir.join("md.log")).ok()?;
    let (_, account) = log.split_once("R E A L   C Y C L E")?;
    let whole = number_behind(account, "\n Total  ", 0)?;
    // Ranks, threads and calls precede the time.
    let waits =
        ["\n Comm. coord.", "\n Wait + Comm. F", "\n PME 3D-FFT Comm.", "\n Comm. energies"];
    let messages: f64 =
        waits.iter().map(|label| number_behind(account, label, 3).unwrap_or(0.0)).sum();
    Some(Outcome {
        results: lines(&log, |line| line.contains("e+04")),
        figures: vec![Figure { name: "communication, ms", value: 1e3 * messages, is_rate: false }],
        in_messages: Some(messages / whole),
    })
}
