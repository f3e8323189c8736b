//! A crate uses only crates on lower floors.

use crate::assert_only;
use crate::sources::members;

/// Edges within a floor or upwards, each with its reason.
const EXCEPTIONS: &[&str] = &[];

/// The floor of a package.
fn floor(package: &str) -> usize {
    let floor = house::floors::floor(package);
    floor.unwrap_or_else(|| panic!("{package} has no floor yet: add it to house::floors::FLOORS"))
}

#[test]
fn crates_use_only_crates_of_lower_floors() {
    let mut found = Vec::new();
    for member in members() {
        let above = floor(member.name());
        for used in member.dependencies("dependencies") {
            if used.starts_with("nagaya") && floor(&used) >= above {
                found.push(format!("{} uses {used}", member.name()));
            }
        }
    }
    assert_only(&found, EXCEPTIONS, "a crate uses only crates of lower floors");
}

#[test]
fn products_do_not_use_tests_or_benchmarks() {
    for member in members() {
        if ["tests", "tests/skip", "bench"].contains(&member.directory.as_str()) {
            continue;
        }
        for used in member.dependencies("dependencies") {
            assert!(
                !["nagaya-tests", "nagaya-skip", "nagaya-bench", "nagaya-fuzz"]
                    .contains(&used.as_str()),
                "{} uses {used}",
                member.name()
            );
        }
    }
}

#[test]
fn all_crates_share_the_lints_of_the_workspace() {
    for member in members() {
        let lints = member.manifest.get("lints").and_then(|lints| lints.get("workspace"));
        assert_eq!(
            lints.and_then(toml::Value::as_bool),
            Some(true),
            "{}/Cargo.toml lacks `[lints] workspace = true`, which asks for documentation of all \
             public items",
            member.directory
        );
    }
}
