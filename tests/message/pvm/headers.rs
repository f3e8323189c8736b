//! `include/pvm3/` is the contract, and Debian's headers are what programs were written to:
//! numbers, structures and prototypes agree.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nagaya_tests::{Cmd, WorkDir, program};

/// Macros of Debian's headers that are not PVM's interface.
const NOT_OURS: &[&str] = &[
    "__ProtoGlarp__",
    // Only PVM's own sources use these.
    "PVMTMPNAMFUN",
    "PVMTMPNAMLEN",
];

/// Structures, and their fields.
const STRUCTURES: &[(&str, &[&str])] = &[
    ("pvmhostinfo", &["hi_tid", "hi_name", "hi_arch", "hi_speed", "hi_dsig"]),
    ("pvmtaskinfo", &["ti_tid", "ti_ptid", "ti_host", "ti_flag", "ti_a_out", "ti_pid"]),
    ("pvmminfo", &["len", "ctx", "tag", "wid", "enc", "crc", "src", "dst"]),
    ("pvmmboxinfo", &["mi_name", "mi_nentries", "mi_indices", "mi_owners", "mi_flags"]),
    ("Pvmtevdid", &["did", "desc"]),
    ("Pvmtevinfo", &["name", "desc_status", "mark", "total", "count"]),
    (
        "Pvmtracer",
        &["trctid", "trcctx", "trctag", "outtid", "outctx", "outtag", "trcbuf", "trcopt", "tmask"],
    ),
];

/// The expansions of some macros with arguments.
const EXPRESSIONS: &[&str] = &[
    "PvmMboxDirectIndex(0)",
    "PvmMboxDirectIndex(5)",
    "PvmMboxDirectIndex((1 << 21) - 1)",
    "PvmMboxDirectIndexOf(PvmMboxDirectIndex(77) | PvmMboxPersistent)",
    "PvmMboxDirectIndexOf(-1)",
    "sizeof(Pvmtmask)",
    "mask(0, 0)",
    "mask(TEV_RECV, 0)",
    "mask(TEV_RECV, 1)",
    "mask(TEV_MAX, 0)",
];

fn ours() -> PathBuf {
    program::include_dir().join("pvm3")
}

fn stock() -> PathBuf {
    let dir = PathBuf::from("/usr/include");
    assert!(dir.join("pvm3.h").exists(), "no stock PVM here: run scripts/deps");
    dir
}

/// The C source that includes these headers of a directory.
fn includes(dir: &Path, headers: &[&str]) -> String {
    let line = |header: &&str| format!("#include \"{}/{header}\"\n", dir.display());
    "#include <stdio.h>\n#include <stddef.h>\n#include <sys/time.h>\n".to_owned()
        + &headers.iter().map(line).collect::<String>()
}

/// The preprocessor's output for a source.
fn preprocess(source: &str, flag: &str) -> String {
    Cmd::new("gcc").args(["-E", "-P", flag, "-"]).stdin(source).run().ok()
}

/// The macros without arguments that headers define, with their texts.
fn macros(dir: &Path, headers: &[&str]) -> BTreeMap<String, String> {
    let all = |source: &str| -> BTreeMap<String, String> {
        let text = preprocess(source, "-dM");
        let defines = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
            Some((name.to_owned(), value.trim().to_owned()))
        });
        defines.filter(|(name, value)| !name.contains('(') && !value.is_empty()).collect()
    };
    let system = all(&includes(dir, &[]));
    let mut macros = all(&includes(dir, headers));
    macros.retain(|name, _| !system.contains_key(name) && !NOT_OURS.contains(&name.as_str()));
    macros
}

/// Returns the output of a program that prints all these macros, and the other definitions of a
/// header.
fn said(dir: &Path, headers: &[&str], names: &BTreeMap<String, String>, all: bool) -> String {
    let mut source = includes(dir, headers);
    if all {
        source += "static int mask(int event, int off)\n{\n\tPvmtmask m;\n\tTEV_MASK_INIT(m)\n\
                   \tTEV_MASK_SET(m, event);\n\tif (off)\n\t\tTEV_MASK_UNSET(m, event);\n\
                   \treturn m[event / 4] * 1000 + m[sizeof m - 1] + !!TEV_MASK_CHECK(m, event);\n}\n";
    }
    source += "int main(void)\n{\n";
    for (name, value) in names {
        let (format, cast) = if value.contains('"') { ("%s", "") } else { ("%ld", "(long)") };
        source += &format!("\tprintf(\"{name} {format}\\n\", {cast}({name}));\n");
    }
    for expression in EXPRESSIONS.iter().filter(|_| all) {
        source += &format!("\tprintf(\"{expression} %ld\\n\", (long)({expression}));\n");
    }
    for (structure, fields) in STRUCTURES.iter().filter(|_| all) {
        source += &format!("\tprintf(\"{structure} %zu\\n\", sizeof(struct {structure}));\n");
        for field in *fields {
            let place = format!("offsetof(struct {structure}, {field})");
            source += &format!("\tprintf(\"{structure}.{field} %zu\\n\", {place});\n");
        }
    }
    source += "}\n";
    let work = WorkDir::new();
    let (source, executable) = (work.write("said.c", source), work.join("said"));
    Cmd::new("gcc").args(["-w", "-o"]).arg(&executable).arg(source).run().ok();
    Cmd::new(executable).run().ok()
}

#[test]
fn every_number_and_structure_is_debians() {
    let headers = &["pvm3.h", "pvmtev.h"];
    let names = macros(&stock(), headers);
    assert!(names.len() > 300, "{names:?}");
    let (ours, stock) =
        (said(&ours(), headers, &names, true), said(&stock(), headers, &names, true));
    assert_eq!(ours, stock);
}

#[test]
fn nothing_is_there_that_debian_does_not_have() {
    let headers = &["pvm3.h", "pvmtev.h"];
    let keys = |dir: &Path| macros(dir, headers).into_keys().collect::<BTreeSet<_>>();
    assert_eq!(keys(&ours()), keys(&stock()));
}

/// Only part of Debian's `pvmproto.h` concerns programs.
#[test]
fn tags_of_plug_ins_are_debians() {
    let headers = &["pvm3.h", "pvmproto.h"];
    let names = macros(&ours(), headers);
    assert!(names.contains_key("SM_STTASK"));
    assert_eq!(said(&ours(), headers, &names, false), said(&stock(), headers, &names, false));
}

/// The declarations of functions after preprocessing: structures are left out.
fn prototypes(headers: &[&str]) -> Vec<String> {
    let skipped = preprocess(&includes(&stock(), &[]), "-P");
    let text = preprocess(&includes(&stock(), headers), "-P");
    let text = text.strip_prefix(skipped.trim_end()).expect("the same beginning");
    let mut depth = 0;
    let flat: String = text
        .chars()
        .filter(|c| {
            depth += i32::from(*c == '{') - i32::from(*c == '}');
            depth == 0 && *c != '}' && *c != '\n'
        })
        .collect();
    flat.split(';').map(|part| part.trim().to_owned()).filter(|part| part.contains('(')).collect()
}

/// The function that a prototype declares.
fn name(prototype: &str) -> &str {
    let start = prototype.find("pvm").or(prototype.find("Pvm")).expect("a function of PVM");
    let rest = &prototype[start..];
    &rest[..rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())]
}

#[test]
fn every_prototype_is_debians() {
    let headers = &["pvm3.h", "pvmtev.h"];
    let prototypes = prototypes(headers);
    assert!(prototypes.len() > 110, "{prototypes:#?}");
    // A second declaration must be compatible with the first, and each first must be there.
    // Debian's pvm_recvf takes a function that compares and returns one of another type,
    // which no program can give back to it without a cast.
    let mut source = includes(&ours(), headers);
    for (i, prototype) in prototypes.iter().enumerate() {
        source += &format!("void *is_declared_{i} = (void *){};\n", name(prototype));
    }
    for prototype in prototypes.iter().filter(|prototype| name(prototype) != "pvm_recvf") {
        source += &format!("{prototype};\n");
    }
    let check = |compiler: &str, language: &str, source: &str| {
        let strict = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", language, "-"];
        Cmd::new(compiler).args(strict).stdin(source).run().ok();
    };
    check("gcc", "c", &source);
    check("g++", "c++", &includes(&ours(), headers));
    check("g++", "c++", &includes(&ours(), &["pvm3.h", "pvmproto.h"]));
}

/// `name = value` of each parameter statement.
fn parameters(header: &Path) -> BTreeMap<String, i32> {
    let text = fs::read_to_string(header).expect("a header");
    let lines = text.lines().filter_map(|line| {
        let (name, value) = line.trim().strip_prefix("parameter")?.split_once('=')?;
        let name = name.trim().trim_start_matches('(').trim().to_ascii_lowercase();
        let value = value.trim().trim_end_matches(')').trim();
        Some((name, value.parse().expect("a number")))
    });
    lines.collect()
}

#[test]
fn fortrans_numbers_are_debians() {
    let stock = parameters(&stock().join("fpvm3.h"));
    assert!(stock.len() > 100, "{stock:?}");
    assert_eq!(parameters(&ours().join("fpvm3.h")), stock);
}

#[test]
fn fortran_includes_its_header_in_both_forms() {
    for form in ["-ffixed-form", "-ffree-form"] {
        let source =
            "      program p\n      include 'fpvm3.h'\n      print *, PvmIPLoopback\n      end\n";
        let work = WorkDir::new();
        let source = work.write("p.f", source);
        Cmd::new("gfortran")
            .args(["-fsyntax-only", "-Wall", "-Wno-unused-parameter", "-Werror", form, "-I"])
            .arg(ours())
            .arg(source)
            .run()
            .ok();
    }
}
