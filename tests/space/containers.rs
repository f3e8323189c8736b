//! Properties of containers and hardened systems: namespaces made by an ordinary user, PID
//! namespaces, `/proc` that hides others or is missing, Yama, closed or full `/tmp`.
//!
//! Each is made in private namespaces, so nothing changes for the rest of the machine.

use std::path::Path;

use nagaya_tests::mpi::{self, MPICH_4, Mpi, OPEN_MPI_4};
use nagaya_tests::user::User;
use nagaya_tests::{
    Cmd, WorkDir, bin_dir, exec, job, messages, nagaya, ps, skip, task, wait_until,
};

/// A command in new namespaces (`flags` of unshare(1)), after a shell script has prepared
/// them. The script's errors end it.
fn inside(flags: &[&str], script: &str, command: Cmd) -> Cmd {
    let script = format!("set -e\n{script}\nexec \"$@\"");
    Cmd::new("unshare").args(flags).args(["--fork", "sh", "-c", &script, "sh"]).command(command)
}

/// Returns true if such namespaces can be made here; otherwise reports the skip.
fn possible(flags: &[&str], script: &str) -> bool {
    let possible = inside(flags, script, Cmd::new("true")).run().status.success();
    if !possible {
        skip(&format!("unshare {} and what follows are not permitted here", flags.join(" ")));
    }
    possible
}

/// An ordinary user's own namespaces, in which it is root, with a separate network, `/proc` and
/// `/tmp`, as rootless container runtimes make them.
const ROOTLESS: &[&str] = &["--user", "--map-root-user", "--mount", "--pid", "--net"];
const ROOTLESS_SCRIPT: &str = "mount -t proc proc /proc\nmount -t tmpfs tmpfs /run\n\
     export XDG_RUNTIME_DIR=/run OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n\
     export OMPI_MCA_orte_tmpdir_base=/run HYDRA_IFACE=lo\n\
     ip link set lo up 2>/dev/null || ifconfig lo up 2>/dev/null || true";

#[test]
fn a_rootless_container_runs_tasks() {
    let user = User::ordinary();
    let rootless = |command| user.command(inside(ROOTLESS, ROOTLESS_SCRIPT, command));
    if !rootless(Cmd::new("true")).run().status.success() {
        return skip("ordinary users cannot make user namespaces here");
    }
    rootless(user.nagaya("run").args(["-n", "2", "id", "-u"])).run().prints("0\n0\n");
    rootless(user.nagaya("exec").args(["id", "-u"])).run().prints("0\n");
    let info = rootless(user.nagaya("info").arg("--parsable")).run().ok();
    assert!(info.contains("\nspaces=yes\n"), "{info}");
}

/// One container: the launcher, and `nagaya ps` beside it.
fn rootless_messages_are_single_copies(mpi: Mpi) {
    let user = User::ordinary();
    let container = user.command(inside(ROOTLESS, ROOTLESS_SCRIPT, Cmd::new("sleep").arg("600")));
    let container = container.spawn();
    // unshare, which waits for the container's first process.
    let child = || {
        let path = format!("/proc/{0}/task/{0}/children", container.pid());
        let children = std::fs::read_to_string(path).unwrap_or_default();
        children.split_whitespace().next().map(str::to_owned)
    };
    let is_up = |pid: &String| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "sleep\n")
    };
    wait_until("the container is up", nagaya_tests::TIME_LIMIT, || {
        child().is_some_and(|p| is_up(&p))
    });
    let target = child().expect("the container's first process");
    let enter = |command: Cmd| {
        let prefix = Cmd::new("nsenter").args(["--target", &target, "--user", "--mount"]);
        let prefix = prefix.args(["--pid", "--net", "--preserve-credentials", "env"]);
        let variables = [
            "XDG_RUNTIME_DIR=/run",
            "OMPI_ALLOW_RUN_AS_ROOT=1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
            "OMPI_MCA_orte_tmpdir_base=/run",
            "HYDRA_IFACE=lo",
        ];
        user.command(prefix.args(variables).command(command))
    };
    let bring = |path: &Path| user.bring(path);
    messages::are_single_copies(mpi, &user.path("done"), bring, enter);
}

#[test]
fn open_mpi_makes_single_copies_in_a_rootless_container() {
    rootless_messages_are_single_copies(OPEN_MPI_4);
}

#[test]
fn mpich_makes_single_copies_in_a_rootless_container() {
    rootless_messages_are_single_copies(MPICH_4);
}

#[test]
fn jobs_of_another_pid_namespace_are_seen_and_left_alone() {
    let flags = &["--mount", "--pid"];
    let mount = "mount -t proc proc /proc";
    if !possible(flags, mount) {
        return;
    }
    let job = job();
    let mut outside = exec(&job, "sh").args(["-c", "echo up; sleep 600; :"]).spawn();
    outside.wait_for_word("up");
    let seen = ps(|command| inside(flags, mount, command.args(["--job", &job])));
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].state, "?", "its PID means nothing here: {seen:?}");
    let maps = inside(flags, mount, nagaya("maps").arg(&job)).run().ok();
    assert!(maps.contains("stack"), "{maps}");
    inside(flags, mount, nagaya("maps").arg(seen[0].pid.to_string()))
        .run()
        .refused(125, &["no such task"]);
    inside(flags, mount, nagaya("gdb").arg(&job)).run().refused(125, &["PID namespace"]);
    // Tasks inside and outside cannot be in one job: it is another job, whatever its name.
    inside(flags, mount, exec(&job, "echo").arg("apart")).run().prints("apart\n");
    assert_eq!(ps(|command| command.args(["--job", &job])).len(), 1);
}

/// Yama, which not every kernel has, as MPIs see it: by its file.
fn yama(value: u32, command: Cmd) -> Cmd {
    let script = format!(
        "mount -t tmpfs tmpfs /proc/sys/kernel\nmkdir /proc/sys/kernel/yama\n\
         echo {value} >/proc/sys/kernel/yama/ptrace_scope"
    );
    inside(&["--mount"], &script, command)
}

#[test]
fn every_mpi_makes_single_copies_whatever_yama_says() {
    if !possible(&["--mount"], "mount -t tmpfs tmpfs /proc/sys/kernel") {
        return;
    }
    for value in 1..=3 {
        let info = yama(value, nagaya("info").arg("--parsable")).run().ok();
        assert!(info.contains(&format!("\nyama={value}\n")), "{info}");
    }
    // 3 forbids what 1 and 2 forbid.
    for mpi in mpi::ALL {
        println!("{}", mpi.name);
        let dir = WorkDir::new();
        let bring = |path: &Path| path.to_owned();
        messages::are_single_copies(mpi, &dir.join("done"), bring, |c| yama(3, c));
    }
}

#[test]
fn yamas_setting_is_hidden_only_from_jobs_that_lie_in_the_space_whole() {
    if !possible(&["--mount"], "mount -t tmpfs tmpfs /proc/sys/kernel") {
        return;
    }
    let reads = |command: Cmd| command.args(["cat", "/proc/sys/kernel/yama/ptrace_scope"]);
    yama(2, reads(nagaya("run").args(["-n", "3"]))).run().prints("0\n0\n0\n");
    for mpi in [OPEN_MPI_4, MPICH_4] {
        let whole = mpi.launch(2).command(reads(nagaya("exec")));
        yama(2, whole).run().prints("0\n0\n");
        // One rank is no task, and the kernel would refuse to copy to or from it.
        let mixed = reads(mpi.launch(1).command(nagaya("exec")));
        let mixed = reads(mixed.args([":", "-n", "1"]));
        yama(2, mixed).run().prints("2\n2\n");
    }
}

#[test]
fn a_proc_that_hides_other_users_is_enough() {
    let flags = &["--mount", "--pid"];
    let hidepid = "mount -t proc -o hidepid=2 proc /proc\nsleep 600 &";
    if !possible(flags, hidepid) {
        return;
    }
    for mpi in [OPEN_MPI_4, MPICH_4] {
        let user = User::ordinary();
        let hidden = |command: Cmd| inside(flags, hidepid, user.command(command));
        // The second process is root's sleep.
        hidden(Cmd::new("ls").args(["-d", "/proc/2"])).run().ends_with(2);
        hidden(user.nagaya("run").args(["echo", "ran"])).run().prints("ran\n");
        let bring = |path: &Path| user.bring(path);
        messages::are_single_copies(mpi, &user.path("done"), bring, hidden);
    }
}

#[test]
fn without_proc_a_task_runs_or_one_line_says_that_it_is_missing() {
    let flags = &["--mount"];
    let no_proc = "mount -t tmpfs tmpfs /proc";
    if !possible(flags, no_proc) {
        return;
    }
    inside(flags, no_proc, task("echo").arg("ran")).run().prints("ran\n");
    inside(flags, no_proc, exec(&job(), "echo")).run().refused(125, &["/proc"]);
    inside(flags, no_proc, nagaya("ps").arg("--parsable")).run().ok();
    let info = inside(flags, no_proc, nagaya("info").arg("--parsable")).run().ok();
    assert!(info.contains("\nspaces=yes\n"), "{info}");
}

/// `nagaya SUBCOMMAND` where /tmp is another file system, which may hide the build directory.
fn elsewhere(subcommand: &str) -> Cmd {
    Cmd::new("/mnt/nagaya").arg(subcommand)
}

/// Makes `nagaya` visible as [`elsewhere`] expects, and forgets what leads to directories.
fn prepared() -> String {
    format!("mount --bind {} /mnt\nunset XDG_RUNTIME_DIR HOME\n", bin_dir().display())
}

#[test]
fn where_no_socket_can_be_made_one_line_says_so() {
    let flags = &["--mount"];
    let closed = prepared() + "mount -t tmpfs -o ro tmpfs /tmp";
    if !possible(flags, &closed) {
        return;
    }
    for refused in [elsewhere("run").arg("true"), elsewhere("exec").arg("true"), elsewhere("ps")] {
        let output = inside(flags, &closed, refused).run();
        output.refused(125, &["/tmp/nagaya-", "Read-only", "XDG_RUNTIME_DIR"]);
    }
    // If there is another directory, /tmp is not needed.
    let open = format!("{closed}\nmount -t tmpfs tmpfs /run\nexport XDG_RUNTIME_DIR=/run");
    for subcommand in ["run", "exec"] {
        inside(flags, &open, elsewhere(subcommand).args(["echo", "ran"])).run().prints("ran\n");
    }
}

#[test]
fn full_and_noexec_file_systems_for_temporary_files_do_not_matter() {
    let flags = &["--mount"];
    let small = prepared()
        + "mount -t tmpfs -o noexec,nodev,size=4k tmpfs /tmp\n\
           mount -t tmpfs -o noexec,size=4k tmpfs /dev/shm";
    if !possible(flags, &small) {
        return;
    }
    for subcommand in ["run", "exec"] {
        inside(flags, &small, elsewhere(subcommand).args(["echo", "ran"])).run().prints("ran\n");
    }
    // A program that lies there cannot be run, as the kernel would say.
    let copy = format!("{small}\nmount -t tmpfs -o noexec tmpfs /srv\ncp /bin/echo /srv");
    inside(flags, &copy, elsewhere("run").arg("/srv/echo")).run().refused(126, &["/srv/echo"]);
}
