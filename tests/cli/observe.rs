//! Looking at tasks from outside: `nagaya ps`, `maps`, `gdb`, `info`.

use std::collections::HashMap;

use nagaya_tests::{
    Cmd, Running, WorkDir, exec, is_alive, job, nagaya, program, ps, task, tasks_of, tool,
    wait_until,
};
use rustix::process::Signal;

/// `nested_sleep` as task 0 and 1 of a job: 50 MiB each.
fn two_sleepers(job: &str) -> Running {
    let mut running =
        nagaya("run").args(["-n", "2", "--job", job]).arg(program::c("nested_sleep.c")).spawn();
    running.wait_for("`up` twice", |text| text.matches("up").count() == 2);
    running
}

#[test]
fn ps_lists_the_tasks_of_jobs() {
    let job = job();
    let running = two_sleepers(&job);
    let tasks = tasks_of(&job);
    assert_eq!(tasks.iter().map(|task| task.id).collect::<Vec<_>>(), [0, 1], "{tasks:?}");
    for task in &tasks {
        assert_eq!(task.job, job);
        assert!(is_alive(task.pid), "{task:?}");
        assert!(["S", "R"].contains(&task.state.as_str()), "{task:?}");
        // The task's own memory, not that of all tasks.
        assert!((50 << 20..80 << 20).contains(&task.rss), "{task:?}");
        assert!(task.command.ends_with("/nested_sleep"), "{task:?}");
    }
    assert_ne!(tasks[0].pid, tasks[1].pid);
    // For people: a heading, and the same.
    let text = nagaya("ps").args(["--job", &job]).run().ok();
    assert_eq!(text.lines().count(), 3, "{text}");
    assert!(text.lines().next().is_some_and(|line| line.contains("PID")), "{text}");
    for task in &tasks {
        assert!(text.contains(&task.pid.to_string()), "{text}");
    }
    // All jobs; a job that is not there.
    let other = self::job();
    let mut second = exec(&other, "sh").args(["-c", "echo up; read x < /dev/zero"]).spawn();
    second.wait_for_word("up");
    let all = ps(|command| command);
    assert!(tasks.iter().all(|task| all.iter().any(|any| any.pid == task.pid)), "{all:?}");
    assert!(all.iter().any(|task| task.job == other), "{all:?}");
    assert_eq!(tasks_of("no-such-job"), []);
    // A stopped one is shown as such.
    nagaya_tests::kill(tasks[1].pid, Signal::STOP);
    wait_until("it is stopped", nagaya_tests::TIME_LIMIT, || {
        tasks_of(&job).iter().any(|task| task.id == 1 && task.state.eq_ignore_ascii_case("T"))
    });
    nagaya_tests::kill(tasks[1].pid, Signal::CONT);
    // One that has gone is not.
    nagaya_tests::kill(tasks[1].pid, Signal::KILL);
    wait_until("it is gone", nagaya_tests::TIME_LIMIT, || tasks_of(&job).len() == 1);
    running.signal(Signal::TERM);
    running.wait();
    assert_eq!(tasks_of(&job), []);
}

#[test]
fn commands_with_odd_arguments_stay_on_their_line() {
    let job = job();
    let mut running =
        exec(&job, "sh").args(["-c", "echo up; read x < /dev/zero", "a\tb", "c\nd:e"]).spawn();
    running.wait_for_word("up");
    let tasks = tasks_of(&job);
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert!(tasks[0].command.starts_with("sh -c echo up"), "{tasks:?}");
}

#[test]
fn a_name_that_the_kernel_cuts_within_a_letter_hides_no_state() {
    let (job, work) = (job(), WorkDir::new());
    // The kernel keeps 15 bytes.
    let program = work.join("a長屋長屋長屋");
    nagaya_tests::copy_program(&tool("sleep"), &program);
    let running = exec(&job, program).arg("600").spawn();
    wait_until("it sleeps", nagaya_tests::TIME_LIMIT, || {
        tasks_of(&job).iter().any(|task| task.state == "S")
    });
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn maps_tell_who_owns_what() {
    let job = job();
    let _running = two_sleepers(&job);
    let tasks = tasks_of(&job);
    let whole = nagaya("maps").arg(&job).run().ok();
    for task in &tasks {
        assert!(whole.contains(&task.pid.to_string()), "{whole}");
    }
    assert_eq!(whole.matches("/nested_sleep\n").count() % 2, 0, "each has its own image\n{whole}");
    for part in ["export", "image", "heap", "mmap", "stack"] {
        assert!(whole.matches(part).count() >= 2, "no {part} in\n{whole}");
    }
    assert!(whole.contains("libc.so.6") && whole.contains("ld-linux"), "{whole}");
    // One task by JOB.ID and by PID: the same, and nothing of the other.
    let by_id = nagaya("maps").arg(format!("{job}.1")).run().ok();
    let by_pid = nagaya("maps").arg(tasks[1].pid.to_string()).run().ok();
    let addresses = |text: &str| -> Vec<String> {
        let range = |line: &str| line.split_whitespace().next().map(str::to_owned);
        text.lines().filter(|line| line.starts_with("  ")).filter_map(range).collect()
    };
    assert_eq!(addresses(&by_id), addresses(&by_pid));
    assert!(addresses(&by_id).len() > 10, "{by_id}");
    assert!(!by_id.contains(&tasks[0].pid.to_string()), "{by_id}");
    assert!(by_id.len() < whole.len());
    // All jobs.
    assert!(nagaya("maps").run().ok().contains(&job));
}

#[test]
fn tasks_that_are_not_there_are_named() {
    for command in ["maps", "gdb"] {
        for target in ["no-such-job.0", "no-such-job", "4194304"] {
            nagaya(command).arg(target).run().refused(125, &[target]);
        }
        let pid = std::process::id().to_string();
        nagaya(command).arg(&pid).run().refused(125, &[&pid]);
    }
    let job = job();
    let mut running = exec(&job, "sh").args(["-c", "echo up; read x < /dev/zero"]).spawn();
    running.wait_for_word("up");
    let target = format!("{job}.7");
    nagaya("maps").arg(&target).run().refused(125, &[&target]);
    nagaya("gdb").arg(&target).run().refused(125, &[&target]);
}

#[test]
fn gdb_shows_the_programs_own_source_lines() {
    tool("gdb");
    let job = job();
    let mut running = two_sleepers(&job);
    let tasks = tasks_of(&job);
    let line = std::fs::read_to_string(program::source_dir().join("nested_sleep.c"))
        .expect("the source")
        .lines()
        .position(|line| line.contains("here it sleeps"))
        .expect("the line")
        + 1;
    for target in [format!("{job}.1"), tasks[0].pid.to_string()] {
        let output = nagaya("gdb")
            .arg(&target)
            .args(["-nx", "-batch", "-ex", "thread apply all bt", "-ex", "up 99", "-ex"])
            .args(["info sharedlibrary"])
            .run();
        let text = output.clone().ok();
        for wanted in ["where_it_sleeps", "one_above", "main", "in_a_thread", "usleep"] {
            assert!(text.contains(wanted), "no {wanted}: {output}");
        }
        assert!(text.contains(&format!("nested_sleep.c:{line}")), "{output}");
        assert!(text.contains("=6) at "), "arguments are shown: {output}");
    }
    // Variables of this task, not of the other.
    let output = nagaya("gdb")
        .arg(format!("{job}.1"))
        .args(["-nx", "-batch", "-ex", "set var go_on = 0", "-ex", "print go_on"])
        .run();
    assert!(output.clone().ok().contains("$1 = 0"), "{output}");
    wait_until("task 1 has ended", nagaya_tests::TIME_LIMIT, || tasks_of(&job).len() == 1);
    assert!(running.is_running(), "task 0 goes on");
    assert_eq!(tasks_of(&job)[0].id, 0);
}

#[test]
fn gdb_works_on_a_static_pie_and_under_exec() {
    let job = job();
    let program = program::c_with("nested_sleep.c", &["-static-pie", "-pthread"]);
    let mut running = exec(&job, program).spawn();
    running.wait_for_word("up");
    let output = nagaya("gdb").arg(format!("{job}.0")).args(["-nx", "-batch", "-ex", "bt"]).run();
    assert!(output.clone().ok().contains("one_above"), "{output}");
    assert!(running.is_running());
}

#[test]
fn info_tells_version_kernel_and_mechanism() {
    let text = nagaya("info").arg("--parsable").run().ok();
    let facts: HashMap<&str, &str> = text
        .lines()
        .map(|line| line.split_once('=').unwrap_or_else(|| panic!("no `=` in `{line}`")))
        .collect();
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("read");
    assert!(facts["kernel"].contains(release.trim()), "{text}");
    let limit = std::fs::read_to_string("/proc/sys/vm/max_map_count").expect("read");
    assert!(facts["max_map_count"].contains(limit.trim()), "{text}");
    assert!(facts["mechanism"].contains("kernel"), "outside a space: {text}");
    assert!(nagaya("info").run().ok().contains(facts["version"]));
    // As a task.
    let text = task(nagaya_tests::nagaya_path()).args(["info", "--parsable"]).run().ok();
    assert!(text.lines().any(|line| line.starts_with("mechanism=user space")), "{text}");
}

#[test]
fn info_counts_the_loads_and_stores_of_fcp() {
    let text = nagaya("info").args(["--fcp", "--parsable"]).run().ok();
    let numbers: HashMap<&str, f64> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key, value.parse().expect("a number")))
        .collect();
    assert_eq!(numbers.len(), 3 * 7, "{text}");
    // As in the paper, each protocol sends with fewer than the one before.
    let sends = ["fcp", "fcp-plus", "fcp2"].map(|protocol| numbers[&*format!("{protocol}.send")]);
    assert!(sends.is_sorted_by(|a, b| a > b), "{text}");
    assert_eq!(numbers["fcp2.header"], 2.0);
    assert!(nagaya("info").arg("--fcp").run().ok().contains("fcp-plus"));
}

#[test]
fn tools_of_the_system_see_the_tasks() {
    let job = job();
    let _running = two_sleepers(&job);
    let pid = tasks_of(&job)[0].pid;
    let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("read");
    assert_eq!(comm, "nested_sleep\n");
    // strace attaches and detaches.
    let output =
        Cmd::new("timeout").args(["-s", "INT", "1", "strace", "-f", "-p", &pid.to_string()]).run();
    assert!(output.stderr.contains("nanosleep"), "{output}");
    assert!(is_alive(pid));
}

fn parsed(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"))
}

#[test]
fn programs_get_jobs_and_mappings_as_json() {
    let job = job();
    let running = two_sleepers(&job);
    let tasks = tasks_of(&job);
    let ps = parsed(&nagaya("ps").args(["--json", "--job", &job]).run().ok());
    assert_eq!(ps["format"], 1);
    assert_eq!(ps["jobs"][0]["job"], job);
    for task in &tasks {
        let shown = &ps["jobs"][0]["tasks"][task.id as usize];
        assert_eq!(shown["pid"], task.pid, "{ps:#}");
        assert_eq!(shown["id"], task.id);
        assert!(shown["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 50 << 20));
        assert!(shown.get("mappings").is_none());
    }
    let maps = parsed(&nagaya("maps").args(["--json", &format!("{job}.1")]).run().ok());
    let shown = maps["jobs"][0]["tasks"].as_array().expect("tasks");
    assert_eq!(shown.len(), 1, "{maps:#}");
    assert_eq!(shown[0]["pid"], tasks[1].pid);
    let range = |value: &serde_json::Value, [from, to]: [&str; 2]| {
        (value[from].as_u64().expect("start"), value[to].as_u64().expect("end"))
    };
    let segment = range(&shown[0], ["segment_start", "segment_end"]);
    let mappings = shown[0]["mappings"].as_array().expect("mappings");
    assert!(mappings.iter().any(|it| it["part"] == "stack"), "{maps:#}");
    for mapping in mappings {
        let (start, end) = range(mapping, ["start", "end"]);
        assert!(segment.0 <= start && end <= segment.1, "{mapping:#}");
    }
    running.signal(Signal::TERM);
    running.wait();
}

#[test]
fn a_drawing_shows_the_segments_and_who_talks_to_whom() {
    let dir = WorkDir::new();
    let job = job();
    let running = two_sleepers(&job);
    let (svg, report) = (dir.join("space.svg"), dir.join("report.json"));
    let text = r#"{"job": "j<1>", "ranks": 2, "per_rank": [
        {"rank": 0, "peers": [{"rank": 1, "count": 3, "bytes": 3072}]}, {"rank": 1, "peers": []}]}"#;
    std::fs::write(&report, text).expect("write");
    let draw = || nagaya("maps").arg("--svg").arg(&svg).arg("--messages").arg(&report);
    draw().arg(&job).run().prints("");
    let drawing = std::fs::read_to_string(&svg).expect("the drawing");
    for task in tasks_of(&job) {
        assert!(drawing.contains(&format!("{} · PID {} ·", task.id, task.pid)), "{drawing}");
    }
    for part in ["heap: ", "stack: ", "rank 0 to rank 1: 3.0 KiB", "j&lt;1&gt;"] {
        assert!(drawing.contains(part), "{part}: {drawing}");
    }
    // XML that a parser accepts.
    let parse = "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])";
    Cmd::new("python3").args(["-c", parse]).arg(&svg).run().ok();
    running.signal(Signal::TERM);
    running.wait();
    std::fs::write(&report, "{}").expect("write");
    draw().run().refused(125, &["report.json", "not a report"]);
}

#[test]
fn info_lists_for_programs_what_this_user_is_denied() {
    let info = parsed(&nagaya("info").arg("--json").run().ok());
    let facts = info["facts"].as_object().expect("facts");
    for key in ["spaces", "jia", "span", "provider", "userfaultfd", "ptrace", "locked_memory"] {
        assert!(facts.contains_key(key), "{key}: {info:#}");
    }
    for (key, value) in facts {
        let value = value.as_str().expect("text");
        let is_denied = value.starts_with("no: ") || value.starts_with("only ");
        let listed = info["denied"].as_array().expect("an array").iter().any(|it| it == key);
        assert_eq!(is_denied, listed, "{key}: {value}");
    }
}
