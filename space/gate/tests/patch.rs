//! `c/patch.c` on real libraries, compared with objdump. Each call number that it finds is right,
//! it moves whole instructions correctly, and it misses no call in libc and its dynamic linker
//! that the gate must answer.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

mod driver;

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
const LINKER: &str = "/lib64/ld-linux-x86-64.so.2";
const OTHERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
    "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
    "/usr/lib/x86_64-linux-gnu/libgomp.so.1",
    "/usr/lib/x86_64-linux-gnu/libfabric.so.1",
    "/usr/lib/x86_64-linux-gnu/libasan.so.8",
    "/usr/lib/x86_64-linux-gnu/libtsan.so.2",
    "/bin/bash",
];

fn patcher() -> &'static Path {
    static DRIVER: OnceLock<PathBuf> = OnceLock::new();
    DRIVER.get_or_init(|| driver::compile("patch_sites"))
}

/// System calls that the gate answers.
fn handled() -> HashSet<u32> {
    let text = driver::succeed(Command::new(patcher()).arg("handled"));
    text.lines().map(|line| line.parse().expect("a number")).collect()
}

/// An executable part of a file.
struct Text {
    offset: u64,
    length: u64,
    address: u64,
}

fn texts(path: &str) -> Vec<Text> {
    let bytes = fs::read(path).expect("read");
    let word = |at: u64| {
        let at = at as usize;
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
    };
    let (headers, count) = (word(32), word(56) & 0xffff);
    let headers = (0..count).map(|n| headers + n * 56);
    // PT_LOAD with PF_X.
    let executable = headers.filter(|&at| word(at) as u32 == 1 && word(at) >> 32 & 1 != 0);
    executable
        .map(|at| Text { offset: word(at + 8), address: word(at + 16), length: word(at + 32) })
        .collect()
}

/// An instruction as objdump shows it.
#[derive(Debug, Clone)]
struct Instruction {
    length: u64,
    text: String,
}

type Listing = BTreeMap<u64, Instruction>;

fn disassemble(arguments: &[&str]) -> Listing {
    let mut command = Command::new("objdump");
    let listing = driver::succeed(command.args(["-d", "-w"]).args(arguments));
    let parse = |line: &str| {
        let mut fields = line.split('\t');
        let address = u64::from_str_radix(fields.next()?.trim().strip_suffix(':')?, 16).ok()?;
        let length = fields.next()?.split_whitespace().count() as u64;
        let text = fields.next().unwrap_or_default();
        // The text after # is the target of a RIP-relative address. Its name is omitted, since a
        // stub's listing has none.
        let text: String = match text.split_once('#') {
            Some((text, target)) => {
                let target = target.split_whitespace().next().unwrap_or_default();
                let target = target.trim_start_matches("0x");
                let operands = text.split_whitespace().collect::<Vec<_>>().join(" ");
                // The displacement itself differs where the instruction lies elsewhere.
                let (from, to) = (operands.rfind(' '), operands.find("(%rip)"));
                match (from, to) {
                    (Some(_), Some(to)) => {
                        let start = operands[..to]
                            .rfind(|c: char| !c.is_ascii_hexdigit() && c != 'x' && c != '-')
                            .map_or(0, |at| at + 1);
                        format!("{}[0x{target}]{}", &operands[..start], &operands[to..])
                    }
                    _ => operands,
                }
            }
            None => text.split_whitespace().collect::<Vec<_>>().join(" "),
        };
        Some((address, Instruction { length, text }))
    };
    listing.lines().filter_map(parse).collect()
}

/// Returns the addresses that jumps and calls lead to.
fn targets(listing: &Listing) -> BTreeSet<u64> {
    let target = |instruction: &Instruction| {
        let (mnemonic, operand) = instruction.text.split_once(' ')?;
        let leads = ["j", "call", "loop", "xbegin"].iter().any(|m| mnemonic.starts_with(m));
        let operand = operand.split(' ').next().filter(|_| leads)?;
        u64::from_str_radix(operand.trim_start_matches("0x"), 16).ok()
    };
    listing.values().filter_map(target).collect()
}

fn present(path: &str) -> bool {
    let present = Path::new(path).exists();
    if !present {
        skip::machine_lacks(path);
    }
    present
}

fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text, 16).expect("a hexadecimal number")
}

/// Returns true if the instruction writes rax or a part of it.
fn writes_rax(text: &str) -> bool {
    let mnemonic = text.split(' ').next().unwrap_or_default();
    let reads_only = ["test", "cmp", "push", "nop"].iter().any(|m| mnemonic.starts_with(m));
    let last = text.rsplit([',', ' ']).next().unwrap_or_default();
    let both = mnemonic.starts_with("xchg") && text.contains("ax");
    let names = ["%rax", "%eax", "%ax", "%al", "%ah"];
    !reads_only && text != "xchg %ax,%ax" && (names.contains(&last) || both)
}

/// Returns the number in `eax` at `at`, if the straight code before it determines it. If it comes
/// from another register, the nearest load before it counts: compilers keep the number of a
/// repeated call there.
fn number_at(listing: &Listing, at: u64) -> Option<u32> {
    let number = |text: &str, register: &str| {
        let rest = text.strip_prefix("mov $0x")?.strip_suffix(register)?;
        u32::from_str_radix(rest.strip_suffix(",%")?, 16).ok()
    };
    for (&copied, Instruction { text, .. }) in listing.range(..at).rev().take(40) {
        if let Some(number) = number(text, "eax").or(number(text, "rax")) {
            return Some(number);
        }
        if text == "xor %eax,%eax" {
            return Some(0);
        }
        let source = text.strip_prefix("mov %").and_then(|rest| rest.strip_suffix(",%eax"));
        if let Some(register) = source.filter(|register| !register.contains('(')) {
            let before = listing.range(..copied).rev().take(1000);
            return before.map(|(_, i)| number(&i.text, register)).find_map(|number| number);
        }
        let mnemonic = text.split(' ').next().unwrap_or_default();
        let ends = ["jmp", "ret", "call", "syscall", "ud2", "hlt", "(bad)", "notrack"];
        let implicit = ["cpuid", "cltq", "cqto", "mul", "imul", "div", "idiv", "rdtsc", "xgetbv"];
        if ends.contains(&mnemonic)
            || implicit.contains(&mnemonic)
            || mnemonic.contains("cmpxchg")
            || mnemonic.starts_with("xadd")
            || writes_rax(text)
        {
            return None;
        }
    }
    None
}

/// The instructions that the decoder may move, by the beginning of their names.
const MOVABLE: &[&str] = &[
    "mov",
    "lea",
    "push",
    "pop",
    "xor",
    "pxor",
    "add",
    "adc",
    "sub",
    "sbb",
    "and",
    "or",
    "test",
    "cmp",
    "nop",
    "xchg %ax,%ax",
    "data16 lea",
];

/// Checks the decoder on every instruction of the file. A movable one has objdump's length,
/// neither branches nor writes rax, and its displacement is found.
fn check_decoder(path: &str, listing: &Listing) {
    let mut movable = 0;
    for text in texts(path) {
        let mut child = Command::new(patcher())
            .args(["decode", path, &text.offset.to_string(), &text.length.to_string()])
            .arg(text.address.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the driver");
        let range = text.address..text.address + text.length;
        let starts = listing.range(range).fold(String::new(), |mut all, (start, _)| {
            let _ = writeln!(all, "{start:x}");
            all
        });
        let mut input = child.stdin.take().expect("piped");
        let writer = std::thread::spawn(move || input.write_all(starts.as_bytes()));
        let output = child.wait_with_output().expect("wait");
        writer.join().expect("join").expect("write");
        assert!(output.status.success(), "{path}: {}", output.status);
        for line in String::from_utf8(output.stdout).expect("text").lines() {
            let fields: Vec<_> = line.split(' ').collect();
            let (start, length) = (hexadecimal(fields[0]), fields[1].parse::<u64>().unwrap());
            let Instruction { length: wanted, text } = &listing[&start];
            let at = format!("{path}: {start:x}: {text}");
            assert_eq!(length, *wanted, "{at}");
            assert!(!writes_rax(text), "{at}");
            assert!(MOVABLE.iter().any(|name| text.starts_with(name)), "{at}");
            assert_eq!(fields[2] != "0", text.contains("(%rip)"), "{at}");
            movable += 1;
        }
    }
    println!("{path}: {movable} of {} instructions may be moved", listing.len());
    assert!(movable > 0, "{path}");
}

/// Checks the sites of the file. Returns the lines about unreached ones.
fn check_sites(path: &str, listing: &Listing) -> Vec<String> {
    let handled = handled();
    let targets = targets(listing);
    let stubs =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.stubs", path.replace('/', "_")));
    let (mut reached, mut unreached, mut escaped) = (0, Vec::new(), Vec::new());
    for text in texts(path) {
        let output = driver::succeed(
            Command::new(patcher())
                .args(["sites", path, &text.offset.to_string(), &text.length.to_string()])
                .arg(text.address.to_string())
                .arg(&stubs),
        );
        let stub_area = text.address + text.length.next_multiple_of(4096);
        let area = format!("--adjust-vma={stub_area:#x}");
        let file = stubs.to_str().expect("text");
        let stub_listing = match output.contains(" stub ") {
            true => disassemble(&["-D", "-b", "binary", "-m", "i386:x86-64", &area, file]),
            false => Listing::new(),
        };
        for line in output.lines().filter(|line| !line.starts_with("total")) {
            let (site, stub) = line.split_once(" stub ").unwrap_or((line, ""));
            let fields: Vec<_> = site.split(' ').collect();
            let call = hexadecimal(fields[0]);
            let is_call = listing.get(&call).is_some_and(|i| i.text == "syscall");
            let number = if is_call { number_at(listing, call) } else { None };
            match fields[1] {
                "reached" => {
                    assert!(is_call, "{path}: no system call at {call:x}");
                    check_site(path, listing, &targets, call, fields[2], &fields[3..]);
                    check_stub(path, listing, &stub_listing, call, &fields[3..], stub);
                    reached += 1;
                }
                // Bytes that only look like a call.
                _ if !is_call => {}
                "harmless" => {
                    let wrong = number.is_some_and(|number| handled.contains(&number));
                    assert!(!wrong, "{path}: {call:x} has the number {number:?}");
                }
                _ => {
                    let number = number.map_or("an unknown number".into(), |n| format!("{n}"));
                    let line = format!("{path}: {call:x} is not reached: {number}");
                    if number.parse().is_ok_and(|n| handled.contains(&n)) {
                        escaped.push(line.clone());
                    }
                    unreached.push(line);
                }
            }
        }
    }
    println!("{path}: {reached} sites reached, {} not", unreached.len());
    for line in &unreached {
        println!("{line}");
    }
    let _ = fs::remove_file(stubs);
    escaped
}

/// objdump shows the same instructions: the one with the number, those moved, the call.
fn check_site(
    path: &str,
    listing: &Listing,
    targets: &BTreeSet<u64>,
    call: u64,
    number: &str,
    starts: &[&str],
) {
    let first = hexadecimal(starts[0]);
    let head = &listing.get(&first).unwrap_or_else(|| panic!("{path}: nothing at {first:x}")).text;
    let number_there = match number {
        "any" if starts.len() == 2 => {
            let number = &listing[&hexadecimal(starts[1])].text;
            head.starts_with("mov 0x") && number.starts_with("mov ") && number.ends_with("),%eax")
        }
        "any" => head == "mov 0x8(%rsp),%r9",
        n => {
            let n: u32 = n.parse().expect("a number");
            *head == format!("mov ${n:#x},%eax") || *head == format!("mov ${n:#x},%rax")
        }
    };
    assert!(number_there, "{path}: {first:x}: {head}, not the number {number}");
    let shown: Vec<u64> = listing.range(first..call).map(|(&at, _)| at).collect();
    let ours: Vec<u64> = starts.iter().map(|at| hexadecimal(at)).collect();
    assert_eq!(shown, ours, "{path}: the instructions in front of {call:x}");
    let replaced = match number {
        "any" => call - first,
        _ => listing[&first].length,
    };
    assert!(replaced >= 5, "{path}: no room for a jump at {first:x}");
    let inside = targets.range(first + 1..first + replaced).next();
    assert_eq!(inside, None, "{path}: a jump into what is replaced at {first:x}");
    for (at, Instruction { text, .. }) in listing.range(first + replaced..call) {
        assert!(!writes_rax(text), "{path}: {at:x}: {text}");
    }
}

/// The stub repeats them, calls the gate below the red zone, makes the system call or
/// jumps over it, and returns behind the original.
fn check_stub(
    path: &str,
    listing: &Listing,
    stubs: &Listing,
    call: u64,
    starts: &[&str],
    range: &str,
) {
    let (start, end) = range.split_once(' ').expect("two addresses");
    let stub: Vec<&str> = stubs
        .range(hexadecimal(start)..hexadecimal(end))
        .map(|(_, instruction)| instruction.text.as_str())
        .collect();
    let moved: Vec<&str> =
        starts.iter().map(|at| listing[&hexadecimal(at)].text.as_str()).collect();
    assert_eq!(&stub[..moved.len()], moved, "{path}: the stub for {call:x}");
    let jump = format!("jmp {:#x}", call + 2);
    let rest = &stub[moved.len()..];
    let behind_call = hexadecimal(end) - 5;
    let skip = format!("jrcxz {behind_call:#x}");
    let wanted = [
        "lea -0x80(%rsp),%rsp",
        "movabs $0x123456789abc,%r11",
        rest.get(2).copied().unwrap_or_default(), // the gate's address
        "call *%rcx",
        "lea 0x80(%rsp),%rsp",
        &skip,
        "syscall",
        &jump,
    ];
    assert_eq!(rest, wanted, "{path}: the stub for {call:x}");
}

#[test]
fn libc_and_its_linker_are_reached_wherever_it_matters() {
    for path in [LIBC, LINKER] {
        let path = fs::canonicalize(path).expect("every Linux has them");
        let path = path.to_str().expect("text");
        let listing = disassemble(&[path]);
        check_decoder(path, &listing);
        let mut escaped = check_sites(path, &listing);
        // aio blocks all signals while it starts a helper thread, which makes no copies.
        let before = escaped.len();
        escaped.retain(|line| !line.ends_with("reached: 14"));
        assert!(escaped.is_empty() && before <= 2, "{before} {escaped:#?}");
    }
}

#[test]
fn other_libraries_are_patched_rightly() {
    for path in OTHERS.iter().filter(|path| present(path)) {
        let path = fs::canonicalize(path).expect("present");
        let path = path.to_str().expect("text");
        let listing = disassemble(&[path]);
        check_decoder(path, &listing);
        for line in check_sites(path, &listing) {
            println!("{line}, which the gate answers");
        }
    }
}

/// Returns what the patcher says about the only call in `code`: `harmless`, `unreached`, or
/// `reached` and the number.
fn site_in(name: &str, code: &[u8]) -> String {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (file, stubs) = (directory.join(name), directory.join(format!("{name}.stubs")));
    // The patcher reads a few bytes behind a call.
    let bytes = [code, &[0x90; 16]].concat();
    fs::write(&file, &bytes).expect("write");
    let mut command = Command::new(patcher());
    command.arg("sites").arg(&file).args(["0", &bytes.len().to_string(), "4096"]).arg(&stubs);
    let output = driver::succeed(&mut command);
    let _ = (fs::remove_file(file), fs::remove_file(stubs));
    let fields: Vec<_> = output.lines().next().expect("a site").split(' ').skip(1).collect();
    match fields[..] {
        ["reached", number, ..] => format!("reached {number}"),
        _ => fields[0].to_owned(),
    }
}

const MMAP: &[u8] = &[0xb8, 9, 0, 0, 0]; // mov $9,%eax
const SYSCALL: &[u8] = &[0x0f, 0x05];

#[test]
fn a_write_of_ah_before_a_call_is_not_moved() {
    let between = |name, code: &[u8]| site_in(name, &[MMAP, code, SYSCALL].concat());
    assert_eq!(between("ah-none", &[]), "reached 9");
    assert_eq!(between("ah-spl", &[0x40, 0xc6, 0xc4, 1]), "reached 9"); // mov $1,%spl
    assert_eq!(between("ah-c6", &[0xc6, 0xc4, 1]), "unreached"); // mov $1,%ah
    assert_eq!(between("ah-b4", &[0xb4, 1]), "unreached"); // mov $1,%ah
    assert_eq!(between("ah-88", &[0x88, 0xdc]), "unreached"); // mov %bl,%ah
    assert_eq!(between("ah-8a", &[0x8a, 0x23]), "unreached"); // mov (%rbx),%ah
    assert_eq!(between("xabort", &[0xc6, 0xf8, 1]), "unreached");
}

#[test]
fn an_exchange_with_rax_before_a_call_is_not_moved() {
    let between = |name, code: &[u8]| site_in(name, &[MMAP, code, SYSCALL].concat());
    assert_eq!(between("xchg-nop", &[0x90]), "reached 9");
    assert_eq!(between("xchg-41-90", &[0x41, 0x90]), "unreached"); // xchg %eax,%r8d
    assert_eq!(between("xchg-49-90", &[0x49, 0x90]), "unreached"); // xchg %rax,%r8
    assert_eq!(between("xchg-93", &[0x93]), "unreached"); // xchg %eax,%ebx
    assert_eq!(between("xchg-48-93", &[0x48, 0x93]), "unreached"); // xchg %rax,%rbx
    assert_eq!(between("xchg-87", &[0x48, 0x87, 0xd8]), "unreached"); // xchg %rbx,%rax
    assert_eq!(between("xchg-86", &[0x86, 0xc3]), "unreached"); // xchg %al,%bl
}

#[test]
fn a_write_of_another_register_is_no_call_number() {
    let after = |name, code: &[u8]| site_in(name, &[MMAP, code, SYSCALL].concat());
    assert_eq!(after("xor-eax", &[0x31, 0xc0]), "harmless"); // xor %eax,%eax: read
    assert_eq!(after("xor-r8", &[0x45, 0x31, 0xc0]), "reached 9"); // xor %r8d,%r8d
    assert_eq!(after("xor-rax-r8", &[0x49, 0x31, 0xc0]), "reached 9"); // xor %rax,%r8
    assert_eq!(after("mov-r8", &[0x41, 0xb8, 1, 0, 0, 0]), "reached 9"); // mov $1,%r8d
    assert_eq!(after("mov-ax", &[0x66, 0xb8, 1, 0, 0, 0, 0]), "unreached"); // mov $1,%ax
}

#[test]
fn a_call_whose_number_lies_in_a_structure_is_reached() {
    let site = |name: &str, code: &[u8]| site_in(name, &[code, SYSCALL].concat());
    let codes: [(&str, &[u8]); 4] = [
        ("rbx", &[0x48, 0x8b, 0x53, 0x18, 0x8b, 0x03]), // mov 24(%rbx),%rdx; mov (%rbx),%eax
        ("rbp", &[0x48, 0x8b, 0x7d, 0x08, 0x8b, 0x45, 0]), // mov 8(%rbp),%rdi; mov 0(%rbp),%eax
        ("r9", &[0x49, 0x8b, 0x71, 0x10, 0x41, 0x8b, 0x01]), // mov 16(%r9),%rsi; mov (%r9),%eax
        ("r12", &[0x49, 0x8b, 0x54, 0x24, 0x18, 0x41, 0x8b, 0x04, 0x24]), // the same of (%r12)
    ];
    for (name, code) in codes {
        assert_eq!(site(&format!("loads-{name}"), code), "reached any", "{name}");
    }
    let other = [0x48, 0x8b, 0x53, 0x18, 0x8b, 0x01]; // the number comes from (%rcx)
    assert_eq!(site("loads-other", &other), "unreached");
    let lost = [0x48, 0x8b, 0x52, 0x18, 0x8b, 0x02]; // mov 24(%rdx),%rdx; mov (%rdx),%eax
    assert_eq!(site("loads-lost", &lost), "unreached");
    let far = [0x48, 0x8b, 0x53, 0x20, 0x8b, 0x03]; // no argument of such a call
    assert_eq!(site("loads-far", &far), "unreached");
}
