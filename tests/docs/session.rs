//! A reader who follows one page: a scratch directory, a shell with Nagaya in its PATH, and the
//! output of the last command.

use std::path::PathBuf;

use nagaya_tests::slurm::Slurm;
use nagaya_tests::{Cmd, Output, WorkDir, copy_program, machine_lacks, nagaya, skip, tool};

use crate::page::{Block, Machines, Treatment};
use crate::prefix::Prefix;

/// Has ssh's arguments, and runs the command on this machine.
const RSH: &str = "#!/bin/sh
while :; do
	case $1 in
	-[lop]) shift 2 ;;
	-*) shift ;;
	*) break ;;
	esac
done
shift
exec sh -c \"$*\"
";

/// A reader of a page.
pub struct Session {
    page: String,
    work: WorkDir,
    /// Sockets of jobs: names of jobs on pages are not unique on the machine.
    runtime: WorkDir,
    prefix: Prefix,
    last: Option<Output>,
    /// The cluster of blocks that use one.
    slurm: Option<Slurm<'static>>,
    /// A block was skipped; the blocks after it may need its results.
    skipped: bool,
    /// A block has used PVM's console, which starts a virtual machine.
    uses_pvm: bool,
}

impl Session {
    /// Starts in an empty directory.
    pub fn new(page: &str) -> Self {
        let session = Self {
            page: page.to_owned(),
            work: WorkDir::new(),
            runtime: WorkDir::short(),
            prefix: Prefix::new(),
            last: None,
            slurm: None,
            skipped: false,
            uses_pvm: false,
        };
        session.prefix.write_pkg_config(&session.work.join(".pkgconfig"));
        session
    }

    /// Gives a block its treatment.
    ///
    /// # Panics
    /// If the block fails, or prints something else than the page shows.
    pub fn take(&mut self, block: &Block) {
        let at = format!("{}:{}", self.page, block.line);
        if self.skipped {
            return;
        }
        if let Some(missing) = block.needs.iter().find(|need| !is_present(need)) {
            // No later block uses the result of a subcommand that this build lacks.
            self.skipped = !missing.starts_with("command=");
            return report(&at, missing);
        }
        for name in &block.given {
            copy_program(&tool("true"), &self.work.join(name));
        }
        match &block.treatment {
            Treatment::NotRun(_) => self.last = None,
            Treatment::File(name) => {
                let path = self.work.join(name);
                std::fs::create_dir_all(path.parent().expect("a directory")).expect("mkdir");
                self.work.write(name, &block.text);
            }
            Treatment::Output => {
                // The output of a block that is not run cannot be compared.
                let Some(last) = &self.last else { return };
                let printed = format!("{}{}", last.stdout, last.stderr);
                if let Some(line) = missing_line(&block.text, &printed) {
                    panic!("{at}: the output has no line `{line}` (in this order)\n{last}");
                }
            }
            Treatment::Run { status, expect } => {
                self.uses_pvm |= block.text.contains("nagaya pvm");
                let output = self.command(&block.text, block.on).run();
                assert_eq!(output.code(), *status, "{at}\n{output}");
                let printed = format!("{}{}", output.stdout, output.stderr);
                for text in expect {
                    assert!(printed.contains(text), "{at}: the output lacks `{text}`\n{output}");
                }
                self.last = Some(output);
            }
        }
    }

    /// Commands as a user types them, with the environment of an installation.
    fn command(&mut self, script: &str, on: Machines) -> Cmd {
        let command = self.shell(script);
        match on {
            Machines::This => command,
            Machines::Slurm => {
                let slurm = self.slurm.get_or_insert_with(|| Slurm::start(&["n0", "n1"]));
                command.env("SLURM_CONF", slurm.conf())
            }
            Machines::Hosts => {
                let rsh = self.work.join("rsh");
                if !rsh.exists() {
                    self.work.write_executable("rsh", RSH);
                }
                command.env("NAGAYA_RSH", rsh)
            }
        }
    }

    /// The same for this machine.
    fn shell(&self, script: &str) -> Cmd {
        let path = std::env::var("PATH").unwrap_or_default();
        let joined = |dir: PathBuf, rest: &str| format!("{}:{rest}", dir.display());
        Cmd::new("bash")
            .args(["-e", "-u", "-c", script])
            .dir(self.work.path())
            .own_session()
            .env("PATH", joined(self.prefix.join("bin"), &path))
            .env("PREFIX", self.prefix.join(""))
            .env("PKG_CONFIG_PATH", self.work.join(".pkgconfig"))
            .env("LD_LIBRARY_PATH", self.prefix.join("lib"))
            .env("HOME", self.work.path())
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .env("PVM_VMID", format!("docs-{}", self.work.path().display()).replace('/', "-"))
            // Pages use up to four ranks; the tests' machine may have fewer processors.
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
    }
}

impl Drop for Session {
    /// Ends the virtual machine of PVM that a page may have left behind.
    fn drop(&mut self) {
        if self.uses_pvm {
            let _ = self.shell("echo halt | timeout 20 nagaya pvm >/dev/null 2>&1 || true").run();
        }
    }
}

/// Returns true if a program or feature is present.
fn is_present(need: &str) -> bool {
    if let Some(feature) = need.strip_prefix("info=") {
        let info = nagaya("info").arg("--parsable").run().ok();
        return info.lines().any(|line| line == format!("{feature}=yes"));
    }
    if let Some(command) = need.strip_prefix("command=") {
        return nagaya("help").arg(command).run().status.success();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Daemons are there, and often not in PATH.
    let mut directories = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    directories.any(|dir| dir.join(need).is_file())
}

fn report(at: &str, missing: &str) {
    match missing.strip_prefix("info=") {
        Some(feature) => skip(&format!("{at}: this user may not use {feature} (nagaya info)")),
        None => machine_lacks(&format!("{missing}, for {at} and what follows")),
    }
}

/// Returns the first line of `wanted` that `printed` does not contain after the lines before it.
/// `…` in a line stands for any text; empty lines have no effect.
pub fn missing_line(wanted: &str, printed: &str) -> Option<String> {
    let mut lines = printed.lines();
    let wanted = wanted.lines().map(str::trim_end).filter(|line| !line.is_empty());
    wanted.filter(|line| *line != "…").find_map(|line| {
        let found = lines.any(|one| matches(line, one.trim_end()));
        (!found).then(|| line.to_owned())
    })
}

/// Compares a line with a pattern that has `…` for any text.
fn matches(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
