//! The environment variables of the standard, and the names that older programs use.

use std::sync::OnceLock;

use crate::job::Job;

/// Bytes of the symmetric heap if the user gives no size.
const SYMMETRIC_SIZE: usize = 1 << 30;

/// Returns the value of a variable, and the name under which it was found. Older programs have the
/// prefix `SMA_`.
fn variable(name: &str) -> Option<(String, String)> {
    let old = name.replace("SHMEM_", "SMA_");
    [name.to_owned(), old].into_iter().find_map(|name| {
        let value = std::env::var(&name).ok().filter(|value| !value.is_empty())?;
        Some((name, value))
    })
}

/// Returns the size of the symmetric heap in bytes. The error is one line.
pub fn symmetric_size() -> Result<usize, String> {
    match variable("SHMEM_SYMMETRIC_SIZE") {
        None => Ok(SYMMETRIC_SIZE),
        Some((name, value)) => parse_size(&value)
            .ok_or_else(|| format!("{name}={value} is no size, such as 512M or 1.5G")),
    }
}

/// Parses a number with an optional fraction and an optional suffix, as the standard has it.
fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, shift) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let bytes = number.trim().parse::<f64>().ok()? * (1_u64 << shift) as f64;
    (bytes.is_finite() && (1.0..=(1_u64 << 46) as f64).contains(&bytes)).then_some(bytes as usize)
}

/// Returns whether a variable asks for something.
fn is_set(name: &str) -> bool {
    variable(name).is_some_and(|(_, value)| value != "0")
}

/// Returns whether the user asks for reports on standard error.
pub fn is_debug() -> bool {
    static IS_DEBUG: OnceLock<bool> = OnceLock::new();
    *IS_DEBUG.get_or_init(|| is_set("SHMEM_DEBUG"))
}

/// Prints the version and the variables in PE 0, if the user asks for them.
pub fn show(job: &Job) {
    if job.me != 0 {
        return;
    }
    if is_set("SHMEM_VERSION") {
        proc::error_line!("nagaya-shmem: nagaya {}, OpenSHMEM 1.5", env!("CARGO_PKG_VERSION"));
    }
    if is_set("SHMEM_INFO") {
        let bytes = symmetric_size().unwrap_or(SYMMETRIC_SIZE);
        let lines = [
            format!("SHMEM_SYMMETRIC_SIZE={bytes}: bytes of the symmetric heap of each PE"),
            "SHMEM_INFO: prints this".to_owned(),
            "SHMEM_VERSION: prints the version".to_owned(),
            "SHMEM_DEBUG: reports how the PEs reach each other, and allocations without room"
                .to_owned(),
        ];
        for line in lines {
            proc::error_line!("nagaya-shmem: {line}");
        }
    }
    if is_debug() {
        let spaces = if job.task.is_some() { "tasks of one space" } else { "one process" };
        proc::error_line!("nagaya-shmem: {} PEs: {spaces}", job.n);
    }
}

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn sizes_have_fractions_and_suffixes() {
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("1.5k"), Some(1536));
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size(" 2G "), Some(2 << 30));
        for wrong in ["", "G", "-1", "0", "1X", "1e99", "nan", "infM"] {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }
}
