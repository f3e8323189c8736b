//! All jobs, and the command that lists them.

use std::collections::BTreeMap;
use std::io;

use pvm::tid::Tid;

use crate::console::{Console, Stop};
use crate::job::{Event, Job, To, Traced};
use crate::tasks;

/// All jobs, by the tag with which their output comes.
#[derive(Debug, Default)]
pub struct Jobs {
    jobs: BTreeMap<i32, Job>,
    begun: i32,
}

/// Tags of the console's messages are from here on; those of hosts that come, and such, below.
const TAG_FIRST: i32 = 4;
/// As in stock PVM, a job's number gives its tag, and a traced job has two tags.
const TAGS_BEFORE: i32 = TAG_FIRST - 1;

impl Jobs {
    /// A new job. Returns its number, from 1.
    pub fn begin(&mut self, output: To, trace: Option<To>) -> i32 {
        let number = self.begun + 1;
        self.begun += 1 + i32::from(trace.is_some());
        self.jobs.insert(Jobs::tag(number), Job::new(number, output, trace));
        number
    }

    /// The tag of a job's output. That of its trace is the next.
    pub fn tag(number: i32) -> i32 {
        TAGS_BEFORE + number
    }

    /// The job whose trace comes with this tag.
    fn traced(&mut self, tag: i32) -> Option<&mut Job> {
        self.jobs.get_mut(&(tag - 1)).filter(|job| job.is_traced())
    }

    /// Returns true if messages with this tag are events.
    pub fn is_trace(&self, tag: i32) -> bool {
        self.jobs.get(&(tag - 1)).is_some_and(Job::is_traced)
    }

    /// The job has these tasks: before they all have ended it has not.
    pub fn expect(&mut self, number: i32, tids: impl Iterator<Item = Tid>) {
        if let Some(job) = self.jobs.get_mut(&Jobs::tag(number)) {
            tids.for_each(|tid| job.expect(tid));
        }
    }

    /// Nothing will come of this job.
    pub fn forget(&mut self, number: i32) {
        self.jobs.remove(&Jobs::tag(number));
    }

    /// Returns true if there are no jobs.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Receives a message of output. Appends the console's part to `out`; lines start with
    /// `[JOB:TID]` if `named`. `now` is the time, for events.
    pub fn take(
        &mut self,
        tag: i32,
        tid: Tid,
        event: Event,
        named: bool,
        now: (i32, i32),
        out: &mut Vec<u8>,
    ) {
        let Some(job) = self.jobs.get_mut(&tag) else { return };
        match job.take(tid, event, named, now, out) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => cannot_write(job, &error, out),
        }
        self.finish(tag, out);
    }

    fn finish(&mut self, tag: i32, out: &mut Vec<u8>) {
        if let Some(job) = self.jobs.remove(&tag) {
            out.extend_from_slice(format!("[{}] finished\n", job.number()).as_bytes());
        }
    }

    /// Takes an event, or text that stands before events (`record` is none).
    pub fn trace(&mut self, tag: i32, tid: Tid, what: Traced<'_>, named: bool, out: &mut Vec<u8>) {
        let Some(job) = self.traced(tag) else { return };
        let finished = match job.trace(tid, what, named, out) {
            Ok(finished) => finished,
            Err(error) => {
                cannot_write(job, &error, out);
                job.end_trace()
            }
        };
        if finished {
            self.finish(tag - 1, out);
        }
    }
}

fn cannot_write(job: &Job, error: &io::Error, out: &mut Vec<u8>) {
    let text = format!("[{}] its output cannot be written: {error}\n", job.number());
    out.extend_from_slice(text.as_bytes());
}

/// `jobs [-l]`.
pub fn jobs(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let long = match words.get(1).map(String::as_str) {
        None => false,
        Some("-l") => true,
        Some(other) => {
            console.complain(&format!("jobs: unknown option {other} (help jobs)"));
            return Ok(());
        }
    };
    if long {
        tasks::print_heading(false);
    }
    let list = |job: &Job| {
        (format!("{}{}", if job.is_traced() { 'T' } else { ' ' }, job.number()), job.tasks())
    };
    let jobs: Vec<(String, Vec<Tid>)> = console.jobs.jobs.values().map(list).collect();
    for (label, tasks) in jobs {
        if !long {
            let tasks: String = tasks.iter().map(|tid| format!(" {tid}")).collect();
            println!("{label}:{tasks}");
            continue;
        }
        println!("{label}:");
        for tid in tasks {
            match console.machine.tasks(tid) {
                Ok(found) if found.len() == 1 => tasks::print(console, &found[0], false),
                _ => println!(" {tid}"),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::Traces;
    use std::fs::File;

    const ONE: Tid = Tid(0x40001);
    const TWO: Tid = Tid(0x40002);

    fn output(jobs: &mut Jobs, events: &[(Tid, Event)]) -> String {
        let mut out = Vec::new();
        for (tid, event) in events {
            jobs.take(TAG_FIRST, *tid, event.clone(), true, (0, 0), &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    fn text(text: &str) -> Event {
        Event::Output(text.into())
    }

    #[test]
    fn lines_are_whole_and_named() {
        let mut jobs = Jobs::default();
        assert_eq!(jobs.begin(To::Console, None), 1);
        let events = [
            (ONE, Event::Spawned),
            (TWO, Event::Spawned),
            (ONE, text("one a\npart")),
            (TWO, text("two\n\n")),
            (ONE, text("ial\nlast")),
            (ONE, Event::End),
        ];
        let expected = "[1:t40001] one a\n[1:t40002] two\n[1:t40002] \n[1:t40001] partial\n\
                        [1:t40001] last\n[1:t40001] EOF\n";
        assert_eq!(output(&mut jobs, &events), expected);
        assert!(!jobs.is_empty());
        assert_eq!(output(&mut jobs, &[(TWO, Event::End)]), "[1:t40002] EOF\n[1] finished\n");
        assert!(jobs.is_empty());
        assert_eq!(output(&mut jobs, &[(TWO, text("late\n"))]), "");
    }

    #[test]
    fn a_job_ends_after_its_childrens_children() {
        let mut jobs = Jobs::default();
        jobs.begin(To::Console, None);
        let first = [(ONE, Event::Spawned), (TWO, Event::Created), (ONE, Event::End)];
        assert_eq!(output(&mut jobs, &first), "[1:t40001] EOF\n");
        let second = [(TWO, Event::End), (TWO, Event::Spawned)];
        assert_eq!(output(&mut jobs, &second), "[1:t40002] EOF\n[1] finished\n");
    }

    #[test]
    fn a_job_ends_after_all_spawned_tasks_even_if_some_end_early() {
        let mut jobs = Jobs::default();
        let number = jobs.begin(To::Console, None);
        jobs.expect(number, [ONE, TWO].into_iter());
        let first = [(ONE, Event::Created), (ONE, Event::End), (ONE, Event::Spawned)];
        assert_eq!(output(&mut jobs, &first), "[1:t40001] EOF\n");
        let second = [(TWO, Event::Spawned), (TWO, text("b\n")), (TWO, Event::End)];
        let expected = "[1:t40002] b\n[1:t40002] EOF\n[1] finished\n";
        assert_eq!(output(&mut jobs, &second), expected);
    }

    #[test]
    fn a_file_that_cannot_be_written_is_told_once() {
        let mut jobs = Jobs::default();
        jobs.begin(To::File(File::open("/dev/null").unwrap()), None);
        let printed = output(&mut jobs, &[(ONE, text("a\n")), (ONE, text("b\n"))]);
        assert!(printed.starts_with("[1] its output cannot be written: "), "{printed}");
        assert!(printed.ends_with("[1] finished\n"), "{printed}");
        assert_eq!(printed.lines().count(), 2);
    }

    /// The output of stock PVM's console for the same events, except for the times.
    #[test]
    fn events_are_described_and_told() {
        let mut jobs = Jobs::default();
        let number = jobs.begin(To::Nowhere, Some(To::Console));
        assert_eq!((number, jobs.begin(To::Console, None)), (1, 3));
        assert!(jobs.is_trace(TAG_FIRST + 1) && !jobs.is_trace(TAG_FIRST + 2));
        let words = [-9, 108, 13, 0x7573_6572, 0x5f64_6566, 0x696e_6564, 0, 5, 6];
        let items = [6, 7, 0x86, 3, 1, 2, 3, 4, 0x4004_0000, 0, 0x81, 5, 0x6865_6c6c, 0x6f00_0000];
        let bytes: Vec<u8> =
            words.iter().chain(&items).flat_map(|word: &i32| word.to_be_bytes()).collect();
        let record = Traces::default().read(TWO, &bytes).unwrap().remove(0);
        let mut out = Vec::new();
        for _ in 0..2 {
            jobs.trace(TAG_FIRST + 1, TWO, Traced::Record(&record), false, &mut out);
        }
        jobs.trace(TAG_FIRST + 1, TWO, Traced::Record(&record), true, &mut out);
        let line = "\"user_defined(0)\" { 262146, 5, 6, 7, [3] { 1, 2, 3 }, 2.500000, [6] { \"hello\" } };;\n";
        let expected = format!(
            "\n#1216: \"user_defined(0)\"\n{{\n\
             \t// \"TID\" \"Task ID\"\n\tint \"TID\";\n\
             \t// \"TS\" \"Time Seconds\"\n\tint \"TS\";\n\
             \t// \"TU\" \"Time Microseconds\"\n\tint \"TU\";\n\
             \t// \"USR0\" \"User Defined Value #0\"\n\tint \"USR0\";\n\
             \t// \"USR1\" \"User Defined Value #1\"\n\tint \"USR1\"[];\n\
             \t// \"USR2\" \"User Defined Value #2\"\n\tdouble \"USR2\";\n\
             \t// \"USR3\" \"User Defined Value #3\"\n\tchar \"USR3\"[];\n}};;\n\n\
             {line}{line}[T1:t40002] {line}"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        for length in 0..bytes.len() {
            let _ = Traces::default().read(TWO, &bytes[..length]);
        }
    }
}
