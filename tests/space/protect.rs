//! Protected jobs (`--protect`): each task has its own page tables, in which the memory of the
//! others cannot be written, or not even be read. The cases are in `programs/protect.c`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nagaya_tests::mpi::{self, MPICH_4, Mpi, OPEN_MPI_4};
use nagaya_tests::pvm::Machine;
use nagaya_tests::user::User;
use nagaya_tests::{
    Cmd, WorkDir, bin_dir, exec, job, messages, nagaya, program, ps, tasks_of, tool, wait_until,
};
use rustix::process::Signal;

const SOON: Duration = nagaya_tests::TIME_LIMIT;
const KINDS: [&str; 2] = ["writes", "all"];

fn program() -> PathBuf {
    program::c_with_libraries("protect.c", &["pvas", "pvas_delegate"])
}

/// A case of `programs/protect.c`, as tasks of a job with this protection; "" is a job without.
fn case_of(program: &Path, kind: &str, tasks: u32, case: &str) -> Cmd {
    let mut run = nagaya("run").args(["-n", &tasks.to_string()]).env("PROTECTION", kind);
    if !kind.is_empty() {
        run = run.arg(format!("--protect={kind}"));
    }
    run.arg(program).arg(case)
}

fn case(kind: &str, tasks: u32, case: &str) -> Cmd {
    case_of(&program(), kind, tasks, case)
}

/// Runs a case in protected jobs of both kinds.
#[track_caller]
fn holds_protected(name: &str) {
    for kind in KINDS {
        let output = case(kind, 3, name).run();
        assert!(output.status.success(), "{kind}, {name}: {output}");
    }
}

/// Runs a case also in a job without protection.
#[track_caller]
fn holds(name: &str) {
    case("", 3, name).run().ok();
    holds_protected(name);
}

#[test]
fn a_stray_store_kills_its_task_and_harms_no_other() {
    let output = case("", 2, "stray").run();
    assert_eq!(output.stdout, "stored\ndamaged\n", "{output}");
    output.ok();
    for kind in KINDS {
        let output = case(kind, 2, "stray").run();
        assert_eq!(output.stdout, "unharmed\n", "{kind}: {output}");
        output.one_line(&["task 1", "killed by signal 11"]);
    }
}

#[test]
fn the_bare_option_protects_from_writes() {
    let run = nagaya("run").args(["--protect", "-n", "2"]).arg(program());
    let output = run.clone().arg("stray").run();
    assert_eq!((output.code(), &*output.stdout), (128 + 11, "unharmed\n"), "{output}");
    run.arg("peek").run().prints("read 1000\n");
}

#[test]
fn a_load_from_another_task_is_a_fault_only_if_all_accesses_are_protected() {
    case("writes", 2, "peek").run().prints("read 1000\n");
    let output = case("all", 2, "peek").run();
    assert_eq!((output.code(), &*output.stdout), (128 + 11, ""), "{output}");
    output.one_line(&["task 1", "killed by signal 11"]);
}

#[test]
fn loads_and_stores_of_each_kind_of_memory() {
    holds("accesses");
}

#[test]
fn no_call_of_a_task_gives_it_the_rights() {
    holds_protected("rights");
}

#[test]
fn exported_memory_and_the_export_area_are_shared() {
    holds("exports");
}

#[test]
fn process_vm_copies_work_in_both_directions() {
    holds("copies");
}

#[test]
fn programs_at_fixed_addresses_are_protected_alike() {
    let flags = program::library_flags(&["pvas", "pvas_delegate"]);
    let flags: Vec<&str> =
        ["-pthread", "-no-pie"].into_iter().chain(flags.iter().map(String::as_str)).collect();
    let program = program::c_with("protect.c", &flags);
    for kind in KINDS {
        for name in ["rights", "copies", "exports"] {
            let output = case_of(&program, kind, 3, name).run();
            assert!(output.status.success(), "{kind}, {name}: {output}");
        }
    }
}

/// Calls of pvas.h, and memory that is not the space's.
#[test]
fn what_holds_for_domains_holds_for_protected_tasks() {
    let program = program::c_with_libraries("domains.c", &["pvas"]);
    for name in ["apart", "files", "demand"] {
        let run = nagaya("run").args(["-n", "3", "--protect"]).arg(&program).arg(name);
        let output = run.run();
        assert!(output.status.success(), "{name}: {output}");
    }
}

#[test]
fn an_ordinary_user_has_protected_jobs() {
    let user = User::ordinary();
    for kind in KINDS {
        for name in ["accesses", "copies", "exports"] {
            let run = user.nagaya("run").args(["-n", "3", &format!("--protect={kind}")]);
            let run = run.env("PROTECTION", kind).arg(user.bring(&program())).arg(name);
            let output = user.command(run).run();
            assert!(output.status.success(), "{kind}, {name}: {output}");
        }
    }
}

/// Returns the number of copies in user space that two tasks count for 100 copies each.
fn copies_counted(kind: &str, direction: &str) -> u64 {
    let job = job();
    let mut run = nagaya("run").args(["-n", "2", "--job", &job, &format!("--protect={kind}")]);
    run = run.arg(program()).args(["counted", direction]);
    let mut running = run.spawn();
    running.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
    let copies = tasks_of(&job).iter().map(|task| task.copies).sum();
    running.signal(Signal::TERM);
    running.wait();
    copies
}

#[test]
fn reads_are_copies_in_user_space_and_writes_are_the_kernels() {
    assert_eq!(copies_counted("writes", "read"), 200);
    assert_eq!(copies_counted("writes", "write"), 0);
    assert_eq!(copies_counted("all", "read"), 0);
}

#[test]
fn threads_forks_and_other_programs_work() {
    for kind in KINDS {
        case(kind, 3, "family").run().prints("another program\n");
    }
}

/// A long run of starts in one job: an ID and its page tables are used again.
#[test]
fn an_id_is_used_again() {
    let job = job();
    let protected = |name: &str| exec(&job, name).env("NAGAYA_PROTECT", "writes");
    let first = protected("sleep").arg("100").spawn();
    wait_until("the first task runs", SOON, || tasks_of(&job).len() == 1);
    for _ in 0..5 {
        let output = protected("sh").args(["-c", "exit 7"]).run();
        assert_eq!(output.code(), 7, "{output}");
        let verbose = nagaya("exec").args(["-v", "--job", &job, "--protect", "true"]).run();
        assert!(verbose.stderr.contains("task 1,"), "{verbose}");
        wait_until("the task's memory is free", SOON, || tasks_of(&job).len() == 1);
    }
    first.signal(Signal::TERM);
    first.wait();
}

#[test]
fn rights_end_with_the_task_that_gave_them() {
    for kind in KINDS {
        let (job, dir) = (job(), WorkDir::new());
        let (first, second) = (dir.join("first"), dir.join("second"));
        let start = |id: &str, case: &str, until: &Path| {
            let exec = nagaya("exec").args(["--job", &job, "--id", id]);
            let exec = exec.arg(format!("--protect={kind}")).arg(program()).arg(case).arg(until);
            exec.env("PROTECTION", kind).spawn()
        };
        let passing = start("1", "passing", &first);
        let mut survivor = start("0", "survivor", &second);
        survivor.wait_for_word("opened");
        std::fs::write(&first, "").expect("write");
        passing.wait().prints("unharmed\n");
        let passing = start("1", "passing", &second.with_extension("end"));
        wait_until("the next task runs", SOON, || tasks_of(&job).len() == 2);
        std::fs::write(&second, "").expect("write");
        survivor.wait().prints("opened\nclosed\n");
        std::fs::write(second.with_extension("end"), "").expect("write");
        passing.wait().prints("unharmed\n");
    }
}

#[test]
fn a_task_that_joins_must_agree() {
    let job = job();
    let first = exec(&job, "sleep").arg("100").env("NAGAYA_PROTECT", "writes").spawn();
    wait_until("the first task runs", SOON, || tasks_of(&job).len() == 1);
    let fixed = program::c_with("print_user.c", &["-no-pie", "-fno-pie"]);
    for program in [Path::new("/bin/true"), &fixed] {
        let words = ["--protect=writes", "no --protect", "same --protect"];
        exec(&job, program).run().refused(125, &words);
        let words = ["--protect=writes", "--protect=all"];
        exec(&job, program).env("NAGAYA_PROTECT", "all").run().refused(125, &words);
        let fallback = exec(&job, program).env("NAGAYA_FALLBACK", "1");
        fallback.run().refused(125, &["no --protect"]);
    }
    nagaya("exec").args(["--job", &job, "--protect", "true"]).run().ok();
    first.signal(Signal::TERM);
    first.wait();
    // Nor does a protected task join others.
    let run = nagaya("run").args(["--job", &job, "sleep", "100"]).spawn();
    wait_until("the task runs", SOON, || tasks_of(&job).len() == 1);
    let join = nagaya("exec").args(["--job", &job, "--protect", "true"]);
    join.run().refused(125, &["no --protect", "--protect=writes"]);
    run.signal(Signal::TERM);
    run.wait();
}

#[test]
fn options_that_share_memory_are_refused() {
    let run = |options: &[&str]| nagaya("run").args(options).args(["--protect", "true"]).run();
    run(&["--delegatee", "0:1"]).refused(125, &["--delegatee", "--protect"]);
    run(&["--nodes", "2", "-n", "2"]).refused(125, &["--nodes", "--protect"]);
    run(&["--domains", "all:1,@nowhere:1"]).refused(125, &["--protect", "other machines"]);
    let exec = nagaya("exec").args(["--delegatee", "0:1", "--protect", "true"]);
    exec.run().refused(125, &["--delegatee", "--protect"]);
    let wrong = nagaya("run").arg("true").env("NAGAYA_PROTECT", "some").run();
    wrong.refused(125, &["NAGAYA_PROTECT=some", "writes or all"]);
    nagaya("run").arg("true").env("NAGAYA_PROTECT", "0").run().ok();
    let wrong = nagaya("run").args(["--protect=some", "true"]).run();
    assert_eq!(wrong.code(), 125, "{wrong}");
    assert!(wrong.stderr.contains("writes or all"), "{wrong}");
}

#[test]
fn a_system_that_refuses_the_kernels_copies_is_named() {
    let filter = program::c("run_under_seccomp.c");
    let words = ["process_vm_readv and process_vm_writev", "seccomp", "ptrace_scope"];
    for rule in ["process_vm_readv=EPERM", "process_vm_writev=EPERM", "process_vm_writev=kill"] {
        let denied = |command: Cmd| Cmd::new(&filter).args([rule, "--"]).command(command).run();
        denied(nagaya("run").args(["--protect", "true"])).refused(125, &words);
        denied(nagaya("exec").args(["--protect=all", "true"])).refused(125, &words);
        denied(nagaya("run").arg("true")).ok();
        let info = denied(nagaya("info").arg("--parsable")).ok();
        let line = info.lines().find(|line| line.starts_with("protect=")).expect("a line");
        assert!(line.contains("no: ") && line.contains("process_vm_writev"), "{line}");
    }
}

#[test]
fn maps_and_info_name_the_protection() {
    for kind in KINDS {
        let job = job();
        let option = format!("--protect={kind}");
        let run = ["--job", &job, "--domains", "0:2,1:1", &option, "sleep", "100"];
        let running = nagaya("run").args(run).spawn();
        wait_until("all tasks run", SOON, || tasks_of(&job).len() == 3);
        let maps = nagaya("maps").arg(&job).run().ok();
        assert!(maps.contains(&format!(", protected: {kind}\n")), "{maps}");
        for words in ["1 tasks of IDs 1 to 1, processors 0, ", "of IDs 2 to 2, processors 1, "] {
            assert!(maps.contains(words), "{words}: {maps}");
        }
        running.signal(Signal::TERM);
        running.wait();
        let info = nagaya("run").arg(&option).arg(nagaya_tests::nagaya_path()).arg("info").run();
        let info = info.ok();
        assert!(info.contains(&format!("tasks, protected: {kind}\n")), "{info}");
        assert!(info.contains(&option), "{info}");
    }
    let info = nagaya("info").arg("--parsable").run().ok();
    assert!(info.lines().any(|line| line == "protect=yes"), "{info}");
    let maps = {
        let job = job();
        let running = nagaya("run").args(["--job", &job, "sleep", "100"]).spawn();
        wait_until("the task runs", SOON, || tasks_of(&job).len() == 1);
        let maps = nagaya("maps").arg(&job).run().ok();
        running.signal(Signal::TERM);
        running.wait();
        maps
    };
    assert!(!maps.contains("protected"), "{maps}");
}

/// The command's environment names the protection, as the launchers pass it on.
fn protected(command: Cmd, kind: &str) -> Cmd {
    command.env("NAGAYA_PROTECT", kind)
}

#[test]
fn large_messages_of_all_mpis_are_still_single_copies_in_user_space() {
    for mpi in mpi::ALL {
        println!("{}", mpi.name);
        let dir = WorkDir::new();
        messages::are_single_copies(mpi, &dir.join("done"), Path::to_path_buf, |command| {
            protected(command, "writes")
        });
    }
}

#[test]
fn messages_of_all_mpis_arrive_if_all_accesses_are_protected() {
    for mpi in mpi::ALL {
        println!("{}", mpi.name);
        let dir = WorkDir::new();
        let done = dir.join("done");
        let exec = nagaya("exec").arg(mpi.compile("mpi_messages.c")).arg(&done);
        let mut job = protected(mpi.launch(2).command(exec), "all").spawn();
        job.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
        let ours = |task: &nagaya_tests::Task| task.command.contains(done.to_str().expect("UTF-8"));
        let tasks: Vec<_> = ps(|command| command).into_iter().filter(ours).collect();
        std::fs::write(&done, "").expect("write");
        assert_eq!(job.wait().ok().matches("messages arrived").count(), 1);
        assert_eq!(tasks.len(), 2, "{tasks:?}");
        // Copies within a task, which is all that some libraries try, stay in user space.
        let bytes: u64 = tasks.iter().map(|task| task.copied_bytes).sum();
        assert!(bytes < 1 << 20, "{}: {tasks:?}", mpi.name);
    }
}

#[test]
fn windows_of_all_mpis_work() {
    for mpi in mpi::ALL {
        for kind in KINDS {
            println!("{}, {kind}", mpi.name);
            let ranks = if mpi.yields { 4 } else { 2 };
            let launch = mpi.launch_tasks(ranks, mpi.compile("mpi_onesided.c"));
            protected(launch, kind).run().prints("windows work\n");
        }
    }
}

/// The children join their parents' space under MPICH 5, and have one of their own under Open MPI.
#[test]
fn children_of_spawn_agree_by_the_variable() {
    for mpi in [OPEN_MPI_4, mpi::MPICH_5] {
        for kind in KINDS {
            println!("{}, {kind}", mpi.name);
            let program = mpi.compile("mpi_spawn.c");
            let children = nagaya("exec").arg(&program);
            let launch = mpi.launch_tasks(2, &program).command(children);
            protected(launch, kind).run().prints("children answered\n");
        }
    }
}

/// More ranks than a space without protection has regions. Open MPI 5 maps files at one address
/// in all ranks, and ends if that fails.
#[test]
fn each_rank_maps_files_at_fixed_addresses() {
    let launch = mpi::OPEN_MPI_5.launch_tasks(36, mpi::OPEN_MPI_5.compile("mpi_sum.c"));
    protected(launch, "writes").run().prints("the sum of 36 ranks is 630\n");
}

#[test]
fn collective_operations_are_left_to_the_mpi() {
    let library = bin_dir().join("libnagaya_coll.so");
    let of = |mpi: Mpi, kind: &str| {
        let launch = mpi.launch_tasks(3, mpi.compile("mpi_collectives.c"));
        let launch = launch.env("LD_PRELOAD", &library).env("NAGAYA_COLL_LOG", "1");
        protected(launch, kind).run()
    };
    for mpi in [OPEN_MPI_4, MPICH_4] {
        for kind in KINDS {
            let output = of(mpi, kind);
            assert!(!output.stderr.contains("in place"), "{output}");
            output.prints("collectives agree\n");
        }
    }
}

#[test]
fn delegation_is_refused() {
    holds_protected("delegates");
}

#[test]
fn xpmem_has_no_module() {
    let program = program::c_with_libraries("xpmem.c", &["pvas", "xpmem"]);
    for kind in KINDS {
        case_of(&program, kind, 1, "outside").run().ok();
    }
}

#[test]
fn libfabric_finds_no_provider() {
    for kind in KINDS {
        let run = nagaya("run").arg(format!("--protect={kind}")).arg(tool("fi_info"));
        let run = run.args(["-p", "nagaya"]).env("FI_PROVIDER_PATH", bin_dir());
        let output = run.env("FI_LOG_LEVEL", "info").run();
        assert_ne!(output.code(), 0, "{output}");
        let lines = output.stderr.lines().filter(|line| line.contains("without --protect"));
        assert_eq!(lines.count(), 1, "{output}");
    }
}

#[test]
fn messages_of_fcp_arrive() {
    let program = program::c_with_libraries("protect_fcp.c", &["fcp"]);
    for kind in KINDS {
        let dir = WorkDir::new();
        let run = case_of(&program, kind, 2, dir.join("window").to_str().expect("UTF-8"));
        run.run().prints("messages of FCP arrived\n");
    }
}

#[test]
fn messages_of_pvm_arrive() {
    let program = program::c_pvm("pvm/protected.c", &[]);
    for kind in KINDS {
        let machine = Machine::ours(&[]);
        let run = machine.task(nagaya_tests::nagaya_path());
        let run = run.args(["run", "-n", "2", &format!("--protect={kind}")]).arg(&program);
        run.run().prints("messages of PVM arrived\n");
    }
}

#[test]
fn shared_memory_between_nodes_works() {
    let program = program::c_with_libraries("../../examples/dsm/sor.c", &["jia", "m"]);
    for kind in KINDS {
        let run = nagaya("run").args(["-n", "2", &format!("--protect={kind}")]).arg(&program);
        let run = run.args(["--rows", "60", "--columns", "1500", "--iterations", "4", "--verify"]);
        let text = run.run().ok();
        assert!(text.ends_with("sor: the same on one task\n"), "{text}");
    }
}
