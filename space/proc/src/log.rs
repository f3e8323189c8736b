//! Messages of the command, of node servers and of agents, by level.
//!
//! `NAGAYA_LOG` sets the least important level that is written: `error`, `warn` (the default),
//! `info` or `debug`; `COMPONENT=LEVEL` sets it for one component: `warn,server=debug`. With
//! `NAGAYA_LOG_FILE` the messages are appended to that file.

use std::ffi::OsString;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// The variable with the levels.
pub const LEVELS: &str = "NAGAYA_LOG";
/// The variable with the file.
pub const FILE: &str = "NAGAYA_LOG_FILE";

/// The importance of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something works in another way than the user may expect.
    Warn,
    /// A choice, a start or an end.
    Info,
    /// A detail for those who look for the cause of a problem.
    Debug,
}

impl Level {
    const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == text.trim())
    }
}

/// The levels of all components.
#[derive(Debug, PartialEq, Eq)]
struct Levels {
    all: Level,
    components: Vec<(String, Level)>,
}

impl Levels {
    /// Reads the variable's value. `Err` is the part that is wrong; the others count.
    fn parse(text: &str) -> (Self, Option<String>) {
        let mut levels = Self { all: Level::Warn, components: Vec::new() };
        let mut wrong = None;
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (component, level) = match part.split_once('=') {
                Some((component, level)) => (Some(component), level),
                None => (None, part),
            };
            match (component, Level::parse(level)) {
                (None, Some(level)) => levels.all = level,
                (Some(component), Some(level)) => {
                    levels.components.push((component.trim().to_owned(), level));
                }
                (_, None) => wrong = Some(part.to_owned()),
            }
        }
        (levels, wrong)
    }

    fn of(&self, component: &str) -> Level {
        let set = self.components.iter().rev().find(|(name, _)| name == component);
        set.map_or(self.all, |(_, level)| *level)
    }
}

fn levels() -> &'static Levels {
    static FOUND: OnceLock<Levels> = OnceLock::new();
    FOUND.get_or_init(|| {
        let (levels, wrong) = Levels::parse(&std::env::var(LEVELS).unwrap_or_default());
        if let Some(wrong) = wrong {
            crate::error_line!(
                "nagaya: {LEVELS}: {wrong:?} is no level (error, warn, info or debug, or \
                 COMPONENT=LEVEL)"
            );
        }
        levels
    })
}

/// Returns true if messages of this level are written.
pub fn is_on(component: &str, level: Level) -> bool {
    level <= levels().of(component)
}

/// Writes a message, if its level is. [`log_line`](crate::log_line) formats it.
pub fn write(component: &str, level: Level, message: fmt::Arguments<'_>) {
    if !is_on(component, level) {
        return;
    }
    let line = match level {
        Level::Error | Level::Warn => format!("nagaya: {message}"),
        _ => format!("nagaya: {}: {component}: {message}", level.name()),
    };
    static LOG: OnceLock<Option<OsString>> = OnceLock::new();
    let log = LOG.get_or_init(|| std::env::var_os(FILE).filter(|file| !file.is_empty()));
    match log {
        None => crate::error_line!("{line}"),
        Some(file) => {
            let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let text = format!("{:.6} {} {line}\n", time.as_secs_f64(), std::process::id());
            let opened = OpenOptions::new().create(true).append(true).open(file);
            let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
            if written.is_err() {
                crate::error_line!("{line}");
            }
        }
    }
}

/// Writes a message of a component: `log_line!(Info, "server", "task {id} has started")`.
#[macro_export]
macro_rules! log_line {
    ($level:ident, $component:expr, $($message:tt)*) => {
        $crate::log::write($component, $crate::log::Level::$level, format_args!($($message)*))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_can_have_a_level_of_its_own() {
        let (levels, wrong) = Levels::parse("info,server=debug, span=error");
        assert_eq!(wrong, None);
        assert_eq!(levels.of("exec"), Level::Info);
        assert_eq!(levels.of("server"), Level::Debug);
        assert_eq!(levels.of("span"), Level::Error);
        assert_eq!(Levels::parse("").0.of("server"), Level::Warn);
    }

    #[test]
    fn a_wrong_level_is_named_and_the_others_count() {
        let (levels, wrong) = Levels::parse("loud,server=debug");
        assert_eq!(wrong.as_deref(), Some("loud"));
        assert_eq!((levels.of("exec"), levels.of("server")), (Level::Warn, Level::Debug));
    }
}
