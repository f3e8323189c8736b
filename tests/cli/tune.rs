//! `nagaya tune`: its measurement is stored, and spaces copy by it.

use std::time::Duration;

use nagaya_tests::{WorkDir, nagaya, task};
use rustix::process::Signal;

fn copies_by(dir: &WorkDir) -> String {
    let info = nagaya("info").arg("--parsable").env("XDG_CONFIG_HOME", dir.path()).run().ok();
    let line = info.lines().find(|line| line.starts_with("copy="));
    line.expect("info tells how copies are made").into()
}

#[test]
fn a_plan_is_measured_kept_and_used() {
    let dir = WorkDir::new();
    assert!(copies_by(&dir).contains("by kind"), "{}", copies_by(&dir));
    let tune = nagaya("tune").env("XDG_CONFIG_HOME", dir.path()).run().ok();
    let Some(plan) = tune.lines().find_map(|line| line.strip_prefix("plan: ")) else {
        assert!(tune.contains("nothing to choose"), "{tune}");
        return;
    };
    let file = dir.join("nagaya/copy");
    assert_eq!(copies_by(&dir), format!("copy={plan} (measured, {})", file.display()));

    // Another processor's section stays, this one's is replaced, and the result is used.
    let text = std::fs::read_to_string(&file).expect("the plan");
    let ours = text.lines().find(|l| l.starts_with("processor ")).expect("a section");
    let shared = format!("processor Other 1.2.3\n0 stream\n{ours}\n0 string\n4096 vector\n");
    std::fs::write(&file, &shared).expect("write");
    let by = "copy=string; from 4 KiB vector (measured,";
    assert!(copies_by(&dir).starts_with(by), "{}", copies_by(&dir));
    nagaya("tune").arg("--output").arg(&file).run().ok();
    let text = std::fs::read_to_string(&file).expect("the plan");
    assert!(text.starts_with(&format!("processor Other 1.2.3\n0 stream\n{ours}\n")), "{text}");
    assert_eq!(text.matches("processor ").count(), 2, "{text}");
}

#[test]
fn an_unreadable_plan_is_ignored() {
    let dir = WorkDir::new();
    std::fs::create_dir(dir.join("nagaya")).expect("directory");
    let name = nagaya("tune").arg("--dry-run").run().ok();
    let name = name.split_once("processor ").and_then(|(_, rest)| rest.split_once(','));
    let name = name.expect("the processor's name").0;
    for rows in ["0 fastest", "1000 vector", "0 string\n\u{0}"] {
        std::fs::write(dir.join("nagaya/copy"), format!("processor {name}\n{rows}\n"))
            .expect("write");
        assert!(copies_by(&dir).contains("by kind"), "{rows}: {}", copies_by(&dir));
        task("/bin/true").env("XDG_CONFIG_HOME", dir.path()).run().ok();
    }
}

#[test]
fn a_measurement_of_more_than_two_seconds_reports_its_progress() {
    loop {
        let mut tune = nagaya("tune").arg("--dry-run").env("NAGAYA_PROGRESS", "1").spawn();
        let first = tune.wait_for_lines(1).remove(0);
        if first.contains("nothing to choose") {
            tune.wait().ok();
            return;
        }
        tune.signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(2500));
        if !tune.is_running() {
            continue; // it was done before it was stopped
        }
        tune.signal(Signal::CONT);
        let output = tune.wait();
        assert!(output.status.success(), "{output}");
        let progress = output.stderr.lines().next().unwrap_or_default();
        assert!(progress.starts_with("nagaya: tune: "), "{output}");
        assert!(progress.contains(" of 16 sizes measured; "), "{output}");
        return;
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let tune = nagaya("tune").args(["--output", "/proc/nagaya/copy"]).run();
    assert_eq!(tune.status.code(), Some(125), "{tune}");
    // Lines about progress may stand before it.
    let lines = tune.stderr.lines().filter(|line| !line.starts_with("nagaya: tune: "));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 1, "{tune}");
    assert!(lines[0].starts_with("nagaya: /proc/nagaya/copy: "), "{tune}");
}
