//! What a task asks the resource manager for, in the daemon's stead (pvm_reg_rm(3)): the
//! messages that libpvm sends, and the answers to them. If the manager ends, the daemon is
//! asked.

use std::collections::HashMap;
use std::path::Path;

use pvm::error::Error;
use pvm::parcel::{Data, Reader};
use pvm::protocol::*;
use pvm::tid::Tid;
use pvm::wire::{Answer, HostInfo, Request, Sink, Spawn, TaskInfo};

use super::intake::message_of;
use super::{Enrolled, Task};

/// The resource manager, and what it has not answered yet.
#[derive(Debug, Default)]
pub struct Manager {
    tid: Option<Tid>,
    asked: HashMap<u32, Request>,
}

impl Manager {
    /// As the daemon's welcome says.
    pub fn new(tid: Option<Tid>) -> Manager {
        Manager { tid, asked: HashMap::new() }
    }
}

impl Task {
    /// Sends the request to the resource manager. Whether there is one who takes it.
    pub(super) fn ask_manager(&mut self, id: u32, request: &Request) -> Result<bool, Error> {
        let Some(manager) = self.enrolled()?.manager.tid else { return Ok(false) };
        let Some((tag, data)) = message(request) else { return Ok(false) };
        let sink = Sink { tid: manager.as_int(), context: 0, tag };
        let mut message = message_of(data.message(sink, id as i32), &mut self.buffers)?;
        if id != 0 {
            self.enrolled()?.manager.asked.insert(id, request.clone());
        }
        self.send_to_each(&mut message, &[manager])?;
        Ok(true)
    }

    /// The resource manager's answer to this number, once it is there.
    pub(super) fn managed_answer(&mut self, id: u32) -> Option<Result<Answer, Error>> {
        let Task { enrolled, buffers, .. } = self;
        let Enrolled { manager: Manager { tid, asked }, intake, .. } = enrolled.as_mut()?;
        let (source, tag) = (tid.as_ref()?.as_int(), message(asked.get(&id)?)?.0);
        let came = intake.arrived.iter().position(|&came| {
            buffers.message(came).is_ok_and(|message| {
                let header = &message.header;
                // As libpvm, which takes one with no wait ID, too.
                let ours =
                    header.wait_id == id as i32 || !asked.contains_key(&(header.wait_id as u32));
                (header.source, header.tag) == (source, tag) && ours
            })
        })?;
        let buffer = intake.arrived.remove(came)?;
        let request = asked.remove(&id)?;
        let whole = self.parcel(buffer);
        let _ = self.buffers.freebuf(buffer);
        Some(whole.and_then(|whole| answer(&request, &mut Reader::new(&whole)?)))
    }
}

impl Enrolled {
    /// This task has ended. What it was asked for as the resource manager, the daemon is.
    pub(super) fn manager_gone(&mut self, gone: Tid) -> Vec<(u32, Request)> {
        match self.manager.tid == Some(gone) {
            true => std::mem::take(&mut self.manager).asked.into_iter().collect(),
            false => Vec::new(),
        }
    }
}

fn strings(data: Data, strings: &[String]) -> Data {
    strings.iter().fold(data.int(strings.len() as i32), |data, string| data.string(string))
}

fn sink(data: Data, Sink { tid, context, tag }: Sink) -> Data {
    data.int(tid).int(context).int(tag)
}

/// Tag and data of the message to the resource manager; nothing if the request is none for it.
fn message(request: &Request) -> Option<(i32, Data)> {
    let data = Data::default();
    Some(match request {
        Request::AddHosts(names) => (SM_ADDHOST, strings(data, names)),
        Request::DeleteHosts(names) => (SM_DELHOST, strings(data, names)),
        Request::Config => (SM_CONFIG, data),
        Request::Tasks(which) => (SM_TASK, data.int(which.as_int())),
        Request::ResourceManager => (SM_SCHED, data),
        // In this context the library itself wants to know.
        Request::Notify { what, context, tag, tids, count } if *context != SYSCTX_TC => {
            let data = data.int(*what).int(*context).int(*tag).int(*count);
            (SM_NOTIFY, tids.iter().fold(data, |data, tid| data.int(tid.as_int())))
        }
        Request::Spawn(spawn) => (SM_SPAWN, of_spawn(spawn)),
        _ => return None,
    })
}

/// The program's name, with the spawner's directory if it is meant: the message has no place for
/// that.
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

/// A number, or the error that it is.
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

/// A count and as many numbers.
fn each(reader: &mut Reader) -> Result<Vec<i32>, Error> {
    let count = number(reader)?;
    (0..count).map(|_| reader.int()).collect()
}

/// What the resource manager's message says.
fn answer(request: &Request, reader: &mut Reader) -> Result<Answer, Error> {
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
