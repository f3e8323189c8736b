//! `nagaya span -H` through OpenSSH: a daemon of the test's own, on this machine.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use nagaya_tests::span::{LIMIT, program};
use nagaya_tests::{Cmd, Running, WorkDir, nagaya, skip, tool, wait_until};

const SSHD: &str = "/usr/sbin/sshd";

/// A daemon, and how one logs in.
struct Ssh {
    _daemon: Running,
    command: String,
}

impl Ssh {
    /// Returns `None` if there is no daemon, or it refuses logins.
    fn new(work: &WorkDir) -> Option<Self> {
        if !Path::new(SSHD).exists() {
            skip("there is no sshd");
            return None;
        }
        let file = |name: &str| work.join(name).to_str().expect("text").to_owned();
        for key in ["host", "user"] {
            let keygen = Cmd::new(tool("ssh-keygen")).args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            keygen.arg(file(key)).run().ok();
        }
        if rustix::process::geteuid().is_root() {
            // If the system starts its own daemon, it has created this.
            std::fs::create_dir_all("/run/sshd").expect("a directory for sshd");
        }
        let port = {
            let free = TcpListener::bind("127.0.0.1:0").expect("a port");
            free.local_addr().expect("bound").port()
        };
        let (host, user) = (file("host"), file("user"));
        let config = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {host}\nAuthorizedKeysFile {user}.pub\n\
             PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        );
        let config = work.write("config", config);
        let daemon = Cmd::new(SSHD).args(["-D", "-e", "-f"]).arg(config).time_limit(LIMIT).spawn();
        wait_until("sshd listens", Duration::from_secs(60), || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        let command = format!(
            "ssh -F none -x -a -T -p {port} -i {user} -o BatchMode=yes -o HostName=127.0.0.1 \
             -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
        );
        let login = Cmd::new(tool("sh")).args(["-c", &format!("{command} there true")]).run();
        if login.code() != 0 {
            skip(&format!("nobody can log in by ssh: {}", login.stderr));
            return None;
        }
        Some(Self { _daemon: daemon, command })
    }

    fn span(&self, hosts: &str, program: impl AsRef<Path>) -> Cmd {
        let span = nagaya("span").args(["--place", "spread", "-H", hosts]).arg(program.as_ref());
        span.env("NAGAYA_RSH", &self.command).time_limit(LIMIT)
    }
}

#[test]
fn threads_run_on_hosts_that_ssh_reaches() {
    let work = WorkDir::new();
    let Some(ssh) = Ssh::new(&work) else { return };
    let moves = program("moves", &[]);
    ssh.span("localhost,there", &moves).arg("20").run().prints("there and back\n");
    ssh.span("localhost,there,elsewhere", &moves).arg("20").run().prints("there and back\n");
    // It is a program of this machine: its input, output and status are those of the origin.
    let cat = ssh.span("localhost,there", tool("cat")).stdin("in and out\n");
    cat.run().prints("in and out\n");
    let ends = ssh.span("localhost,there", tool("sh")).args(["-c", "exit 7"]).run();
    assert_eq!(ends.code(), 7, "{ends}");
}

#[test]
fn a_failed_login_is_explained() {
    let work = WorkDir::new();
    let Some(ssh) = Ssh::new(&work) else { return };
    let stranger = format!("{} -o IdentitiesOnly=yes -i /nowhere", ssh.command);
    let stranger = stranger.replace(work.join("user").to_str().expect("text"), "/nowhere/key");
    let span = nagaya("span").args(["-H", "localhost,there", "true"]).env("NAGAYA_RSH", stranger);
    span.time_limit(LIMIT).run().refused(125, &["there", "Permission denied"]);
}
