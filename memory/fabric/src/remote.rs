//! A command on another host: by ssh, or by the program that a variable names in its place
//! (PVM_RSH, NAGAYA_RSH). It takes ssh's arguments.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::Command;

/// What is kept of what somebody says before he ends, in bytes.
const WORDS_MAX: u64 = 64 << 10;

/// The command that runs a script of sh(1) on a host. If the variable is set, it names the
/// program that stands for ssh, perhaps with arguments. Standard streams are the caller's affair.
pub fn command(variable: &str, login: Option<&str>, host: &str, script: &str) -> Command {
    let mut command = match std::env::var_os(variable).filter(|rsh| !rsh.is_empty()) {
        Some(rsh) => program(&rsh),
        None => {
            let mut ssh = Command::new("ssh");
            // There is nobody to ask for a password, and no terminal.
            ssh.args(["-x", "-a", "-T", "-o", "BatchMode=yes"]);
            ssh
        }
    };
    if let Some(login) = login {
        command.args(["-l", login]);
    }
    // The login shell there may be any: all that it sees is `sh -c` and a quoted word.
    command.arg(host).arg(format!("sh -c {}", quoted(script)));
    command
}

/// A program, whose path may have spaces, or a program and its arguments.
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

/// A script that becomes nagaya there, with these arguments (a shell's words). Where hosts share
/// their files, it is where it is here; else PATH says where.
pub fn nagaya(own: &Path, arguments: &str) -> String {
    let own = quoted(&own.to_string_lossy());
    format!("if [ -x {own} ]; then exec {own} {arguments}; fi; exec nagaya {arguments}")
}

/// A word of a POSIX shell, quoted.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The last line of what is said until the end, if anything is: why somebody gave up.
pub fn last_line(said: impl Read) -> Option<String> {
    let mut bytes = Vec::new();
    let _ = said.take(WORDS_MAX).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What sh makes of a command's last argument, as a login shell would.
    fn run(command: &Command) -> String {
        let script = command.get_args().last().expect("a script");
        let output = Command::new("sh").arg("-c").arg(script).output().expect("sh runs");
        String::from_utf8(output.stdout).expect("it is text")
    }

    #[test]
    fn any_login_shell_runs_what_is_meant() {
        let echo = |own: &str| nagaya(Path::new(own), "pvmd --join").replace("exec ", "echo ");
        let there = |script: &str| run(&command("NO_SUCH_RSH", None, "there", script));
        assert_eq!(there(&echo("/opt/it's here/nagaya")), "nagaya pvmd --join\n");
        assert_eq!(there(&echo("/bin/sh")), "/bin/sh pvmd --join\nnagaya pvmd --join\n");
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
