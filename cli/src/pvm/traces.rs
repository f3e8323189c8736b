//! Reads the messages to tracers: records of calls, of tasks that begin and end, and the events
//! that programs generate (PvmDataTrace).
//!
//! All messages are in XDR and begin with a mark of `pvmtev.h`. A sender describes the first
//! record of a kind. Later records have only values, so descriptions are stored by sender.

use std::collections::BTreeMap;

use pvm::error::Error;
use pvm::event::mark::*;
use pvm::event::{self, ARRAY, Phase};
use pvm::tid::Tid;

use crate::events::{Field, Record, Value, field};

/// Longest name, in bytes.
const NAME_MAX: usize = 1 << 10;

/// A kind of record: its name, and identifier and type of each value.
#[derive(Debug, Default)]
struct Kind {
    name: String,
    values: Vec<(i32, i32)>,
}

/// The kinds that senders have described.
#[derive(Debug, Default)]
pub struct Traces {
    kinds: BTreeMap<(Tid, i32), Kind>,
}

impl Traces {
    /// Reads a message of `sender`.
    ///
    /// Errors: NoData and BadMsg for a message that is no trace; NotFound for a record without a
    /// description.
    pub fn read(&mut self, sender: Tid, bytes: &[u8]) -> Result<Vec<Record>, Error> {
        let mut words = Words(bytes);
        let mut records = Vec::new();
        while !words.0.is_empty() {
            match words.integer()? {
                BUFFER | BUFFER_END => {}
                // Ours mean the same everywhere.
                IDENTIFIERS => words.skip_identifiers()?,
                DESCRIPTION => records.push(self.described(sender, &mut words)?),
                RECORD => records.push(self.known(sender, &mut words)?),
                USER_RECORD => records.push(made_by_program(sender, &mut words)?),
                _ => return Err(Error::BadMsg),
            }
        }
        Ok(records)
    }

    fn described(&mut self, sender: Tid, words: &mut Words<'_>) -> Result<Record, Error> {
        let number = words.integer()?;
        let mut kind = Kind { name: words.name()?, values: Vec::new() };
        let mut fields = Vec::new();
        loop {
            match words.integer()? {
                DESCRIPTION_END => break,
                identifier => {
                    let form = words.integer()?;
                    kind.values.push((identifier, form));
                    fields.push(words.named(identifier, form)?);
                }
            }
        }
        let record = record(number, &kind.name, fields);
        self.kinds.insert((sender, number), kind);
        Ok(record)
    }

    fn known(&self, sender: Tid, words: &mut Words<'_>) -> Result<Record, Error> {
        let number = words.integer()?;
        let kind = self.kinds.get(&(sender, number)).ok_or(Error::NotFound)?;
        let values = kind.values.iter();
        let fields: Result<_, _> = values.map(|&(id, form)| words.named(id, form)).collect();
        let record = record(number, &kind.name, fields?);
        match words.integer()? {
            RECORD_END => Ok(record),
            _ => Err(Error::BadMsg),
        }
    }
}

fn record(number: i32, name: &str, fields: Vec<Field>) -> Record {
    let phases = [Phase::Entry, Phase::Exit];
    let phase = phases.into_iter().find(|phase| number & *phase as i32 != 0);
    let number = number & !(Phase::Entry as i32 | Phase::Exit as i32);
    Record { number, phase: phase.unwrap_or(Phase::Moment), name: name.into(), fields }
}

fn made_by_program(tid: Tid, words: &mut Words<'_>) -> Result<Record, Error> {
    let number = words.integer()?;
    let name = words.name()?;
    let integer = |value| Value::Integers(vec![value]);
    let mut fields = vec![
        field("TID", "Task ID", integer(tid.0.into())),
        field("TS", "Time Seconds", integer(words.integer()?.into())),
        field("TU", "Time Microseconds", integer(words.integer()?.into())),
    ];
    for at in 0.. {
        // A program need not end its event.
        if words.0.is_empty() {
            break;
        }
        let form = words.integer()?;
        if form == USER_RECORD_END {
            break;
        }
        let (name, meaning) = (format!("USR{at}"), format!("User Defined Value #{at}"));
        fields.push(words.field(&name, &meaning, form)?);
    }
    Ok(Record { number, phase: Phase::Moment, name, fields })
}

/// The unread rest of a message in XDR.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Error::NoData)?;
        self.0 = rest;
        Ok(*first)
    }

    fn integer(&mut self) -> Result<i32, Error> {
        self.take().map(i32::from_be_bytes)
    }

    /// `length` bytes, and those that fill up the last word.
    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let padded = length.checked_next_multiple_of(4).ok_or(Error::BadMsg)?;
        let (first, rest) = self.0.split_at_checked(padded).ok_or(Error::NoData)?;
        self.0 = rest;
        Ok(&first[..length])
    }

    /// A string, without the zero that ends it in C.
    fn string(&mut self) -> Result<&'a [u8], Error> {
        let length = usize::try_from(self.integer()?).map_err(|_| Error::BadMsg)?;
        let bytes = self.bytes(length)?;
        Ok(bytes.strip_suffix(&[0]).unwrap_or(bytes))
    }

    fn name(&mut self) -> Result<String, Error> {
        match self.string()? {
            name if name.len() > NAME_MAX => Err(Error::BadMsg),
            name => Ok(String::from_utf8_lossy(name).into_owned()),
        }
    }

    fn skip_identifiers(&mut self) -> Result<(), Error> {
        while self.integer()? != IDENTIFIERS_END {
            self.string()?;
            self.string()?;
        }
        Ok(())
    }

    fn named(&mut self, identifier: i32, form: i32) -> Result<Field, Error> {
        let (name, meaning) = event::meaning(identifier).ok_or(Error::BadMsg)?;
        self.field(name, meaning, form)
    }

    fn field(&mut self, name: &str, meaning: &str, form: i32) -> Result<Field, Error> {
        let array = form & ARRAY != 0;
        let count = if array { self.integer()? } else { 1 };
        let count = usize::try_from(count).map_err(|_| Error::BadMsg)?;
        let value = self.value(form & !ARRAY, count)?;
        let made = field(name, meaning, value);
        Ok(Field { array: array || made.array, ..made })
    }

    /// `count` items of a type of `pvmtev.h`.
    fn value(&mut self, kind: i32, count: usize) -> Result<Value, Error> {
        // The least that an item takes is a byte.
        if count > self.0.len() {
            return Err(Error::NoData);
        }
        let float = |words: &mut Self| Ok(f64::from(f32::from_be_bytes(words.take()?)));
        let double = |words: &mut Self| words.take().map(f64::from_be_bytes);
        Ok(match kind {
            1 => Value::Text(self.bytes(count)?.to_vec()),
            2 => Value::Floats((0..2 * count).map(|_| float(self)).collect::<Result<_, Error>>()?),
            3 => Value::Doubles((0..2 * count).map(|_| double(self)).collect::<Result<_, _>>()?),
            4 => Value::Doubles((0..count).map(|_| double(self)).collect::<Result<_, _>>()?),
            5 => Value::Floats((0..count).map(|_| float(self)).collect::<Result<_, Error>>()?),
            // `long` is a word, too, in PVM's XDR.
            6 | 8 | 10 => {
                let items = (0..count).map(|_| self.integer().map(i64::from));
                Value::Integers(items.collect::<Result<_, _>>()?)
            }
            7 | 9 | 11 => {
                let items = (0..count).map(|_| self.integer().map(|word| i64::from(word as u32)));
                Value::Integers(items.collect::<Result<_, _>>()?)
            }
            12 if count == 1 => Value::Text(self.string()?.to_vec()),
            12 => Value::Texts(
                (0..count).map(|_| Ok(self.string()?.to_vec())).collect::<Result<_, Error>>()?,
            ),
            _ => return Err(Error::BadMsg),
        })
    }
}
