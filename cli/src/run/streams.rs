//! Standard input and output of tasks.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use ::cluster::Cluster;

/// Gives each task a copy of our standard input, until it ends.
pub fn copy_input(mut readers: Vec<File>) {
    let mut input = std::io::stdin().lock();
    let mut buffer = [0; 64 << 10];
    while let Ok(size @ 1..) = input.read(&mut buffer) {
        readers.retain_mut(|reader| reader.write_all(&buffer[..size]).is_ok());
    }
}

/// A pipe that no program inherits.
pub fn pipe() -> std::io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// The destination of a task's output.
pub struct Printer {
    /// 1: standard output; 2: standard error.
    pub stream: i32,
    /// The first machine prints it.
    pub over: Option<Arc<Cluster>>,
}

impl Printer {
    /// Prints the text. Returns false if that failed.
    fn print(&self, text: Vec<u8>) -> bool {
        match (&self.over, self.stream) {
            (Some(over), stream) => {
                over.print(stream as u8, text);
                true
            }
            (None, 1) => std::io::stdout().lock().write_all(&text).is_ok(),
            (None, _) => std::io::stderr().lock().write_all(&text).is_ok(),
        }
    }
}

/// Copies a task's output: line by line behind this prefix, or as it comes.
pub fn copy_output(prefix: Option<String>, printer: Printer, reader: OwnedFd) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(File::from(reader));
        let mut line = Vec::new();
        loop {
            let text = match &prefix {
                None => reader.fill_buf().map(<[u8]>::to_vec),
                Some(prefix) => reader.read_until(b'\n', &mut line).map(|_| {
                    if !line.is_empty() && !line.ends_with(b"\n") {
                        line.push(b'\n');
                    }
                    // One write a line, so that lines of several tasks do not mix.
                    let mut text = if line.is_empty() { Vec::new() } else { prefix.clone().into() };
                    text.append(&mut line);
                    text
                }),
            };
            let Some(text) = text.ok().filter(|text| !text.is_empty()) else { return };
            if prefix.is_none() {
                reader.consume(text.len());
            }
            if !printer.print(text) {
                return;
            }
        }
    })
}
