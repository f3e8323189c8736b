//! Virtual machines: stock PVM's and ours, each with a directory and a name of its own, so
//! that neither sees the other nor any that the user has.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::namespaces::Namespaces;
use crate::failure::Failure;
use crate::launch::{Nagaya, output_of, wait_until};
use crate::programs;

/// Whose PVM.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum System {
    /// PVM 3.4.6, as Debian ships it.
    Stock,
    /// Ours.
    Nagaya,
    /// Ours, its tasks in one space.
    Space,
}

impl System {
    /// As it is called in messages.
    pub fn name(self) -> &'static str {
        match self {
            System::Stock => "stock PVM",
            System::Nagaya => "nagaya pvm",
            System::Space => "nagaya pvm --space",
        }
    }
}

/// The hosts of a virtual machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wiring {
    /// One.
    One,
    /// Two, which are two addresses of the loopback device.
    Loopback,
    /// Two network namespaces with a pair of veth devices (needs root).
    Namespaces,
}

impl Wiring {
    /// Where there are two hosts: as what they are measured.
    pub fn name(self) -> &'static str {
        match self {
            Wiring::One => "one host",
            Wiring::Loopback => "two hosts on loopback",
            Wiring::Namespaces => "two hosts in network namespaces",
        }
    }
}

const STOCK_DAEMON: &str = "/usr/bin/pvmd";
const STOCK_CONSOLE: &str = "/usr/bin/pvm";

/// Longest wait for all hosts to be there, and for all to be gone.
const START_MAX: Duration = Duration::from_secs(20);
const HALT_MAX: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(50);

/// A running virtual machine. It is halted with this value.
pub struct Machine {
    system: System,
    directory: PathBuf,
    hosts: Vec<String>,
    environment: Vec<(&'static str, String)>,
    console: String,
    daemon: Option<Child>,
    namespaces: Option<Namespaces>,
}

impl Machine {
    /// Starts one, and waits until all hosts are there.
    pub fn start(
        system: System,
        wiring: Wiring,
        nagaya: &Nagaya,
        out: &Path,
    ) -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Short, for it is part of the names of sockets.
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
            environment: match system {
                System::Stock => environment(&directory, &name, None),
                _ => environment(&directory, &name, Some(&programs::pvm_libraries(nagaya, out)?)),
            },
            console: match system {
                System::Stock => STOCK_CONSOLE.to_string(),
                _ => format!("{} pvm", nagaya.command.display()),
            },
            directory,
            hosts,
            daemon: None,
            namespaces,
        };
        machine
            .write_files()
            .map_err(|error| Failure::new(format!("{}: {error}", machine.directory.display())))?;
        match system {
            System::Stock => machine.start_stock_daemon()?,
            System::Nagaya => machine.start_ours("")?,
            System::Space => machine.start_ours("--space")?,
        }
        machine.wait_for_hosts()?;
        Ok(machine)
    }

    /// A host file, and what stands for ssh: it runs the command where the host is.
    fn write_files(&self) -> std::io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let place = self.directory.display();
        let mut hosts = format!("* ep=/usr/bin wd={place} dx={}\n", self.slave_daemon());
        for (nth, host) in self.hosts.iter().enumerate() {
            // Another name, or the second daemon would take the first one's files for its own.
            hosts += &if nth == 0 { format!("{host}\n") } else { format!("{host} id=b{nth}\n") };
        }
        fs::write(self.directory.join("hosts"), hosts)?;
        let enter = self.namespaces.as_ref().map(|of| of.enter(1)).unwrap_or_default().join(" ");
        let script = format!(
            "#!/bin/sh\n\
             while :; do case $1 in -l) shift 2;; -*) shift;; *) break;; esac; done\n\
             shift\n\
             exec {enter} sh -c \"$*\"\n"
        );
        let file = self.directory.join("rsh");
        fs::write(&file, script)?;
        fs::set_permissions(file, fs::Permissions::from_mode(0o755))
    }

    /// What the second host is told to start.
    fn slave_daemon(&self) -> &str {
        match self.system {
            System::Stock => STOCK_DAEMON,
            _ => "nagaya",
        }
    }

    fn start_stock_daemon(&mut self) -> Result<(), Failure> {
        if !Path::new(STOCK_DAEMON).exists() {
            return Err(Failure::new("stock PVM: not installed; apt-get install pvm pvm-dev"));
        }
        let file = |name: &str| fs::File::create(self.directory.join(name));
        let (said, complaint) = (file("pvmd.out"), file("pvmd.err"));
        let mut command = self.command(Path::new(STOCK_DAEMON));
        command.arg(format!("-n{}", self.hosts[0])).arg("hosts").stdin(Stdio::null());
        let daemon = said.and_then(|said| {
            command.stdout(said).stderr(complaint?);
            command.spawn()
        });
        self.daemon =
            Some(daemon.map_err(|error| Failure::new(format!("{STOCK_DAEMON}: {error}")))?);
        // It says where it listens. (A console that comes earlier would start a daemon itself.)
        let deadline = Instant::now() + START_MAX;
        while fs::read_to_string(self.directory.join("pvmd.out")).is_ok_and(|text| text.is_empty())
        {
            if Instant::now() > deadline {
                return Err(Failure::new("stock PVM: its daemon does not start"));
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// The console starts the daemon.
    fn start_ours(&self, option: &str) -> Result<(), Failure> {
        let line = format!("echo quit | {} {option} hosts", self.console);
        self.shell(&line, START_MAX).map(|_| ())
    }

    fn wait_for_hosts(&self) -> Result<(), Failure> {
        let wanted = match self.hosts.len() {
            1 => "1 host,".to_string(),
            more => format!("{more} hosts,"),
        };
        let deadline = Instant::now() + START_MAX;
        loop {
            let conf = self.shell(&format!("echo conf | {}", self.console), START_MAX)?;
            if conf.contains(&wanted) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let name = self.system.name();
                return Err(Failure::new(format!("{name}: waited for {wanted} but has: {conf}")));
            }
            thread::sleep(LOOK);
        }
    }

    fn shell(&self, line: &str, patience: Duration) -> Result<String, Failure> {
        let mut command = self.command(Path::new("sh"));
        output_of(command.args(["-c", line]), patience)
    }

    /// A command in this machine's environment, on its first host.
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

    /// A task on each host, in turns, as the measuring programs want it said.
    pub fn places(&self) -> String {
        if self.hosts.len() == 1 { "-".to_string() } else { self.hosts.join(",") }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let started = self.system != System::Stock || self.daemon.is_some();
        if started {
            let _ = self.shell(&format!("echo halt | {}", self.console), HALT_MAX);
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _ = wait_until(&mut daemon, Instant::now() + HALT_MAX);
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// With a library path: of ours.
fn environment(
    directory: &Path,
    name: &str,
    libraries: Option<&Path>,
) -> Vec<(&'static str, String)> {
    let place = directory.display();
    let mut environment = vec![
        ("PVM_RSH", format!("{place}/rsh")),
        ("PVM_VMID", format!("bench-{name}")),
        ("PVM_TMP", place.to_string()),
    ];
    match libraries {
        None => environment.extend([
            ("PVM_ROOT", "/usr/lib/pvm3".to_string()),
            ("PVM_ALLOW_ROOT", "1".to_string()),
        ]),
        Some(libraries) => {
            environment.push(("LD_LIBRARY_PATH", libraries.display().to_string()));
        }
    }
    environment
}
