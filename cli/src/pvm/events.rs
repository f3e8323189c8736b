//! Trace events as text, in the self-describing format that PVM's tracers write: each kind of
//! event is described before the first of its kind.

use pvm::event::{Event, Phase};
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
    /// Several of these.
    Texts(Vec<Vec<u8>>),
}

/// A named item.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// As programs that read traces know it, such as `TID`.
    pub name: String,
    /// As people do.
    pub description: String,
    /// True if the description has `[]`, also with a single item.
    pub array: bool,
    /// The value.
    pub value: Value,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its number in `pvmtev.h`, or a tracer's own.
    pub number: i32,
    /// Begin or end of a call.
    pub phase: Phase,
    /// Its name.
    pub name: String,
    /// Its items.
    pub fields: Vec<Field>,
}

/// A change in a task's life that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It begins.
    Begins,
    /// It has ended.
    Ends,
}

/// The numbers of events that no task sends.
const HOST_ADD: i32 = 401;
const OUTPUT: i32 = 404;

/// A named item. Text is an array of letters.
pub fn field(name: &str, description: &str, value: Value) -> Field {
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
        Record { number: HOST_ADD, phase: Phase::Moment, name: "host_add".into(), fields }
    }

    /// A task has printed a line, or begun or ended to.
    pub fn output(tid: Tid, line: &[u8], now: (i32, i32)) -> Record {
        let own = [
            integer("TID", "Task ID", tid.0.into()),
            field("OS", "Output String", Value::Text(line.to_vec())),
        ];
        let fields = time(now).into_iter().chain(own).collect();
        Record { number: OUTPUT, phase: Phase::Moment, name: "output".into(), fields }
    }

    /// Returns the begin or end of a task, if this event reports one.
    pub fn change(&self) -> Option<Change> {
        match self.number {
            number if number == Event::NEWTASK as i32 => Some(Change::Begins),
            number if number == Event::ENDTASK as i32 => Some(Change::Ends),
            _ => None,
        }
    }

    /// The task that it is about.
    pub fn tid(&self) -> Option<Tid> {
        let of_task = self.fields.iter().find(|field| field.name == "TID")?;
        match of_task.value {
            Value::Integers(ref numbers) => Some(Tid(*numbers.first()? as u32)),
            _ => None,
        }
    }

    /// Returns the description of the event's kind. `index` distinguishes kinds with the same
    /// name.
    pub fn description(&self, index: usize) -> String {
        let is_end = i32::from(self.phase == Phase::Exit);
        let number = 1000 * (index as i32 + 1) + 2 * self.number + is_end;
        let mut out = format!("\n#{number}: \"{}\"\n{{\n", self.label(index));
        for Field { name, description, array, value } in &self.fields {
            let kind = match value {
                Value::Integers(_) => "int",
                Value::Floats(_) => "float",
                Value::Doubles(_) => "double",
                Value::Text(_) | Value::Texts(_) => "char",
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
        format!("\"{}\" {{ {} }};;\n", self.label(index), fields.join(", "))
    }

    fn label(&self, index: usize) -> String {
        let phase = match self.phase {
            Phase::Moment => "",
            Phase::Entry => ".0",
            Phase::Exit => ".1",
        };
        format!("{}({index}{phase})", self.name)
    }
}

impl Field {
    fn text(&self) -> String {
        let items: Vec<String> = match &self.value {
            Value::Integers(items) => items.iter().map(i64::to_string).collect(),
            Value::Floats(items) | Value::Doubles(items) => {
                items.iter().map(|item| format!("{item:.6}")).collect()
            }
            Value::Text(bytes) => return quoted(bytes),
            Value::Texts(texts) => texts.iter().map(|text| quoted(text)).collect(),
        };
        match self.array {
            true => format!("[{}] {{ {} }}", items.len(), items.join(", ")),
            false => items.join(", "),
        }
    }
}

fn quoted(bytes: &[u8]) -> String {
    format!("[{}] {{ \"{}\" }}", bytes.len() + 1, String::from_utf8_lossy(bytes))
}

/// Returns the heading of a trace. `date` has the format of ctime(3).
pub fn heading(date: &str, version: &str) -> String {
    format!(
        "/*\n * \"Creation Date\" \"{date}\"\n * \"Machine\" \"Console {version} (PVM {version})\"\n */ ;;\n\n"
    )
}
