//! `nagaya span`: others' programs that map files which are written meanwhile, or read them past
//! the page cache. They give what they give alone.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nagaya_tests::program::{c_with, include_dir};
use nagaya_tests::span::{LIMIT, span};
use nagaya_tests::{Cmd, WorkDir, tool, wait_until};
use rustix::process::Signal;

#[test]
fn readers_of_lmdb_see_committed_data() {
    let include = format!("-I{}", include_dir().display());
    let lmdb = c_with("span/lmdb.c", &["-O1", "-pthread", &include, "-llmdb"]);
    let alone = WorkDir::new();
    Cmd::new(&lmdb).arg(alone.path()).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        let work = WorkDir::new();
        span(nodes, &lmdb).arg(work.path()).run().prints("right\n");
    }
}

/// The command prints the same with a new database, alone and on nodes.
#[track_caller]
fn same_of_databases(command: &[&str], input: &str) {
    let program = tool(command[0]);
    let runs = |command_of: Cmd| {
        let work = WorkDir::new();
        let file = work.join("database");
        let command_of = command_of.args(&command[1..]).arg(&file).dir(work.path());
        command_of.stdin(input).time_limit(LIMIT).run().ok()
    };
    let alone = runs(Cmd::new(&program));
    assert!(!alone.contains("rror"), "{alone}");
    for nodes in [1, 2, 3] {
        assert_eq!(runs(span(nodes, &program)), alone, "on {nodes} nodes");
    }
}

#[test]
fn sqlite_sees_writes_of_others_in_mapped_files() {
    let others = |sql: &str| format!(".shell sqlite3 database \"{sql}\"\n");
    let rows = "from generate_series";
    let all = "select count(*), sum(x), sum(length(y)) from t;\n";
    let input = [
        "PRAGMA mmap_size=268435456;\n",
        &others(&format!(
            "create table t(x, y); insert into t select value, hex(zeroblob(200)) {rows}(1, 500)"
        )),
        all,
        &others("update t set x = x + 1"),
        all,
        // The file grows, and with it the mapping.
        &others(&format!("insert into t select value, hex(zeroblob(400)) {rows}(1, 3000)")),
        all,
        "insert into t values (7, 'ours');\n",
        &others("select count(*), max(rowid) from t"),
        "delete from t where x > 100; vacuum;\n",
        &others("update t set y = 'new'"),
        all,
        "pragma integrity_check;\n",
    ];
    same_of_databases(&["sqlite3"], &input.concat());
}

#[test]
fn threads_with_connections_to_sqlite_see_each_other_s_rows() {
    let work = WorkDir::new();
    let script = work.write(
        "threads.py",
        "import sqlite3, sys, threading\n\
         def connect():\n\
         \tdb = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=100)\n\
         \tdb.execute('PRAGMA mmap_size=268435456')\n\
         \treturn db\n\
         db = connect()\n\
         db.execute('create table t(x, y)')\n\
         barrier, seen = threading.Barrier(3), []\n\
         def work(me):\n\
         \tdb = connect()\n\
         \tfor round in range(4):\n\
         \t\tbarrier.wait()\n\
         \t\tif me == round % 3:\n\
         \t\t\tdb.execute('begin immediate')\n\
         \t\t\trows = [(round * 1000 + k, 'y' * 300) for k in range(300)]\n\
         \t\t\tdb.executemany('insert into t values (?, ?)', rows)\n\
         \t\t\tdb.execute('commit')\n\
         \t\tbarrier.wait()\n\
         \t\tseen.append((round, db.execute('select count(*), sum(x) from t').fetchone()))\n\
         all = [threading.Thread(target=work, args=(me,)) for me in range(3)]\n\
         [it.start() for it in all]\n\
         [it.join() for it in all]\n\
         print(sorted(seen), db.execute('pragma integrity_check').fetchone())\n",
    );
    same_of_databases(&["python3", script.to_str().expect("text")], "");
}

const NGINX: &str = "daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
thread_pool default threads=4;
events { }
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {
        listen unix:socket;
        root .;
        location / { aio threads; directio 512; output_buffers 2 64k; }
    }
}
";

fn get(socket: &Path, name: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).expect("nginx listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    write!(stream, "GET /{name} HTTP/1.0\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a header");
    answer.split_off(end + 4)
}

#[test]
fn nginx_serves_files_that_its_threads_read_directly() {
    let nginx = tool("nginx");
    let bytes = |count: u32| {
        (0..count).flat_map(|it: u32| it.wrapping_mul(it).to_le_bytes()).collect::<Vec<u8>>()
    };
    let files = [("large", bytes(500_000)), ("small", bytes(200)), ("pages", bytes(4096))];
    let commands = [1, 2, 3].map(|nodes| span(nodes, &nginx));
    for command in [Cmd::new(&nginx).time_limit(LIMIT)].into_iter().chain(commands) {
        let work = WorkDir::short();
        let socket = work.join("socket");
        let listen = format!("unix:{}", socket.display());
        let root = format!("root {}", work.path().display());
        let text = NGINX.replace("unix:socket", &listen).replace("root .", &root);
        work.write("nginx.conf", text);
        files.iter().for_each(|(name, content)| drop(work.write(name, content)));
        let server = command.arg("-p").arg(work.path()).args(["-c", "nginx.conf"]).spawn();
        wait_until("nginx listens", Duration::from_secs(60), || {
            UnixStream::connect(&socket).is_ok()
        });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for (name, content) in files.iter().cycle().take(9) {
                        assert!(get(&socket, name) == *content, "{name} has other bytes");
                    }
                });
            }
        });
        server.signal(Signal::QUIT);
        server.wait().ends_with(0);
    }
}
