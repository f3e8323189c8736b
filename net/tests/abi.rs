//! What `ucp.rs` and `pmix.rs` declare by hand is what the libraries' own headers say: a C
//! program that includes them prints every size, offset and constant.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use net::pmix;
use net::ucx::ucp;

/// Structure, size, and name, offset and size of each field.
type Layout = [(&'static str, usize, &'static [(&'static str, usize, usize)])];

/// Compiles and runs a C program that checks each line of these.
fn check(header: &str, flags: &[&str], layout: &Layout, constants: &[(&str, i64)]) {
    let mut program = format!(
        "#include <{header}>\n#include <stdio.h>\n#include <stddef.h>\n\
         static int wrong;\n\
         static void check(const char *what, long long is, long long ours)\n\
         {{ if (is != ours) {{ printf(\"%s is %lld, not %lld\\n\", what, is, ours); wrong = 1; }} }}\n\
         int main(void) {{\n"
    );
    let mut line = |expression: &str, ours: i64| {
        let text = expression.replace('"', "'");
        program += &format!("check(\"{text}\", (long long)({expression}), {ours}LL);\n");
    };
    for (structure, size, fields) in layout {
        line(&format!("sizeof({structure})"), *size as i64);
        for (field, offset, size) in *fields {
            let field = field.trim_start_matches("r#");
            line(&format!("offsetof({structure}, {field})"), *offset as i64);
            line(&format!("sizeof((({structure} *)0)->{field})"), *size as i64);
        }
    }
    for (name, value) in constants {
        line(name, *value);
    }
    program += "return wrong; }\n";
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    static PROGRAMS: AtomicUsize = AtomicUsize::new(0);
    let number = PROGRAMS.fetch_add(1, Ordering::Relaxed);
    let [source, executable] = ["c", "out"].map(|e| directory.join(format!("abi{number}.{e}")));
    std::fs::write(&source, program).unwrap();
    let cc = Command::new("cc").arg(&source).args(flags).arg("-o").arg(&executable).output();
    let cc = cc.expect("a C compiler: run scripts/deps");
    assert!(cc.status.success(), "run scripts/deps: {}", String::from_utf8_lossy(&cc.stderr));
    let run = Command::new(&executable).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}

#[test]
fn ucp_is_as_its_header_says() {
    check("ucp/api/ucp.h", &[], ucp::LAYOUT, ucp::CONSTANTS);
}

#[test]
fn pmix_is_as_its_header_says() {
    let flags = Command::new("pkg-config").args(["--cflags", "pmix"]).output();
    let flags = flags.expect("pkg-config: run scripts/deps");
    assert!(flags.status.success(), "no header of PMIx: run scripts/deps");
    let flags = String::from_utf8(flags.stdout).unwrap();
    let flags: Vec<&str> = flags.split_whitespace().collect();
    check("pmix.h", &flags, pmix::LAYOUT, pmix::CONSTANTS);
    let keys = [
        ("PMIX_JOB_SIZE", pmix::JOB_SIZE),
        ("PMIX_LOCAL_RANK", pmix::LOCAL_RANK),
        ("PMIX_HOSTNAME", pmix::HOSTNAME),
        ("PMIX_COLLECT_DATA", pmix::COLLECT_DATA),
    ];
    let same = keys.map(|(name, key)| (format!("strcmp({name}, {key:?})"), 0));
    let same: Vec<(&str, i64)> = same.iter().map(|(text, zero)| (text.as_str(), *zero)).collect();
    check("pmix.h", &[&flags[..], &["-include", "string.h"]].concat(), &[], &same);
}
