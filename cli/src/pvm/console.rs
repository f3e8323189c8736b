//! The console: its state, the execution of a line, and its error messages.

use std::path::Path;

use pvm::error::{Error, text};
use pvm::tid::Tid;

use crate::aliases::Aliases;
use crate::commands;
use crate::environment::Environment;
use crate::input::Input;
use crate::job::Traced;
use crate::jobs::Jobs;
use crate::machine::{self, Machine, News};
use crate::options::Options;
use crate::tracing::Tracing;
use crate::{hosts, words};

/// Why no more commands are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The user leaves; the virtual machine goes on.
    Quit,
    /// The virtual machine has received the order to halt.
    Halted,
    /// The daemon has gone, unasked.
    Lost,
}

/// The style of the console's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// With a user: greeting, prompt, farewell.
    Terminal,
    /// For a script: prints only the output of commands.
    Script,
    /// With a script, as stock PVM's console: with prompts and commands between.
    Stock,
}

/// A console.
pub struct Console {
    /// The task that it is.
    pub machine: Machine,
    /// The user's names of commands.
    pub aliases: Aliases,
    /// The variables that spawned tasks may inherit.
    pub environment: Environment,
    /// The jobs, with the output of spawned tasks.
    pub jobs: Jobs,
    /// The calls that spawned tasks trace.
    pub tracing: Tracing,
    /// The options that `setopt` sets.
    pub options: Options,
    /// The source of lines, unless they come from the command line.
    pub input: Option<Input>,
    /// The position of the current line, as in `/root/.pvmrc:3`; empty for a line of the user.
    place: String,
    failed: bool,
}

impl Console {
    /// The console of this task.
    pub fn new(machine: Machine) -> Console {
        Console {
            machine,
            aliases: Aliases::default(),
            environment: Environment::of_process(),
            jobs: Jobs::default(),
            tracing: Tracing::new(),
            options: Options::new(),
            input: None,
            place: String::new(),
            failed: false,
        }
    }

    /// Runs the lines of a file, if there is one.
    pub fn run_file(&mut self, path: &Path) -> Result<(), Stop> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => {
                self.complain(&format!("{}: {error}", path.display()));
                return Ok(());
            }
        };
        for (number, line) in (1..).zip(text.lines()) {
            self.run_line(line, &format!("{}:{number}", path.display()))?;
        }
        Ok(())
    }

    /// Runs a line, which stands at `place` (nowhere, if a user has typed it).
    pub fn run_line(&mut self, line: &str, place: &str) -> Result<(), Stop> {
        place.clone_into(&mut self.place);
        let result = self.run_words(line);
        self.place.clear();
        result
    }

    fn run_words(&mut self, line: &str) -> Result<(), Stop> {
        let words = match words::split(line) {
            Ok(words) => words,
            Err(quote) => {
                self.refuse(&format!("unmatched {quote}"), "quote it with \\");
                return Ok(());
            }
        };
        let Ok(words) = self.aliases.resolve(words) else {
            self.refuse("alias loop", "alias lists them");
            return Ok(());
        };
        let Some(name) = words.first() else { return Ok(()) };
        match commands::find(name) {
            None => self.refuse(&format!("{name}: not found"), "help lists the commands"),
            Some(command) if !(command.words.0..=command.words.1).contains(&words.len()) => {
                self.refuse(&format!("{name}: wrong #args"), &format!("help {name}"));
            }
            Some(command) => return (command.run)(self, &words),
        }
        Ok(())
    }

    /// Prints an error of a command in stock PVM's words, on standard output as stock PVM does,
    /// with advice.
    pub fn refuse(&mut self, what: &str, advice: &str) {
        self.failed = true;
        if self.place.is_empty() {
            println!("{what} ({advice})");
        } else {
            println!("{what} ({}; {advice})", self.place);
        }
    }

    /// Says what went wrong, on standard error.
    pub fn complain(&mut self, what: &str) {
        self.failed = true;
        if self.place.is_empty() {
            proc::error_line!("pvm: {what}");
        } else {
            proc::error_line!("pvm: {}: {what}", self.place);
        }
    }

    /// Records a failure that the output of the command already reports.
    pub fn note_failure(&mut self) {
        self.failed = true;
    }

    /// Returns true if a command has failed.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Asks the virtual machine. Only the loss of the daemon ends the console.
    pub fn ask<T>(
        &mut self,
        question: impl FnOnce(&mut Machine) -> Result<T, Error>,
    ) -> Result<Result<T, Error>, Stop> {
        let result = question(&mut self.machine);
        match result {
            Err(Error::SysErr) => Err(Stop::Lost),
            result => Ok(result),
        }
    }

    /// As [`Console::ask`], but prints the error, if there is one.
    pub fn heed<T>(
        &mut self,
        what: &str,
        question: impl FnOnce(&mut Machine) -> Result<T, Error>,
    ) -> Result<Option<T>, Stop> {
        Ok(match self.ask(question)? {
            Ok(result) => Some(result),
            Err(error) => {
                let advice = match error {
                    Error::NoHost => "; conf lists the hosts",
                    Error::NoTask => "; ps -a lists the tasks",
                    Error::BadParam => "; see help",
                    _ => "",
                };
                self.complain(&format!("{what}: {}{advice}", text(error.code())));
                None
            }
        })
    }

    /// The name of a host, or its daemon's tid if it has gone.
    pub fn host_name(&mut self, daemon: Tid) -> String {
        let hosts = self.machine.hosts().unwrap_or_default();
        let host = hosts.into_iter().find(|host| host.tid.host() == daemon.host());
        host.map_or_else(|| format!("{:x}", daemon.0), |host| host.name)
    }

    /// Returns the candidates for the words after a command: hosts and tasks.
    pub fn arguments(&mut self) -> Vec<String> {
        let hosts = self.machine.hosts().unwrap_or_default();
        let tasks = self.machine.tasks(Tid(0)).unwrap_or_default();
        let hosts = hosts.into_iter().map(|host| host.name);
        hosts.chain(tasks.into_iter().map(|task| task.tid.to_string())).collect()
    }

    /// Takes all messages that have come.
    pub fn attend(&mut self) -> Result<(), Stop> {
        loop {
            let Console { machine, jobs, options, .. } = self;
            let news = match machine.news(|tag| jobs.is_trace(tag)) {
                Err(Error::SysErr) => return Err(Stop::Lost),
                Ok(None) | Err(_) => return Ok(()),
                Ok(Some(news)) => news,
            };
            let named = options.shows_tids();
            let mut out = Vec::new();
            match news {
                News::HostsAdded(daemons) => hosts::announce(self, &daemons),
                News::Output { tag, tid, event } => {
                    jobs.take(tag, tid, event, named, machine::clock(), &mut out);
                }
                News::Traced { tag, tid, records } => {
                    for record in &records {
                        jobs.trace(tag, tid, Traced::Record(record), named, &mut out);
                    }
                }
            }
            if !out.is_empty() {
                self.print_beside_prompt(&String::from_utf8_lossy(&out));
            }
        }
    }

    /// Waits until a message arrives or another thread wakes the console.
    pub fn wait(&mut self) -> Result<(), Stop> {
        self.ask(Machine::wait).map(drop)
    }

    /// Prints whole lines that no command has asked for now.
    pub fn print_beside_prompt(&mut self, text: &str) {
        match &mut self.input {
            Some(input) => input.print(text),
            None => print!("{text}"),
        }
    }
}
