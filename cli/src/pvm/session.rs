//! A run of the console: its options, the daemon that it finds or starts, the lines that it
//! reads, and its end.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nagaya_server::Failure;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::console::{Console, Manner, Stop};
use crate::exec::exec;
use crate::input::{self, Event, Input, PROMPT};
use crate::machine::Machine;

const EXAMPLES: &str = "\
Examples:
  nagaya pvm                             the console, with a prompt
  nagaya pvm hosts                       start on the hosts of the file hosts
  nagaya pvm -c 'spawn -4 -> ./worker'   run four tasks and print their output
  echo halt | nagaya pvm                 end the virtual machine and its tasks
  nagaya pvm exec ./worker               run a task with Nagaya's libpvm3";

const CONSOLE: &str = "Console";
const DAEMON: &str = "Daemon, if this command starts it";

/// Start a parallel virtual machine (PVM), or attach to one, and manage it
///
/// Without -c, the console reads commands from standard input. The command `help` lists them. See
/// nagaya-pvm(1).
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    verb: Option<Verb>,
    /// Run this command and exit; may be given several times
    #[arg(short, long = "command", value_name = "COMMAND", allow_hyphen_values = true,
          help_heading = CONSOLE)]
    commands: Vec<String>,
    /// Name or address of this host in the virtual machine
    #[arg(short, value_name = "NAME", help_heading = DAEMON)]
    name: Option<String>,
    /// Bit mask of the topics that the daemon logs
    #[arg(short, value_name = "MASK", help_heading = DAEMON)]
    debug: Option<String>,
    /// Run the tasks of each host in one address space
    #[arg(long, help_heading = DAEMON)]
    space: bool,
    /// Print greeting, prompts and commands without a terminal, too, as stock PVM's console does
    ///
    /// This is the default under the name `pvm`.
    #[arg(long, help_heading = CONSOLE)]
    echo: bool,
    /// File with the hosts of the virtual machine, if this command starts the daemon
    hostfile: Option<PathBuf>,
}

/// The subcommands of `nagaya pvm` besides its console.
#[derive(Clone, Debug, clap::Subcommand)]
enum Verb {
    /// Run a program with Nagaya's libpvm3 instead of another PVM's
    Exec {
        /// Program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

/// Runs the console, or the program of `nagaya pvm exec`.
pub fn run(options: &Options) -> Result<i32, Failure> {
    if let Some(Verb::Exec { program }) = &options.verb {
        return exec(program);
    }
    let manner = if !options.commands.is_empty() {
        Manner::Script
    } else if input::is_terminal() {
        Manner::Terminal
    } else if options.echo {
        Manner::Stock
    } else {
        Manner::Script
    };
    let (machine, found) = attach(options)?;
    ignore_interrupts(true);
    if found && manner != Manner::Script {
        println!("pvmd already running.");
    }
    let mut console = Console::new(machine);
    let stop = match serve(&mut console, manner, &options.commands) {
        Ok(()) => Stop::Quit,
        Err(stop) => stop,
    };
    // Restores the terminal before further output.
    drop(console.input.take());
    let failed = console.has_failed();
    match stop {
        Stop::Lost => {
            return Err(Failure {
                message: "this host's pvmd has gone, and with it its tasks; \
                          `nagaya pvm` starts another"
                    .into(),
                status: 1,
            });
        }
        Stop::Halted => {}
        Stop::Quit => {
            match manner {
                Manner::Script => {}
                Manner::Terminal => println!("\npvmd still running."),
                Manner::Stock => println!("\nConsole: exit handler called\npvmd still running."),
            }
            console.machine.exit();
        }
    }
    let _ = io::stdout().flush();
    Ok(i32::from(failed && !options.commands.is_empty()))
}

/// Enrolls with this host's daemon, and starts one if there is none. Returns true if it existed.
fn attach(options: &Options) -> Result<(Machine, bool), Failure> {
    let failure = |what: String| Failure { message: what, status: 1 };
    if let Ok(machine) = Machine::enroll() {
        return Ok((machine, true));
    }
    let started = start(options);
    // Also if none could be started: another console may have been first.
    match (Machine::enroll(), started) {
        (Ok(machine), started) => Ok((machine, started.is_err())),
        (Err(_), Err(why)) => Err(failure(format!("no pvmd could be started: {why}"))),
        (Err(refusal), Ok(())) => Err(failure(refusal.lines.join("; "))),
    }
}

/// Starts a daemon in a new session, and waits until it listens. Errors: the daemon's message.
fn start(options: &Options) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let errors = memfd_create("pvmd's errors", MemfdFlags::CLOEXEC).map_err(|e| e.to_string())?;
    let mut errors = File::from(errors);
    let mut command = Command::new(std::env::current_exe().map_err(text)?);
    command.arg("pvmd");
    if let Some(name) = &options.name {
        command.arg("-n").arg(name);
    }
    if let Some(mask) = &options.debug {
        command.arg("-d").arg(mask);
    }
    if options.space {
        command.arg("--space");
    }
    command.args(&options.hostfile);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(errors.try_clone().map_err(text)?);
    // SAFETY: setsid may be called between fork and exec.
    unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
    let mut daemon = command.spawn().map_err(text)?;
    let mut line = String::new();
    // The daemon prints its address once it listens.
    let read = BufReader::new(daemon.stdout.take().expect("piped")).read_line(&mut line);
    if read.is_ok() && !line.trim().is_empty() {
        return Ok(());
    }
    let status = daemon.wait().map_err(text)?;
    let mut message = String::new();
    let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut message));
    let message = message.lines().last().map(|line| line.trim_start_matches("nagaya: ").to_owned());
    Err(message.unwrap_or_else(|| status.to_string()))
}

/// Runs all commands, until there are no more.
fn serve(console: &mut Console, manner: Manner, commands: &[String]) -> Result<(), Stop> {
    console.heed("the pvmd", Machine::introduce)?;
    let home = std::env::var_os("HOME").map_or_else(|| PathBuf::from("."), PathBuf::from);
    console.run_file(&home.join(".pvmrc"))?;
    if commands.is_empty() {
        read(console, manner)?;
    }
    for command in commands {
        console.attend()?;
        console.run_line(command, "")?;
    }
    if manner == Manner::Script {
        finish_jobs(console)?;
    }
    Ok(())
}

/// Runs the commands of standard input.
fn read(console: &mut Console, manner: Manner) -> Result<(), Stop> {
    console.input = Some(Input::open(console.machine.waker()));
    for number in 1.. {
        if manner == Manner::Stock {
            print!("{PROMPT}");
            let _ = io::stdout().flush();
        }
        let place = if manner == Manner::Script { format!("line {number}") } else { String::new() };
        match next(console)? {
            Event::Line(line) => {
                if manner == Manner::Stock {
                    println!("{}", line.trim_end_matches('\n'));
                }
                console.run_line(&line, &place)?;
            }
            Event::Unreadable(why) => console.complain(&format!("line {number}: {why}")),
            Event::Complete(_) => unreachable!("answered where it came"),
            Event::End => {
                if manner != Manner::Script {
                    println!("quit");
                }
                break;
            }
        }
    }
    Ok(())
}

/// The next line. Messages are taken meanwhile.
fn next(console: &mut Console) -> Result<Event, Stop> {
    let event = |console: &mut Console| console.input.as_mut().expect("opened").event();
    console.input.as_ref().expect("opened").ask();
    loop {
        console.attend()?;
        match event(console) {
            Some(Event::Complete(answer)) => {
                let _ = answer.send(console.arguments());
            }
            Some(event) => return Ok(event),
            None => console.wait()?,
        }
    }
}

/// Waits for the output of all jobs. An interrupt ends that, and nothing else.
fn finish_jobs(console: &mut Console) -> Result<(), Stop> {
    ignore_interrupts(false);
    loop {
        console.attend()?;
        if console.jobs.is_empty() {
            return Ok(());
        }
        console.wait()?;
    }
}

/// As stock PVM's console, this one is not ended by Ctrl-C.
fn ignore_interrupts(ignore: bool) {
    let action = if ignore { libc::SIG_IGN } else { libc::SIG_DFL };
    // SAFETY: both are dispositions of the kernel, not functions.
    unsafe { libc::signal(libc::SIGINT, action) };
}
