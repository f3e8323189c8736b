//! Settings of MPI libraries that `nagaya exec` makes where the user has made none, because
//! the library would not use single copies otherwise.

/// Intel MPI copies twice, through its own shared memory, unless it is told from which
/// size on, in bytes, it shall use CMA. Its two copies, of which sender and receiver each make
/// one at the same time, were up to 11 % faster than one for fresh data below this size.
pub const INTEL_THRESHOLD: (&str, &str) = ("I_MPI_SHM_CMA_THRESHOLD", "65536");

/// What the environment of a job of Intel MPI's lacks, as `NAME=VALUE`.
pub fn missing(environment: &[Vec<u8>]) -> Option<Vec<u8>> {
    let (name, value) = INTEL_THRESHOLD;
    let setting = format!("{name}={value}").into_bytes();
    let has = |prefix: &[u8]| environment.iter().any(|entry| entry.starts_with(prefix));
    // Its launcher sets a dozen such variables.
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
