//! The basis of the other tests: commands start in a known state, however the tests were started.

use nagaya_tests::{Cmd, proc_status};

/// Signals 32 and 33 are libc's own.
const LIBCS: u64 = 0b11 << 31;

#[test]
fn commands_start_with_default_signals_also_in_a_background_job() {
    let own = std::env::current_exe().expect("this test");
    // As a shell that has no job control starts what ends with `&`, and as nohup does.
    let script = "trap '' INT QUIT HUP PIPE; exec \"$@\"";
    let inner = Cmd::new(own).args(["--ignored", "--exact", "inner", "--nocapture"]);
    Cmd::new("sh").args(["-c", script, "sh"]).command(inner).run().ok();
}

/// Run by the test above, with signals ignored.
#[test]
#[ignore = "needs the dispositions that another test sets"]
fn inner() {
    let mask = |text: &str| u64::from_str_radix(text.trim(), 16).expect("a mask") & !LIBCS;
    let ignored = |text: &str| mask(text) & (1 << (libc::SIGINT - 1)) != 0;
    let us = std::process::id().cast_signed();
    assert!(proc_status(us, "SigIgn").is_some_and(|text| ignored(&text)), "the script ignores it");
    let output = Cmd::new("cat").arg("/proc/self/status").run().ok();
    for field in ["SigIgn:", "SigBlk:"] {
        let value = output.lines().find_map(|line| line.strip_prefix(field)).expect("a field");
        assert_eq!(mask(value), 0, "{field}{value}");
    }
}
