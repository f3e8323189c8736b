//! Compares mailboxes with stock PVM: random scripts of calls must have the same results.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestRng, TestRunner};
use pvm::tid::Tid;
use pvm::wire::Parcel;
use pvmd::errand::Asker;
use pvmd::mailboxes::Mailboxes;

const LINES: usize = 2000;

#[derive(Clone, Debug)]
enum Call {
    Put(usize, char, i32),
    Get(usize, char, i32, i32),
    Delete(usize, char, i32),
    List,
    End,
}

fn call() -> impl Strategy<Value = Call> {
    let who = || 0..2usize;
    let class = || proptest::char::range('a', 'd');
    // Some flags contain a direct index.
    let flags = (0..8i32, prop_oneof_weighted()).prop_map(|(flags, index)| flags | index << 10);
    let get = proptest::sample::select(vec![0, 8, 16, 24]);
    proptest::prop_oneof![
        8 => (who(), class(), flags).prop_map(|(w, c, f)| Call::Put(w, c, f)),
        4 => (who(), class(), 0..5i32, get).prop_map(|(w, c, i, f)| Call::Get(w, c, i, f)),
        4 => (who(), class(), 0..5i32).prop_map(|(w, c, i)| Call::Delete(w, c, i)),
        4 => proptest::strategy::Just(Call::List),
        1 => proptest::strategy::Just(Call::End),
    ]
}

fn prop_oneof_weighted() -> impl Strategy<Value = i32> {
    proptest::prop_oneof![3 => proptest::strategy::Just(0), 2 => 1..5i32]
}

/// Stock PVM's daemon, in a private directory.
struct Stock {
    directory: PathBuf,
    daemon: Child,
}

impl Stock {
    fn start() -> Stock {
        let directory = std::env::temp_dir().join(format!("pvmd-stock-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).expect("a new directory");
        let mut daemon = Stock::command("pvmd", &directory);
        let daemon = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pvmd");
        let until = Instant::now() + Duration::from_secs(20);
        let is_ready = |name: &str| name.starts_with("pvmd.");
        while !std::fs::read_dir(&directory)
            .expect("the directory")
            .any(|entry| is_ready(&entry.expect("an entry").file_name().to_string_lossy()))
        {
            assert!(Instant::now() < until, "stock pvmd does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        Stock { directory, daemon }
    }

    fn command(program: impl AsRef<std::ffi::OsStr>, directory: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("PVM_ROOT", "/usr/lib/pvm3").env("PVM_ALLOW_ROOT", "1");
        command.env("PVM_TMP", directory).env("PVM_VMID", "mailboxes").stdin(Stdio::null());
        command
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.daemon);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.daemon.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Returns the text that the oracle prints for the same calls.
fn ours(calls: &[Call]) -> String {
    let mut text = String::new();
    let mut boxes = Mailboxes::default();
    let mut tids = [Tid(1), Tid(2)];
    let number = |bytes: &Parcel| i32::from_le_bytes(bytes.bytes[..].try_into().expect("4 bytes"));
    for (line, call) in calls.iter().enumerate() {
        let parcel = Parcel { bytes: (line as i32 + 1).to_le_bytes().to_vec() };
        let result = |result: Result<i32, pvm::error::Error>| result.unwrap_or_else(|e| e.code());
        let _ = match *call {
            Call::Put(who, class, flags) => {
                let put = boxes.put(tids[who], &class.to_string(), None, flags, parcel);
                writeln!(text, "put {} -1", result(put))
            }
            Call::Get(who, class, index, flags) => {
                let asker = Asker { tid: tids[who], id: 1 };
                match boxes.get(asker, &class.to_string(), index, flags).expect("no wait") {
                    Ok((_, parcel)) => writeln!(text, "get 0 {}", number(&parcel)),
                    Err(error) => writeln!(text, "get {} -1", error.code()),
                }
            }
            Call::Delete(who, class, index) => {
                let deleted = boxes.delete(tids[who], &class.to_string(), index);
                writeln!(text, "del {} -1", result(deleted))
            }
            Call::List => {
                text.push_str("list 0");
                for class in boxes.list(|_| true) {
                    let _ = write!(text, " {}", class.name);
                    for (index, owner, flags) in class.entries {
                        let owner = tids.iter().position(|tid| *tid == owner).unwrap_or(9);
                        let _ = write!(text, ",{index}:{owner}:{flags}");
                    }
                }
                writeln!(text)
            }
            Call::End => {
                boxes.ended(|tid| tid == tids[1]);
                tids[1] = Tid(tids[1].0 + 1);
                writeln!(text, "end")
            }
        };
    }
    text
}

#[test]
fn mailboxes_are_those_of_stock_pvm() {
    if !Path::new("/usr/bin/pvmd").exists() {
        return skip::machine_lacks("stock PVM's daemon (package pvm)");
    }
    let seed = std::env::var("NAGAYA_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| u64::from(std::process::id()));
    println!("NAGAYA_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config::default();
    let rng = TestRng::from_seed(config.rng_algorithm, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let calls = proptest::collection::vec(call(), LINES);
    let calls = calls.new_tree(&mut runner).expect("calls").current();
    let mut script = String::new();
    for call in &calls {
        let _ = match call {
            Call::Put(who, class, flags) => writeln!(script, "{who} put {class} {flags}"),
            Call::Get(who, class, index, flags) => {
                writeln!(script, "{who} get {class} {index} {flags}")
            }
            Call::Delete(who, class, index) => writeln!(script, "{who} del {class} {index} 0"),
            Call::List => writeln!(script, "0 list"),
            Call::End => writeln!(script, "1 end"),
        };
    }
    let stock = Stock::start();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/mailboxes.c");
    let program = stock.directory.join("mailboxes");
    let built = Command::new("cc").arg("-o").arg(&program).arg(source).arg("-lpvm3").status();
    assert!(built.expect("cc").success());
    let mut oracle = Stock::command(&program, &stock.directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle");
    let mut input = oracle.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || input.write_all(script.as_bytes()));
    let theirs = oracle.wait_with_output().expect("output").stdout;
    writer.join().expect("a thread").expect("written");
    let theirs = String::from_utf8(theirs).expect("text");
    let ours = ours(&calls);
    for (number, ((ours, theirs), call)) in ours.lines().zip(theirs.lines()).zip(&calls).enumerate()
    {
        assert_eq!(ours, theirs, "call {number}, {call:?}, NAGAYA_SEED={seed}");
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
}
