//! The first steps of a user: the search for programs and libraries, and the console's messages if
//! they are not found. Nothing sets `LD_LIBRARY_PATH`. (`tests/docs` runs the tutorial's commands.)

use std::path::Path;
use std::time::Duration;

use nagaya_tests::{Cmd, WorkDir, job, nagaya_path, program};

/// Time limit of a command; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);
/// The output of a program that Debian's PVM has installed.
const SPMD: &str = "/usr/bin/spmd";

/// A user's directory, and the virtual machine that a console starts.
struct User {
    work: WorkDir,
    vmid: String,
}

impl User {
    fn new() -> User {
        User { work: WorkDir::short(), vmid: job() }
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Cmd {
        let command = Cmd::new(program).dir(self.work.path()).time_limit(LIMIT);
        let command = command.env("HOME", self.work.path()).env("PVM_VMID", &self.vmid);
        let others = ["PVM_PATH", "PVM_ROOT", "PVM_EXPORT", "PVMSOCK", "LD_LIBRARY_PATH"];
        others.iter().fold(command, |command, name| command.env_remove(name))
    }

    fn pvm(&self, arguments: &[&str]) -> Cmd {
        self.command(nagaya_path()).arg("pvm").args(arguments)
    }

    /// The directories that stock PVM searches for programs.
    fn path(&self) -> String {
        format!("{}/pvm3/bin/LINUX64, /usr/lib/pvm3/bin/LINUX64", self.work.path().display())
    }
}

impl Drop for User {
    fn drop(&mut self) {
        self.pvm(&["-c", "halt"]).run();
    }
}

#[test]
fn tasks_that_the_console_spawns_know_their_siblings() {
    nagaya_tests::tool("spmd");
    let user = User::new();
    let printed = user.pvm(&["-c", &format!("spawn -3 -> {SPMD}")]).run().ok();
    assert!(printed.contains("Pass a token through the   3 tid ring"), "{printed}");
    assert!(printed.contains("token ring done"), "{printed}");
}

#[test]
fn pvm_spawn_looks_for_relative_names_in_the_spawners_directory_first() {
    let user = User::new();
    let relative = program::c_pvm("pvm/relative.c", &[]);
    let here = user.work.join("here");
    std::fs::create_dir(&here).expect("our directory");
    nagaya_tests::copy_program(Path::new("/bin/true"), &here.join("there"));
    user.pvm(&["-c", "conf"]).run().ok();
    for (name, wanted) in [
        ("./there", "1: positive\n"),
        ("../here/there", "1: positive\n"),
        ("there", "0: PvmNoFile\n"),
        ("./missing", "0: PvmNoFile\n"),
    ] {
        let command = user.pvm(&["exec"]).arg(&relative).arg(name).dir(&here);
        command.run().prints(wanted);
    }
    let log = user.work.join(".local/state/nagaya");
    let logs = Cmd::new("sh").arg("-c").arg(format!("cat {}/*", log.display())).run().stdout;
    let searched = format!("no executable file ./missing in {}, {}", here.display(), user.path());
    assert!(logs.contains(&searched), "{logs}");
}

#[test]
fn no_such_file_names_the_directories_that_were_searched() {
    let user = User::new();
    let here = user.work.path().display().to_string();
    for (name, why) in [
        ("missing", format!("no executable file missing in {}", user.path())),
        ("./missing", format!("no executable file ./missing in {here}, {}", user.path())),
        ("/bin/missing", "/bin/missing is not an executable file".into()),
    ] {
        let output = user.pvm(&["-c", &format!("spawn -2 {name}")]).run().ends_with(1);
        assert_eq!(output.stdout, "0 successful\nNo such file\nNo such file\n");
        assert_eq!(output.stderr.lines().count(), 1, "{output}");
        let line = output.stderr.trim_end();
        assert!(line.starts_with("pvm: spawn: ") && line.ends_with(&why), "{line}");
    }
}

/// The directories of a search path that the command prints.
fn search_path(printed: &str) -> Vec<String> {
    let line = printed.lines().find_map(|line| line.split("LD_LIBRARY_PATH=").nth(1));
    line.expect("it is set").split(':').map(str::to_owned).collect()
}

#[test]
fn spawned_tasks_find_our_library_before_another_pvms() {
    let user = User::new();
    let commands = ["setenv LD_LIBRARY_PATH /somewhere", "export LD_LIBRARY_PATH"];
    let script = format!("{}\nspawn -> /usr/bin/env\n", commands.join("\n"));
    let path = search_path(&user.pvm(&[]).stdin(script).run().ok());
    assert!(Path::new(&path[0]).join("libpvm3.so.3").exists(), "{path:?}");
    assert!(Path::new(&path[0]).join("libgpvm3.so.3").exists(), "{path:?}");
    assert_eq!(path[1..], ["/somewhere"]);
}

#[test]
fn nagaya_pvm_exec_gives_a_program_our_library() {
    let user = User::new();
    let environment = user.pvm(&["exec", "env"]).env("LD_LIBRARY_PATH", "/somewhere");
    let path = search_path(&environment.run().ok());
    assert!(Path::new(&path[0]).join("libpvm3.so.3").exists(), "{path:?}");
    assert_eq!(path[1..], ["/somewhere"]);
    user.pvm(&["exec", "sh", "-c", "exit 7"]).run().ends_with(7);
    user.pvm(&["exec", "nosuch"]).run().refused(127, &["nosuch", "No such file"]);
    user.pvm(&["exec"]).run().refused(125, &["PROGRAM"]);
    // One that is linked with Debian's enrolls with our daemon.
    nagaya_tests::tool("spmd");
    user.pvm(&["-c", "conf"]).run().ok();
    let printed = user.pvm(&["exec", SPMD]).run().stdout;
    assert!(printed.contains("token ring done"), "{printed}");
}

#[test]
fn a_program_that_finds_no_daemon_is_told_how_to_start_one() {
    nagaya_tests::tool("spmd");
    let user = User::new();
    let output = user.pvm(&["exec", SPMD]).run();
    let advice = "start one with `nagaya pvm`";
    assert!(output.stderr.contains(advice), "{output}");
    assert!(output.stderr.contains("Can't contact local daemon"), "{output}");
}
