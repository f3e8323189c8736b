//! `constants.rs` and `error.rs` have the numbers of `include/pvm3/pvm3.h`, all of them.

use std::collections::BTreeMap;

/// `NAME value` of each line of a text that `read` finds one in.
fn numbers(text: &str, read: impl Fn(&str) -> Option<(&str, &str)>) -> BTreeMap<String, i32> {
    let all = text.lines().filter_map(|line| {
        let (name, value) = read(line)?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    all.collect()
}

/// The header's, but for names that it gives twice, and the version.
fn header() -> BTreeMap<String, i32> {
    let text = include_str!("../../../../include/pvm3/pvm3.h");
    let mut numbers = numbers(text, |line| {
        let mut words = line.strip_prefix("#define ")?.split_whitespace();
        Some((words.next()?, words.next()?))
    });
    numbers.retain(|name, _| !name.ends_with("_VERSION") && name != "PvmOk");
    numbers
}

#[test]
fn constants_and_errors_are_those_of_the_header() {
    let mut ours = numbers(include_str!("../src/constants.rs"), |line| {
        line.trim().strip_suffix(';')?.split_once(" = ")
    });
    let errors = numbers(include_str!("../src/error.rs"), |line| {
        line.trim().strip_suffix(',')?.split_once(" = ")
    });
    assert!(errors.len() > 30, "{errors:?}");
    ours.extend(errors.into_iter().map(|(name, value)| match name.as_str() {
        "IpLoopback" => ("PvmIPLoopback".to_owned(), value),
        _ => (format!("Pvm{name}"), value),
    }));
    assert_eq!(ours, header());
}

#[test]
fn computed_constants_have_the_values_of_the_header() {
    // `every_number_and_structure_is_debians` of the end-to-end tests knows the header's.
    assert_eq!(pvm::constants::PvmDataFoo, pvm::constants::PvmDataDefault);
    assert_eq!(pvm::constants::PvmMboxMaxDirectIndex, 1 << 21);
}
