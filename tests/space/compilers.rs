//! Compilers as tasks, and as children of tasks: drivers that fork and exec.

use nagaya_tests::program::source_dir;
use nagaya_tests::{Cmd, WorkDir, task, tool};

#[test]
fn rustc_compiles_a_program() {
    // The compiler itself, not rustup's proxy, which execs it.
    let sysroot = Cmd::new("rustc").args(["--print", "sysroot"]).run().ok();
    let rustc = std::path::Path::new(sysroot.trim()).join("bin/rustc");
    let dir = WorkDir::new();
    let source = dir.write(
        "hello.rs",
        "fn main() { println!(\"{}\", (1..=10).map(|n| n.to_string()).collect::<String>()); }",
    );
    task(rustc).args(["-O", "-o", "hello"]).arg(source).dir(dir.path()).run().ok();
    Cmd::new(dir.join("hello")).run().prints("12345678910\n");
    // And what it made is PIE: a task.
    task(dir.join("hello")).run().prints("12345678910\n");
}

#[test]
fn a_proxy_that_execs_the_compiler_works() {
    let version = task("rustc").arg("--version").run().ok();
    assert!(version.starts_with("rustc "), "{version}");
}

#[test]
fn make_runs_compiler_drivers_in_parallel() {
    let dir = WorkDir::new();
    let declarations = "int part1(void), part2(void), part3(void), part4(void);\n";
    let main = "int main(void) { return part1() + part2() + part3() + part4(); }\n";
    dir.write("main.c", format!("{declarations}{main}"));
    task(tool("make"))
        .arg("-f")
        .arg(source_dir().join("Makefile.many"))
        .args(["-s", "-j", "3"])
        .dir(dir.path())
        .run()
        .ok();
    task(dir.join("many")).run().ends_with(10);
}

#[test]
fn a_shell_task_compiles_with_gcc_and_gxx() {
    let dir = WorkDir::new();
    dir.write("a.c", "#include <stdio.h>\nint main(void) { puts(\"from C\"); }\n");
    dir.write("b.cc", "#include <iostream>\nint main() { std::cout << \"from C++\\n\"; }\n");
    let script = "gcc -o a a.c && g++ -o b b.cc && ./a && ./b";
    task("sh").args(["-c", script]).dir(dir.path()).run().prints("from C\nfrom C++\n");
    task(dir.join("b")).run().prints("from C++\n");
}

#[test]
fn the_linker_and_the_assembler_run_as_tasks_where_they_are_pie() {
    let dir = WorkDir::new();
    dir.write("a.s", ".globl answer\nanswer: .quad 42\n");
    for tool_name in ["as", "ld.bfd"] {
        let path = tool(tool_name);
        if !is_pie(&path) {
            nagaya_tests::machine_lacks(&format!("a position-independent {tool_name}"));
            return;
        }
    }
    task(tool("as")).args(["-o", "a.o", "a.s"]).dir(dir.path()).run().ok();
    task(tool("ld.bfd")).args(["-shared", "-o", "a.so", "a.o"]).dir(dir.path()).run().ok();
    assert!(dir.join("a.so").exists());
}

/// Returns true if an ELF file is of type `ET_DYN`.
fn is_pie(path: &std::path::Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.get(16) == Some(&3))
}
