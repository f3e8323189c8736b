//! Settings: environment variables, each with its default. The first task's values count for those
//! that all nodes must share.

use std::time::Duration;

use coherence::ride::Policy;
use serde::{Deserialize, Serialize};

use crate::error::DsmError;

/// The prefix of all variables.
const PREFIX: &str = "NAGAYA_DSM_";

/// The default start of shared memory.
pub const START: usize = 0x5800_0000_0000;
/// The default start if a task lives in a space whose segments are shared memory, as programs do
/// that are linked to fixed addresses: such a space maps its memory a second time at [`START`].
pub const START_IN_SHARED_SPACES: usize = 0x3000_0000_0000;

/// The name, the default, and the description.
pub const VARIABLES: &[(&str, &str, &str)] = &[
    ("PAGE", "8K", "bytes of a page, a multiple of 4K"),
    ("START", "0x580000000000", "where shared memory begins, in every process"),
    ("MIGRATE", "0", "1: a page that one node alone wrote moves there at a barrier"),
    ("ALONE", "1", "1: pages that no other node has are written without notice"),
    ("CALLS", "1", "0: system calls find no shared memory that is elsewhere; no rights are needed"),
    (
        "MESSAGES",
        "64M",
        "bytes sent by a node to a task and not received, above which senders wait",
    ),
    ("JOIN", "60", "seconds that a task waits for others that do not join; 0: for ever"),
    (
        "RIDES",
        "auto",
        "pages ride on: normal: nothing; ainori1: pages; ainori2: barriers, too; ainori3: locks, too; auto: all, and messages of their own, as the best of several predictors say; runs: pages, with what is behind them",
    ),
    ("TIMEOUT", "20", "seconds after which a silent node is given up; 0: never"),
    ("STATISTICS", "", "1: print statistics at the end; else the beginning of files' names"),
    ("REPORT", "", "the beginning of names of files for nagaya dsm report"),
    ("RECORD", "", "directory that each node writes what happens to it into"),
];

/// The settings that all nodes share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The start of shared memory.
    pub start: usize,
    /// Homes migrate.
    pub migrate: bool,
    /// Pages without copies on other nodes are written without write notices.
    pub alone: bool,
    /// Threads are stopped inside system calls, too.
    pub calls: bool,
    /// Bytes that a node may send to a task ahead of its receives. One message more is allowed.
    pub messages_max: u64,
    /// The messages that carry other pages.
    pub rides: Policy,
    /// Time after which a silent node is lost.
    pub timeout: Option<Duration>,
}

/// The destination of statistics at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statistics {
    /// No statistics.
    None,
    /// Standard error, as text.
    Print,
    /// Files whose names begin like this, as JSON.
    Files(String),
}

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The settings that all nodes share: those of the first task count.
    pub agreed: Agreed,
    /// Time limit for tasks to join.
    pub join: Option<Duration>,
    /// The destination of statistics.
    pub statistics: Statistics,
    /// The prefix of the names of report files.
    pub report: Option<String>,
    /// The directory of recordings.
    pub record: Option<std::path::PathBuf>,
}

impl Settings {
    /// Reads the environment of this process.
    pub fn of_environment() -> Result<Self, DsmError> {
        for (name, _) in std::env::vars_os() {
            let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
                continue;
            };
            if !VARIABLES.iter().any(|variable| variable.0 == name) {
                proc::error_line!(
                    "nagaya: {PREFIX}{name} is no setting; see jia(7) for those that are"
                );
            }
        }
        Self::of(|name| std::env::var(format!("{PREFIX}{name}")).ok())
    }

    /// Reads the variables by `get`.
    pub fn of(get: impl Fn(&str) -> Option<String>) -> Result<Self, DsmError> {
        let value = |name: &str| {
            let default = VARIABLES.iter().find(|variable| variable.0 == name).expect("a row").1;
            get(name).filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
        };
        let wrong = |name: &str, wanted: &str| {
            DsmError::Argument(format!("{PREFIX}{name}={}: give {wanted}", value(name)))
        };
        let is_on = |name: &str| match &*value(name) {
            "0" => Ok(false),
            "1" => Ok(true),
            _ => Err(wrong(name, "0 or 1")),
        };
        let page_bytes = bytes(&value("PAGE"))
            .filter(|&bytes| bytes > 0 && bytes % 4096 == 0 && bytes <= 1 << 30)
            .ok_or_else(|| wrong("PAGE", "a multiple of 4K, such as 8K"))?;
        let start = address(&value("START"))
            .filter(|start| start % 4096 == 0 && (1 << 40..=0x6000_0000_0000).contains(start))
            .ok_or_else(|| wrong("START", "an address, such as 0x580000000000, of a page"))?;
        let messages_max = bytes(&value("MESSAGES"))
            .ok_or_else(|| wrong("MESSAGES", "a number of bytes, such as 64M"))?;
        let time = |name: &str| -> Result<_, DsmError> {
            let seconds = value(name).parse().map_err(|_| wrong(name, "a number of seconds"))?;
            Ok((seconds > 0).then(|| Duration::from_secs(seconds)))
        };
        let statistics = match value("STATISTICS") {
            text if text.is_empty() || text == "0" => Statistics::None,
            text if text == "1" => Statistics::Print,
            text => Statistics::Files(text),
        };
        let (report, record) = (value("REPORT"), value("RECORD"));
        Ok(Self {
            agreed: Agreed {
                page_bytes,
                start,
                migrate: is_on("MIGRATE")?,
                alone: is_on("ALONE")?,
                calls: is_on("CALLS")?,
                messages_max: messages_max as u64,
                timeout: time("TIMEOUT")?,
                rides: Policy::named(&value("RIDES"))
                    .ok_or_else(|| wrong("RIDES", &Policy::ALL.map(Policy::name).join(", ")))?,
            },
            join: time("JOIN")?,
            statistics,
            report: (!report.is_empty()).then_some(report),
            record: (!record.is_empty()).then(|| record.into()),
        })
    }
}

fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1 << 10),
        b'm' | b'M' => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    number.parse::<usize>().ok()?.checked_mul(unit)
}

fn address(text: &str) -> Option<usize> {
    usize::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_settings() {
        let settings = Settings::of(|_| None).expect("the table's");
        assert_eq!(settings.agreed.page_bytes, 8192);
        assert_eq!(settings.agreed.timeout, Some(Duration::from_secs(20)));
        assert_eq!(settings.join, Some(Duration::from_secs(60)));
        assert_eq!(settings.agreed.messages_max, 64 << 20);
        assert_eq!(settings.statistics, Statistics::None);
    }

    #[test]
    fn invalid_settings_are_named() {
        for (name, value) in [
            ("PAGE", "5000"),
            ("PAGE", "0"),
            ("PAGE", "99999999999999999999"),
            ("START", "12"),
            ("START", "0x580000000001"),
            ("MIGRATE", "yes"),
            ("RIDES", "all"),
            ("TIMEOUT", "-1"),
            ("JOIN", "soon"),
            ("CALLS", "2"),
            ("MESSAGES", "64 MB"),
        ] {
            let error = Settings::of(|asked| (asked == name).then(|| value.to_owned()));
            let line = error.expect_err("it makes no sense").to_string();
            assert!(line.contains(&format!("NAGAYA_DSM_{name}={value}: give ")), "{line}");
        }
        let given = |asked: &str| (asked == "PAGE").then(|| "64K".to_owned());
        assert_eq!(Settings::of(given).expect("fine").agreed.page_bytes, 65536);
    }
}
