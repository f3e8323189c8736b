//! Ranks that a launcher starts in separate containers. They share a space if the kernel allows
//! it, and otherwise one line reports the difference.

use std::path::Path;

use nagaya_tests::mpi::{MPICH_4, Mpi, OPEN_MPI_4};
use nagaya_tests::user::User;
use nagaya_tests::{
    Cmd, Output, TIME_LIMIT, WorkDir, messages, nagaya, nagaya_path, skip, wait_until,
};

/// A command in new namespaces, by `flags` of unshare(1).
fn unshare(flags: &[&str], command: Cmd) -> Cmd {
    Cmd::new("unshare").args(flags).command(command)
}

/// Returns true if such namespaces can be made here; otherwise reports the skip.
fn possible(command: Cmd) -> bool {
    let possible = command.run().status.success();
    if !possible {
        skip("such namespaces are not permitted here");
    }
    possible
}

/// Each rank prints what the shell's `$(…)` gives, once all have begun: "RANK WORD".
fn together(dir: &Path, ranks: usize, word: &str) -> Vec<String> {
    let script = format!(
        "rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}; : >{dir}/$rank\n\
         while [ $(ls {dir} | wc -l) -lt {ranks} ]; do sleep 0.05; done\n\
         echo $rank {word}",
        dir = dir.display()
    );
    vec!["/bin/sh".into(), "-c".into(), script]
}

/// Lines of nagaya's own on standard error, but for those of `-v`.
fn warnings(output: &Output) -> Vec<&str> {
    let lines = output.stderr.lines().filter(|line| line.starts_with("nagaya: "));
    lines
        .filter(|line| !line.contains(": task ") && !line.contains("nagaya: transport: "))
        .collect()
}

/// Runs three ranks in separate namespaces, and asserts that they have separate spaces and that
/// one line with `words` reports it.
#[track_caller]
fn are_apart(mpi: Mpi, under: impl Fn(Cmd) -> Cmd, nagaya: &Path, flags: &[&str], words: &[&str]) {
    let dir = WorkDir::short();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(dir.path(), open).expect("chmod");
    let exec = Cmd::new(nagaya).args(["exec", "-v"]).args(together(dir.path(), 3, "ran"));
    let output = under(mpi.launch(3).command(unshare(flags, exec))).run();
    assert!(output.status.success(), "{output}");
    assert_eq!(output.stdout.matches(" ran\n").count(), 3, "{output}");
    assert_eq!(output.stderr.matches("1 of 3 ranks of this node are in this space").count(), 3);
    let warnings = warnings(&output);
    assert_eq!(warnings.len(), 1, "one warning for the job: {output}");
    for word in words.iter().chain(&["its 3 ranks on this node", "see nagaya-exec(1)"]) {
        assert!(warnings[0].contains(word), "no `{word}`: {output}");
    }
}

const REMEDIES: &[&str] = &["start mpirun inside one container", "apptainer exec instance://"];

#[test]
fn ranks_in_mount_namespaces_of_their_own_make_single_copies() {
    if !possible(unshare(&["--mount"], Cmd::new("true"))) {
        return;
    }
    for mpi in [OPEN_MPI_4, MPICH_4] {
        let dir = WorkDir::new();
        let program = mpi.compile("mpi_messages.c");
        messages::of_ranks_are_single_copies(
            mpi,
            &program,
            &dir.join("done"),
            Path::to_owned,
            |command| command,
            |exec| unshare(&["--mount"], exec),
        );
    }
}

#[test]
fn a_rank_finds_files_in_its_own_mount_namespace() {
    if !possible(unshare(&["--mount"], Cmd::new("true"))) {
        return;
    }
    // The program is only there, and its working directory too.
    let dir = WorkDir::new();
    let script = format!(
        "set -e; mount -t tmpfs tmpfs /mnt; cp /bin/sh /mnt/mine; cd /mnt; echo $1 >name\n\
         exec {} exec -v ./mine -c '{}'",
        nagaya_path().display(),
        together(dir.path(), 3, "$(cat name) $(readlink /proc/self/ns/mnt)")[2]
    );
    let rank = Cmd::new("sh").args(["-c", &script, "sh", "private"]);
    let launch = OPEN_MPI_4.launch(3).command(unshare(&["--mount"], rank));
    let output = launch.run();
    assert!(output.status.success(), "{output}");
    let mut namespaces: Vec<&str> = Vec::new();
    for line in output.stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[1], "private", "{output}");
        namespaces.push(words[2]);
    }
    namespaces.push("the tests'");
    namespaces.sort_unstable();
    namespaces.dedup();
    assert_eq!(namespaces.len(), 4, "each has its own: {output}");
    // All in one space, without a warning.
    assert!(output.stderr.contains("3 of 3 ranks of this node are in this space"), "{output}");
    assert_eq!(warnings(&output), Vec::<&str>::new(), "{output}");
}

#[test]
fn ranks_with_roots_of_their_own_share_a_space() {
    if !possible(unshare(&["--mount"], Cmd::new("true"))) {
        return;
    }
    // As container runtimes do: another root directory in the namespace.
    let dir = WorkDir::new();
    let script = format!(
        "set -e; root={0}/root$1; mkdir -p $root; mount --rbind / $root; cd $root\n\
         exec chroot $root {1} exec -v \"$@\"",
        dir.path().display(),
        nagaya_path().display()
    );
    let begun = WorkDir::new();
    let rank = Cmd::new("sh").args(["-c", &script, "sh"]).args(together(begun.path(), 2, "ran"));
    let output = OPEN_MPI_4.launch(2).command(unshare(&["--mount"], rank)).run();
    assert!(output.status.success(), "{output}");
    assert!(output.stderr.contains("2 of 2 ranks of this node are in this space"), "{output}");
    assert_eq!(warnings(&output), Vec::<&str>::new(), "{output}");
}

#[test]
fn ranks_in_pid_namespaces_of_their_own_get_one_warning() {
    let flags = &["--fork", "--pid", "--mount-proc"];
    if !possible(unshare(flags, Cmd::new("true"))) {
        return;
    }
    let words = [REMEDIES, &["PID namespaces", "mount namespaces"]].concat();
    for mpi in [OPEN_MPI_4, MPICH_4] {
        are_apart(mpi, |command| command, &nagaya_path(), flags, &words);
    }
}

#[test]
fn an_ordinary_users_ranks_share_a_space_within_a_user_namespace() {
    let user = User::ordinary();
    let inside = |command: Cmd| {
        // Its sessions' usual directory is the real root's.
        let sessions = format!("OMPI_MCA_orte_tmpdir_base={}", user.path("").display());
        let command = Cmd::new("env").arg(sessions).command(command);
        user.command(unshare(&["--user", "--map-root-user"], command))
    };
    if !possible(inside(unshare(&["--mount"], Cmd::new("true")))) {
        return;
    }
    let program = OPEN_MPI_4.compile("mpi_messages.c");
    messages::of_ranks_are_single_copies(
        OPEN_MPI_4,
        &program,
        &user.path("done"),
        |path| user.bring(path),
        inside,
        |exec| unshare(&["--mount"], exec),
    );
}

#[test]
fn ranks_in_user_namespaces_of_their_own_get_one_warning() {
    let user = User::ordinary();
    let flags = &["--user", "--map-root-user", "--mount"];
    if !possible(user.command(unshare(flags, Cmd::new("true")))) {
        return;
    }
    let words = [REMEDIES, &["user namespaces"]].concat();
    are_apart(OPEN_MPI_4, |c| user.command(c), &user.bring(&nagaya_path()), flags, &words);
}

/// As in containers that have a /tmp each.
#[test]
fn ranks_that_do_not_find_one_another_get_one_warning() {
    let dir = WorkDir::short();
    let script = format!(
        "export XDG_RUNTIME_DIR={0}/$OMPI_COMM_WORLD_RANK; mkdir $XDG_RUNTIME_DIR\n\
         exec {1} exec sh -c 'while [ ! -e {0}/done ]; do sleep 0.1; done'",
        dir.path().display(),
        nagaya_path().display()
    );
    let mut job = OPEN_MPI_4.launch(2).args(["sh", "-c", &script]).spawn();
    let words = ["only 1 of its 2 ranks on this node are in this space", "instance://"];
    wait_until("a warning", TIME_LIMIT, || {
        assert!(job.is_running(), "{}", job.stderr());
        words.iter().all(|word| job.stderr().contains(word))
    });
    // The other, which is as late, would have said so meanwhile.
    std::thread::sleep(std::time::Duration::from_secs(2));
    std::fs::write(dir.join("done"), "").expect("write");
    let output = job.wait();
    assert!(output.status.success(), "{output}");
    assert_eq!(warnings(&output).len(), 1, "one warning for the job: {output}");
}

/// unshare(1) without --fork: the stub is in the old PID namespace, its node server in the new one.
#[test]
fn a_stub_whose_children_have_a_pid_namespace_runs_its_program() {
    let flags = &["--pid"];
    if !possible(unshare(flags, Cmd::new("sh").args(["-c", "true & wait"]))) {
        return;
    }
    unshare(flags, nagaya("exec").args(["echo", "ran"])).run().prints("ran\n");
}

/// A task has no more rights than its stub.
#[test]
fn ranks_with_other_rights_are_apart_and_keep_their_rights() {
    let drop_one =
        "[ $OMPI_COMM_WORLD_RANK = 0 ] || drop=--no-new-privs\nexec setpriv $drop \"$@\"";
    let dir = WorkDir::new();
    let rights = "$(grep NoNewPrivs /proc/self/status)";
    let exec = nagaya("exec").args(together(dir.path(), 2, rights));
    let rank = Cmd::new("sh").args(["-c", drop_one, "sh"]).command(exec);
    let output = OPEN_MPI_4.launch(2).command(rank).run();
    assert!(output.status.success(), "{output}");
    for line in ["0 NoNewPrivs: 0\n", "1 NoNewPrivs: 1\n"] {
        assert!(output.stdout.contains(line), "{output}");
    }
    let warnings = warnings(&output);
    assert_eq!(warnings.len(), 1, "{output}");
    for word in ["no_new_privs", "start all ranks with the same rights"] {
        assert!(warnings[0].contains(word), "{output}");
    }
}

/// The lines of `nagaya info` and `nagaya info --mpi` about running jobs, while a job of two ranks
/// runs that are started under `around`.
fn said_of_a_job(around: &dyn Fn(Cmd) -> Cmd, runtime: &WorkDir) -> [String; 2] {
    let over = runtime.path().join("over");
    // Ranks would outlive a launcher that is killed.
    let stay = format!("echo up; until [ -e {} ]; do sleep 0.05; done", over.display());
    let exec = around(nagaya("exec").args(["sh", "-c", &stay]));
    let mut job = OPEN_MPI_4.launch(2).command(exec).env("XDG_RUNTIME_DIR", runtime.path()).spawn();
    job.wait_for("`up` twice", |text| text.matches("up").count() == 2);
    let said = [("running=", &["--parsable"][..]), ("ranks=", &["--parsable", "--mpi"])];
    let said = said.map(|(key, options)| {
        let info = nagaya("info").args(options).env("XDG_RUNTIME_DIR", runtime.path()).run();
        let lines = info.stdout.lines().filter_map(|line| line.strip_prefix(key));
        let lines: Vec<&str> = lines.collect();
        assert!(lines.len() == 1, "one line for the job: {info}");
        lines[0].to_owned()
    });
    std::fs::write(over, "").expect("write");
    assert!(job.wait().status.success());
    said
}

#[test]
fn info_counts_the_ranks_of_running_jobs() {
    for said in said_of_a_job(&|exec| exec, &WorkDir::short()) {
        assert!(said.ends_with(": 2 of 2 ranks of this node are in one space"), "{said}");
    }
    let none = nagaya("info").arg("--parsable").env("XDG_RUNTIME_DIR", WorkDir::short().path());
    let none = none.run().ok();
    assert!(none.contains("\nrunning=none\n"), "{none}");
}

#[test]
fn info_names_the_differences_of_containers() {
    let all = ["mount namespaces", "PID namespaces", "IPC namespaces", "user namespaces"];
    let user: &[&str] = &["--user", "--map-root-user"];
    for (flags, differences) in [
        (&["--fork", "--pid", "--mount-proc"][..], &all[..2]),
        (&["--mount", "--ipc"], &[all[0], all[2]]),
        (user, &all[3..]),
        (&[&["--fork", "--pid", "--mount-proc", "--ipc"], user].concat(), &all),
    ] {
        if !possible(unshare(flags, Cmd::new("true"))) {
            continue;
        }
        for said in said_of_a_job(&|exec| unshare(flags, exec), &WorkDir::short()) {
            assert!(said.contains("its 2 ranks on this node have different "), "{said}");
            for name in all {
                assert_eq!(said.contains(name), differences.contains(&name), "{name}: {said}");
            }
            for remedy in REMEDIES {
                assert!(said.contains(remedy), "{said}");
            }
        }
    }
}

/// A container with a directory of sockets of its own, as one with its own /tmp.
#[test]
fn info_in_a_container_counts_the_ranks_that_it_sees() {
    let flags = &["--fork", "--pid", "--ipc", "--mount-proc"];
    if !possible(unshare(flags, Cmd::new("true"))) {
        return;
    }
    let dir = WorkDir::short();
    let script = format!(
        "export XDG_RUNTIME_DIR={0}/$OMPI_COMM_WORLD_RANK; mkdir $XDG_RUNTIME_DIR\n\
         {1} exec sh -c 'echo up; until [ -e {0}/over ]; do sleep 0.05; done' &\n\
         until [ -n \"$({1} ps --parsable)\" ]; do sleep 0.05; done\n\
         {1} info --parsable; touch {0}/said$OMPI_COMM_WORLD_RANK; wait",
        dir.path().display(),
        nagaya_path().display()
    );
    let rank = unshare(flags, Cmd::new("sh").args(["-c", &script]));
    let mut job = OPEN_MPI_4.launch(2).command(rank).spawn();
    wait_until("both have said it", TIME_LIMIT, || {
        assert!(job.is_running(), "{}", job.stderr());
        ["said0", "said1"].iter().all(|name| dir.join(name).exists())
    });
    std::fs::write(dir.join("over"), "").expect("write");
    let said = job.wait().ok();
    assert_eq!(said.matches("only 1 of its 2 ranks on this node are in this space").count(), 2);
    assert_eq!(said.matches("container=separate PID, IPC namespace: ").count(), 2, "{said}");
    let here = nagaya("info").arg("--parsable").run().ok();
    let namespaces = ["pid:[4026531836]", "user:[4026531837]", "ipc:[4026531839]"];
    let own = ["pid", "user", "ipc"].map(|name| {
        let link = std::fs::read_link(format!("/proc/self/ns/{name}")).expect("a namespace");
        link.display().to_string()
    });
    let wanted = if own == namespaces { "\ncontainer=none: " } else { "\ncontainer=separate " };
    assert!(here.contains(wanted), "{here}");
}
