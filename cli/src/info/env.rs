//! `nagaya info --env`: all environment variables, from the table that also the tests use.

use serde::Serialize;
use settings::{GROUPS, Origin, Setting};

/// A variable, as JSON.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    topic: &'static str,
    /// The value in this environment.
    value: Option<String>,
    default: &'static str,
    unit: &'static str,
    meaning: &'static str,
    page: &'static str,
    set_by: &'static str,
}

fn value(setting: &Setting) -> Option<String> {
    std::env::var_os(setting.name).map(|value| value.to_string_lossy().into_owned())
}

fn set_by(origin: Origin) -> &'static str {
    match origin {
        Origin::User => "user",
        Origin::Nagaya => "nagaya",
    }
}

/// Prints the list.
pub fn report(as_json: bool) {
    if as_json {
        let row = |topic, setting: &Setting| {
            let Setting { name, default, unit, meaning, page, origin } = *setting;
            let (value, set_by) = (value(setting), set_by(origin));
            Row { name, topic, value, default, unit, meaning, page, set_by }
        };
        let rows = GROUPS.iter().flat_map(|(topic, all)| all.iter().map(move |it| row(*topic, it)));
        let rows: Vec<Row> = rows.collect();
        println!("{}", serde_json::to_string_pretty(&rows).expect("text only"));
        return;
    }
    for (topic, all) in GROUPS {
        println!("{topic}");
        for setting in *all {
            let Setting { name, default, unit, meaning, page, origin } = setting;
            let default = match (origin, default.is_empty()) {
                (Origin::Nagaya, _) => "set by Nagaya".to_owned(),
                (_, true) => "default: none".into(),
                (_, false) => format!("default: {default}"),
            };
            let value = value(setting).map_or(String::new(), |value| format!("; now {value:?}"));
            println!("  {name} ({unit}; {default}{value})");
            println!("      {meaning}; see {page}");
        }
    }
}
