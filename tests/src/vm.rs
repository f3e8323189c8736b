//! A virtual machine beside a [node](crate::nodes): QEMU without hardware support, so that it runs
//! everywhere. Its root is the machine's, read-only. Its network is the nodes'. A file of the node
//! is also its memory, as the DAX device `/dev/dax0.0`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::nodes::Nodes;
use crate::{Cmd, Running, scratch_dir, tool};

/// Its name for launchers.
pub const NAME: &str = "vm";
const ADDRESS: &str = "10.250.0.9";

/// It goes when this is dropped.
pub struct VirtualMachine {
    agent: PathBuf,
    _qemu: Running,
}

/// The first process.
const INIT: &str = r#"#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mkdir -p /proc /sys /dev /root
mount -t proc proc /proc
for module in /modules/*; do insmod $module; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 root /root
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
mount -t tmpfs run /root/run
mkdir /root/dev/shm
mount -t tmpfs shm /root/dev/shm
ip link set lo up
ip addr add ADDRESS/24 dev eth0
ip link set eth0 up
hostname NAME
exec chroot /root /bin/sh -c '
	ndctl create-namespace -f -e namespace0.0 -m devdax -a 4k -M mem
	XDG_RUNTIME_DIR=/run exec python3 SERVER'
"#;

/// Runs the first line from each client as a command.
const SERVER: &str = r#"
import socketserver, subprocess
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        line = b''
        while not line.endswith(b'\n'):
            line += self.request.recv(1)
        fd = self.request.fileno()
        subprocess.run(['/bin/sh', '-c', line.decode()], stdin=fd, stdout=fd, stderr=fd)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
server = Server(('0.0.0.0', 22), Handler)
print('it serves', flush=True)
server.serve_forever()
"#;

/// Stands for ssh: `agent [OPTIONS] NODE COMMAND...`; other nodes have their own.
const AGENT: &str = r#"#!/bin/sh
for word; do case $word in -*) ;; *) break ;; esac; done
[ "$word" = NAME ] || exec 'NODES' "$@"
while [ "$1" != "$word" ]; do shift; done
shift
exec python3 -c '
import os, socket, sys, threading
there = socket.create_connection(("ADDRESS", 22))
there.sendall(sys.argv[1].encode() + b"\n")
def send():
    while data := os.read(0, 65536):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=send, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
os._exit(0)' "$*"
"#;

impl VirtualMachine {
    /// Starts a virtual machine that the nodes, three or more, can reach, with this file as
    /// memory. Error: the missing requirement of the machine.
    pub fn new(nodes: &Nodes, memory: &Path) -> Result<Self, String> {
        let vm = scratch_dir().ancestors().nth(2).expect("the target directory").join("vm");
        let kernel = vm.join("vmlinuz");
        for (what, is_there) in [
            ("a kernel (scripts/deps fetches Debian's)", kernel.exists()),
            ("QEMU", Path::new("/usr/bin/qemu-system-x86_64").exists()),
            ("/dev/net/tun", Path::new("/dev/net/tun").exists()),
        ] {
            if !is_there {
                return Err(format!("{what} for a virtual machine"));
            }
        }
        let dir = nodes.dir();
        let write = |name: &str, text: &str, mode| {
            let path = dir.join(name);
            let text = text.replace("ADDRESS", ADDRESS).replace("NAME", NAME);
            let text = text.replace("SERVER", &dir.join("server.py").display().to_string());
            let text = text.replace("NODES", &nodes.agent().display().to_string());
            std::fs::write(&path, text).expect("a file");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("its mode");
            path
        };
        write("server.py", SERVER, 0o644);
        std::fs::create_dir(dir.join("ramdisk")).expect("a directory");
        write("ramdisk/init", INIT, 0o755);
        let agent = write("agent-vm", AGENT, 0o755);
        let pack =
            "cd \"$1/ramdisk\" && mkdir bin && cp /bin/busybox bin && cp -r \"$2\" modules &&
             find . | busybox cpio -o -H newc >../initrd";
        let modules = vm.join("modules");
        let packed = Command::new("sh").args(["-c", pack, "sh"]).arg(dir).arg(modules).status();
        assert!(packed.expect("a shell").success());
        let tap = "ip tuntap add dev tap mode tap && ip link set tap master eth0 up";
        nodes.on(0, Cmd::new(tool("sh")).args(["-c", tap])).run().ok();
        let size = File::open(memory).and_then(|file| file.metadata()).expect("memory").len();
        let memory = format!(
            "memory-backend-file,id=pool,share=on,mem-path={},size={size}",
            memory.display()
        );
        // With one processor QEMU would not make atomic operations atomic for others.
        let qemu = Cmd::new("/usr/bin/qemu-system-x86_64")
            .args(["-machine", "pc,nvdimm=on", "-cpu", "max", "-accel", "tcg,thread=multi"])
            .args(["-smp", "2", "-m", "1G,slots=2,maxmem=64G", "-object", &memory])
            .args(["-device", "nvdimm,id=nvdimm,memdev=pool", "-nographic", "-no-reboot"])
            .args(["-append", "console=ttyS0 quiet panic=-1"])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(dir.join("initrd"))
            .args([
                "-fsdev",
                "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
            ])
            .args(["-device", "virtio-9p-pci,fsdev=root,mount_tag=root"])
            .args(["-netdev", "tap,id=net,ifname=tap,script=no,downscript=no"])
            .args(["-device", "virtio-net-pci,netdev=net"])
            .time_limit(Duration::from_secs(600));
        let mut qemu = nodes.on(0, qemu).spawn();
        qemu.wait_for_word("it serves");
        Ok(Self { agent, _qemu: qemu })
    }

    /// The program that stands for ssh, for nodes and this.
    pub fn agent(&self) -> &Path {
        &self.agent
    }
}
