//! Stock PVM: a daemon of its own directory and name on loopback, and the C program that runs
//! scripts against the stock library.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

const DAEMON: &str = "/usr/bin/pvmd";
const CONSOLE: &str = "/usr/bin/pvm";
/// Longest wait for the daemon to end.
const HALT_MAX: Duration = Duration::from_secs(10);

/// A virtual machine of one host. It ends with this value.
pub struct Stock {
    directory: PathBuf,
    daemon: Child,
}

impl Stock {
    /// Starts one; or says why stock PVM cannot run here.
    pub fn start(name: &str) -> Option<Stock> {
        if !Path::new(DAEMON).exists() || !Path::new("/usr/include/pvm3.h").exists() {
            skip::machine_lacks("stock PVM (packages pvm and pvm-dev)");
            return None;
        }
        // Short, for it is part of the name of a socket.
        let directory = env::temp_dir().join(format!("nagaya-{name}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory of our own");
        let oracle = Command::new("cc")
            .args(["-O1", "-Wall", "-Werror", "-o"])
            .arg(directory.join("oracle"))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/oracle.c"))
            .arg("-lpvm3")
            .status()
            .expect("a C compiler");
        assert!(oracle.success());
        let hosts = format!("* ep=/usr/bin wd={}\n127.0.0.1\n", directory.display());
        fs::write(directory.join("hosts"), hosts).expect("our directory");
        let mut command = environment(Command::new(DAEMON), &directory);
        command.args(["-n127.0.0.1", "hosts"]).stdin(Stdio::null());
        let mut daemon = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("stock PVM's daemon");
        let mut line = String::new();
        let stdout = daemon.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let stock = Stock { directory, daemon };
        // It says where it listens, or nothing.
        if !line.contains('/') && line.trim().is_empty() {
            skip::because("stock PVM's daemon does not start here");
            return None;
        }
        Some(stock)
    }

    /// Runs a script; the results, a line each.
    pub fn run(&self, script: &str) -> Vec<String> {
        let mut oracle = environment(Command::new(self.directory.join("oracle")), &self.directory)
            // What malloc returns is 0, so that padding can be compared.
            .env("MALLOC_PERTURB_", "255")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the oracle");
        let mut stdin = oracle.stdin.take().expect("piped");
        let script = script.to_owned();
        // It reads while it writes.
        let writer = thread::spawn(move || stdin.write_all(script.as_bytes()));
        let output = oracle.wait_with_output().expect("the oracle");
        writer.join().expect("no panic").expect("it reads all");
        assert!(output.status.success(), "the oracle: {}", output.status);
        let text = String::from_utf8(output.stdout).expect("plain text");
        text.lines().map(str::to_owned).collect()
    }
}

fn environment(mut command: Command, directory: &Path) -> Command {
    command
        .env("PVM_ROOT", "/usr/lib/pvm3")
        .env("PVM_RSH", "/bin/false")
        .env("PVM_ALLOW_ROOT", "1")
        .env("PVM_TMP", directory)
        .env("PVM_VMID", "conformance")
        .env_remove("PVM_EXPORT")
        .current_dir(directory);
    command
}

impl Drop for Stock {
    fn drop(&mut self) {
        let console = environment(Command::new(CONSOLE), &self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if let Ok(mut console) = console {
            if let Some(mut stdin) = console.stdin.take() {
                let _ = stdin.write_all(b"halt\n");
            }
            let until = Instant::now() + HALT_MAX;
            while Instant::now() < until && matches!(self.daemon.try_wait(), Ok(None)) {
                thread::sleep(Duration::from_millis(10));
            }
            let _ = console.kill();
            let _ = console.wait();
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}
