//! The user's own things: aliases, environment, and which variables spawned tasks get.

use crate::console::{Console, Stop};

/// The variable that lists those that tasks get, with colons between them.
pub const EXPORT: &str = "PVM_EXPORT";

/// The environment of the console. It is separate from the process's, which all threads share.
#[derive(Debug)]
pub struct Environment(Vec<(String, String)>);

impl Environment {
    /// Reads the environment of this process. Omits variables that are not UTF-8, since they could
    /// not be sent to a task.
    pub fn of_process() -> Environment {
        Environment(
            std::env::vars_os()
                .filter_map(|(name, value)| {
                    Some((name.into_string().ok()?, value.into_string().ok()?))
                })
                .collect(),
        )
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Gives a variable a value.
    pub fn set(&mut self, name: &str, value: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1 = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// `NAME=value` of all.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| format!("{name}={value}"))
    }

    /// The names that [`EXPORT`] lists.
    fn exported(&self) -> Vec<String> {
        let list = self.get(EXPORT).unwrap_or_default();
        list.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Adds a name to those that tasks get.
    fn export(&mut self, name: &str) {
        let mut names = self.exported();
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
            self.set(EXPORT, names.join(":"));
        }
    }

    /// Takes it from them.
    fn unexport(&mut self, name: &str) {
        let mut names = self.exported();
        names.retain(|known| known != name);
        if self.get(EXPORT).is_some() {
            self.set(EXPORT, names.join(":"));
        }
    }

    /// Returns the environment of tasks as `NAME=value`: the listed variables that are set, and
    /// the list.
    pub fn for_tasks(&self) -> Vec<String> {
        let names = self.exported();
        let listed = |(name, _): &&(String, String)| name == EXPORT || names.contains(name);
        self.0.iter().filter(listed).map(|(name, value)| format!("{name}={value}")).collect()
    }
}

/// `alias [name command …]`.
pub fn alias(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    match words {
        [_, name, meaning @ ..] if !meaning.is_empty() => console.aliases.define(name, meaning),
        _ => {
            for (name, meaning) in console.aliases.iter() {
                println!("{name}\t{}", meaning.join(" "));
            }
        }
    }
    Ok(())
}

/// `unalias name …`.
pub fn unalias(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    words[1..].iter().for_each(|name| console.aliases.remove(name));
    Ok(())
}

/// `echo [arg …]`.
pub fn echo(_: &mut Console, words: &[String]) -> Result<(), Stop> {
    println!("{}", words[1..].join(" "));
    Ok(())
}

/// `setenv [name [value …]]`.
pub fn setenv(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    match words {
        [_] => console.environment.lines().for_each(|line| println!("{line}")),
        [_, name] => {
            if let Some(value) = console.environment.get(name) {
                println!("{value}");
            }
        }
        [_, name, ..] if !is_name(name) => {
            console.complain(&format!("setenv: {name:?} is no name of a variable"));
        }
        [_, name, value @ ..] => console.environment.set(name, value.join(" ")),
        [] => unreachable!("a command has a name"),
    }
    Ok(())
}

/// `export [name …]`.
pub fn export(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    if words.len() == 1 {
        println!("{EXPORT}={}", console.environment.get(EXPORT).unwrap_or_default());
    }
    for name in &words[1..] {
        if is_name(name) {
            console.environment.export(name);
        } else {
            console.complain(&format!("export: {name:?} is no name of a variable"));
        }
    }
    Ok(())
}

/// `unexport [name …]`.
pub fn unexport(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    words[1..].iter().for_each(|name| console.environment.unexport(name));
    Ok(())
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['=', ':', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_get_exported_and_set_variables() {
        let mut environment = Environment(vec![("HOME".into(), "/root".into())]);
        assert_eq!(environment.for_tasks(), [""; 0]);
        environment.export("HOME");
        environment.export("DISPLAY");
        environment.export("HOME");
        assert_eq!(environment.get(EXPORT), Some("HOME:DISPLAY"));
        assert_eq!(environment.for_tasks(), ["HOME=/root", "PVM_EXPORT=HOME:DISPLAY"]);
        environment.set("DISPLAY", ":0".into());
        environment.unexport("HOME");
        assert_eq!(environment.for_tasks(), ["PVM_EXPORT=DISPLAY", "DISPLAY=:0"]);
        environment.unexport("DISPLAY");
        assert_eq!(environment.get(EXPORT), Some(""));
    }
}
