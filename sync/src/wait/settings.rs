//! The settings of all waits, from the environment.

use std::sync::OnceLock;
use std::time::Duration;

use super::policy::Mode;

/// The variable that sets the [`Mode`]: `auto`, `spin` or `sleep`.
pub const MODE_VARIABLE: &str = "NAGAYA_WAIT";
/// The variable that sets the time of a wake-up, in µs.
pub const WAKE_VARIABLE: &str = "NAGAYA_WAIT_WAKE_US";

/// The settings. A value that cannot be read counts as not set; see [`unreadable`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settings {
    /// How waiters wait.
    pub mode: Mode,
    /// The time of a wake-up, if it is not to be measured.
    pub wake: Option<Duration>,
}

/// Returns the settings of this process.
pub fn settings() -> Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    *SETTINGS.get_or_init(|| of(|name| std::env::var(name).ok()))
}

/// Returns a line about each variable whose value cannot be read.
pub fn unreadable() -> Vec<String> {
    unreadable_of(|name| std::env::var(name).ok())
}

fn unreadable_of(value: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mode = value(MODE_VARIABLE).filter(|it| !["auto", "spin", "sleep"].contains(&&**it));
    let wake = value(WAKE_VARIABLE).filter(|it| it.parse::<u64>().is_err());
    let mode = mode.map(|it| format!("{MODE_VARIABLE}={it} is none of auto, spin and sleep"));
    let wake = wake.map(|it| format!("{WAKE_VARIABLE}={it} is no number of microseconds"));
    mode.into_iter().chain(wake).collect()
}

fn of(value: impl Fn(&str) -> Option<String>) -> Settings {
    let mode = match value(MODE_VARIABLE).as_deref() {
        Some("spin") => Mode::Spin,
        Some("sleep") => Mode::Sleep,
        _ => Mode::Auto,
    };
    let wake = value(WAKE_VARIABLE).and_then(|text| text.parse().ok());
    Settings { mode, wake: wake.map(Duration::from_micros) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_from_the_environment() {
        let with = |mode: &'static str, wake: &'static str| {
            of(move |name| Some(if name == MODE_VARIABLE { mode } else { wake }.to_owned()))
        };
        assert_eq!(of(|_| None), Settings::default());
        assert_eq!(with("spin", "70").mode, Mode::Spin);
        assert_eq!(with("sleep", "70").wake, Some(Duration::from_micros(70)));
        assert_eq!(with("", "fast"), Settings::default());
        assert!(unreadable_of(|_| None).is_empty());
        let lines = unreadable_of(|_| Some("fast".to_owned()));
        assert_eq!(lines[0], "NAGAYA_WAIT=fast is none of auto, spin and sleep");
        assert_eq!(lines[1], "NAGAYA_WAIT_WAKE_US=fast is no number of microseconds");
    }
}
