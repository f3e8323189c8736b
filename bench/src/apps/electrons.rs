//! Electronic structure, in Fortran: Quantum ESPRESSO on silicon, NWChem on water.

use std::path::Path;

use super::application::{
    Application, Figure, Outcome, installed, lines, number_behind, replaced, write,
};

/// Quantum ESPRESSO and NWChem.
pub fn all() -> Vec<Application> {
    vec![
        Application {
            name: "Quantum ESPRESSO",
            package: "quantum-espresso",
            program: |_| installed("pw.x", "quantum-espresso quantum-espresso-data"),
            arguments: ["-in", "silicon.in"].map(str::to_string).to_vec(),
            prepare: |dir, quick| {
                let input = include_str!("../../../tests/inputs/silicon.in");
                let cutoff = if quick { "ecutwfc = 24.0" } else { "ecutwfc = 80.0" };
                write(dir, "silicon.in", &replaced(input, "ecutwfc = 24.0", cutoff)?)
            },
            read: espresso,
        },
        Application {
            name: "NWChem",
            package: "nwchem",
            program: |_| installed("nwchem", "nwchem"),
            arguments: vec!["water.nw".to_string()],
            prepare: |dir, quick| {
                let input = include_str!("../../../tests/inputs/water.nw");
                let basis = if quick { "library 6-31g*" } else { "library cc-pvtz" };
                write(dir, "water.nw", &replaced(input, "library 6-31g*", basis)?)
            },
            read: |_, printed| {
                // NWChem distributes work dynamically: sums differ in the last digits.
                let energy =
                    |label: &str| Some(format!("{:.8}", number_behind(printed, label, 0)?));
                Some(Outcome {
                    results: vec![energy("Total DFT energy =")?, energy("Total MP2 energy")?],
                    figures: Vec::new(),
                    in_messages: None,
                })
            },
        },
    ]
}

/// Parses energies and forces, and the time of the transposition in the FFT: its messages.
fn espresso(_: &Path, printed: &str) -> Option<Outcome> {
    let seconds = |label: &str| number_behind(printed, label, 2).unwrap_or(0.0);
    let messages = seconds("fft_scatt_xy :") + seconds("fft_scatt_yz :");
    // Times above a minute have another format.
    let whole = number_behind(printed, "     PWSCF        :", 2)?;
    Some(Outcome {
        results: lines(printed, |line| line.contains("Ry") || line.contains("force =")),
        figures: vec![Figure {
            name: "FFT transposition, ms",
            value: 1e3 * messages,
            is_rate: false,
        }],
        in_messages: Some(messages / whole),
    })
}
