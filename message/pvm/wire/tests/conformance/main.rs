//! Our buffers beside those of stock PVM 3.4.6: scripts of calls, fixed and random, must have
//! the same results, byte for byte. `NAGAYA_SEED=n` repeats a random run.

mod ours;
mod stock;

use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use pvm::buffers::FRAGMENT_SIZE;

use ours::Ours;
use stock::Stock;

/// The first line on which they differ.
fn difference(stock: &Stock, script: &str) -> Option<String> {
    let expected = stock.run(script);
    let (tid, fragment_size) = expected[0].split_once(' ').expect("the oracle's greeting");
    assert_eq!(fragment_size.parse(), Ok(FRAGMENT_SIZE));
    let got = Ours::new(tid.parse().expect("a tid")).run(script);
    assert_eq!(expected.len(), got.len() + 1);
    let line = (0..got.len()).find(|&i| expected[i + 1] != got[i])?;
    let so_far: Vec<_> = script.lines().take(line + 1).collect();
    Some(format!("{}\nstock: {}\nours:  {}", so_far.join("\n"), expected[line + 1], got[line]))
}

fn agree(name: &str, script: &str) {
    let Some(stock) = Stock::start(name) else {
        return;
    };
    if let Some(difference) = difference(&stock, script) {
        panic!("{difference}");
    }
}

#[test]
fn every_type_in_every_encoding() {
    let mut script = "fill 3\n".to_owned();
    for encoding in 0..4 {
        let kinds = ["b", "s", "i", "l", "us", "ui", "ul", "f", "d", "c", "z"];
        script += &format!("initsend {encoding}\n");
        if encoding == 3 {
            continue;
        }
        for kind in kinds {
            script += &format!("pack {kind} @16 7 1\npack {kind} @0 3 2\npack {kind} @0 0 1\n");
        }
        script += "packstr 0\npackstr 13\ngetsbuf\ndump 5\ndump 6\nloop 7\ngetrbuf\n";
        for kind in kinds {
            script += &format!("unpack {kind} >16 7 1\n");
            if encoding != 2 {
                script += &format!("unpack {kind} >0 3 2\n");
            }
        }
        script += "unpackstr\nunpackstr\nunpack i >0 1 1\nunpack b >0 0 1\n";
    }
    agree("types", &script);
}

#[test]
fn nested_messages() {
    let mut script = "fill 4\n".to_owned();
    for outer in [0, 1] {
        for inner in [0, 1, 2] {
            script += &format!(
                "initsend {inner}\npack i @0 2000 1\npack d @8 3 1\nloop 1\ninitsend {outer}\n\
                 pkmesg 5\npkmesg 6\npkmesg 4\npkmesg 0\npkmesg 77\npack s @0 3 1\ndump 6\ndump 5\n\
                 loop 2\nupkmesg\ngetrbuf\nunpack s >0 3 1\nsetrbuf 3\nunpack i >0 2000 1\n\
                 unpack d >0 3 1\nunpack d >0 1 1\nfreebuf 3\n"
            );
        }
    }
    script += "initsend 1\npack i @0 9 1\npack b @0 3 1\nmkbuf 1\nsetsbuf 4\npkmesgbody 5\ndump 4\n\
               pkmesgbody 6\nmkbuf 0\nsetsbuf 3\npkmesgbody 4\npkmesgbody 3\n";
    agree("nested", &script);
}

#[test]
fn formats() {
    agree(
        "formats",
        "fill 5\npackf %d 1\npackf %+ 1\npackf %+%d%hd%ld%ud%c%f%lf 0 -5 70000 99 7 65\n\
         packf %3d @0\npackf %*d 4 @8\npackf %*.*d 4 3 @8\npackf %2.3ud @0\npackf %.2d @0\n\
         packf %x @0\npackf %2lx @0\npackf %y\npackf %d% 3\npackf text%%d 5\npackf %2hud @0\n\
         packf %3uld @0\npackf %4c @0\npackf %4.2f @0\npackf %4.0lf @0\npackf %s @524287\ndump 6\n\
         loop 3\n\
         unpackf %d%hd%ld%ud%c%f%lf >0 >8 >16 >24 >32 >40 >48\nunpackf %3d >0\n\
         unpackf %*d 4 >0\nunpackf %*.*d 4 3 >8\nunpackf %2.3ud >0\nunpackf %d >0\n\
         unpackf %x >0\nunpackf %2lx >0\nunpackf %y\nunpackf %+ 0\nunpackf %d >0\n",
    );
}

#[test]
fn data_sent_in_place_is_read_at_the_send() {
    agree(
        "in-place",
        "fill 6\ninitsend 2\npack i @0 100 1\npack d @0 2 2\npackstr 3\nbufinfo 6\nfill 7\nloop 4\n\
         bufinfo 6\nbufinfo 5\nunpack i >0 100 1\nsetrbuf 6\nunpack i >0 1 1\ngetsbuf\n",
    );
}

/// Found by `random_scripts`: NAGAYA_SEED=461334632.
#[test]
fn a_long_that_loses_bits_overflows_only_a_full_fragment() {
    agree(
        "overflow",
        "fill 1\ninitsend 0\npack s @0 534 1\npack l @0 474 1\npackf %ld -5\npackf %uld -5\ndump 5\n\
         initsend 0\npack i @0 1008 1\npackf %uld -5\npackf %ld -5\npackf %ld 4294967296\n\
         pack i @0 1007 1\npackf %ld 4294967296\ndump 6\n",
    );
}

/// Found by `random_scripts`: NAGAYA_SEED=31676.
#[test]
fn a_message_that_is_packed_anew_keeps_its_memory() {
    agree(
        "anew",
        "fill 1\ninitsend 0\npackstr 28\nloop 1\nsetsbuf 6\npack s @0 0 1\npack b @0 1 1\ndump 6\n\
         loop 1\nunpack b >0 4 1\n",
    );
}

/// A call of a random script.
fn call() -> impl Strategy<Value = String> {
    let kind =
        proptest::sample::select(vec!["b", "s", "i", "l", "us", "ui", "ul", "f", "d", "c", "z"]);
    let count = prop_oneof![12 => 0..20, 2 => 200..900, 1 => -2..0];
    let stride = prop_oneof![4 => Just(1), 1 => -2..4];
    let id = -1..14;
    let encoding = prop_oneof![8 => 0..3, 1 => 3..7];
    prop_oneof![
        12 => (kind.clone(), -64..64, count.clone(), stride.clone())
            .prop_map(|(k, at, n, s)| format!("pack {k} @{at} {n} {s}")),
        12 => (kind, -64..64, count, stride)
            .prop_map(|(k, at, n, s)| format!("unpack {k} >{at} {n} {s}")),
        2 => (0..200).prop_map(|n| format!("packstr {n}")),
        2 => Just("unpackstr".to_owned()),
        3 => encoding.clone().prop_filter("has the time in it", |&e| e != 4)
            .prop_map(|e| format!("initsend {e}")),
        1 => encoding.prop_filter("has the time in it", |&e| e != 4)
            .prop_map(|e| format!("mkbuf {e}")),
        1 => id.clone().prop_map(|id| format!("freebuf {id}")),
        1 => id.clone().prop_map(|id| format!("setsbuf {id}")),
        1 => id.clone().prop_map(|id| format!("setrbuf {id}")),
        1 => id.clone().prop_map(|id| format!("bufinfo {id}")),
        2 => id.prop_map(|id| format!("dump {id}")),
        1 => Just("getsbuf".to_owned()),
        1 => Just("getrbuf".to_owned()),
        4 => (1..9).prop_map(|tag| format!("loop {tag}")),
        1 => any::<u16>().prop_map(|seed| format!("fill {seed}")),
    ]
}

#[test]
fn random_scripts() {
    let Some(stock) = Stock::start("random") else {
        return;
    };
    let seed = std::env::var("NAGAYA_SEED").map_or_else(
        |_| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            u64::from(now.expect("after 1970").subsec_nanos())
        },
        |seed| seed.parse().expect("NAGAYA_SEED is a number"),
    );
    eprintln!("NAGAYA_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config {
        cases: std::env::var("CASES").map_or(60, |cases| cases.parse().expect("a number")),
        failure_persistence: None,
        max_shrink_iters: 400,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let scripts = proptest::collection::vec(call(), 1..40);
    TestRunner::new_with_rng(config, rng)
        .run(&scripts, |calls| {
            let script = format!("fill 1\n{}\n", calls.join("\n"));
            match difference(&stock, &script) {
                None => Ok(()),
                Some(difference) => Err(TestCaseError::fail(difference)),
            }
        })
        .unwrap_or_else(|failure| panic!("NAGAYA_SEED={seed}: {failure}"));
}
