//! What the kernel tells about a process or thread: the fields of `stat` and `status`, as
//! proc_pid_stat(5) and proc_pid_status(5) name them.

use std::fs;
use std::io;
use std::str::FromStr;

/// The contents of `stat`.
pub struct Stat {
    /// The text behind the name of the program, which may be any bytes.
    fields: String,
}

impl Stat {
    /// Reads the file in the directory of a process or thread, such as `/proc/self`.
    ///
    /// # Errors
    /// The process has ended, or /proc does not show it.
    pub fn read(directory: &str) -> io::Result<Self> {
        let text = fs::read(format!("{directory}/stat"))?;
        Ok(Self::of(&text))
    }

    /// Reads the contents of the file.
    pub fn of(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields);
        Self { fields: fields.to_owned() }
    }

    /// Returns the field of this number in the man page, from 3 (the state).
    pub fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        self.fields.split_ascii_whitespace().nth(number.checked_sub(3)?)?.parse().ok()
    }
}

/// The contents of `status`.
pub struct Status {
    text: String,
}

impl Status {
    /// Reads the file in the directory of a process or thread, such as `/proc/self`.
    ///
    /// # Errors
    /// The process has ended, or /proc does not show it.
    pub fn read(directory: &str) -> io::Result<Self> {
        Ok(Self::of(&fs::read(format!("{directory}/status"))?))
    }

    /// Reads the contents of the file.
    pub fn of(text: &[u8]) -> Self {
        Self { text: String::from_utf8_lossy(text).into_owned() }
    }

    /// Returns the names and values of all fields. Values begin with white space.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter_map(|line| line.split_once(':'))
    }

    /// Returns the value of the field of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields().find_map(|(key, value)| (key == name).then(|| value.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_fields_are_found_by_number_and_name() {
        let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        let stat = Stat::read("/proc/self").expect("it is readable");
        assert_eq!(stat.field(4), parent);
        assert!(stat.field(3).is_some_and(|state: char| state.is_ascii_uppercase()));
        assert_eq!(stat.field::<u64>(2), None);
        assert_eq!(stat.field::<u64>(999), None);
        let status = Status::read("/proc/self").expect("it is readable");
        assert_eq!(status.field("PPid").and_then(|it| it.parse().ok()), parent);
        assert_eq!(status.field("Parent"), None);
    }
}
