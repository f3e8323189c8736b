//! The commands of the console: name, number of words, `help` text and function of each.

use crate::console::{Console, Stop};
use crate::{environment, hosts, jobs, mailboxes, options, spawn, tasks, tracing};

/// A command.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// Minimum and maximum number of words, the command's name included.
    pub words: (usize, usize),
    /// A short description; empty for commands that `help` does not list.
    pub summary: &'static str,
    /// Further lines of `help`.
    pub help: &'static [&'static str],
    /// Runs it with its words.
    pub run: fn(&mut Console, &[String]) -> Result<(), Stop>,
}

/// Any number of words.
const ANY: usize = usize::MAX;

/// The command with this name.
pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}

/// `help [command]`.
fn help(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let name = words.get(1).map_or("help", String::as_str);
    let Some(command) = find(name) else {
        console.complain(&format!("help: no command {name}; help lists them"));
        return Ok(());
    };
    println!("{:<12}{}", command.name, command.summary);
    command.help.iter().for_each(|line| println!("{line}"));
    if name == "help" {
        println!("Commands are:");
        for command in COMMANDS.iter().filter(|command| !command.summary.is_empty()) {
            println!("  {:<12}{}", command.name, command.summary);
        }
    }
    Ok(())
}

/// `id`.
fn id(console: &mut Console, _: &[String]) -> Result<(), Stop> {
    println!("{}", console.machine.tid());
    Ok(())
}

/// `version`.
fn version(_: &mut Console, _: &[String]) -> Result<(), Stop> {
    println!("{}", crate::machine::VERSION);
    Ok(())
}

/// `quit`.
fn quit(_: &mut Console, _: &[String]) -> Result<(), Stop> {
    Err(Stop::Quit)
}

/// In the order of `help`.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "add",
        words: (2, ANY),
        summary: "Add hosts to the virtual machine",
        help: &[
            "Syntax:  add hostname ...",
            "         add 'hostname option=value ...' ...",
            "Options: lo=USER  dx=DAEMON  ep=PATH  wd=DIRECTORY  sp=SPEED  ip=ADDRESS  id=VMID,",
            "         as in a hostfile",
        ],
        run: hosts::add,
    },
    Command {
        name: "alias",
        words: (1, ANY),
        summary: "Define or list command aliases",
        help: &["Syntax:  alias [ name command [ arg ... ] ]"],
        run: environment::alias,
    },
    Command {
        name: "conf",
        words: (1, 1),
        summary: "List the virtual machine's hosts",
        help: &[
            "Syntax:  conf",
            "Output fields:",
            "  HOST    host name",
            "  DTID    task id of its pvmd",
            "  ARCH    architecture",
            "  SPEED   relative speed",
            "  DSIG    data signature: hosts with the same one have the same data format",
        ],
        run: hosts::conf,
    },
    Command {
        name: "delete",
        words: (2, ANY),
        summary: "Delete hosts from the virtual machine",
        help: &["Syntax:  delete hostname ...", "Tasks on these hosts are killed."],
        run: hosts::delete,
    },
    Command {
        name: "echo",
        words: (1, ANY),
        summary: "Print arguments",
        help: &["Syntax:  echo [ arg ... ]"],
        run: environment::echo,
    },
    Command {
        name: "export",
        words: (1, ANY),
        summary: "Add variables to those that spawned tasks get",
        help: &["Syntax:  export [ variable ... ]", "The list is in the variable PVM_EXPORT."],
        run: environment::export,
    },
    Command {
        name: "getopt",
        words: (1, 2),
        summary: "Show PVM options of the console's task",
        help: &["Syntax:  getopt [ option ]"],
        run: options::getopt,
    },
    Command {
        name: "halt",
        words: (1, 1),
        summary: "Stop all tasks, all pvmds and the console",
        help: &["Syntax:  halt"],
        run: hosts::halt,
    },
    Command {
        name: "help",
        words: (1, 2),
        summary: "Explain a command, or list all",
        help: &["Syntax:  help [ command ]"],
        run: help,
    },
    Command {
        name: "id",
        words: (1, 1),
        summary: "Print the console's task id",
        help: &["Syntax:  id"],
        run: id,
    },
    Command {
        name: "jobs",
        words: (1, 2),
        summary: "List jobs whose output or trace comes to the console",
        help: &["Syntax:  jobs [ -l ]", "Options:  -l   with a line for each task"],
        run: jobs::jobs,
    },
    Command {
        name: "kill",
        words: (2, ANY),
        summary: "Terminate tasks",
        help: &["Syntax:  kill [ -c ] tid ...", "Options:  -c   the children of these tasks"],
        run: tasks::kill,
    },
    Command {
        name: "mstat",
        words: (2, ANY),
        summary: "Show whether hosts are in the virtual machine and answer",
        help: &["Syntax:  mstat hostname ..."],
        run: hosts::mstat,
    },
    Command {
        name: "names",
        words: (1, 2),
        summary: "List mailboxes",
        help: &["Syntax:  names [ pattern ]", "In a pattern, * stands for any text."],
        run: mailboxes::names,
    },
    Command {
        name: "ps",
        words: (1, 2),
        summary: "List tasks",
        help: &[
            "Syntax:  ps [ -OPTIONS ]",
            "Options:  -a       of all hosts (default: this host)",
            "          -hTID    of the host whose pvmd has this task id",
            "          -nHOST   of the host with this name",
            "          -l       long: with parent and process id",
            "          -x       all, the console and such tasks too",
            "Output fields:",
            "  HOST    host name",
            "  TID     task id",
            "  PTID    task id of the parent",
            "  PID     process id",
            "  FLAG    status, as a number and in letters",
            "  COMMAND program",
            "Letters of FLAG:",
            "  f   child of its pvmd",
            "  c   connected to its pvmd",
            "  a   waits for leave to connect",
            "  o   its connection is being closed",
            "  s   waits for memory",
            "  R   resource manager",
            "  H   hoster",
            "  T   tasker",
        ],
        run: tasks::ps,
    },
    Command {
        name: "pstat",
        words: (2, ANY),
        summary: "Show whether tasks run",
        help: &["Syntax:  pstat tid ..."],
        run: tasks::pstat,
    },
    Command {
        name: "put",
        words: (3, 4),
        summary: "Put a number into a mailbox",
        help: &[
            "Syntax:  put name flags [ number ]",
            "Flags are a sum: 1 the entry outlives the console, 2 there may be several,",
            "4 others may overwrite it.",
        ],
        run: mailboxes::put,
    },
    Command {
        name: "quit",
        words: (1, 1),
        summary: "Leave the console; the virtual machine goes on",
        help: &["Syntax:  quit"],
        run: quit,
    },
    Command {
        name: "reset",
        words: (1, 4),
        summary: "Kill all tasks, delete mailboxes that they leave",
        help: &[
            "Syntax:  reset",
            "         reset info [ mailbox [ index ] ]",
            "The second deletes entries that outlived their owners, and kills no task.",
        ],
        run: tasks::reset,
    },
    Command {
        name: "setenv",
        words: (1, ANY),
        summary: "Show or set environment variables",
        help: &[
            "Syntax:  setenv [ name [ value ... ] ]",
            "Spawned tasks get the variables that export lists.",
        ],
        run: environment::setenv,
    },
    Command {
        name: "setopt",
        words: (3, 3),
        summary: "Set PVM options of the console's task only",
        help: &["Syntax:  setopt option value"],
        run: options::setopt,
    },
    Command {
        name: "sig",
        words: (3, ANY),
        summary: "Send a signal to tasks",
        help: &["Syntax:  sig number tid ..."],
        run: tasks::sig,
    },
    Command {
        name: "spawn",
        words: (2, ANY),
        summary: "Start tasks",
        help: &[
            "Syntax:  spawn [ options ] program [ arg ... ]",
            "Options:  -NUMBER          how many (default: 1)",
            "          -HOST            on this host (default: pvmd chooses); . is this one",
            "          -HOST:DIRECTORY  there, in this directory",
            "          --host=HOST      for names that look like another option",
            "          -ARCH            on hosts of this architecture, such as LINUX64",
            "          -ARCH:DIRECTORY  there, in this directory",
            "          -:DIRECTORY      in this directory",
            "          -~HOST, -~ARCH   on hosts other than these",
            "          -?               under a debugger",
            "          ->               output comes to the console",
            "          ->FILE           output goes to a file",
            "          ->>FILE          output is added to a file",
            "          -@               trace events come to the console",
            "          -@FILE           trace events go to a file",
        ],
        run: spawn::spawn,
    },
    Command {
        name: "tickle",
        words: (2, 11),
        summary: "",
        help: &[
            "Syntax:  tickle how [ number ... ]",
            "How:",
            "  1         writes the hosts into the pvmd's log",
            "  2         writes its tasks",
            "  4         writes the mailboxes",
            "  5         shows its debug mask",
            "  6 MASK    sets it",
            "  9         writes counts of messages",
        ],
        run: tasks::tickle,
    },
    Command {
        name: "trace",
        words: (1, ANY),
        summary: "Show or set which events spawned tasks trace",
        help: &[
            "Syntax:  trace                         show all events, those that are traced with *",
            "         trace [ + ] name ...          trace these, too",
            "         trace - name ...              trace these no longer",
            "         trace [ + | - ] *             all, or none",
            "         trace xpvm                    those that XPVM draws, and no others",
            "         trace buf [ bytes ]           collect this many before sending",
            "         trace opt [ full|time|count ] level of detail of each call",
        ],
        run: tracing::trace,
    },
    Command {
        name: "unalias",
        words: (2, ANY),
        summary: "Forget command aliases",
        help: &["Syntax:  unalias name ..."],
        run: environment::unalias,
    },
    Command {
        name: "unexport",
        words: (1, ANY),
        summary: "Remove variables from those that spawned tasks get",
        help: &["Syntax:  unexport [ variable ... ]"],
        run: environment::unexport,
    },
    Command {
        name: "version",
        words: (1, 1),
        summary: "Print which PVM this is compatible with",
        help: &["Syntax:  version"],
        run: version,
    },
];
