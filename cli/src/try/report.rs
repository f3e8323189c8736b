//! The outcome of `nagaya try`: what `--report` writes (nagaya-try(1)).

use std::path::PathBuf;

use serde::Serialize;

use super::output::Comparison;
use crate::messages::Job;

/// The version of the form of the JSON.
const FORMAT: u32 = 1;

/// The runs without, or with Nagaya.
#[derive(Debug, Default, Serialize)]
pub struct Side {
    /// Times of the whole command, in the order of the rounds.
    pub seconds: Vec<f64>,
    pub median_seconds: f64,
    /// The messages of the counted run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Job>,
}

impl Side {
    /// The times of a side, without counts.
    pub fn new(seconds: Vec<f64>) -> Self {
        let mut sorted = seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        Self { seconds, median_seconds: (low + high) / 2.0, counts: None }
    }

    /// Returns the shortest and the longest time.
    pub fn range(&self) -> (f64, f64) {
        let least = self.seconds.iter().copied().fold(f64::INFINITY, f64::min);
        (least, self.seconds.iter().copied().fold(0.0, f64::max))
    }
}

/// All results.
#[derive(Debug, Serialize)]
pub struct Outcome {
    pub format: u32,
    pub nagaya: &'static str,
    pub processor: String,
    pub command: Vec<String>,
    /// Number of nodes, of a trial of `nagaya span`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Processors of the run on one node, of a trial of `nagaya span`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    pub without: Side,
    pub with: Side,
    /// The report of `nagaya exec --report` of the counted run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_with: Option<serde_json::Value>,
    /// The report of `nagaya span --report`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span_report: Option<serde_json::Value>,
    /// The same as text.
    #[serde(skip)]
    pub reasons: Option<String>,
    /// The directory that some ranks lack, so that they are not counted.
    #[serde(skip)]
    pub uncounted_in: Option<PathBuf>,
    pub output: Comparison,
}

impl Outcome {
    /// An outcome without times.
    pub fn new(output: Comparison) -> Self {
        Self {
            format: FORMAT,
            nagaya: env!("CARGO_PKG_VERSION"),
            processor: pvas::copy_plan::processor(),
            command: Vec::new(),
            nodes: None,
            share: None,
            without: Side::default(),
            with: Side::default(),
            counted_with: None,
            span_report: None,
            uncounted_in: None,
            reasons: None,
            output,
        }
    }
}
