//! Chaos for as long as `NAGAYA_SOAK_MINUTES` says (`make soak`): tasks of all kinds come, work,
//! fork, exec and are killed, stubs and node servers too, in an order that `NAGAYA_SEED` repeats.
//! Whoever was left alone must have worked rightly, and in the end nothing may be left.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use nagaya_tests::program::{build, c, source_dir};
use nagaya_tests::{
    Cmd, Running, WorkDir, exec, is_alive, kill, nagaya, proc_status, ps, seed, tool, wait_until,
};
use rustix::process::Signal;

/// One program under `nagaya exec` or a launcher, and its output when undisturbed.
struct Work {
    running: Running,
    job: String,
    prints: String,
    disturbed: bool,
}

/// Jobs that the works share, so that they meet in spaces.
const JOBS: usize = 3;
/// Works that run at once.
const AT_ONCE: usize = 6;

struct Chaos {
    random: Rng,
    runtime: WorkDir,
    posix: PathBuf,
    shell: String,
    mpi: PathBuf,
    works: Vec<Work>,
    finished: usize,
}

impl Chaos {
    fn start(&mut self) {
        let job = format!("soak-{}", self.random.usize(..JOBS));
        let kind = self.random.usize(..8);
        let cases = ["forks", "many_threads", "segv_handler", "spawns", "synchronise", "sysv_shm"];
        let (command, prints) = match kind {
            0 | 1 => (exec(&job, "bash").arg(source_dir().join("shell.sh")), self.shell.clone()),
            2..=4 => {
                let case = cases[self.random.usize(..cases.len())];
                (exec(&job, &self.posix).arg(case), String::new())
            }
            5 => (exec(&job, "perl").args(["-e", "print 6 * 7, qq(\\n)"]), "42\n".into()),
            6 => (
                nagaya("run").args(["-n", "4"]).arg(&self.posix).arg("many_threads"),
                String::new(),
            ),
            _ => (
                Cmd::new(tool("mpirun.openmpi"))
                    .args(["--oversubscribe", "-n", "2"])
                    .command(nagaya("exec").arg(&self.mpi)),
                "messages arrived\n".into(),
            ),
        };
        let running = command.env("XDG_RUNTIME_DIR", self.runtime.path()).spawn();
        // `run` and `mpirun` have separate spaces.
        let job = if kind < 6 { job } else { String::new() };
        self.works.push(Work { running, job, prints, disturbed: false });
    }

    /// Takes those that have ended, and judges them.
    fn collect(&mut self) {
        let mut i = 0;
        while i < self.works.len() {
            if self.works[i].running.is_running() && !self.works[i].running.is_overdue() {
                i += 1;
                continue;
            }
            let work = self.works.swap_remove(i);
            // Panics if it is overdue.
            let output = work.running.wait();
            self.finished += 1;
            if !work.disturbed {
                assert!(output.status.success(), "{output}");
                assert_eq!(output.stdout, work.prints, "{output}");
            }
        }
    }

    /// Kills a work, or a job's node server, which disturbs all of the job.
    fn disturb(&mut self) {
        let victim = self.random.usize(..self.works.len());
        match self.random.usize(..12) {
            0..=3 => {
                self.works[victim].disturbed = true;
                let signals = [Signal::KILL, Signal::TERM, Signal::INT];
                self.works[victim].running.signal(signals[self.random.usize(..signals.len())]);
            }
            4 => {
                let job = self.works[victim].job.clone();
                let task = self.tasks().into_iter().find(|task| !job.is_empty() && task.job == job);
                let server = task.and_then(|task| proc_status(task.pid, "PPid")?.parse().ok());
                // Jobs that start right now may meet the dying server, too.
                for work in self.works.iter_mut().filter(|work| work.job == job) {
                    work.disturbed = true;
                }
                if let Some(server) = server.filter(|pid| *pid > 1) {
                    kill(server, Signal::KILL);
                    wait_until("the server has ended", nagaya_tests::TIME_LIMIT, || {
                        !is_alive(server)
                    });
                }
            }
            5 => {
                // Stopped and continued: no job is affected.
                let pid = self.works[victim].running.pid();
                kill(pid, Signal::STOP);
                std::thread::sleep(Duration::from_millis(30));
                kill(pid, Signal::CONT);
            }
            _ => {}
        }
    }

    fn tasks(&self) -> Vec<nagaya_tests::Task> {
        ps(|command| command.env("XDG_RUNTIME_DIR", self.runtime.path()))
    }
}

#[test]
#[ignore = "runs for NAGAYA_SOAK_MINUTES; make soak"]
fn chaos_leaves_the_undisturbed_right_and_nothing_behind() {
    let minutes: f64 = std::env::var("NAGAYA_SOAK_MINUTES")
        .map_or(1.0, |text| text.parse().expect("NAGAYA_SOAK_MINUTES is a number"));
    let shell = Cmd::new("bash").arg(source_dir().join("shell.sh")).run().ok();
    let mut chaos = Chaos {
        random: Rng::with_seed(seed()),
        runtime: WorkDir::short(),
        posix: c("posix.c"),
        mpi: build("mpicc.openmpi", "mpi_messages.c", &["-Wno-stringop-overflow"]),
        shell,
        works: Vec::new(),
        finished: 0,
    };
    let end = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    while Instant::now() < end {
        while chaos.works.len() < AT_ONCE {
            chaos.start();
        }
        chaos.disturb();
        let pause = chaos.random.usize(..40) as u64;
        std::thread::sleep(Duration::from_millis(pause));
        chaos.collect();
    }
    while !chaos.works.is_empty() {
        chaos.collect();
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{} works ended", chaos.finished);
    wait_until("no task is left", nagaya_tests::TIME_LIMIT, || chaos.tasks().is_empty());
    let ours = chaos.runtime.path().to_str().expect("UTF-8").to_owned();
    wait_until("no process of ours is left", nagaya_tests::TIME_LIMIT, || {
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let mut lines =
            processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
        !lines.any(|line| String::from_utf8_lossy(&line).contains(&ours))
    });
}
