//! Commands about mailboxes.

use pvm::error::text;
use pvm::tid::Tid;
use pvm::wire::ClassInfo;

use crate::console::{Console, Stop};

/// `names [pattern]`.
pub fn names(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let pattern = words.get(1).map_or("*", String::as_str);
    let classes = console.heed("names", |machine| machine.mailboxes(pattern))?;
    for ClassInfo { name, entries } in classes.unwrap_or_default() {
        println!("<{name}>:");
        for (index, owner, flags) in entries {
            println!("\tindex={index} owner=0x{:x}/{} flags=0x{flags:x}", owner.0, owner.as_int());
        }
        println!();
    }
    Ok(())
}

/// `put name flags [number]`.
pub fn put(console: &mut Console, words: &[String]) -> Result<(), Stop> {
    let number = |word: &String| word.parse::<i32>().ok();
    let (flags, value) = (number(&words[2]), words.get(3).map_or(Some(0), number));
    let (Some(flags), Some(value)) = (flags, value) else {
        console.complain("put: flags and number are decimal numbers (help put)");
        return Ok(());
    };
    if let Err(error) = console.ask(|machine| machine.put(&words[1], flags, value))? {
        console.note_failure();
        println!("{}", text(error.code()));
    }
    Ok(())
}

/// `reset info [class [index]]`: deletes entries whose owners are gone.
pub fn reset(console: &mut Console, class_and_index: &[String]) -> Result<(), Stop> {
    let wanted = class_and_index.first().map_or("*", String::as_str);
    let index: Option<i32> = match class_and_index.get(1).map(|word| word.parse()) {
        None | Some(Ok(-1)) => None,
        Some(Ok(index)) => Some(index),
        Some(Err(_)) => {
            console.complain(&format!("reset info: {:?} is no number", class_and_index[1]));
            return Ok(());
        }
    };
    let Some(classes) = console.heed("reset", |machine| machine.mailboxes(wanted))? else {
        return Ok(());
    };
    let Some(tasks) = console.heed("reset", |machine| machine.tasks(Tid(0)))? else {
        return Ok(());
    };
    for ClassInfo { name, entries } in classes {
        for (at, owner, _) in entries {
            let orphan = !tasks.iter().any(|task| task.tid == owner);
            if orphan && index.is_none_or(|index| index == at) {
                console.heed(&format!("reset info {name} {at}"), |machine| {
                    machine.delete_mailbox(&name, at)
                })?;
            }
        }
    }
    Ok(())
}
