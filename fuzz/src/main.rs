//! The command `nagaya-fuzz`: lists the fuzz targets, writes their seeds, and runs a target on
//! files.
//!
//! ```text
//! cargo run --bin nagaya-fuzz -- list
//! cargo run --bin nagaya-fuzz -- seeds
//! cargo run --bin nagaya-fuzz -- run TARGET FILE...
//! ```

use std::process::ExitCode;

use fuzz::corpus;
use fuzz::targets::{TARGETS, named};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["list"] => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            Ok(())
        }
        ["seeds"] => TARGETS.iter().try_for_each(|target| {
            let count = corpus::write_seeds(target);
            let count = count.map_err(|error| format!("the seeds of {}: {error}", target.name))?;
            println!("{}: {count} seeds", target.name);
            Ok(())
        }),
        ["run", target, ref files @ ..] => run(target, files),
        _ => Err("usage: nagaya-fuzz list | seeds | run TARGET FILE...".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("nagaya-fuzz: {line}");
            ExitCode::FAILURE
        }
    }
}

fn run(target: &str, files: &[&str]) -> Result<(), String> {
    let target = named(target).ok_or_else(|| format!("{target}: no target; try `list`"))?;
    for file in files {
        let input = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        println!("{file}");
        (target.run)(&input);
    }
    Ok(())
}
