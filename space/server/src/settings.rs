//! Settings that `nagaya exec` adds for MPI libraries if the user has not made them. Without them
//! the library would not use single copies.

/// Intel MPI copies twice, through its shared memory, unless this variable gives the size in bytes
/// from which it uses CMA. Sender and receiver make the two copies at the same time. Below this
/// size they were up to 11 % faster than one copy for fresh data.
pub const INTEL_THRESHOLD: (&str, &str) = ("I_MPI_SHM_CMA_THRESHOLD", "65536");

/// Returns the setting that the environment of an Intel MPI job lacks, as `NAME=VALUE`.
pub fn missing(environment: &[Vec<u8>]) -> Option<Vec<u8>> {
    let (name, value) = INTEL_THRESHOLD;
    let setting = format!("{name}={value}").into_bytes();
    let has = |prefix: &[u8]| environment.iter().any(|entry| entry.starts_with(prefix));
    // Intel MPI's launcher sets a dozen such variables.
    (has(b"I_MPI_") && !has(&setting[..=name.len()])).then_some(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_intels_jobs_get_it_and_only_where_the_user_has_not_set_it() {
        let missing = |entries: &[&str]| {
            let entries: Vec<Vec<u8>> = entries.iter().map(|e| e.as_bytes().to_vec()).collect();
            missing(&entries).map(|entry| String::from_utf8(entry).unwrap())
        };
        let setting = Some("I_MPI_SHM_CMA_THRESHOLD=65536".to_string());
        assert_eq!(missing(&["PATH=/bin", "PMI_RANK=0"]), None);
        assert_eq!(missing(&["PATH=/bin", "I_MPI_HYDRA_UUID=1"]), setting);
        assert_eq!(missing(&["I_MPI_HYDRA_UUID=1", "I_MPI_SHM_CMA_THRESHOLD=1"]), None);
    }
}
