//! Address-space randomization: the window of a space, and the image, heap, libraries and stack of
//! each task, lie at random addresses, unless the user wants fixed ones. The program also checks
//! the formulae that give the segment of a task.

use std::collections::HashSet;

use nagaya_tests::{Cmd, Output, exec, job, nagaya, program, tool};

/// The place of a task, as `addresses.c` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    id: u64,
    base: u64,
    segment: u64,
    text: u64,
    heap: u64,
    linker: u64,
    libc: u64,
    stack: u64,
}

/// The parts of a task, by name.
const PARTS: [&str; 5] = ["text", "heap", "linker", "libc", "stack"];

impl Place {
    fn parse(line: &str) -> Self {
        let mut words = line.split(' ').map(|word| u64::from_str_radix(word, 16).expect(line));
        let mut next = || words.next().expect(line);
        Self {
            id: next(),
            base: next(),
            segment: next(),
            text: next(),
            heap: next(),
            linker: next(),
            libc: next(),
            stack: next(),
        }
    }

    fn parts(&self) -> [u64; 5] {
        [self.text, self.heap, self.linker, self.libc, self.stack]
    }

    /// The parts, from the start of the segment on.
    fn offsets(&self) -> [u64; 5] {
        self.parts().map(|part| part - self.segment)
    }
}

/// The tasks in the output, in order of their IDs.
#[track_caller]
fn places(output: Output) -> Vec<Place> {
    let mut places: Vec<Place> = output.ok().lines().map(Place::parse).collect();
    places.sort_by_key(|place| place.id);
    places
}

fn addresses() -> std::path::PathBuf {
    program::c_pvas("addresses.c")
}

fn run(options: &[&str]) -> Cmd {
    nagaya("run").args(options).arg(addresses())
}

/// A program that makes a space itself, and starts tasks 3 and 5 in it.
fn owner() -> Cmd {
    Cmd::new(addresses()).arg("owner")
}

/// What `nagaya run` and libpvas use with fixed addresses: the start of the region for spaces,
/// behind the control area.
const FIXED_BASE: u64 = (1 << 40) + (1 << 30);

fn distinct<T: Eq + std::hash::Hash>(values: impl Iterator<Item = T>) -> usize {
    values.collect::<HashSet<_>>().len()
}

#[test]
fn every_job_has_other_addresses() {
    let new_job = || exec(&job(), addresses());
    let of_owner = || owner();
    let commands: [(&str, &dyn Fn() -> Cmd); 3] =
        [("run", &|| run(&[])), ("exec", &new_job), ("libpvas", &of_owner)];
    for (name, command) in commands {
        let jobs: Vec<Place> = (0..4).map(|_| places(command().run())[0]).collect();
        // Two of four windows are the same once in 3,500 runs.
        assert!(distinct(jobs.iter().map(|it| it.base)) >= 3, "{name}: {jobs:x?}");
        for (at, part) in PARTS.iter().enumerate() {
            let count = distinct(jobs.iter().map(|it| it.parts()[at]));
            assert_eq!(count, 4, "{name}: {part}: {jobs:x?}");
        }
    }
}

#[test]
fn tasks_of_a_job_lie_at_other_places_in_their_segments() {
    let job = job();
    let stubs = || {
        let line = |_| places(exec(&job, addresses()).run());
        (0..4).flat_map(line).collect::<Vec<_>>()
    };
    let tasks: [(&str, Vec<Place>); 4] = [
        ("run", places(run(&["-n", "4"]).run())),
        ("domains", places(run(&["--domains", "all:2,all:2"]).run())),
        ("exec", stubs()),
        ("libpvas", places(owner().run())),
    ];
    for (name, tasks) in tasks {
        assert!(name == "exec" || distinct(tasks.iter().map(|it| it.base)) == 1, "{tasks:x?}");
        for (at, part) in PARTS.iter().enumerate() {
            let count = distinct(tasks.iter().map(|it| it.offsets()[at]));
            // Images have 1,024 places in a segment.
            let least = if *part == "text" { tasks.len() - 1 } else { tasks.len() };
            assert!(count >= least, "{name}: {part}: {tasks:x?}");
        }
    }
}

/// The number of bits that differ in some of the values.
fn varying_bits(values: &[u64]) -> u32 {
    values.iter().fold(0, |bits, value| bits | (value ^ values[0])).count_ones()
}

#[test]
fn the_random_numbers_have_as_many_bits_as_documented() {
    let jobs: Vec<Place> = (0..20).map(|_| places(run(&[]).run())[0]).collect();
    let bits = |of: fn(&Place) -> u64| varying_bits(&jobs.iter().map(of).collect::<Vec<_>>());
    // A bit of an even number is the same in 20 jobs once in half a million runs. The highest bit
    // of the others may be rare, and one more is left for that.
    assert!(bits(|it| it.base) >= 13, "{jobs:x?}");
    assert!(bits(|it| it.text - it.segment) >= 9, "{jobs:x?}");
    assert!(bits(|it| it.heap - it.text) >= 12, "{jobs:x?}");
    assert!(bits(|it| it.linker - it.segment) >= 18, "{jobs:x?}");
    assert!(bits(|it| it.stack - it.segment) >= 25, "{jobs:x?}");
    for it in &jobs {
        assert_eq!(it.base % (1 << 30), 0, "{it:x?}");
        // The image keeps its place in a huge page, so its text can use one.
        assert_eq!(it.text % (2 << 20), jobs[0].text % (2 << 20), "{it:x?}");
    }
    assert!(distinct(jobs.iter().map(|it| it.base)) >= 18, "{jobs:x?}");
    assert!(distinct(jobs.iter().map(|it| it.libc)) >= 19, "{jobs:x?}");
}

/// Both have the base and the offsets of the layout without randomness. Stacks also depend on the
/// length of arguments and environments, such as a job's name.
#[track_caller]
fn are_fixed(name: &str, commands: [Cmd; 2], base: u64) {
    let [first, second] = commands.map(|command| places(command.run()));
    assert_eq!(first.len(), second.len(), "{name}");
    for place in first.iter().chain(&second) {
        assert_eq!(place.base, base, "{name}: {first:x?} {second:x?}");
        let offsets = place.offsets();
        assert_eq!(offsets[..4], first[0].offsets()[..4], "{name}: {first:x?} {second:x?}");
        // The stack begins in the last MiB of the segment.
        let segment_size = offsets[4].next_power_of_two();
        assert!(segment_size - offsets[4] < 1 << 20, "{name}: {place:x?}");
    }
}

#[test]
fn users_can_have_fixed_addresses() {
    let base = FIXED_BASE;
    let option = || run(&["-n", "3", "--fixed-addresses"]);
    are_fixed("--fixed-addresses", [option(), option()], base);
    assert_eq!(places(option().run()), places(option().run()), "stacks");
    let variable = || run(&["-n", "3"]).env("NAGAYA_FIXED_ADDRESSES", "1");
    are_fixed("variable", [variable(), variable()], base);
    let domains = || run(&["--domains", "all:1,all:2", "--fixed-addresses"]);
    are_fixed("domains", [domains(), domains()], base);
    let nodes = || run(&["--nodes", "2", "-n", "2", "--fixed-addresses"]);
    are_fixed("nodes", [nodes(), nodes()], base);
    let stub = || nagaya("exec").args(["--job", &job(), "--fixed-addresses"]).arg(addresses());
    are_fixed("exec", [stub(), stub()], base);
    let stub = || exec(&job(), addresses()).env("NAGAYA_FIXED_ADDRESSES", "1");
    are_fixed("exec, variable", [stub(), stub()], base);
    let own = || owner().env("NAGAYA_FIXED_ADDRESSES", "1");
    are_fixed("libpvas", [own(), own()], base);
}

#[test]
fn a_process_without_randomization_makes_spaces_without_it() {
    let setarch = tool("setarch");
    let without = |command: Cmd| Cmd::new(&setarch).arg("-R").command(command);
    are_fixed("run", [without(run(&[])), without(run(&[]))], FIXED_BASE);
    are_fixed("libpvas", [without(owner()), without(owner())], FIXED_BASE);
    let stub = || without(exec(&job(), addresses()));
    are_fixed("exec", [stub(), stub()], FIXED_BASE);
    // As gdb starts programs.
    let gdb = Cmd::new(tool("gdb")).args(["-nx", "-batch", "-ex", "run", "--args"]);
    let output = gdb.command(owner()).run().ok();
    let lines = output.lines().filter(|line| line.starts_with(['3', '5']));
    let places: Vec<Place> = lines.map(Place::parse).collect();
    assert_eq!(places.len(), 2, "{output}");
    assert!(places.iter().all(|place| place.base == FIXED_BASE), "{places:x?}");
}

#[test]
fn a_wrong_variable_gets_one_line() {
    for command in [run(&[]), exec(&job(), addresses())] {
        let output = command.env("NAGAYA_FIXED_ADDRESSES", "yes").run();
        output.refused(125, &["NAGAYA_FIXED_ADDRESSES (0 or 1)"]);
    }
    assert_eq!(places(run(&[]).env("NAGAYA_FIXED_ADDRESSES", "0").run()).len(), 1);
}

#[test]
fn small_and_large_segments_and_many_ids_find_room_at_random_addresses() {
    for options in [
        &["-n", "3", "--segment-size", "64M"][..],
        &["-n", "3", "--segment-size", "1T"],
        &["-n", "5", "--segment-size", "16T"],
        &["--domains", "all:1,all:1", "--segment-size", "16T"],
        &["--domains", "all:1,all:1", "--segment-size", "64M"],
    ] {
        // Each shift that does not fit would fail in some runs.
        for _ in 0..8 {
            let places = places(run(options).run());
            assert!(places.len() >= 2, "{places:x?}");
        }
    }
}

#[test]
fn spaces_stay_clear_of_libraries_where_the_stack_is_unlimited() {
    // The kernel then puts libraries at a third of the address space.
    let unlimited = |command: Cmd| Cmd::new("prlimit").args(["--stack=unlimited"]).command(command);
    for options in [&["-n", "2"][..], &["--domains", "all:1,all:1"], &["--nodes", "2", "-n", "2"]] {
        for _ in 0..4 {
            assert_eq!(places(unlimited(run(options)).run()).len(), 2);
        }
    }
    assert_eq!(places(unlimited(owner()).run()).len(), 2);
    assert_eq!(places(unlimited(owner().env("PVAS_SHARED", "1")).run()).len(), 2);
}
