//! The program that tasks run, with its arguments, environment and working directory.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use nagaya_server::{Failure, inherit};

use super::options::Options;
use crate::program;

/// The program's absolute path; one with a slash is meant as seen from --chdir.
pub fn find(options: &Options) -> Result<PathBuf, Failure> {
    let name = &options.program[0];
    let path = match &options.chdir {
        Some(directory) if name.as_encoded_bytes().contains(&b'/') => directory.join(name),
        _ => program::find(name)?,
    };
    Ok(std::path::absolute(&path).unwrap_or(path))
}

/// The working directory of --chdir.
pub fn cwd(options: &Options) -> Result<Option<CString>, Failure> {
    let Some(path) = &options.chdir else { return Ok(None) };
    CString::new(path.clone().into_os_string().into_vec())
        .map(Some)
        .map_err(|_| Failure::ours("--chdir: contains a zero byte"))
}

/// The program's arguments.
pub fn arguments(options: &Options) -> Result<Vec<CString>, Failure> {
    let convert = |a: &OsString| CString::new(a.clone().into_vec());
    let arguments: Result<Vec<_>, _> = options.program.iter().map(convert).collect();
    arguments.map_err(|_| Failure::ours("an argument contains a zero byte"))
}

/// This process's environment with the variables of -x and of other options.
pub fn environment(options: &Options) -> Result<Vec<CString>, Failure> {
    let mut environment: Vec<CString> =
        inherit::environment().into_iter().filter_map(|entry| CString::new(entry).ok()).collect();
    for variable in &options.variables {
        let text = variable.to_string_lossy();
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => set(&mut environment, key, value),
            Some(_) => return Err(Failure::ours(format!("-x {text}: no name before ="))),
            None if std::env::var_os(variable).is_some() => {}
            None => {
                return Err(Failure::ours(format!(
                    "-x {text}: not set here (give -x {text}=VALUE)"
                )));
            }
        }
    }
    if let Some(policy) = options.rides {
        set(&mut environment, "NAGAYA_DSM_RIDES", policy.name());
    }
    Ok(environment)
}

/// Sets a variable.
pub fn set(environment: &mut Vec<CString>, key: &str, value: &str) {
    let prefix = format!("{key}=");
    environment.retain(|entry| !entry.as_bytes().starts_with(prefix.as_bytes()));
    if let Ok(entry) = CString::new(format!("{prefix}{value}")) {
        environment.push(entry);
    }
}
