//! The results of a copy run: a table of bandwidths for each pair of cores, source and destination;
//! all medians as CSV; and a figure of the important loops.

use std::collections::BTreeMap;
use std::path::Path;

use figure::{Axis, COLOURS, Figure, Kind, Line, Panel, Row, Style, log2};

use super::loops::Sample;
use crate::failure::Failure;
use crate::spread::Spread;
use crate::table::{Table, write_lines};
use crate::{cores, machine, sizes};

/// The samples of one pair of cores.
type OfPair = (&'static str, (usize, usize), Vec<Sample>);

/// Loops in the figure; the tables have all.
const DRAWN: [(&str, Kind); 8] = [
    ("movsb", Kind::Solid),
    ("movsq", Kind::Solid),
    ("gpr", Kind::Dashed),
    ("avx2", Kind::Dashed),
    ("avx2+t0-2k", Kind::Dashed),
    ("avx512", Kind::Dashed),
    ("movnti+t0-2k", Kind::Dashed),
    ("avx512-nt+t0", Kind::Dashed),
];

/// Medians within this factor of the best of a column count as equal to it.
const SAME_FACTOR: f64 = 1.03;

/// Times in nanoseconds by loop and size: of the copy, and of the copy with a read of the
/// destination.
type Times<'a> = BTreeMap<(&'a str, usize), [Spread; 2]>;

/// Prints the tables; writes `copy.csv` and `copy.svg`.
pub fn write(measured: &[OfPair], out: &Path) -> Result<(), Failure> {
    let headings = "cores,source,destination,bytes,loop,copy_ns,copy_ns_min,copy_ns_max,\
                    copy_and_read_ns,copy_and_read_ns_min,copy_and_read_ns_max";
    let mut lines = vec![headings.to_string()];
    let mut rows: Vec<Row> = Vec::new();
    for (words, cpus, samples) in measured {
        let (kept, distance_ns) = at_one_distance(samples);
        println!(
            "\ncopy: cores {} and {} ({words}), usually {distance_ns:.0} ns apart; {} of {} \
             samples at another distance are discarded",
            cpus.0,
            cpus.1,
            samples.len() - kept.len(),
            samples.len()
        );
        for [source, destination] in states(samples) {
            let state =
                |sample: &&&Sample| sample.source == source && sample.destination == destination;
            let of_state: Vec<&Sample> = kept.iter().filter(state).copied().collect();
            let times = times_of(&of_state);
            let title = format!("source {source}, destination {destination}");
            print_table(&title, &times, samples);
            for ((copier, bytes), [copy, read]) in &times {
                let of = |s: &Spread| format!("{:.1},{:.1},{:.1}", s.median, s.min, s.max);
                let (copy, read) = (of(copy), of(read));
                lines
                    .push(format!("{words},{source},{destination},{bytes},{copier},{copy},{read}"));
            }
            let panels = vec![
                panel("copy, GB/s", &times, 0),
                panel("copy, then reading the destination, GB/s", &times, 1),
            ];
            rows.push(Row { title: format!("{title}; cores {distance_ns:.0} ns apart"), panels });
        }
    }
    let legend = DRAWN.iter().enumerate().map(|(at, (name, _))| (name.to_string(), style(at)));
    let caption = machine::caption();
    Figure { caption, legend: legend.collect(), rows }.write(&out.join("copy.svg"))?;
    println!("\nwritten: copy.csv, copy.svg in {}", out.display());
    write_lines(&out.join("copy.csv"), &lines)
}

/// Returns the samples at the usual distance of the cores, and that distance in nanoseconds. A
/// state without such samples keeps all.
fn at_one_distance(samples: &[Sample]) -> (Vec<&Sample>, f64) {
    let mut distances: Vec<f64> = samples.iter().flat_map(|sample| sample.distance_ns).collect();
    distances.sort_by(f64::total_cmp);
    let usual = distances[distances.len() / 2];
    let counts = |sample: &Sample| cores::is_one_distance(usual, sample.distance_ns);
    let is_alike =
        |a: &Sample, b: &Sample| (&a.source, &a.destination) == (&b.source, &b.destination);
    let is_left = |of: &Sample| samples.iter().any(|one| is_alike(one, of) && counts(one));
    let kept = |sample: &&Sample| counts(sample) || !is_left(sample);
    (samples.iter().filter(kept).collect(), usual)
}

/// Returns sources and destinations in the order of the runs.
fn states(samples: &[Sample]) -> Vec<[&str; 2]> {
    let mut states: Vec<[&str; 2]> = Vec::new();
    for sample in samples {
        let state = [sample.source.as_str(), sample.destination.as_str()];
        if !states.contains(&state) {
            states.push(state);
        }
    }
    states
}

fn times_of<'a>(samples: &[&'a Sample]) -> Times<'a> {
    let mut by_loop: BTreeMap<(&str, usize), [Vec<f64>; 2]> = BTreeMap::new();
    for sample in samples {
        let times = by_loop.entry((sample.copier.as_str(), sample.bytes)).or_default();
        times[0].push(sample.copy_ns);
        times[1].push(sample.copy_and_read_ns);
    }
    by_loop.into_iter().map(|(key, times)| (key, times.map(|t| Spread::of(&t)))).collect()
}

fn sizes_of(times: &Times) -> Vec<usize> {
    let mut sizes: Vec<usize> = times.keys().map(|(_, bytes)| *bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Prints GB/s by loop and size, of the copy and of the copy with a read.
fn print_table(title: &str, times: &Times, samples: &[Sample]) {
    let mut loops: Vec<&str> = Vec::new();
    for sample in samples {
        if !loops.contains(&sample.copier.as_str()) {
            loops.push(&sample.copier);
        }
    }
    let sizes = sizes_of(times);
    let best = |bytes: usize, what: usize| {
        let of_size = times.iter().filter(|((_, size), _)| *size == bytes);
        of_size.map(|(_, t)| t[what].median).fold(f64::INFINITY, f64::min)
    };
    let headings: Vec<String> = sizes.iter().map(|&bytes| sizes::shown(bytes)).collect();
    for (what, words) in ["copy", "copy, then reading the destination"].into_iter().enumerate() {
        let headings = headings.iter().map(String::as_str);
        let mut table = Table::new(["loop"].into_iter().chain(headings).chain([""]));
        for copier in &loops {
            let cell = |&bytes: &usize| match times.get(&(copier, bytes)) {
                Some(of) => {
                    let median = of[what].median;
                    let mark = if median <= SAME_FACTOR * best(bytes, what) { "*" } else { " " };
                    format!("{:.1}{mark}", bytes as f64 / median)
                }
                None => "- ".to_string(),
            };
            let cells = sizes.iter().map(cell);
            table.row([copier.to_string()].into_iter().chain(cells).chain([String::new()]));
        }
        table.print(&format!("{title}: {words}, GB/s; * within 3 % of the best"));
    }
    let noise: Vec<f64> =
        times.values().map(|of| (of[0].max - of[0].min) / of[0].median * 100.0).collect();
    if !noise.is_empty() {
        println!(
            "  repetitions of a copy lie {:.0} % apart in the median",
            Spread::of(&noise).median
        );
    }
}

fn style(at: usize) -> Style {
    Style { colour: COLOURS[at], kind: DRAWN[at].1 }
}

fn panel(caption: &str, times: &Times, what: usize) -> Panel {
    let line = |at: usize| {
        let of_loop = times.iter().filter(|((copier, _), _)| *copier == DRAWN[at].0);
        let points =
            of_loop.map(|((_, bytes), of)| (log2(*bytes), *bytes as f64 / of[what].median));
        Line { points: points.collect(), style: style(at) }
    };
    let lines: Vec<Line> = (0..DRAWN.len()).map(line).collect();
    let x = Axis::sizes(sizes_of(times).into_iter());
    let caption = caption.to_string();
    Panel { caption, x_caption: "size", x, y: Axis::from_zero(&lines), lines }
}
