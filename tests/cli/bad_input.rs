//! A program that cannot be run gets one line with the reason and the remedy; never a crash, and
//! never a trace in the space.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nagaya_tests::{Cmd, WorkDir, job, nagaya, program, skip, task, tasks, tool};

/// Refused by `run` and by `exec`, with the same status and words.
#[track_caller]
fn refused(program: &Path, status: i32, words: &[&str]) {
    task(program).run().refused(status, words);
    tasks(3, program).run().refused(status, words);
    nagaya("exec").args(["--job", &job()]).arg(program).run().refused(status, words);
}

/// `/bin/true`, which is PIE, with some bytes changed.
fn changed(dir: &WorkDir, name: &str, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = fs::read("/bin/true").expect("read /bin/true");
    change(&mut bytes);
    dir.write_executable(name, bytes)
}

/// Offset of a byte string in another.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|window| window == needle).expect("is in the file")
}

#[test]
fn set_user_id_and_set_group_id_programs_are_refused() {
    let dir = WorkDir::new();
    for (name, mode, word) in [("user", 0o4755, "set-user-ID"), ("group", 0o2755, "set-group-ID")] {
        let program = changed(&dir, name, |_| {});
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("chmod");
        refused(&program, 126, &[name, word]);
    }
}

#[test]
fn file_capabilities_are_refused() {
    let dir = WorkDir::new();
    let program = changed(&dir, "capable", |_| {});
    let setcap = Cmd::new(tool("setcap")).arg("cap_net_raw+ep").arg(&program).run();
    if !setcap.status.success() {
        skip("setcap is not permitted here (root on a file system with extended attributes is)");
        return;
    }
    refused(&program, 126, &["capable", "capabilities"]);
}

#[test]
fn a_text_file_without_an_interpreter_is_refused() {
    let dir = WorkDir::new();
    refused(&dir.write_executable("text", "echo hello\n"), 126, &["text"]);
    refused(&dir.write_executable("empty", ""), 126, &["empty"]);
    refused(&dir.write_executable("zeros", vec![0; 10_000]), 126, &["zeros"]);
}

#[test]
fn another_machines_program_is_refused() {
    let dir = WorkDir::new();
    // e_machine: AArch64, RISC-V.
    for (name, machine, word) in [("arm", 183_u16, "aarch64"), ("risc", 243, "risc-v")] {
        let program =
            changed(&dir, name, |bytes| bytes[18..20].copy_from_slice(&machine.to_le_bytes()));
        refused(&program, 126, &[name]);
        let output = task(&program).run();
        let line = output.stderr.to_lowercase();
        assert!(line.contains("x86-64") || line.contains(word), "{output}");
    }
    // 32-bit; big-endian.
    refused(&changed(&dir, "narrow", |bytes| bytes[4] = 1), 126, &["narrow"]);
    refused(&changed(&dir, "big-endian", |bytes| bytes[5] = 2), 126, &["big-endian"]);
}

#[test]
fn a_missing_dynamic_linker_is_named() {
    let dir = WorkDir::new();
    let program = changed(&dir, "astray", |bytes| {
        let at = find(bytes, b"/lib64/ld-linux");
        bytes[at..at + 6].copy_from_slice(b"/lib99");
    });
    let output = task(&program).run();
    assert!(matches!(output.code(), 126 | 127), "{output}");
    refused(&program, output.code(), &["/lib99/ld-linux"]);
}

#[test]
fn a_missing_library_is_the_dynamic_linkers_affair() {
    let dir = WorkDir::new();
    let library = program::build("gcc", "liborigin.c", &["-shared", "-fPIC"]);
    let copy = dir.join("liborigin.so");
    fs::copy(library, &copy).expect("copy");
    let search = format!("-L{}", dir.path().display());
    let program = program::c_with("origin.c", &[&search, "-lorigin", "-ldl"]);
    let plain = Cmd::new(&program).run();
    let output = task(&program).run();
    assert_eq!(output.code(), plain.code(), "{output}");
    assert!(output.stderr.contains("liborigin.so"), "{output}");
}

#[test]
fn truncated_and_mangled_programs_are_refused() {
    let dir = WorkDir::new();
    let whole = fs::read("/bin/true").expect("read").len();
    for length in [1, 4, 16, 63, 64, 100, 500, whole / 4, whole / 2] {
        let program = changed(&dir, "short", |bytes| bytes.truncate(length));
        refused(&program, 126, &["short"]);
    }
    // Invalid fields of the ELF header and of the first program headers end in a refusal or in the
    // program's own end, never in a crash of nagaya.
    let seed = nagaya_tests::seed();
    let mut state = seed;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    for i in 0..150 {
        let program = changed(&dir, "mangled", |bytes| {
            for _ in 0..1 + random() % 3 {
                let at = 16 + random() % (64 + 13 * 56 - 16);
                let values = [0, 1, 0x7f, 0x80, 0xff, random() as u8];
                let value = values[random() % values.len()];
                let width = [1, 2, 4, 8][random() % 4];
                bytes[at..at + width].fill(value);
            }
        });
        let output = nagaya("run")
            .args(["-n", "2"])
            .arg(&program)
            .time_limit(std::time::Duration::from_secs(30))
            .run();
        let sound = output.signal().is_none() && !output.stderr.contains("panicked");
        assert!(sound, "NAGAYA_SEED={seed}, file {i}: {output}");
    }
}

#[test]
fn a_path_that_is_no_file_is_refused() {
    let dir = WorkDir::new();
    refused(Path::new("/nonexistent/program"), 127, &["/nonexistent/program"]);
    refused(Path::new("no-such-program-anywhere"), 127, &["no-such-program-anywhere"]);
    refused(dir.path(), 126, &[dir.path().to_str().expect("UTF-8")]);
    refused(Path::new("/dev/null"), 126, &["/dev/null"]);
    refused(&dir.write("plain", fs::read("/bin/true").expect("read")), 126, &["plain"]);
    let below = dir.write("file", "x").join("below");
    let output = task(&below).run();
    assert!(matches!(output.code(), 126 | 127), "{output}");
    let long = dir.join(&"x".repeat(300));
    let output = task(&long).run();
    assert!(matches!(output.code(), 126 | 127), "{output}");
    task("").run().one_line(&[]);
    std::os::unix::fs::symlink("loop", dir.join("loop")).expect("symlink");
    let output = task(dir.join("loop")).run();
    assert!(matches!(output.code(), 126 | 127), "{output}");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o755),
        0,
    )
    .expect("mkfifo");
    refused(&dir.join("fifo"), 126, &["fifo"]);
}

#[test]
fn scripts_run_by_their_first_line() {
    let dir = WorkDir::new();
    let show = "for word; do echo \"<$word>\"; done\n";
    let script = dir.write_executable("plain", format!("#!/bin/sh\necho \"$0\"\n{show}"));
    let wanted = format!("{}\n<a>\n<b c>\n", script.display());
    task(&script).args(["a", "b c"]).run().prints(&wanted);
    // One argument at most, as the kernel does it, and blanks around.
    let script = dir.write_executable("argument", "#! \t /bin/sh -e  \nfalse\necho unreachable\n");
    task(&script).run().ends_with(1);
    let script = dir.write_executable("two", "#!/usr/bin/printf [%s] a b \n");
    let plain = Cmd::new(&script).args(["c"]).run().ok();
    task(&script).args(["c"]).run().prints(&plain);
    let script =
        dir.write_executable("by-env", "#!/usr/bin/env -S bash -eu\necho ${BASH_VERSION:0:0}ok\n");
    task(&script).run().prints("ok\n");
    // A script whose interpreter is a script.
    let inner = dir.write_executable("inner", "#!/bin/sh\necho inner \"$@\"\n");
    let outer = dir.write_executable("outer", format!("#!{} x\n", inner.display()));
    let plain = Cmd::new(&outer).arg("y").run().ok();
    task(&outer).arg("y").run().prints(&plain);
    // Without a newline at its end.
    let script = dir.write_executable("abrupt", "#!/bin/echo");
    task(&script).run().prints(&format!("{}\n", script.display()));
}

#[test]
fn scripts_without_end_or_interpreter_are_refused() {
    let dir = WorkDir::new();
    let path = dir.join("loop");
    dir.write_executable("loop", format!("#!{}\n", path.display()));
    refused(&path, 126, &["loop", "interpreter"]);
    let (one, two) = (dir.join("one"), dir.join("two"));
    dir.write_executable("one", format!("#!{}\n", two.display()));
    dir.write_executable("two", format!("#!{}\n", one.display()));
    refused(&one, 126, &["interpreter"]);
    let script = dir.write_executable("missing", "#!/nonexistent/interpreter\n");
    let status = task(&script).run().code();
    assert!(matches!(status, 126 | 127));
    refused(&script, status, &["/nonexistent/interpreter"]);
    refused(&dir.write_executable("bare", "#!\n"), 126, &["bare"]);
    refused(&dir.write_executable("blank", "#!   \n"), 126, &["blank"]);
}

#[test]
fn a_segment_that_is_too_small_says_so() {
    let program = program::c("big_bss.c");
    task(&program).run().prints("x\n");
    let small = nagaya("run").args(["--segment-size", "64M"]).arg(&program).run();
    small.refused(126, &["big_bss", "segment"]);
    nagaya("run").args(["--segment-size", "512M"]).arg(&program).run().prints("x\n");
    // A program that allocates too much gets ENOMEM, and lives.
    let program = program::c("exhaust_memory.c");
    nagaya("run")
        .args(["-n", "3", "--segment-size", "512M"])
        .arg(&program)
        .run()
        .prints(&"refused\n".repeat(3));
    // The smallest segment holds small programs.
    nagaya("run")
        .args(["-n", "2", "--segment-size", "64M", "echo", "fits"])
        .run()
        .prints("fits\nfits\n");
}

#[test]
fn more_tasks_than_address_space_are_refused_before_any_starts() {
    let output =
        nagaya("run").args(["-n", "100", "--segment-size", "16T", "echo", "started"]).run();
    output.refused(125, &["16"]);
    let output = nagaya("run").args(["-n", "1000000", "echo", "started"]).run();
    output.refused(125, &["1000000"]);
    nagaya("run")
        .args(["-n", "2", "--segment-size", "16T", "echo", "fits"])
        .run()
        .prints("fits\nfits\n");
}

#[test]
fn a_task_that_uses_up_the_mappings_gets_enomem() {
    let program = program::c_pvas("memory.c");
    let output = task(&program).arg("mappings_without_end").run();
    assert!(matches!(output.clone().ok().as_str(), "refused\n" | "not refused\n"), "{output}");
}

#[test]
fn huge_arguments_and_environments_arrive_or_are_refused() {
    let argument = "x".repeat(100_000);
    let many = vec![argument.as_str(); 15];
    task("sh").args(["-c", "echo $# ${#1}", "sh"]).args(&many).run().prints("15 100000\n");
    task("sh").args(["-c", "echo ${#BIG}"]).env("BIG", &argument).run().prints("100000\n");
    // The arguments of nagaya itself, within exec's limit; a job sends them to the server.
    nagaya("exec")
        .args(["--job", &job(), "sh", "-c", "echo $# ${#1}", "sh"])
        .args(&many)
        .run()
        .prints("15 100000\n");
}
