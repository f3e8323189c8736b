//! The source of commands: a terminal with line editing, history and completion, or a file or
//! pipe. A thread reads, so the console can receive messages at the same time. It reads the next
//! line only on request, so that no prompt appears within the output of a command. It wakes the
//! console when a line is available.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use rustyline::completion::Completer;
use rustyline::config::Configurer;
use rustyline::error::ReadlineError;
use rustyline::highlight::CmdKind;
use rustyline::history::MemHistory;
use rustyline::{CompletionType, Context, Editor, Helper};

use crate::words::LINE_MAX;

/// The prompt of the console.
pub const PROMPT: &str = "pvm> ";

/// An event of the reading thread.
pub enum Event {
    /// A line.
    Line(String),
    /// A line that cannot be parsed, with the reason.
    Unreadable(&'static str),
    /// There is no more.
    End,
    /// The user asks to complete an argument. The console sends the candidates.
    Complete(SyncSender<Vec<String>>),
}

/// The reading thread.
pub struct Input {
    events: Receiver<Event>,
    wanted: Sender<()>,
    /// The line that the user edits.
    edited: Edited,
    /// Text to print when the line is complete.
    held: String,
    /// As the terminal was: the console may end while the user edits.
    terminal: Option<Termios>,
}

impl Input {
    /// Reads commands from standard input. Calls `wake` after each event.
    pub fn open(wake: impl Fn() + Send + Sync + 'static) -> Input {
        let (sender, events) = mpsc::channel();
        let sender = Events { sender, wake: Arc::new(wake) };
        let (wanted, wants) = mpsc::channel();
        let terminal = is_terminal().then(|| tcgetattr(io::stdin()).ok()).flatten();
        let edited = Edited::default();
        let completion = Completion { events: sender.clone(), edited: edited.clone() };
        let editor = terminal.as_ref().and_then(|_| editor(completion));
        match editor {
            Some(mut editor) => {
                let edited = edited.clone();
                thread::spawn(move || edit(&mut editor, &edited, &sender, &wants));
            }
            None => {
                thread::spawn(move || read(&mut io::stdin().lock(), &sender, &wants));
            }
        }
        Input { events, wanted, edited, held: String::new(), terminal }
    }

    /// The next line is wanted now.
    pub fn ask(&self) {
        // A thread that has ended has sent an event.
        let _ = self.wanted.send(());
    }

    /// Returns the next event, if one is available.
    pub fn event(&mut self) -> Option<Event> {
        let event = match self.events.try_recv() {
            Ok(event) => event,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Event::End,
        };
        if !matches!(event, Event::Complete(_)) {
            print!("{}", std::mem::take(&mut self.held));
        }
        Some(event)
    }

    /// Prints whole lines above the line that the user edits: erases that line and draws it again
    /// as the line editor does. (The editor's method for this loses keys that are typed fast.) In
    /// less simple cases the text waits until the line is complete.
    pub fn print(&mut self, text: &str) {
        let edited = self.edited.lock().expect("no panic");
        match edited.as_ref() {
            None => print!("{text}"),
            Some((line, at)) if line.is_ascii() && PROMPT.len() + line.len() < columns() => {
                print!("\r\x1b[J{text}{PROMPT}{line}");
                if *at < line.len() {
                    print!("\x1b[{}D", line.len() - at);
                }
            }
            Some(_) => self.held.push_str(text),
        }
        let _ = io::stdout().flush();
    }
}

/// Returns the width of the terminal in columns.
fn columns() -> usize {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 => size.ws_col.into(),
        _ => 80,
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            let _ = tcsetattr(io::stdin(), OptionalActions::Drain, terminal);
        }
    }
}

/// The thread's end of the channel.
#[derive(Clone)]
struct Events {
    sender: Sender<Event>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

impl Events {
    /// Sends an event. Returns false if the console has ended.
    fn send(&self, event: Event) -> bool {
        let sent = self.sender.send(event).is_ok();
        (self.wake)();
        sent
    }
}

/// Returns true if a user edits lines on a terminal.
pub fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Reads lines as they are.
fn read(from: &mut impl BufRead, events: &Events, wants: &Receiver<()>) {
    while wants.recv().is_ok() {
        let mut line = Vec::new();
        let event = match from.by_ref().take(LINE_MAX as u64 + 1).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => Event::End,
            Ok(_) if line.len() > LINE_MAX => {
                let _ = from.skip_until(b'\n');
                Event::Unreadable("the line is too long")
            }
            Ok(_) => match String::from_utf8(line) {
                Ok(line) => Event::Line(line),
                Err(_) => Event::Unreadable("the line is not UTF-8"),
            },
        };
        let end = matches!(event, Event::End);
        if !events.send(event) || end {
            return;
        }
    }
}

/// The line that the user edits, and where in it the cursor is.
type Edited = Arc<Mutex<Option<(String, usize)>>>;

type Lines = Editor<Completion, MemHistory>;

/// A line editor, unless the terminal cannot do that.
fn editor(completion: Completion) -> Option<Lines> {
    let config = rustyline::Config::builder().completion_type(CompletionType::List).build();
    let mut editor = Editor::with_history(config, MemHistory::new()).ok()?;
    editor.set_auto_add_history(true);
    editor.set_helper(Some(completion));
    Some(editor)
}

/// Has the user edit lines.
fn edit(editor: &mut Lines, edited: &Edited, events: &Events, wants: &Receiver<()>) {
    let set = |line| *edited.lock().expect("no panic") = line;
    while wants.recv().is_ok() {
        let event = loop {
            set(Some((String::new(), 0)));
            let line = editor.readline(PROMPT);
            set(None);
            match line {
                Ok(line) => break Event::Line(line),
                // Ctrl-C: another line. It ends nothing, as in stock PVM's console.
                Err(ReadlineError::Interrupted) => {}
                Err(_) => break Event::End,
            }
        };
        let end = matches!(event, Event::End);
        if !events.send(event) || end {
            return;
        }
    }
}

/// Completes words: commands, then hosts and tasks, which the console knows.
struct Completion {
    events: Events,
    edited: Edited,
}

/// Time limit for a completion.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

impl Completion {
    /// Returns the candidates for the words after a command.
    fn arguments(&self) -> Vec<String> {
        let (sender, receiver) = mpsc::sync_channel(1);
        if !self.events.send(Event::Complete(sender)) {
            return Vec::new();
        }
        receiver.recv_timeout(COMPLETION_TIMEOUT).unwrap_or_default()
    }
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..at];
        let begin = before.rfind([' ', '\t']).map_or(0, |blank| blank + 1);
        let begun = before[begin..].to_owned();
        let first = before.trim_start().split([' ', '\t']).next().unwrap_or_default();
        let is_command = before[..begin].trim().is_empty();
        let mut candidates: Vec<String> = if is_command || first == "help" {
            let listed =
                crate::commands::COMMANDS.iter().filter(|command| !command.summary.is_empty());
            listed.map(|command| command.name.to_owned()).collect()
        } else {
            self.arguments()
        };
        candidates.retain(|candidate| candidate.starts_with(&begun));
        candidates.sort_unstable();
        candidates.dedup();
        if let [only] = &mut candidates[..] {
            only.push(' ');
        }
        Ok((begin, candidates))
    }
}

impl Completion {
    fn note(&self, line: &str, at: usize) {
        *self.edited.lock().expect("no panic") = Some((line.to_owned(), at));
    }
}

// The line editor calls these two at each change of the line.
impl rustyline::hint::Hinter for Completion {
    type Hint = String;

    fn hint(&self, line: &str, at: usize, _: &Context<'_>) -> Option<String> {
        self.note(line, at);
        None
    }
}

impl rustyline::highlight::Highlighter for Completion {
    fn highlight_char(&self, line: &str, at: usize, _: CmdKind) -> bool {
        self.note(line, at);
        false
    }
}

impl rustyline::validate::Validator for Completion {}
impl Helper for Completion {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_one_by_one() {
        let (sender, events) = mpsc::channel();
        let (want, wants) = mpsc::channel();
        let long = "x".repeat(LINE_MAX + 1);
        let text = [b"conf\n".to_vec(), b"\xff\n".to_vec(), (long + "\nid").into_bytes()].concat();
        for _ in 0..5 {
            want.send(()).unwrap();
        }
        let sender = Events { sender, wake: Arc::new(|| ()) };
        read(&mut &text[..], &sender, &wants);
        let next = || match events.try_recv().unwrap() {
            Event::Line(line) => line,
            Event::Unreadable(why) => why.to_owned(),
            Event::End => "end".to_owned(),
            Event::Complete(_) => unreachable!("nobody edits"),
        };
        assert_eq!(next(), "conf\n");
        assert_eq!(next(), "the line is not UTF-8");
        assert_eq!(next(), "the line is too long");
        assert_eq!(next(), "id");
        assert_eq!(next(), "end");
    }
}
