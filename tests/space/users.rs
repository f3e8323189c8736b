//! Nagaya needs no privileges, and users who run jobs at the same time do not interfere, whatever
//! the names of their jobs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use nagaya_tests::mpi::{MPICH_4, OPEN_MPI_4};
use nagaya_tests::program::c_pvas;
use nagaya_tests::user::User;
use nagaya_tests::{Cmd, Running, Task, messages, nagaya, ps, skip};

const NEEDS_ROOT: &str = "only root can run programs as other users";

fn ps_of(user: &User) -> Vec<Task> {
    ps(|_| user.command(user.nagaya("ps").arg("--parsable")))
}

/// A task of the job `same`, and its line: "task ID of N, owner PID".
fn stays(user: &User) -> (Running, String) {
    let exec = user.nagaya("exec").args(["--job", "same"]);
    let mut running =
        user.command(exec.arg(user.bring(&c_pvas("print_task.c"))).arg("stay")).spawn();
    let line = running.wait_for_lines(1).remove(0);
    (running, line)
}

#[test]
fn an_ordinary_user_runs_tasks_and_sees_them() {
    let user = User::ordinary();
    let id = user.uid().to_string();
    let output = user.command(user.nagaya("run").args(["-n", "3", "id", "-u"])).run();
    output.prints(&format!("{id}\n{id}\n{id}\n"));

    let (task, line) = stays(&user);
    assert!(line.starts_with("task 0 of 1"), "{line}");
    let tasks = ps_of(&user);
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert_eq!(tasks[0].state, "S", "{tasks:?}");
    let maps = user.command(user.nagaya("maps").arg("same.0")).run().ok();
    assert!(maps.contains("print_task"), "{maps}");
    let info = user.command(user.nagaya("info").arg("--parsable")).run().ok();
    assert!(info.contains("\nspaces=yes\n"), "{info}");
    task.signal(rustix::process::Signal::TERM);
    task.wait().ends_with(128 + 15);
    assert_eq!(ps_of(&user), []);
}

/// Full userfaultfd is a privilege where the sysctl is 0 and /dev/userfaultfd is closed.
#[test]
fn info_says_what_this_user_may_use_and_what_to_ask_for() {
    let user = User::ordinary();
    let info = |command: Cmd| command.arg("--parsable").run().ok();
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key}=")));
        line.unwrap_or_else(|| panic!("no {key} in {text}")).to_owned()
    };
    let text = info(user.command(user.nagaya("info")));
    assert_eq!(value(&text, "spaces"), "yes");
    assert_eq!(value(&text, "domains"), "yes");
    let sysctl = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").expect("a number");
    let device = user.command(Cmd::new("test").args(["-w", "/dev/userfaultfd"])).run();
    let may = sysctl.trim() != "0" || device.status.success();
    for (key, without) in [("jia", "only with NAGAYA_DSM_CALLS=0"), ("span", "no: ")] {
        let value = value(&text, key);
        if may {
            assert_eq!(value, "yes");
            continue;
        }
        assert!(value.starts_with(without), "{key}={value}");
        for remedy in ["vm.unprivileged_userfaultfd=1", "/dev/userfaultfd", "CAP_SYS_PTRACE"] {
            assert!(value.contains(remedy), "{key}={value}");
        }
    }
    if rustix::process::geteuid().is_root() {
        let text = info(nagaya("info"));
        assert_eq!((value(&text, "jia"), value(&text, "span")), ("yes".into(), "yes".into()));
    }
}

#[test]
fn an_ordinary_users_open_mpi_makes_single_copies() {
    let user = User::ordinary();
    let bring = |path: &Path| user.bring(path);
    messages::are_single_copies(OPEN_MPI_4, &user.path("done"), bring, |c| user.command(c));
}

#[test]
fn an_ordinary_users_mpich_makes_single_copies() {
    let user = User::ordinary();
    let bring = |path: &Path| user.bring(path);
    messages::are_single_copies(MPICH_4, &user.path("done"), bring, |c| user.command(c));
}

#[test]
fn jobs_of_one_name_and_two_users_are_two_jobs() {
    let (Some(one), Some(two)) = (User::another(), User::another()) else {
        return skip(NEEDS_ROOT);
    };
    let (_task_of_one, line_of_one) = stays(&one);
    let (_task_of_two, line_of_two) = stays(&two);
    assert!(line_of_one.starts_with("task 0 of 1"), "{line_of_one}");
    assert!(line_of_two.starts_with("task 0 of 1"), "{line_of_two}");
    let (tasks_of_one, tasks_of_two) = (ps_of(&one), ps_of(&two));
    assert_eq!((tasks_of_one.len(), tasks_of_two.len()), (1, 1));
    assert_ne!(tasks_of_one[0].pid, tasks_of_two[0].pid);

    // Nor does one reach the other's task by PID.
    let pid = tasks_of_one[0].pid.to_string();
    for subcommand in ["maps", "gdb"] {
        two.command(two.nagaya(subcommand).arg(&pid)).run().refused(125, &[&pid]);
    }
}

#[test]
fn another_users_sockets_are_out_of_reach() {
    let (Some(one), Some(two)) = (User::another(), User::another()) else {
        return skip(NEEDS_ROOT);
    };
    let (_task, _) = stays(&one);
    let directory = one.runtime_dir();
    // The last `env` wins.
    let intrude = |subcommand: Cmd| {
        let runtime = format!("XDG_RUNTIME_DIR={}", directory.display());
        two.command(Cmd::new("env").arg(runtime).command(subcommand))
    };
    let attempts = || {
        [
            two.nagaya("ps"),
            two.nagaya("maps").arg("same"),
            two.nagaya("run").args(["--job", "same", "true"]),
            two.nagaya("exec").args(["--job", "same", "true"]),
        ]
    };
    for attempt in attempts() {
        intrude(attempt).run().refused(125, &["nagaya", "Permission denied"]);
    }

    // Also if the first user has opened the directory for all: no user accepts another's
    // directory, and the server refuses other users.
    for path in [directory.clone(), directory.join("nagaya")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    let socket = fs::read_dir(directory.join("nagaya")).expect("the sockets").flatten();
    let socket = socket.map(|entry| entry.path()).find(|path| path.extension().unwrap() == "sock");
    let socket = socket.expect("the server's socket");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).expect("chmod");
    for attempt in attempts() {
        intrude(attempt).run().refused(125, &["another user"]);
    }
    let script = "use Socket; alarm 20; socket(my $s, PF_UNIX, SOCK_STREAM, 0); \
        connect($s, pack_sockaddr_un($ARGV[0])) or die 'no connection'; \
        print sysread($s, my $byte, 1) ? 'an answer' : 'closed';";
    let perl = Cmd::new("perl").args(["-e", script]).arg(&socket);
    two.command(perl.clone()).run().prints("closed");
    fs::set_permissions(directory.join("nagaya"), fs::Permissions::from_mode(0o700))
        .expect("chmod");
    assert_eq!(ps_of(&one).len(), 1);
}

#[test]
fn a_directory_that_somebody_else_has_made_is_not_used() {
    let (Some(one), Some(two)) = (User::another(), User::another()) else {
        return skip(NEEDS_ROOT);
    };
    // Without XDG_RUNTIME_DIR, sockets lie in /tmp/nagaya-UID, which anybody can make.
    let trap = format!("/tmp/nagaya-{}", one.uid());
    two.command(Cmd::new("mkdir").args(["-m", "777", &trap])).run().ok();
    let without = |command: Cmd| {
        one.command(Cmd::new("env").args(["-u", "XDG_RUNTIME_DIR"]).command(command)).run()
    };
    let (run, exec) =
        (without(one.nagaya("run").arg("true")), without(one.nagaya("exec").arg("true")));
    fs::remove_dir(&trap).expect("rmdir");
    run.refused(125, &[&trap, "another user", "XDG_RUNTIME_DIR"]);
    exec.refused(125, &[&trap, "another user", "XDG_RUNTIME_DIR"]);
    let works = without(one.nagaya("run").args(["echo", "ran"]));
    fs::remove_dir(&trap).expect("it is ours now");
    works.prints("ran\n");
}

#[test]
fn the_limit_of_processes_is_named() {
    let Some(user) = User::another() else { return skip(NEEDS_ROOT) };
    let limited = |command: Cmd| {
        user.command(Cmd::new("prlimit").args(["--nproc=20", "--"]).command(command))
    };
    limited(user.nagaya("run").args(["-n", "4", "echo", "ran"]))
        .run()
        .prints("ran\nran\nran\nran\n");
    let too_many = limited(user.nagaya("run").args(["-n", "30", "sleep", "600"])).run();
    too_many.refused(125, &["clone", "ulimit -u"]);
}
