//! The record of one rank, as text: a line for each fact, with words separated by blanks.

use std::fmt::Write as _;

/// The first line of a record: its format.
const FIRST: &str = "nagaya-traffic 1";

/// A count of calls or messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of calls or messages.
    pub count: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Time in calls, in nanoseconds.
    pub time_ns: u64,
}

impl Tally {
    /// Adds another count. Sums end at the greatest number: a record may have any.
    pub fn add(&mut self, other: Tally) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time_ns = self.time_ns.saturating_add(other.time_ns);
    }
}

/// The calls of one function with sizes of one class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function of MPI.
    pub function: String,
    /// The class of the size that one call gave.
    pub class: u8,
    /// Calls, bytes and time.
    pub tally: Tally,
}

/// The messages to one rank with sizes of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The receiver's rank in `MPI_COMM_WORLD`; `None` if it belongs to another job.
    pub to: Option<u32>,
    /// The class of the sizes.
    pub class: u8,
    /// Messages and bytes. They have no time: a call that waits for messages has it.
    pub tally: Tally,
}

/// The counts of one rank between MPI_Init and MPI_Finalize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The rank in `MPI_COMM_WORLD`.
    pub rank: u32,
    /// Number of ranks in `MPI_COMM_WORLD`.
    pub ranks: u32,
    /// The name of the node.
    pub host: String,
    /// The ID of the task, if the rank was one.
    pub task: Option<u32>,
    /// Time between the end of MPI_Init and the start of MPI_Finalize, in nanoseconds.
    pub time_ns: u64,
    /// Large messages that this task copied in user space in place of the kernel.
    pub copies: Tally,
    /// Collective operations that libnagaya-coll.so did in place.
    pub in_place: u64,
    /// Calls of MPI's functions.
    pub calls: Vec<Call>,
    /// Messages sent.
    pub messages: Vec<Message>,
}

impl Record {
    /// Returns the record as text.
    pub fn to_text(&self) -> String {
        let Self { rank, ranks, time_ns, copies, in_place, .. } = self;
        // A blank would end the word.
        let host = self.host.replace(char::is_whitespace, "_");
        let mut text = format!(
            "{FIRST}\nrank {rank} {ranks}\nhost {host}\ntime {time_ns}\ncopies {} {}\n\
             in_place {in_place}\n",
            copies.count, copies.bytes
        );
        if let Some(task) = self.task {
            let _ = writeln!(text, "task {task}");
        }
        for Call { function, class, tally: Tally { count, bytes, time_ns } } in &self.calls {
            let _ = writeln!(text, "call {function} {class} {count} {bytes} {time_ns}");
        }
        for Message { to, class, tally: Tally { count, bytes, .. } } in &self.messages {
            let to = to.map_or("other".to_owned(), |rank| rank.to_string());
            let _ = writeln!(text, "message {to} {class} {count} {bytes}");
        }
        text.push_str("end\n");
        text
    }

    /// Reads a record. `None` if it is of another format or not complete.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST) {
            return None;
        }
        let mut record = Self::default();
        for line in lines {
            if line == "end" {
                return Some(record);
            }
            record.read(&line.split(' ').collect::<Vec<_>>())?;
        }
        None
    }

    /// Reads the words of one line.
    fn read(&mut self, words: &[&str]) -> Option<()> {
        fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
            word.parse().ok()
        }
        let class = |word: &str| number(word).filter(|&it| usize::from(it) < crate::CLASSES);
        match *words {
            ["rank", rank, ranks] => (self.rank, self.ranks) = (number(rank)?, number(ranks)?),
            ["host", host] => self.host = host.to_owned(),
            ["time", time] => self.time_ns = number(time)?,
            ["task", task] => self.task = Some(number(task)?),
            ["in_place", count] => self.in_place = number(count)?,
            ["copies", count, bytes] => {
                self.copies = Tally { count: number(count)?, bytes: number(bytes)?, time_ns: 0 };
            }
            ["call", function, size, count, bytes, time] => self.calls.push(Call {
                function: function.to_owned(),
                class: class(size)?,
                tally: Tally {
                    count: number(count)?,
                    bytes: number(bytes)?,
                    time_ns: number(time)?,
                },
            }),
            ["message", to, size, count, bytes] => self.messages.push(Message {
                to: if to == "other" { None } else { Some(number(to)?) },
                class: class(size)?,
                tally: Tally { count: number(count)?, bytes: number(bytes)?, time_ns: 0 },
            }),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let tally = Tally { count: 3, bytes: 3000, time_ns: 77 };
        Record {
            rank: 1,
            ranks: 4,
            host: "a".into(),
            task: Some(1),
            time_ns: 5_000_000,
            copies: Tally { count: 2, bytes: 1 << 20, time_ns: 0 },
            in_place: 9,
            calls: vec![Call { function: "MPI_Send".into(), class: 10, tally }],
            messages: [Some(3), None]
                .map(|to| Message { to, class: 10, tally: Tally { time_ns: 0, ..tally } })
                .into(),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        assert_eq!(Record::parse(&record().to_text()), Some(record()));
    }

    #[test]
    fn incomplete_and_foreign_records_are_refused() {
        let text = record().to_text();
        for end in 0..text.len() - 1 {
            assert_eq!(Record::parse(&text[..end]), None, "{}", &text[..end]);
        }
        assert_eq!(Record::parse(&text.replace("traffic 1", "traffic 2")), None);
        assert_eq!(Record::parse(&text.replace("call MPI_Send 10", "call MPI_Send 65")), None);
    }
}
