//! Stock MPI under its own launcher, its ranks tasks of one space by `nagaya exec`: messages
//! arrive, large ones are copied in user space, and a rank's end is seen by the launcher.

use std::path::PathBuf;
use std::time::Duration;

use nagaya_tests::program::{build, made_once, source_dir};
use nagaya_tests::python::{interpreter, packages};
use nagaya_tests::{Cmd, WorkDir, is_alive, nagaya, ps, tool, wait_until};

/// An MPI of the distribution's.
#[derive(Clone, Copy)]
struct Mpi {
    /// What the names of its tools end with.
    suffix: &'static str,
    netpipe: &'static str,
    /// What its launcher ends with when a rank is killed by SIGSEGV, and when it exits with
    /// status 5, if that is always the same.
    segv: Option<i32>,
    exit: Option<i32>,
}

const OPEN_MPI: Mpi =
    Mpi { suffix: "openmpi", netpipe: "NPopenmpi", segv: Some(128 + 11), exit: Some(5) };
// It kills the other ranks and may end with theirs.
const MPICH: Mpi = Mpi { suffix: "mpich", netpipe: "NPmpich2", segv: None, exit: None };

impl Mpi {
    /// A program of `programs/`, compiled with this MPI.
    fn compile(self, source: &str) -> PathBuf {
        let compiler = format!("mpicc.{}", self.suffix);
        tool(&compiler);
        build(&compiler, source, &["-Wno-stringop-overflow"])
    }

    /// Its launcher, for this many ranks on this machine, however few its processors are.
    fn launch(self, ranks: usize) -> Cmd {
        let launcher = Cmd::new(tool(&format!("mpirun.{}", self.suffix)));
        let launcher = if self.suffix == "openmpi" {
            launcher.args(["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"])
        } else {
            launcher
        };
        launcher.args(["-n", &ranks.to_string()])
    }

    /// `nagaya exec PROGRAM` under its launcher.
    fn launch_tasks(self, ranks: usize, program: impl AsRef<std::ffi::OsStr>) -> Cmd {
        self.launch(ranks).command(nagaya("exec").arg(program))
    }

    fn messages_arrive(self) {
        let program = self.compile("mpi_messages.c");
        self.launch(2).arg(&program).run().prints("messages arrived\n");
        self.launch_tasks(2, &program).run().prints("messages arrived\n");
        self.launch_tasks(4, &program).run().prints("messages arrived\n");
    }

    fn collectives_agree(self) {
        let program = self.compile("mpi_collectives.c");
        self.launch_tasks(4, &program).run().prints("collectives agree\n");
        self.launch_tasks(3, &program).run().prints("collectives agree\n");
    }

    /// The counters of `nagaya ps` show the copies, and the kernel sees none of them.
    fn copies_are_in_user_space(self) {
        let program = self.compile("mpi_messages.c");
        let dir = WorkDir::new();
        let (trace, done) = (dir.join("trace"), dir.join("done"));
        let mut job = Cmd::new(tool("strace"))
            .args(["-f", "-qq", "-e", "trace=process_vm_readv,process_vm_writev", "-o"])
            .arg(&trace)
            .command(self.launch_tasks(2, &program).arg(&done))
            .spawn();
        job.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
        let ours = |text: &str| text.contains(program.to_str().expect("UTF-8"));
        let tasks: Vec<_> = ps(|command| command);
        let tasks: Vec<_> = tasks.into_iter().filter(|task| ours(&task.command)).collect();
        std::fs::write(&done, "").expect("write");
        assert_eq!(job.wait().ok().matches("messages arrived").count(), 1);

        assert_eq!(tasks.len(), 2, "{tasks:?}");
        let copies: u64 = tasks.iter().map(|task| task.copies).sum();
        let bytes: u64 = tasks.iter().map(|task| task.copied_bytes).sum();
        assert!(copies > 40, "{tasks:?}");
        // 20 fresh buffers of 4 MiB each way, at the least.
        assert!(bytes > 2 * 20 * (4 << 20), "{tasks:?}");
        // Probes of one's own process are nothing; messages would be.
        let trace = std::fs::read_to_string(&trace).expect("strace's log");
        let result =
            |line: &str| line.rsplit("= ").next().and_then(|n| n.trim().parse::<u64>().ok());
        let by_kernel: u64 = trace.lines().filter_map(result).sum();
        assert!(by_kernel < 65536, "{by_kernel} bytes were copied by the kernel");
    }

    fn netpipe_runs(self) {
        let netpipe = tool(self.netpipe);
        let dir = WorkDir::new();
        // -i checks every message instead of timing it.
        let checked = self
            .launch_tasks(2, &netpipe)
            .args(["-i", "-u", "1048576", "-n", "5", "-o"])
            .arg(dir.join("checked"))
            .run();
        let text = format!("{}{}", checked.stdout, checked.stderr);
        assert!(checked.status.success(), "{checked}");
        assert!(text.matches("Integrity check passed").count() > 20, "{checked}");
        assert!(!text.to_lowercase().contains("fail"), "{checked}");
        let results = dir.join("timed");
        self.launch_tasks(2, &netpipe)
            .args(["-u", "4194304", "-n", "10", "-p", "0", "-o"])
            .arg(&results)
            .run()
            .ok();
        let results = std::fs::read_to_string(results).expect("NetPIPE's results");
        assert!(results.lines().count() > 30, "{results}");
    }

    fn mpi4py_runs(self) {
        let mut command = self
            .launch_tasks(2, interpreter())
            .arg(source_dir().join("mpi_work.py"))
            .env("PYTHONPATH", packages());
        let vendor = match self.suffix {
            "mpich" => {
                // mpi4py asks for MPICH's library by the name that the MPICH ABI gives it;
                // Debian names it libmpich.
                let directory = made_once("mpich-abi", &self.suffix, |path| {
                    std::fs::create_dir(path).expect("make a directory");
                    let library = "/usr/lib/x86_64-linux-gnu/libmpich.so.12";
                    std::os::unix::fs::symlink(library, path.join("libmpi.so.12")).expect("link");
                });
                command = command.env("MPI4PY_MPIABI", "mpich").env("LD_LIBRARY_PATH", directory);
                "MPICH"
            }
            _ => "Open MPI",
        };
        command.run().prints(&format!("{vendor}: 2 ranks agree\n"));
    }

    /// The launcher ends as it does without us, and soon.
    fn ends_are_seen(self) {
        let program = self.compile("mpi_ends.c");
        for (end, status) in [("abort", Some(33)), ("segv", self.segv), ("exit", self.exit)] {
            let limit = Duration::from_secs(60);
            let plain = self.launch(2).arg(&program).arg(end).time_limit(limit).run();
            let as_tasks = self.launch_tasks(2, &program).arg(end).time_limit(limit).run();
            for output in [plain, as_tasks] {
                match status {
                    Some(status) => assert_eq!(output.code(), status, "{output}"),
                    None => assert_ne!(output.code(), 0, "{output}"),
                }
            }
        }
    }
}

#[test]
fn messages_of_open_mpi_arrive() {
    OPEN_MPI.messages_arrive();
}

#[test]
fn messages_of_mpich_arrive() {
    MPICH.messages_arrive();
}

#[test]
fn collectives_of_open_mpi_agree() {
    OPEN_MPI.collectives_agree();
}

#[test]
fn collectives_of_mpich_agree() {
    MPICH.collectives_agree();
}

#[test]
fn open_mpi_copies_in_user_space() {
    OPEN_MPI.copies_are_in_user_space();
}

#[test]
fn mpich_copies_in_user_space() {
    MPICH.copies_are_in_user_space();
}

#[test]
fn netpipe_runs_over_open_mpi() {
    OPEN_MPI.netpipe_runs();
}

#[test]
fn netpipe_runs_over_mpich() {
    MPICH.netpipe_runs();
}

#[test]
fn mpi4py_runs_over_open_mpi() {
    OPEN_MPI.mpi4py_runs();
}

#[test]
fn mpi4py_runs_over_mpich() {
    MPICH.mpi4py_runs();
}

#[test]
fn open_mpis_launcher_sees_how_a_rank_ends() {
    OPEN_MPI.ends_are_seen();
}

#[test]
fn mpichs_launcher_sees_how_a_rank_ends() {
    MPICH.ends_are_seen();
}

#[test]
fn two_mpi_jobs_at_once_stay_apart() {
    let open_mpi = OPEN_MPI.launch_tasks(2, OPEN_MPI.compile("mpi_messages.c"));
    let mpich = MPICH.launch_tasks(2, MPICH.compile("mpi_messages.c"));
    let running: Vec<_> = [open_mpi.clone(), open_mpi, mpich].into_iter().map(Cmd::spawn).collect();
    for job in running {
        job.wait().prints("messages arrived\n");
    }
}

#[test]
fn the_launcher_forwards_standard_input_to_rank_0() {
    for mpi in [OPEN_MPI, MPICH] {
        // MPICH's launcher never closes the other ranks' standard input.
        let script = "if [ ${PMI_RANK:-$OMPI_COMM_WORLD_RANK} = 0 ]; then cat; fi";
        mpi.launch_tasks(2, "sh")
            .args(["-c", script])
            .stdin("to rank 0\n")
            .run()
            .prints("to rank 0\n");
    }
}

#[test]
fn a_program_that_is_not_pie_runs_beside_us_on_request() {
    let program = build("mpicc.openmpi", "mpi_messages.c", &["-no-pie", "-Wno-stringop-overflow"]);
    let output = OPEN_MPI.launch(2).command(nagaya("exec").arg("--fallback").arg(&program)).run();
    assert!(output.stderr.contains("nagaya: "), "{output}");
    output.prints("messages arrived\n");
}

#[test]
fn nothing_remains_after_an_mpi_job() {
    let short = WorkDir::short();
    let program = OPEN_MPI.compile("mpi_messages.c");
    let dir = WorkDir::new();
    let done = dir.join("done");
    let mut job =
        OPEN_MPI.launch_tasks(2, &program).arg(&done).env("XDG_RUNTIME_DIR", short.path()).spawn();
    job.wait_for("`ready` twice", |text| text.matches("ready").count() == 2);
    let tasks = ps(|command| command.env("XDG_RUNTIME_DIR", short.path()));
    assert_eq!(tasks.len(), 2, "{tasks:?}");
    let server: i32 = nagaya_tests::proc_status(tasks[0].pid, "PPid")
        .and_then(|pid| pid.parse().ok())
        .expect("the task's parent");
    std::fs::write(&done, "").expect("write");
    job.wait().ok();
    wait_until("the node server is gone", Duration::from_secs(10), || !is_alive(server));
    for task in tasks {
        assert!(!is_alive(task.pid), "{task:?}");
    }
    let left: Vec<_> = std::fs::read_dir(short.join("nagaya"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    let sockets = left.iter().filter(|path| {
        use std::os::unix::fs::FileTypeExt as _;
        path.symlink_metadata().is_ok_and(|data| data.file_type().is_socket())
    });
    assert_eq!(sockets.count(), 0, "{left:?}");
}
