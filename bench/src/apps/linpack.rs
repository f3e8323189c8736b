//! HPC Challenge: Linpack, matrix transposition, random access, FFT, bandwidth and latency.

use std::fs;

use super::application::{
    Application, Figure, Outcome, installed, lines, number_behind, replaced, write,
};

/// Figures of its summary: its name there, the name here, a factor, and true if more is better.
const FIGURES: [(&str, &str, f64, bool); 7] = [
    ("\nHPL_Tflops=", "Linpack, Gflop/s", 1000.0, true),
    ("\nPTRANS_GBs=", "transposition, GB/s", 1.0, true),
    ("\nMPIFFT_Gflops=", "FFT, Gflop/s", 1.0, true),
    ("\nMPIRandomAccess_GUPs=", "random access, Gup/s", 1.0, true),
    ("\nNaturallyOrderedRingBandwidth_GBytes=", "ring, GB/s", 1.0, true),
    ("\nAvgPingPongBandwidth_GBytes=", "ping-pong, GB/s", 1.0, true),
    ("\nAvgPingPongLatency_usec=", "ping-pong, 8 B, µs", 1.0, false),
];

/// HPC Challenge.
pub fn all() -> Vec<Application> {
    vec![Application {
        name: "HPC Challenge",
        package: "hpcc",
        program: |_| installed("hpcc", "hpcc"),
        arguments: Vec::new(),
        prepare: |dir, quick| {
            let input = include_str!("../../../tests/inputs/hpccinf.txt");
            let size = if quick { "500          N" } else { "3000         N" };
            write(dir, "hpccinf.txt", &replaced(input, "500          N", size)?)
        },
        read: |dir, _| {
            let report = fs::read_to_string(dir.join("hpccoutf.txt")).ok()?;
            let wanted = ["Success=", "_residual=", "Errors=", "maxErr=", "norm"];
            let figure = |&(name, ours, factor, is_rate): &(&str, &'static str, f64, bool)| {
                let value = factor * number_behind(&report, name, 0)?;
                Some(Figure { name: ours, value, is_rate })
            };
            Some(Outcome {
                results: lines(&report, |line| wanted.iter().any(|name| line.contains(name))),
                figures: FIGURES.iter().map(figure).collect::<Option<_>>()?,
                in_messages: None,
            })
        },
    }]
}
