//! The outcome of `nagaya try` in plain words.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use super::report::{Outcome, Side};
use crate::messages::{Job, NO_DATA, Where};
use crate::ps::human;

/// Differences below this part of the time are noise, however near the runs of a side are.
const NOISE: f64 = 0.01;

/// Describes the outcome in lines, the most important first.
pub fn text(outcome: &Outcome) -> String {
    let Outcome { without, with, .. } = outcome;
    let mut text = String::new();
    let change = format!(
        "{} -> {} ({})",
        seconds(without.median_seconds),
        seconds(with.median_seconds),
        change(without, with)
    );
    match outcome.nodes {
        Some(nodes) => {
            let _ = writeln!(text, "one node -> {nodes} nodes: {change}");
        }
        None => {
            let share = without.counts.as_ref().map(share).unwrap_or_default();
            let copies = copies(outcome).0;
            let _ = writeln!(text, "{share}{change}; copies in user space: {copies}");
        }
    }
    for (name, side) in [("without Nagaya", without), ("with Nagaya", with)] {
        let (least, most) = side.range();
        let _ = writeln!(
            text,
            "  {name:<15} {} (median of {}; {} to {})",
            seconds(side.median_seconds),
            side.seconds.len(),
            seconds(least),
            seconds(most)
        );
    }
    match outcome.nodes {
        Some(_) => text.push_str(&of_span(outcome)),
        None => text.push_str(&of_messages(outcome)),
    }
    let _ = writeln!(text, "  output          {}", outcome.output.text());
    if let Some(reasons) = &outcome.reasons {
        text.push_str(reasons);
    }
    text
}

fn seconds(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// Describes the change of the median, if it is more than the noise of both sides.
fn change(without: &Side, with: &Side) -> String {
    let noise = [without, with].map(|side| side.range().1 - side.range().0);
    let noise = noise[0].max(noise[1]).max(NOISE * without.median_seconds);
    let ratio = without.median_seconds / with.median_seconds;
    if without.seconds.len() == 1 {
        return format!("{ratio:.2} times as fast; one round each does not show the noise");
    }
    let gain = without.median_seconds - with.median_seconds;
    if gain.abs() <= noise {
        return format!("no difference beyond the noise of {}", seconds(noise));
    }
    format!("{ratio:.2} times as fast")
}

/// "14 % of the time in messages within the node; ".
fn share(counts: &Job) -> String {
    if !counts.total.has_data() {
        return String::new();
    }
    let percent = counts.total.share() * 100.0;
    match counts.nodes {
        1 if counts.is_complete() => {
            format!("{percent:.0} % of the time in messages within the node; ")
        }
        _ => format!("{percent:.0} % of the time in messages; "),
    }
}

/// Returns yes or no, and the reason.
fn copies(outcome: &Outcome) -> (&'static str, String) {
    let Some(counted) = &outcome.counted_with else {
        return ("unknown", "no rank with Nagaya has reported its messages".into());
    };
    let number = |path: &str| counted.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let copied = number("/total/copies_in_user_space/count");
    let in_place = number("/total/collectives_in_place");
    let transport = counted.get("transport").and_then(Value::as_str).unwrap_or_default();
    let mut reasons = Vec::new();
    if transport.starts_with("provider") {
        reasons.push("all messages go through Nagaya's libfabric provider".to_owned());
    }
    if copied > 0 {
        let bytes = human(number("/total/copies_in_user_space/bytes"));
        reasons.push(format!("{copied} copies of large messages ({bytes})"));
    }
    if in_place > 0 {
        reasons.push(format!("{in_place} collective operations in place"));
    }
    match reasons.is_empty() {
        false => ("yes", reasons.join(", ")),
        true => (
            "no",
            "no message was copied by Nagaya: the MPI sends small ones by its shared memory (nagaya \
             info --mpi --try has the sizes)"
                .into(),
        ),
    }
}

/// Describes the messages.
fn of_messages(outcome: &Outcome) -> String {
    let mut text = String::new();
    let lost = outcome.uncounted_in.as_deref().map(elsewhere);
    match &outcome.without.counts {
        Some(counts) => {
            let total = &counts.total;
            if !total.has_data() {
                let _ = writeln!(text, "  messages        {NO_DATA}");
            }
            let ranks = counts.ranks_counted as f64;
            let _ = writeln!(
                text,
                "  in MPI          {} of {} a rank, with the waits for other ranks: Nagaya can \
                 shorten at most this",
                seconds(total.mpi_seconds / ranks),
                seconds(total.seconds / ranks)
            );
            for to in [Where::Node, Where::OtherNode, Where::Unknown] {
                let sent = total.sent(to);
                if sent.count > 0 {
                    let bytes = human(sent.bytes);
                    let (count, name) = (sent.count, to.name());
                    let _ = writeln!(text, "  messages        {count} {name} ({bytes})");
                }
            }
            if !counts.is_complete() {
                let _ = writeln!(
                    text,
                    "  counted         {} of {} ranks{}",
                    counts.ranks_counted,
                    counts.ranks,
                    lost.unwrap_or_default()
                );
            }
        }
        None => {
            let no_record = ": no MPI program that is linked dynamically has called MPI_Finalize";
            let why = lost.unwrap_or_else(|| no_record.into());
            let _ = writeln!(text, "  messages        not counted{why}");
        }
    }
    let _ = writeln!(text, "  user space      {}", copies(outcome).1);
    for (title, key) in [("transport", "transport"), ("collectives", "collectives")] {
        let chosen = outcome.counted_with.as_ref().and_then(|counted| counted.get(key)?.as_str());
        if let Some(chosen) = chosen {
            let _ = writeln!(text, "  {title:<15} {chosen}");
        }
    }
    text
}

/// Explains why ranks were not counted.
pub fn elsewhere(directory: &Path) -> String {
    format!(
        ": not all nodes have {}; work in a directory that they share, or set TMPDIR to one",
        directory.parent().unwrap_or(directory).display()
    )
}

/// Describes the nodes of a trial of `nagaya span`.
fn of_span(outcome: &Outcome) -> String {
    match outcome.share {
        Some(count) => format!(
            "  processors      {count} for one node, and {count} for each of the nodes, of this \
             machine\n"
        ),
        None => "  processors      all of this machine in both cases: it has less than nodes, so \
                 more nodes cannot be faster\n"
            .into(),
    }
}
