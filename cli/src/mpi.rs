//! `nagaya info --mpi`: reports whether the large messages of an MPI will be single copies inside
//! the space, and the reason if not.
//!
//! The first part runs no program of the user. It finds the MPI ([`library`]), its copy mechanism
//! within a node, and the settings that disable it ([`single_copy`]). It also tests whether tasks
//! can be created here. `--try` is the proof: it runs a ping-pong and reads the counters
//! ([`trial`]).
//!
//! The crate `paths` chooses the path of a job's data, which is reported, too.

pub mod library;
mod obstacle;
pub mod scratch;
mod single_copy;
mod trial;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use nagaya_server::{Failure, apart, kernel_version, query};
use paths::choice::{self, Machine};
use paths::launched::Launched;

use crate::program;
use crate::ps::human;
use library::Library;
use obstacle::Obstacle;

/// One line of the report.
struct Line {
    key: &'static str,
    title: &'static str,
    value: String,
}

/// Reports on the MPI whose launcher is `launcher` (a name to be looked up in PATH, or a path),
/// and on `program` if there is one. Returns 0 if messages will go through the space, 1 if not.
pub fn report(
    launcher: &OsString,
    program: Option<&PathBuf>,
    run_trial: bool,
    parsable: bool,
) -> Result<i32, Failure> {
    let library = Library::of_launcher(launcher)?;
    let mut lines = Vec::new();
    let mut obstacles = Vec::new();
    let mut add = |key, title, value: String| lines.push(Line { key, title, value });

    add("mpi", "MPI", library.to_string());
    add("launcher", "launcher", library.launcher.display().to_string());
    if let Some(program) = program {
        match library.check_program(program) {
            Ok(linked) => add("program", "program", linked),
            Err(obstacle) => {
                add("program", "program", program.display().to_string());
                obstacles.push(obstacle);
            }
        }
    }
    let plan = single_copy::plan(&library);
    add("method", "single copy by", plan.method.clone());
    let from = plan.threshold.map(|bytes| format!("{bytes} ({})", human(bytes)));
    add("threshold", "from", from.unwrap_or_else(|| "unknown (--try measures it)".into()));
    add(
        "settings",
        "settings that matter",
        match plan.settings.as_slice() {
            [] => "none".into(),
            settings => settings.join(", "),
        },
    );
    let (transport, collectives) = path_of_two(&library);
    add("transport", "transport", transport);
    add("collectives", "collective operations", collectives);
    let tasks = tasks();
    add(
        "tasks",
        "tasks",
        match &tasks {
            Ok(value) => value.clone(),
            Err(obstacle) => obstacle.why.clone(),
        },
    );
    for line in apart::describe(&query::jobs().unwrap_or_default().jobs) {
        add("ranks", "running job", line);
    }
    for (key, title, value) in crate::kernel_copy::kernels_copy() {
        add(key, title, value);
    }
    let mut threshold = plan.threshold;
    match (tasks, plan.obstacle) {
        (Err(obstacle), _) => obstacles.push(obstacle),
        (Ok(_), expected) if run_trial => {
            let trial = trial::run(&library)?;
            for line in trial.lines() {
                add("trial", "tried", line);
            }
            threshold = trial.threshold();
            if threshold.is_none() {
                obstacles.push(expected.unwrap_or_else(no_single_copy));
            }
        }
        (Ok(_), expected) => obstacles.extend(expected),
    }

    let verdict = verdict(obstacles.first(), threshold);
    let first = Line { key: "verdict", title: "messages", value: verdict };
    let hint = |Obstacle { why, hint }: &Obstacle| {
        let value = format!("{why}: {hint}");
        Line { key: "hint", title: "what to do", value }
    };
    let all = [first].into_iter().chain(obstacles.iter().map(hint)).chain(lines);
    for Line { key, title, value } in all {
        match parsable {
            true => println!("{key}={value}"),
            false => println!("{title:<28} {value}"),
        }
    }
    Ok(i32::from(!obstacles.is_empty()))
}

/// Describes the path that `nagaya exec` chooses for a job of two ranks on this node.
fn path_of_two(library: &Library) -> (String, String) {
    let job = Launched::two_ranks(library.kind(), &library.launcher);
    let variable = |name: &str| std::env::var(name).ok();
    let chosen = choice::wanted(None, None, &variable).and_then(|wanted| {
        let machine = Machine::this(&job, program::wanted_protection(None)?.is_some());
        choice::choose(wanted, &job, &machine, &variable)
    });
    match chosen {
        Ok(path) => (path.transport.to_string(), path.collectives.to_string()),
        Err(failure) => (failure.message.clone(), failure.message),
    }
}

fn no_single_copy() -> Obstacle {
    Obstacle::new(
        "no message of the trial was a single copy in the space",
        "please report this, with the output of nagaya info --mpi --try",
    )
}

/// The answer to the user's question: are messages single copies?
fn verdict(obstacle: Option<&Obstacle>, threshold: Option<u64>) -> String {
    match (obstacle, threshold) {
        (Some(obstacle), _) => format!("no: {}", obstacle.why),
        (None, Some(bytes)) => format!(
            "yes: messages of {} and more go through the space, one copy in user space",
            human(bytes)
        ),
        (None, None) => "yes: large messages go through the space, one copy in user space".into(),
    }
}

/// Tests whether tasks can be created here and the gate reaches their libc: starts a task, which
/// copies as an MPI does.
fn tasks() -> Result<String, Obstacle> {
    let (major, minor) = kernel_version();
    if (major, minor) < (5, 15) {
        return Err(Obstacle::new(
            format!("Linux {major}.{minor} is too old for tasks"),
            "run Linux 5.15 or newer",
        ));
    }
    let fails = |why: String| {
        Obstacle::new(format!("no task can be started here: {why}"), "see nagaya info")
    };
    let nagaya = std::env::current_exe().map_err(|e| fails(e.to_string()))?;
    let output = Command::new(&nagaya)
        .arg("run")
        .arg(&nagaya)
        .args(["info", "--parsable"])
        .output()
        .map_err(|e| fails(e.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mechanism = text.lines().find_map(|line| line.strip_prefix("mechanism="));
    match mechanism {
        Some(value) if value.starts_with("user space") => Ok(format!("work here: {value}")),
        Some(value) => Err(Obstacle::new(
            format!("a task's copies are not made in user space: {value}"),
            "the gate does not know this libc: please report it, with nagaya info",
        )),
        None => {
            let error = String::from_utf8_lossy(&output.stderr);
            let error = error.lines().next().unwrap_or("it printed nothing");
            Err(fails(error.trim_start_matches("nagaya: ").to_string()))
        }
    }
}
