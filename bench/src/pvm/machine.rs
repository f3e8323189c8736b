//! Virtual machines of stock PVM and of Nagaya, each with its own directory and name. So they are
//! independent of each other and of the user's ones.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::part::Part;
use crate::failure::Failure;
use crate::launch::{Nagaya, output_of, wait_until};
use crate::namespaces::Namespaces;
use crate::programs;

/// The implementation of PVM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum System {
    /// PVM 3.4.6, as Debian ships it.
    Stock,
    /// Nagaya's.
    Nagaya,
    /// Nagaya's, with tasks in one space.
    Space,
    /// Nagaya's, with messages by FCP.
    Fcp,
    /// Nagaya's, with messages by FCP plus.
    FcpPlus,
}

impl System {
    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            System::Stock => "stock PVM",
            System::Nagaya => "nagaya pvm",
            System::Space => "nagaya pvm --space",
            System::Fcp => "nagaya pvm over FCP",
            System::FcpPlus => "nagaya pvm over FCP plus",
        }
    }

    /// Returns true if a part is measured under it. The older protocols appear only in the paper's
    /// table.
    pub fn has(self, part: Part) -> bool {
        !matches!(self, System::Fcp | System::FcpPlus) || part == Part::Messages
    }

    /// Returns the protocol for the daemon's environment.
    fn protocol(self) -> Option<&'static str> {
        match self {
            System::Stock => None,
            System::Nagaya | System::Space => Some("fcp2"),
            System::Fcp => Some("fcp"),
            System::FcpPlus => Some("fcp-plus"),
        }
    }
}

/// The hosts of a virtual machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wiring {
    /// One host.
    One,
    /// Two hosts: two addresses of the loopback device.
    Loopback,
    /// Two hosts: network namespaces with a pair of veth devices (needs root).
    Namespaces,
}

impl Wiring {
    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Wiring::One => "one host",
            Wiring::Loopback => "two hosts on loopback",
            Wiring::Namespaces => "two hosts in network namespaces",
        }
    }
}

const STOCK_DAEMON: &str = "/usr/bin/pvmd";

/// Time limits for the daemon to listen, and for all hosts to end.
const START_MAX: Duration = Duration::from_secs(20);
const HALT_MAX: Duration = Duration::from_secs(15);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running virtual machine. It is halted when this value is dropped.
pub struct Machine {
    system: System,
    directory: PathBuf,
    hosts: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// The program that halts it, the same for both implementations.
    halt: PathBuf,
    daemon: Option<Child>,
    namespaces: Option<Namespaces>,
}

impl Machine {
    /// Starts its first host. The measuring programs add the others.
    pub fn start(
        system: System,
        wiring: Wiring,
        nagaya: &Nagaya,
        out: &Path,
    ) -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Short, since it is part of the names of sockets.
        let directory = std::env::temp_dir().join(format!("nagaya-bench-{name}"));
        let namespaces = match wiring {
            Wiring::Namespaces => Some(Namespaces::make()?),
            _ => None,
        };
        let hosts: &[&str] = match wiring {
            Wiring::One => &["127.0.0.1"],
            Wiring::Loopback => &["127.0.0.2", "127.0.0.3"],
            Wiring::Namespaces => &Namespaces::ADDRESSES,
        };
        let hosts: Vec<String> = hosts.iter().map(|host| host.to_string()).collect();
        let mut machine = Machine {
            system,
            environment: match system.protocol() {
                None => environment(&directory, &name, None),
                Some(protocol) => {
                    let ours = (programs::pvm_libraries(nagaya, out)?, protocol);
                    environment(&directory, &name, Some(&ours))
                }
            },
            halt: programs::compile_with_pvm("pvm_halt", out)?,
            directory,
            hosts,
            daemon: None,
            namespaces,
        };
        machine
            .write_rsh()
            .map_err(|error| Failure::new(format!("{}: {error}", machine.directory.display())))?;
        machine.start_daemon(nagaya)?;
        Ok(machine)
    }

    /// Writes a substitute for ssh. It runs the command on the host with a separate directory, so
    /// that the daemons do not share files.
    fn write_rsh(&self) -> std::io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let enter = self.namespaces.as_ref().map(|of| of.enter(1)).unwrap_or_default().join(" ");
        let script = format!(
            "#!/bin/sh\n\
             while :; do case $1 in -l) shift 2;; -*) shift;; *) break;; esac; done\n\
             PVM_TMP=$PVM_TMP/$1\n\
             XDG_RUNTIME_DIR=$PVM_TMP\n\
             XDG_STATE_HOME=$PVM_TMP\n\
             export PVM_TMP XDG_RUNTIME_DIR XDG_STATE_HOME\n\
             mkdir -p $PVM_TMP\n\
             shift\n\
             exec {enter} sh -c \"$*\"\n"
        );
        let file = self.directory.join("rsh");
        fs::write(&file, script)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))
    }

    /// Starts the daemon in the foreground as a child, and waits until it listens.
    fn start_daemon(&mut self, nagaya: &Nagaya) -> Result<(), Failure> {
        let mut command = match self.system {
            System::Stock if !Path::new(STOCK_DAEMON).exists() => {
                return Err(Failure::new("stock PVM: not installed; apt-get install pvm pvm-dev"));
            }
            System::Stock => self.command(Path::new(STOCK_DAEMON)),
            ours => {
                let mut command = self.command(&nagaya.command);
                command.arg("pvmd").args((ours == System::Space).then_some("--space"));
                command
            }
        };
        let file = |name: &str| fs::File::create(self.directory.join(name));
        let (output, errors) = (file("pvmd.out"), file("pvmd.err"));
        command.arg(format!("-n{}", self.hosts[0])).stdin(Stdio::null());
        let daemon = output.and_then(|output| command.stdout(output).stderr(errors?).spawn());
        let name = self.system.name();
        let daemon =
            self.daemon.insert(daemon.map_err(|error| Failure::new(format!("{name}: {error}")))?);
        // (A task that starts before the daemon listens would start another daemon.)
        let listens =
            || match self.system {
                System::Stock => fs::metadata(self.directory.join("pvmd.out"))
                    .is_ok_and(|output| output.len() > 0),
                _ => fs::read_dir(self.directory.join("nagaya"))
                    .is_ok_and(|mut of| of.next().is_some()),
            };
        let deadline = Instant::now() + START_MAX;
        while !listens() {
            let ended = daemon.try_wait().is_ok_and(|status| status.is_some());
            if ended || Instant::now() > deadline {
                let output =
                    fs::read_to_string(self.directory.join("pvmd.err")).unwrap_or_default();
                return Err(Failure::new(format!("{name}: its daemon does not start: {output}")));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns a command in this machine's environment, on its first host.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match &self.namespaces {
            None => Command::new(program),
            Some(namespaces) => {
                let enter = namespaces.enter(0);
                let mut command = Command::new(&enter[0]);
                command.args(&enter[1..]).arg(program);
                command
            }
        };
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env_remove("PVM_EXPORT").current_dir(&self.directory);
        command
    }

    /// Returns true if it is not stock PVM's.
    pub fn is_ours(&self) -> bool {
        self.system != System::Stock
    }

    /// Returns the list of hosts for the measuring programs, which start tasks on them round robin.
    pub fn places(&self) -> String {
        if self.hosts.len() == 1 { "-".to_string() } else { self.hosts.join(",") }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let halted = output_of(&mut self.command(&self.halt), HALT_MAX);
            let grace = if halted.is_ok() { HALT_MAX } else { Duration::ZERO };
            let _ = wait_until(&mut daemon, Instant::now() + grace);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the environment of a machine. Nagaya's have a library path and a protocol.
fn environment(
    directory: &Path,
    name: &str,
    ours: Option<&(PathBuf, &str)>,
) -> Vec<(&'static str, String)> {
    let place = directory.display();
    let mut environment = vec![
        ("PVM_RSH", format!("{place}/rsh")),
        ("PVM_VMID", format!("bench-{name}")),
        ("PVM_TMP", place.to_string()),
        ("PVM_WD", place.to_string()),
        ("PVM_PATH", "/usr/bin".to_string()), // for the group server of stock PVM
        ("XDG_RUNTIME_DIR", place.to_string()),
        ("XDG_STATE_HOME", place.to_string()), // for the logs of Nagaya's daemons
    ];
    match ours {
        None => environment.extend([
            ("PVM_ROOT", "/usr/lib/pvm3".to_string()),
            ("PVM_ALLOW_ROOT", "1".to_string()),
        ]),
        Some((libraries, protocol)) => {
            environment.push(("LD_LIBRARY_PATH", libraries.display().to_string()));
            environment.push(("NAGAYA_PVM_PROTOCOL", protocol.to_string()));
        }
    }
    environment
}
