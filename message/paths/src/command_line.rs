//! The command line of a launcher: finds the programs in it, to put `nagaya exec` in front.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Launchers of Open MPI, PRRTE, MPICH and Intel MPI.
const OF_MPI: [&str; 4] = ["mpirun", "mpiexec", "orterun", "prterun"];

/// Options with one argument, of all these launchers, without dashes.
#[rustfmt::skip]
const ONE: &[&str] = &[
    "n", "np", "c", "N", "H", "host", "hosts", "hostfile", "machinefile", "machine", "default-hostfile", "f",
    "ppn", "perhost", "grr", "npernode", "npersocket", "map-by", "rank-by", "bind-to", "cpu-set",
    "cpu-list", "cpus-per-proc", "cpus-per-rank", "slot-list", "rf", "rankfile", "x", "wdir", "wd",
    "gwdir", "path", "gpath", "dir", "prefix", "am", "tune", "stdin", "output", "output-filename",
    "timeout", "report-state-on-timeout", "max-restarts", "personality", "display", "runtime-options", "dvm",
    "with-ft", "preload-files", "report-pid", "report-uri", "ompi-server", "genvlist", "envlist",
    "launcher", "launcher-exec", "bootstrap", "bootstrap-exec", "bootstrap-exec-args", "iface",
    "rmk", "usize", "umask", "order-nodes", "prepend-pattern", "outfile-pattern",
    "errfile-pattern", "demux", "topolib", "membind", "hostmap", "localroot", "tmpdir", "profiles",
];
/// Options with two arguments.
const TWO: &[&str] = &["mca", "gmca", "omca", "prtemca", "pmixmca", "env", "genv"];
/// Options without an argument.
#[rustfmt::skip]
const NONE: &[&str] = &[
    "oversubscribe", "nooversubscribe", "use-hwthread-cpus", "allow-run-as-root", "tag-output",
    "timestamp-output", "report-bindings", "display-map", "display-allocation", "bynode", "byslot",
    "pernode", "nolocal", "v", "verbose", "q", "quiet", "l", "prepend-rank", "genvall", "genvnone",
    "envall", "envnone", "print-rank-map", "print-all-exitcodes", "rr", "do-not-launch",
    "disable-hostname-propagation", "disable-auto-cleanup", "merge-stderr-to-stdout", "debug",
    "get-stack-traces", "xml", "bind-to-core", "bind-to-socket", "bind-to-none", "preload-binary",
    "leave-session-attached", "forward-signals", "novm", "enable-recovery", "continuous",
];
/// Options that name a file with the programs.
const FILES: &[&str] = &["app", "configfile", "multi-prog"];

/// Slurm's short options with an argument.
const SRUN_SHORT: &str = "nNcpAtwxJoeiDCdGmMqrTWBLSbP";
/// Slurm's long options without an argument, or with one only behind `=`.
#[rustfmt::skip]
const SRUN_NONE: &[&str] = &[
    "exclusive", "label", "unbuffered", "overcommit", "oversubscribe", "overlap", "quiet",
    "verbose", "preserve-env", "pty", "no-kill", "kill-on-bad-exit", "spread-job",
    "use-min-nodes", "whole", "exact", "interactive", "test-only", "contiguous", "hold",
    "immediate", "disable-status", "reboot", "compress", "send-libs", "propagate",
    "resv-ports", "debugger-test", "gres-flags-disable", "nice", "external",
];

/// Returns true if a word can be the program that a launcher starts.
pub type IsProgram<'a> = &'a dyn Fn(&OsStr) -> bool;

/// A launcher's command line.
#[derive(Debug)]
pub struct CommandLine {
    words: Vec<OsString>,
    /// Places of the programs: MPMD jobs have several.
    programs: Vec<usize>,
}

impl CommandLine {
    /// Finds the programs. `is_program` decides what stands behind an unknown option.
    ///
    /// # Errors
    /// One line: this is no launcher, or no program is found.
    pub fn new(words: &[OsString], is_program: IsProgram<'_>) -> Result<Self, String> {
        let name = Path::new(&words[0]).file_name().unwrap_or_default().to_string_lossy();
        let name = name.split('.').next().unwrap_or_default();
        if name != "srun" && !OF_MPI.contains(&name) {
            return Err(format!(
                "{name} is no launcher of an MPI (mpirun, mpiexec, prterun, srun): give its whole \
                 command line, or --span N for a program with threads"
            ));
        }
        let arity = |option: &str, next: Option<&OsString>| match name {
            "srun" => srun_arity(option),
            _ => mpi_arity(option, next, is_program),
        };
        let mut programs = Vec::new();
        let mut index = 1;
        while index < words.len() {
            let word = words[index].to_string_lossy();
            let ends = word == "--";
            if word.starts_with('-') && !ends {
                index += 1 + arity(&word, words.get(index + 1))?;
                continue;
            }
            index += usize::from(ends);
            let Some(found) = words.get(index) else { break };
            if Path::new(found).file_name().is_some_and(|name| name == "nagaya") {
                return Err("leave nagaya exec out of the command: nagaya try adds it".into());
            }
            programs.push(index);
            // The next program of an MPMD job follows a colon.
            let rest = &words[index..];
            index += rest.iter().position(|word| word == ":").map_or(rest.len(), |it| it + 1);
        }
        if programs.is_empty() {
            return Err(format!("no program in the command line of {name}"));
        }
        Ok(Self { words: words.to_vec(), programs })
    }

    /// Returns the command line with these words in front of each program.
    pub fn with(&self, before: &[OsString]) -> Vec<OsString> {
        let mut words = self.words.clone();
        for &at in self.programs.iter().rev() {
            words.splice(at..at, before.iter().cloned());
        }
        words
    }
}

fn refuse_file(name: &str) -> Result<(), String> {
    match FILES.contains(&name) {
        true => Err(format!("nagaya try does not read a file of programs (--{name})")),
        false => Ok(()),
    }
}

/// Returns the number of arguments of an option of mpirun, mpiexec or prterun. `next` is the word
/// behind it.
fn mpi_arity(
    option: &str,
    next: Option<&OsString>,
    is_program: IsProgram<'_>,
) -> Result<usize, String> {
    let (name, has_value) = match option.split_once('=') {
        Some((name, _)) => (name, true),
        None => (option, false),
    };
    let name = name.trim_start_matches('-');
    refuse_file(name)?;
    let known = |list: &[&str]| list.contains(&name);
    Ok(match () {
        () if has_value || known(NONE) => 0,
        () if known(TWO) => 2,
        () if known(ONE) => 1,
        // An unknown option: the word behind it is its argument, unless it can be the program.
        () => next.map_or(0, |next| {
            let is_option = next.as_bytes().starts_with(b"-");
            usize::from(!is_option && !is_program(next))
        }),
    })
}

/// Returns the number of arguments of an option of srun.
fn srun_arity(option: &str) -> Result<usize, String> {
    if let Some(long) = option.strip_prefix("--") {
        refuse_file(long)?;
        return Ok(usize::from(!long.contains('=') && !SRUN_NONE.contains(&long)));
    }
    // -n 4, -n4, or -ln 4.
    let letters = &option[1..];
    let at = letters.find(|letter| SRUN_SHORT.contains(letter));
    Ok(usize::from(at.is_some_and(|at| at + 1 == letters.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(line: &str) -> Result<String, String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let words = CommandLine::new(&words, &|word| word == "sh")?.with(&["X".into()]);
        Ok(words.join(&OsString::from(" ")).into_string().expect("text"))
    }

    #[test]
    fn the_program_is_behind_the_launchers_options() {
        for (line, wanted) in [
            ("mpirun ./app", "mpirun X ./app"),
            ("mpirun -n 8 ./app -n 4", "mpirun -n 8 X ./app -n 4"),
            (
                "/usr/bin/mpirun.openmpi --mca btl self,vader --oversubscribe -np 2 app",
                "/usr/bin/mpirun.openmpi --mca btl self,vader --oversubscribe -np 2 X app",
            ),
            (
                "mpiexec.hydra -genv A B -ppn 2 -hosts a,b ./app",
                "mpiexec.hydra -genv A B -ppn 2 -hosts a,b X ./app",
            ),
            (
                "prterun --map-by ppr:2:node -x A=1 -- ./app",
                "prterun --map-by ppr:2:node -x A=1 -- X ./app",
            ),
            ("mpirun -n 1 ./a x : -n 2 ./b y", "mpirun -n 1 X ./a x : -n 2 X ./b y"),
            ("mpirun --unknown-flag sh -c x", "mpirun --unknown-flag X sh -c x"),
            ("mpirun --unknown-option value sh", "mpirun --unknown-option value X sh"),
            ("mpirun --output-proctable=F sh", "mpirun --output-proctable=F X sh"),
            (
                "srun -n4 -N 2 -l --mpi=pmix --cpu-bind none --exclusive ./app 1",
                "srun -n4 -N 2 -l --mpi=pmix --cpu-bind none --exclusive X ./app 1",
            ),
        ] {
            assert_eq!(with(line).as_deref(), Ok(wanted));
        }
    }

    #[test]
    fn other_command_lines_are_refused() {
        for (line, word) in [
            ("./app", "--span"),
            ("bash run.sh", "bash"),
            ("mpirun -n 4", "no program"),
            ("mpirun -n 2 nagaya exec ./app", "nagaya exec"),
            ("mpirun --app file", "--app"),
            ("srun --multi-prog file", "--multi-prog"),
        ] {
            let refusal = with(line).expect_err(line);
            assert!(refusal.contains(word), "{line}: {refusal}");
        }
    }
}
