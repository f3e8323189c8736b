//! Runs commands on another host, by ssh or by the program that a variable names in its place
//! (PVM_RSH, NAGAYA_RSH). That program takes ssh's arguments.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

/// Bytes of a failed command's output that are read.
pub(crate) const OUTPUT_MAX: u64 = 64 << 10;

/// A command that was started on another host.
#[derive(Debug)]
pub struct Remote {
    /// ssh, or the program in its place.
    pub child: Child,
    /// The command's standard input.
    pub to: ChildStdin,
    /// Its standard output.
    pub from: ChildStdout,
    /// Its standard error, and that of ssh.
    pub errors: ChildStderr,
}

/// Starts an sh(1) script on a host. If the environment has `variable`, it names a program to run
/// instead of ssh, optionally with arguments. `prepare` may change the command before it is
/// started.
///
/// # Errors
/// One line if ssh cannot be executed, or if `host` or `login` is no name ([`is_name`]). If ssh
/// does not reach the host, its standard error and its exit status report that.
pub fn start(
    variable: &str,
    login: Option<&str>,
    host: &str,
    script: &str,
    prepare: impl FnOnce(&mut Command),
) -> Result<Remote, String> {
    for name in login.into_iter().chain([host]) {
        if !is_name(name) {
            return Err(format!("{name:?} is not the name of a host or login; nothing was run"));
        }
    }
    let mut command = command(variable, login, host, script);
    prepare(&mut command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| {
        let ssh = command.get_program().display();
        format!("cannot run {ssh}: {why} ({variable} names another)")
    })?;
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(to), Some(from), Some(errors)) => Ok(Remote { child, to, from, errors }),
        _ => unreachable!("all three are piped"),
    }
}

/// Returns true if this may be the name or address of a host, or a login, in a command line. A name
/// that begins with `-` would be an option of ssh, which can run any command here. The other
/// excluded characters have a meaning for shells, through which programs in ssh's place may pass
/// the name.
pub fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || "-._:@%+[]".contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(allowed)
}

/// Returns true if a program is OpenSSH's ssh, which takes `--`. A user's script may be called
/// `ssh`, too, and is given by its path.
fn is_ssh(program: &OsStr) -> bool {
    ["ssh", "/usr/bin/ssh"].iter().any(|ssh| program == OsStr::new(ssh))
}

/// Returns the command that [`start`] runs.
fn command(variable: &str, login: Option<&str>, host: &str, script: &str) -> Command {
    let mut command = match std::env::var_os(variable).filter(|rsh| !rsh.is_empty()) {
        Some(rsh) => program(&rsh),
        None => {
            let mut ssh = Command::new("ssh");
            // ssh cannot ask for a password without a terminal.
            ssh.args(["-x", "-a", "-T", "-o", "BatchMode=yes"]);
            ssh
        }
    };
    if let Some(login) = login {
        command.args(["-l", login]);
    }
    // Behind this, ssh takes no word for an option. Others may not know it: rsh, a user's script.
    if is_ssh(command.get_program()) {
        command.arg("--");
    }
    // The login shell there may be any shell, so it sees only `sh -c` and one quoted word.
    command.arg(host).arg(format!("sh -c {}", quoted(script)));
    command
}

/// Returns the command for a program's path, which may have spaces, or for a program and its
/// arguments.
fn program(text: &OsStr) -> Command {
    match text.to_str() {
        Some(words) if !Path::new(text).exists() => {
            let mut words = words.split_whitespace();
            let mut command = Command::new(words.next().unwrap_or_default());
            command.args(words);
            command
        }
        _ => Command::new(text),
    }
}

/// Returns a script that executes nagaya on the other host with these arguments (shell words). It
/// first tries the path of this host's nagaya, as hosts may share files, then PATH. If both fail,
/// its last line on standard error reports that and names `option`, which sets the path.
pub fn nagaya(own: &Path, arguments: &str, option: &str) -> String {
    let own = own.to_string_lossy();
    let missing = missing(&format!("{own}: not found, and nagaya is not in PATH"), option);
    let own = quoted(&own);
    format!(
        "if [ -x {own} ]; then exec {own} {arguments}; fi; \
         if command -v nagaya >/dev/null 2>&1; then exec nagaya {arguments}; fi; {missing}"
    )
}

/// Returns such a script for the nagaya whose path the user gave by `option`.
pub fn named(path: &str, arguments: &str, option: &str) -> String {
    let missing = missing(&format!("{path}: not found"), option);
    let path = quoted(path);
    format!("if command -v {path} >/dev/null 2>&1; then exec {path} {arguments}; fi; {missing}")
}

/// Returns a script that reports that nagaya is missing on this host.
fn missing(what: &str, option: &str) -> String {
    let line = format!(
        "cannot start nagaya there: {what}. Install nagaya {} there, or give its path by {option}",
        env!("CARGO_PKG_VERSION")
    );
    format!("echo {} >&2; exit 127", quoted(&line))
}

/// Quotes a word for a POSIX shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Returns the last non-empty line of a command's output, which is usually the reason why it
/// failed.
pub fn last_line(said: impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let _ = said.take(OUTPUT_MAX).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the output of a command's last argument, run by sh as by a login shell.
    fn run(command: &Command) -> String {
        let script = command.get_args().last().expect("a script");
        let output = Command::new("sh").arg("-c").arg(script).output().expect("sh runs");
        String::from_utf8(output.stdout).expect("it is text")
    }

    #[test]
    fn any_login_shell_runs_what_is_meant() {
        let there = |script: &str| run(&command("NO_SUCH_RSH", None, "there", script));
        let nagaya = |own: &str, path: &str| {
            let script = nagaya(Path::new(own), "-c 'echo it runs'", "--nagaya");
            there(&format!("PATH={path}; {script}"))
        };
        let directory = std::env::temp_dir().join(format!("it's {}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let link = directory.join("nagaya");
        std::os::unix::fs::symlink("/bin/sh", &link).expect("a link");
        let path = quoted(directory.to_str().expect("text"));
        assert_eq!(nagaya(link.to_str().expect("text"), "/nowhere"), "it runs\n");
        assert_eq!(nagaya("/no/it's/nagaya", &path), "it runs\n");
        std::fs::remove_dir_all(&directory).expect("it is there");
        let why = nagaya("/no/it's/nagaya", "/nowhere; exec 2>&1");
        assert_eq!(
            why,
            format!(
                "cannot start nagaya there: /no/it's/nagaya: not found, and nagaya is not in PATH. \
                 Install nagaya {} there, or give its path by --nagaya\n",
                env!("CARGO_PKG_VERSION")
            )
        );
        let named = named("/no/it's/nagaya", "span --join", "--nagaya");
        let why = there(&format!("exec 2>&1; {named}"));
        assert!(
            why.starts_with("cannot start nagaya there: /no/it's/nagaya: not found. "),
            "{why}"
        );
        assert!(named.contains("span --join"));
    }

    #[test]
    fn no_name_of_a_host_is_an_option_of_ssh() {
        let words = |command: &Command| {
            let words = command.get_args().map(|it| it.to_string_lossy().into_owned());
            words.collect::<Vec<_>>()
        };
        let ssh = words(&command("NO_SUCH_RSH", Some("me"), "there", "true"));
        assert_eq!(ssh[ssh.len() - 5..], ["-l", "me", "--", "there", "sh -c 'true'"]);
        assert!(is_ssh(OsStr::new("/usr/bin/ssh")) && !is_ssh(OsStr::new("rsh")));
        assert!(is_ssh(OsStr::new("ssh")) && !is_ssh(OsStr::new("/home/me/ssh")));
        for bad in ["", "-oProxyCommand=touch /tmp/x", "a b", "a;b", "$(b)", "a\nb", "`b`"] {
            assert!(!is_name(bad), "{bad}");
            let refused = |login, host| start("NO_SUCH_RSH", login, host, "true", |_| {});
            assert!(refused(None, bad).is_err_and(|why| why.contains("not the name")), "{bad}");
            assert!(refused(Some(bad), "there").is_err(), "{bad}");
        }
        for good in ["a", "me@b.example", "fe80::1%eth0", "10.0.0.1", "node_1", "[::1]", "häuschen"]
        {
            assert!(is_name(good), "{good}");
        }
    }

    #[test]
    fn a_program_may_have_arguments_or_spaces() {
        let words = |text: &str| {
            let command = program(OsStr::new(text));
            let arguments = command.get_args().map(|it| it.to_string_lossy().into_owned());
            let name = command.get_program().to_string_lossy().into_owned();
            std::iter::once(name).chain(arguments).collect::<Vec<_>>()
        };
        assert_eq!(words("ssh -p 22"), ["ssh", "-p", "22"]);
        let path = std::env::temp_dir().join(format!("a b {}", std::process::id()));
        std::fs::write(&path, "").expect("a file");
        assert_eq!(words(path.to_str().expect("text")).len(), 1);
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn the_last_words_are_kept() {
        assert_eq!(last_line(&b"Welcome!\nno such host \n\n"[..]).as_deref(), Some("no such host"));
        assert_eq!(last_line(&b" \n"[..]), None);
    }
}
