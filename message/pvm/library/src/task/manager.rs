//! The messages between a task and the resource manager (pvm_reg_rm(3)): requests as libpvm
//! encodes them, and the manager's answers.

use std::collections::HashMap;
use std::path::Path;

use pvm::error::Error;
use pvm::parcel::{Data, Reader};
use pvm::protocol::*;
use pvm::tid::Tid;
use pvm::wire::{Answer, HostInfo, Request, Sink, Spawn, TaskInfo};

/// The resource manager, and the requests that it has not answered yet.
#[derive(Debug, Default)]
pub struct Manager {
    pub(super) tid: Option<Tid>,
    pub(super) asked: HashMap<u32, Request>,
}

impl Manager {
    /// Returns the state for the manager that the daemon's welcome names.
    pub fn new(tid: Option<Tid>) -> Manager {
        Manager { tid, asked: HashMap::new() }
    }
}

fn strings(data: Data, strings: &[String]) -> Data {
    strings.iter().fold(data.int(strings.len() as i32), |data, string| data.string(string))
}

fn sink(data: Data, Sink { tid, context, tag }: Sink) -> Data {
    data.int(tid).int(context).int(tag)
}

/// Returns tag and data of the message to the resource manager; `None` if the daemon handles the
/// request.
pub(super) fn message(request: &Request) -> Option<(i32, Data)> {
    let data = Data::default();
    Some(match request {
        Request::AddHosts(names) => (SM_ADDHOST, strings(data, names)),
        Request::DeleteHosts(names) => (SM_DELHOST, strings(data, names)),
        Request::Config => (SM_CONFIG, data),
        Request::Tasks(which) => (SM_TASK, data.int(which.as_int())),
        Request::ResourceManager => (SM_SCHED, data),
        // The library itself requests notices in this context.
        Request::Notify { what, context, tag, tids, count } if *context != SYSCTX_TC => {
            let data = data.int(*what).int(*context).int(*tag).int(*count);
            (SM_NOTIFY, tids.iter().fold(data, |data, tid| data.int(tid.as_int())))
        }
        Request::Spawn(spawn) => (SM_SPAWN, of_spawn(spawn)),
        _ => return None,
    })
}

/// Returns the program's name. A relative name with a slash gets the spawner's directory in front,
/// since the message has no field for it.
fn file_of(Spawn { file, directory, .. }: &Spawn) -> String {
    let joined = Path::new(directory).join(file);
    let is_meant = file.contains('/') && !directory.is_empty() && joined.is_file();
    if is_meant { joined.to_string_lossy().into_owned() } else { file.clone() }
}

fn of_spawn(spawn: &Spawn) -> Data {
    let Spawn { arguments, flags, place, count, environment, inheritance, .. } = spawn;
    let data = Data::default().string(&file_of(spawn)).int(*flags).string(place).int(*count as i32);
    let data = sink(sink(strings(data, arguments), inheritance.output), inheritance.trace);
    let inherited = [
        format!("PVMTMASK={}", inheritance.trace_mask),
        format!("PVMTRCBUF={}", inheritance.trace_buffer),
        format!("PVMTRCOPT={}", inheritance.trace_options),
        format!("PVMCTX={:#x}", inheritance.context),
    ];
    strings(data, &[&inherited[..], environment].concat())
}

/// Reads a number; a negative one is an error code.
fn number(reader: &mut Reader) -> Result<i32, Error> {
    match reader.int()? {
        code if code < 0 => Err(Error::from_code(code).unwrap_or(Error::DSysErr)),
        number => Ok(number),
    }
}

fn host(reader: &mut Reader) -> Result<HostInfo, Error> {
    Ok(HostInfo {
        tid: Tid::from(reader.int()?),
        name: reader.string()?,
        architecture: reader.string()?,
        speed: reader.int()?,
        signature: 0,
    })
}

fn hosts(reader: &mut Reader) -> Result<Vec<HostInfo>, Error> {
    let (count, _architectures) = (number(reader)?, reader.int()?);
    let signed = |_| {
        let host = host(reader)?;
        Ok(HostInfo { signature: reader.int()?, ..host })
    };
    (0..count).map(signed).collect()
}

fn tasks(reader: &mut Reader) -> Result<Vec<TaskInfo>, Error> {
    number(reader)?;
    let mut tasks = Vec::new();
    while !reader.is_at_end() {
        tasks.push(TaskInfo {
            tid: Tid::from(reader.int()?),
            parent: Tid::from(reader.int()?),
            host: Tid::from(reader.int()?),
            flags: reader.int()?,
            name: reader.string()?,
            pid: reader.int()?,
        });
    }
    Ok(tasks)
}

/// Reads a count and that many numbers.
fn each(reader: &mut Reader) -> Result<Vec<i32>, Error> {
    let count = number(reader)?;
    (0..count).map(|_| reader.int()).collect()
}

/// Parses the resource manager's answer.
pub(super) fn answer(request: &Request, reader: &mut Reader) -> Result<Answer, Error> {
    Ok(match request {
        Request::Config => Answer::Hosts(hosts(reader)?),
        Request::AddHosts(_) => {
            let tids = hosts(reader)?.into_iter().map(|host| host.tid.as_int());
            Answer::Each(tids.collect())
        }
        Request::Tasks(_) => Answer::Tasks(tasks(reader)?),
        Request::ResourceManager => {
            number(reader)?;
            Answer::Hosts(vec![host(reader)?])
        }
        Request::Spawn(_) => Answer::Spawned(each(reader)?, Vec::new()),
        // DeleteHosts.
        _ => Answer::Each(each(reader)?),
    })
}
