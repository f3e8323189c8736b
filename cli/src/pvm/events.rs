//! Trace events as text, in the self-describing format that PVM's tracers write: each kind of
//! event is described before the first of its kind.
//!
//! The library sends the events that programs make (PvmDataTrace): a mark, the event's number
//! and name, time, and then items with their types, all in XDR.

use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::HostInfo;

/// An item of an event.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any of the whole numbers.
    Integers(Vec<i64>),
    /// `float`; of complex numbers both parts.
    Floats(Vec<f64>),
    /// `double`.
    Doubles(Vec<f64>),
    /// Bytes.
    Text(Vec<u8>),
}

/// A named item.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// As programs that read traces know it, such as `TID`.
    pub name: String,
    /// As people do.
    pub description: String,
    /// Whether the description has `[]`, even with one item.
    pub array: bool,
    /// What it is.
    pub value: Value,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its number in `pvmtev.h`, or a tracer's own.
    pub number: i32,
    /// Its name.
    pub name: String,
    /// Its items.
    pub fields: Vec<Field>,
}

/// The numbers of events that no task sends.
const HOST_ADD: i32 = 401;
const OUTPUT: i32 = 404;

/// Marks and types of `pvmtev.h`.
const USER_RECORD: i32 = -9;
const USER_RECORD_END: i32 = -10;
const ARRAY: i32 = 0x80;
/// Longest name of an event, in bytes.
const NAME_MAX: usize = 1 << 10;

fn field(name: &str, description: &str, value: Value) -> Field {
    let array = matches!(value, Value::Text(_));
    Field { name: name.into(), description: description.into(), array, value }
}

fn integer(name: &str, description: &str, value: i64) -> Field {
    field(name, description, Value::Integers(vec![value]))
}

/// Text with the zero that ends it in C.
fn text(name: &str, description: &str, value: &str) -> Field {
    field(name, description, Value::Text(value.into()))
}

fn time((seconds, microseconds): (i32, i32)) -> [Field; 2] {
    [
        integer("TS", "Time Seconds", seconds.into()),
        integer("TU", "Time Microseconds", microseconds.into()),
    ]
}

impl Record {
    /// A host is there.
    pub fn host(host: &HostInfo, now: (i32, i32)) -> Record {
        let alias = host.name.split('.').next().unwrap_or_default();
        let own = [
            integer("TID", "Task ID", (host.tid.0 & !pvm::tid::DAEMON).into()),
            text("HN", "Host Name", &host.name),
            text("HNA", "Host Name Alias", alias),
            text("HA", "Host Architecture", &host.architecture),
            integer("HSP", "Host Speed", host.speed.into()),
        ];
        let fields = time(now).into_iter().chain(own).collect();
        Record { number: HOST_ADD, name: "host_add".into(), fields }
    }

    /// A task has printed a line, or begun or ended to.
    pub fn output(tid: Tid, line: &[u8], now: (i32, i32)) -> Record {
        let own = [
            integer("TID", "Task ID", tid.0.into()),
            field("OS", "Output String", Value::Text(line.to_vec())),
        ];
        let fields = time(now).into_iter().chain(own).collect();
        Record { number: OUTPUT, name: "output".into(), fields }
    }

    /// Reads an event that a program has made.
    ///
    /// Errors: NotImpl for other events, NoData and BadMsg for what is none.
    pub fn of_program(tid: Tid, bytes: &[u8]) -> Result<Record, Error> {
        let mut left = Words(bytes);
        if left.integer()? != USER_RECORD {
            return Err(Error::NotImpl);
        }
        let number = left.integer()?;
        let length = usize::try_from(left.integer()?).map_err(|_| Error::BadMsg)?;
        if length > NAME_MAX {
            return Err(Error::BadMsg);
        }
        let name = String::from_utf8_lossy(left.bytes(length)?);
        let name = name.trim_end_matches('\0').to_owned();
        let mut fields = vec![integer("TID", "Task ID", tid.0.into())];
        fields.extend(time((left.integer()?, left.integer()?)));
        for at in 0.. {
            if left.0.is_empty() {
                break;
            }
            let kind = left.integer()?;
            if kind == USER_RECORD_END {
                break;
            }
            let array = kind & ARRAY != 0;
            let count = if array { left.integer()? } else { 1 };
            let count = usize::try_from(count).map_err(|_| Error::BadMsg)?;
            let value = left.value(kind & !ARRAY, count)?;
            let name = format!("USR{at}");
            let description = format!("User Defined Value #{at}");
            fields.push(Field { name, description, array, value });
        }
        Ok(Record { number, name, fields })
    }

    /// What its kind looks like. `index` tells kinds with one name apart.
    pub fn description(&self, index: usize) -> String {
        let Record { number, name, fields } = self;
        let mut out = format!("\n#{}: \"{name}({index})\"\n{{\n", 1000 + 2 * number);
        for Field { name, description, array, value } in fields {
            let kind = match value {
                Value::Integers(_) => "int",
                Value::Floats(_) => "float",
                Value::Doubles(_) => "double",
                Value::Text(_) => "char",
            };
            let array = if *array { "[]" } else { "" };
            out.push_str(&format!(
                "\t// \"{name}\" \"{description}\"\n\t{kind} \"{name}\"{array};\n"
            ));
        }
        out + "};;\n\n"
    }

    /// The event, a line.
    pub fn line(&self, index: usize) -> String {
        let fields: Vec<String> = self.fields.iter().map(Field::text).collect();
        format!("\"{}({index})\" {{ {} }};;\n", self.name, fields.join(", "))
    }
}

impl Field {
    fn text(&self) -> String {
        let items: Vec<String> = match &self.value {
            Value::Integers(items) => items.iter().map(i64::to_string).collect(),
            Value::Floats(items) | Value::Doubles(items) => {
                items.iter().map(|item| format!("{item:.6}")).collect()
            }
            Value::Text(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                return format!("[{}] {{ \"{text}\" }}", bytes.len() + 1);
            }
        };
        match self.array {
            true => format!("[{}] {{ {} }}", items.len(), items.join(", ")),
            false => items.join(", "),
        }
    }
}

/// What is left of a message in XDR.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Error::NoData)?;
        self.0 = rest;
        Ok(*first)
    }

    fn integer(&mut self) -> Result<i32, Error> {
        self.take().map(i32::from_be_bytes)
    }

    /// `length` bytes, and those that fill up the last word.
    fn bytes(&mut self, length: usize) -> Result<&[u8], Error> {
        let padded = length.checked_next_multiple_of(4).ok_or(Error::BadMsg)?;
        let (first, rest) = self.0.split_at_checked(padded).ok_or(Error::NoData)?;
        self.0 = rest;
        Ok(&first[..length])
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
            _ => return Err(Error::BadMsg),
        })
    }
}

/// What a trace begins with; `date` as ctime(3) has it.
pub fn heading(date: &str, version: &str) -> String {
    format!(
        "/*\n * \"Creation Date\" \"{date}\"\n * \"Machine\" \"Console {version} (PVM {version})\"\n */ ;;\n\n"
    )
}
