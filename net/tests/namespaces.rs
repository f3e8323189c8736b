//! Two network namespaces that a pair of virtual Ethernet devices connects, as two hosts; and
//! users who are not root, and systems without UCX.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use net::hex;

mod node;
use node::{Node, TIME_LIMIT, again_over, play};

#[test]
fn role() {
    play();
}

#[test]
fn every_test_here_passes_over_ucx() {
    again_over("ucx-tcp", None);
}

/// Two network namespaces. Dropped, they are gone.
struct Hosts([Child; 2]);

impl Hosts {
    /// None, with the reason printed, where they cannot be made.
    fn new() -> Option<Self> {
        let holder = || {
            let mut command = Command::new("unshare");
            command.args(["-n", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"]);
            let mut child = command.stdout(Stdio::piped()).spawn().ok()?;
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut()?).read_line(&mut line).ok()?;
            if line != "up\n" {
                let _ = child.wait();
                skip::because("this user cannot make network namespaces");
                return None;
            }
            Some(child)
        };
        let hosts = Self([holder()?, holder()?]);
        let other = hosts.0[1].id().to_string();
        hosts.ip(
            0,
            &["link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", &other],
        );
        for (host, address) in ["10.251.0.1/24", "10.251.0.2/24"].into_iter().enumerate() {
            hosts.ip(host, &["addr", "add", address, "dev", "eth0"]);
            hosts.ip(host, &["link", "set", "eth0", "up"]);
        }
        // The kernel says so some time later, and UCX takes only devices that are up.
        for host in [0, 1] {
            let begin = Instant::now();
            while !hosts.ip(host, &["link", "show", "eth0"]).contains("state UP") {
                assert!(begin.elapsed() < TIME_LIMIT);
            }
        }
        Some(hosts)
    }

    fn on(&self, host: usize, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.0[host].id().to_string(), "-n", "--"]).arg(program);
        command
    }

    fn ip(&self, host: usize, arguments: &[&str]) -> String {
        let output = self.on(host, "ip").args(arguments).output().expect("ip: run scripts/deps");
        assert!(output.status.success(), "ip {}: {output:?}", arguments.join(" "));
        String::from_utf8(output.stdout).unwrap()
    }

    fn start(&self, host: usize, role: &str, environment: &[(&str, String)]) -> Node {
        let own = std::env::current_exe().unwrap();
        Node::from(self.on(host, own), role, host as u64 + 1, environment)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for holder in &mut self.0 {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

#[test]
fn peers_on_two_hosts_talk_without_settings() {
    let Some(hosts) = Hosts::new() else { return };
    let echo = hosts.start(1, "echo", &[]);
    let environment =
        [("FABRIC_TO", hex::encode(&echo.address)), ("FABRIC_COUNT", "3000".to_owned())];
    let mut here = hosts.start(0, "pingpong", &environment);
    println!("rounds: {}", here.word("rounds"));
    assert!(here.wait().success());
}

/// Unless it does not call for a while: another network may have the same addresses.
#[test]
fn a_node_listens_only_in_the_network_of_its_peer() {
    const PORT_AT: &str = "198.51.100.2:";
    let Some(hosts) = Hosts::new() else { return };
    for (host, address) in ["203.0.113.1/24", "198.51.100.2/24"].into_iter().enumerate() {
        hosts.ip(host, &["link", "add", "public0", "type", "veth", "peer", "name", "public1"]);
        hosts.ip(host, &["addr", "add", address, "dev", "public0"]);
        for device in ["public0", "public1"] {
            hosts.ip(host, &["link", "set", device, "up"]);
        }
    }
    hosts.ip(0, &["route", "add", "198.51.100.0/24", "via", "10.251.0.2"]);
    let listeners = || {
        let output = hosts.on(1, "ss").args(["-H", "-l", "-t", "-n"]).output().expect("iproute2");
        let text = String::from_utf8(output.stdout).expect("addresses");
        let local = text.lines().filter_map(|line| line.split_whitespace().nth(3));
        local.map(str::to_owned).collect::<Vec<_>>()
    };
    let tcp = ("NAGAYA_NET", "tcp".to_owned());
    let peer = hosts.start(0, "echo", std::slice::from_ref(&tcp));
    let mut node =
        hosts.start(1, "expect", &[("FABRIC_TO", hex::encode(&peer.address)), tcp.clone()]);
    node.word("expects");
    let found = listeners();
    assert!(matches!(&found[..], [one] if one.starts_with("10.251.0.2:")), "{found:?}");

    let begin = Instant::now();
    let public = loop {
        if let Some(public) = listeners().into_iter().find(|it| it.starts_with(PORT_AT)) {
            break public;
        }
        assert!(begin.elapsed() < TIME_LIMIT);
        std::thread::sleep(Duration::from_millis(100));
    };
    // At the port that its address names.
    let port: u16 = public[PORT_AT.len()..].parse().expect("a port");
    let named: Vec<u8> = [&[198, 51, 100, 2][..], &port.to_be_bytes()].concat();
    assert!(node.address.windows(named.len()).any(|bytes| bytes == named), "{public}");
    let environment =
        [("FABRIC_TO", hex::encode(&node.address)), ("FABRIC_COUNT", "10".into()), tcp];
    hosts.ip(1, &["addr", "del", "10.251.0.2/24", "dev", "eth0"]);
    hosts.ip(1, &["addr", "add", "10.251.0.3/24", "dev", "eth0"]);
    hosts.ip(1, &["route", "add", "203.0.113.0/24", "via", "10.251.0.1"]);
    hosts.ip(0, &["route", "replace", "198.51.100.0/24", "via", "10.251.0.3"]);
    let mut caller = hosts.start(0, "pingpong", &environment);
    caller.word("rounds");
}

/// What a host that vanishes may take.
const VANISHED_MAX: Duration = Duration::from_secs(30);

#[test]
fn a_host_that_vanishes_is_noticed_where_nothing_is_under_way() {
    let Some(hosts) = Hosts::new() else { return };
    let mut echo = hosts.start(1, "echo", &[]);
    let environment =
        [("FABRIC_TO", hex::encode(&echo.address)), ("FABRIC_COUNT", "10".to_owned())];
    // It stays after its rounds.
    let mut here = hosts.start(0, "stay", &environment);
    here.word("rounds");
    let begin = Instant::now();
    hosts.ip(0, &["link", "set", "eth0", "down"]);
    here.word("lost");
    echo.word("lost");
    println!("noticed after {:?}", begin.elapsed());
    assert!(begin.elapsed() < VANISHED_MAX);
}

#[test]
fn a_host_that_vanishes_is_noticed_where_messages_are_under_way() {
    let Some(hosts) = Hosts::new() else { return };
    let mut echo = hosts.start(1, "echo", &[]);
    let environment =
        [("FABRIC_TO", hex::encode(&echo.address)), ("FABRIC_COUNT", u64::MAX.to_string())];
    let mut here = hosts.start(0, "pingpong", &environment);
    std::thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    hosts.ip(0, &["link", "set", "eth0", "down"]);
    echo.word("lost");
    assert!(!here.wait().success(), "it stops when it loses its peer");
    println!("noticed after {:?}", begin.elapsed());
    assert!(begin.elapsed() < VANISHED_MAX);
}

#[test]
fn ordinary_users_need_nothing_else() {
    // SAFETY: a plain call.
    if unsafe { libc::geteuid() } != 0 {
        return skip::because("all other tests ran as an ordinary user");
    }
    // The build directory may be closed to others.
    let directory = std::env::temp_dir().join(format!("fabric-user-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("node");
    // By another process: what we had open to write, children of other threads would have, too.
    let own = std::env::current_exe().unwrap();
    assert!(std::process::Command::new("cp").args([&own, &program]).status().unwrap().success());
    let nobody = || {
        let mut command = Command::new(&program);
        command.uid(65534).gid(65534).current_dir("/");
        command
    };
    let echo = Node::from(nobody(), "echo", 1, &[]);
    let environment =
        [("FABRIC_TO", hex::encode(&echo.address)), ("FABRIC_COUNT", "1000".to_owned())];
    let mut here = Node::from(nobody(), "pingpong", 2, &environment);
    let begin = Instant::now();
    here.word("rounds");
    assert!(here.wait().success() && begin.elapsed() < TIME_LIMIT);
    std::fs::remove_dir_all(&directory).unwrap();
}

/// What a node says that makes no fabric.
fn refusal(mut command: Command) -> String {
    command.args(["--exact", "role", "--nocapture"]);
    let output = command.env("FABRIC_ROLE", "echo").env("FABRIC_ID", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find_map(|line| line.strip_prefix("node: error "));
    line.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

#[test]
fn without_ucx_one_line_says_what_to_install() {
    let own = std::env::current_exe().unwrap();
    let mut hidden = Command::new("unshare");
    let script = "for library in /usr/lib/*/libucp.so.0; do \
                  mount --bind /dev/null \"$(readlink -f \"$library\")\" || exit 9; done; exec \"$@\"";
    hidden.args(["-m", "sh", "-c", script, "sh"]);
    let status = Command::new(hidden.get_program()).args(hidden.get_args()).arg("true").status();
    if !status.is_ok_and(|status| status.success()) {
        return skip::because("this user cannot hide a library");
    }
    hidden.arg(own).env("NAGAYA_NET", "ucx");
    let line = refusal(hidden);
    assert!(line.contains("libucp.so.0") && line.contains("libucx0"), "{line}");
}

#[test]
fn without_a_network_one_line_says_where_to_look() {
    for (carriers, advice) in [("tcp", "ip address"), ("ucx-tcp", "ucx_info")] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("UCX_NET_DEVICES", "nosuch0").env("NAGAYA_NET", carriers);
        let line = refusal(command);
        assert!(line.contains("UCX_NET_DEVICES") && line.contains(advice), "{line}");
    }
}

/// UCX's TCP executes memory writes of anybody who reaches its port.
#[test]
fn ucx_uses_tcp_only_if_that_is_requested_by_name() {
    if Path::new("/sys/class/infiniband").exists() {
        return skip::because("this host has RDMA devices");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("NAGAYA_NET", "ucx");
    let line = refusal(command);
    assert!(line.contains("ucx_info") && line.contains("NAGAYA_NET"), "{line}");
}

#[test]
fn an_unknown_carrier_gets_one_line() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("NAGAYA_NET", "tcp,pigeons");
    let line = refusal(command);
    assert!(line.contains("\"pigeons\"") && line.contains("ucx-tcp"), "{line}");
}
