//! The measured transports: a file with a line for each MPI that `nagaya tune --mpi` has compared
//! with the provider on this processor.
//!
//! A line has four fields with tabs between them: processor, kind of MPI, directory of its
//! launcher, and the faster transport.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pvas::copy_plan;

use crate::launched::Kind;
use crate::transport::Transport;

const HEAD: &str = "# nagaya tune --mpi: processor, MPI, directory of its launcher, transport\n";

/// Microseconds of a message to and fro (one way), and of one in a stream, by size in bytes.
pub type Times = BTreeMap<u64, [f64; 2]>;

/// The provider is not slower if it takes at most this part of the time of the others.
const NOISE: f64 = 1.05;

/// Adds the times of another run. The less counts, since other programs only add time.
pub fn merge(best: &mut Times, found: &Times) {
    for (&size, new) in found {
        let old = best.entry(size).or_insert([f64::INFINITY; 2]);
        *old = [old[0].min(new[0]), old[1].min(new[1])];
    }
}

/// Returns the sizes for which the provider is slower than the MPI alone or with copies in user
/// space.
pub fn slower(alone: &Times, copy: &Times, provider: &Times) -> Vec<u64> {
    let is_slower = |size: &u64, [way, stream]: &[f64; 2]| {
        let others = [alone, copy].map(|times| times.get(size).copied());
        let [best_way, best_stream] = others
            .into_iter()
            .flatten()
            .fold([f64::INFINITY; 2], |best, it| [best[0].min(it[0]), best[1].min(it[1])]);
        *way > NOISE * best_way || *stream > NOISE * best_stream
    };
    let slower = provider.iter().filter(|(size, times)| is_slower(size, times));
    slower.map(|(&size, _)| size).collect()
}

/// Returns the paths of the files, the user's first. They are beside the plans of copies.
pub fn files() -> Vec<PathBuf> {
    copy_plan::files().into_iter().map(|file| file.with_file_name("mpi")).collect()
}

/// Returns the measured transport of the MPI whose launcher is in this directory, and the file
/// that has it.
pub fn find(kind: Kind, directory: &Path) -> Option<(Transport, PathBuf)> {
    let key = key(&copy_plan::processor(), kind, directory);
    files().into_iter().find_map(|file| {
        let text = std::fs::read_to_string(&file).ok()?;
        Some((read(&text, &key)?, file))
    })
}

/// Returns the file's text with this measurement in place of an earlier one.
pub fn with(before: &str, kind: Kind, directory: &Path, transport: Transport) -> String {
    let key = key(&copy_plan::processor(), kind, directory);
    let others = before.lines().filter(|line| !line.starts_with('#') && read(line, &key).is_none());
    let mut text = String::from(HEAD);
    others.for_each(|line| text.extend([line, "\n"]));
    text + &key + transport.name() + "\n"
}

fn key(processor: &str, kind: Kind, directory: &Path) -> String {
    format!("{processor}\t{}\t{}\t", kind.name(), directory.display())
}

fn read(text: &str, key: &str) -> Option<Transport> {
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    Transport::parse(value).filter(|&it| it != Transport::Auto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provider_must_not_be_slower_at_any_size() {
        let times = |way: f64, stream: f64| Times::from([(8, [way, stream]), (4096, [1.0, 1.0])]);
        let of =
            |way: f64, stream: f64| slower(&times(1.0, 1.0), &times(2.0, 0.9), &times(way, stream));
        assert_eq!(of(1.04, 0.94), []);
        assert_eq!(of(1.06, 0.5), [8]);
        assert_eq!(of(0.5, 0.96), [8]);
    }

    #[test]
    fn the_best_of_several_runs_counts() {
        let mut best = Times::new();
        merge(&mut best, &Times::from([(8, [2.0, 5.0])]));
        merge(&mut best, &Times::from([(8, [3.0, 4.0])]));
        assert_eq!(best[&8], [2.0, 4.0]);
    }

    #[test]
    fn the_last_measurement_of_each_mpi_counts() {
        let [bin, other] = ["/usr/bin", "/opt/mpi/bin"].map(Path::new);
        let text = with("", Kind::Mpich, bin, Transport::Provider);
        let text = with(&text, Kind::Mpich, other, Transport::Copy);
        let text = with(&text, Kind::Mpich, bin, Transport::Copy);
        let found = |kind, directory| read(&text, &key(&copy_plan::processor(), kind, directory));
        assert_eq!(found(Kind::Mpich, bin), Some(Transport::Copy));
        assert_eq!(found(Kind::Mpich, other), Some(Transport::Copy));
        assert_eq!(found(Kind::OpenMpi5, bin), None);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert_eq!(read("not a measurement", &key("p", Kind::Intel, bin)), None);
    }
}
