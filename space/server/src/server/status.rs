//! Describes the tasks of a space for `nagaya ps` and `nagaya maps`: their memory, and the domains.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use pvas::{DomainInfo, Space};

use crate::block::{Block, Reader};
use crate::maps::{self, Bounds, Mapping, Resident};
use crate::protocol::{DomainStatus, TaskStatus};

/// A space to describe.
#[derive(Debug)]
pub struct Described<'a> {
    /// The space.
    pub space: &'a Space,
    /// Reads the control blocks of its tasks.
    pub blocks: &'a Reader,
}

/// The facts about a task that its server knows.
#[derive(Debug)]
pub struct Known<'a> {
    /// ID.
    pub id: u32,
    /// PID.
    pub pid: u32,
    /// PID of the stub that represents it, if any.
    pub stub: Option<u32>,
    /// The program.
    pub path: &'a str,
    /// Its arguments.
    pub arguments: &'a [String],
}

impl Described<'_> {
    /// Reads a living task's control block.
    fn block(&self, id: u32) -> Option<Block> {
        let address = self.space.control().slot(id).task.load(Ordering::Acquire);
        if address == 0 { None } else { self.blocks.read(address) }
    }

    /// Describes the tasks and the domains. The memory that this takes does not depend on the
    /// number of mappings.
    pub fn status(&self, tasks: &[Known<'_>]) -> (Vec<TaskStatus>, Vec<DomainStatus>) {
        let resident = self.each_domain(|pid, is_own| {
            maps::resident(pid, &self.space.layout(), is_own).unwrap_or_default()
        });
        let describe = |task: &Known<'_>| {
            let block = self.block(task.id).unwrap_or_default();
            let own = |sums: &Resident| sums.own.get(&task.id).copied();
            TaskStatus {
                id: task.id,
                pid: task.pid,
                domain: self.space.domain_of(task.id),
                stub: task.stub,
                copies: block.copies,
                copied_bytes: block.copied_bytes,
                sites_patched: block.sites_patched,
                sites_unreached: block.sites_unreached,
                resident: resident.iter().filter_map(own).sum(),
                path: task.path.to_owned(),
                arguments: task.arguments.to_vec(),
            }
        };
        let mut tasks: Vec<TaskStatus> = tasks.iter().map(describe).collect();
        tasks.sort_by_key(|task| task.id);
        let describe = |(domain, sums): (DomainInfo, &Resident)| DomainStatus {
            pid: domain.pid,
            ids: (domain.ids.start, domain.ids.end),
            processors: domain.processors,
            far: sums.far,
        };
        let domains = self.space.domains().into_iter().zip(&resident).map(describe);
        (tasks, domains.collect())
    }

    /// Returns the mappings of the tasks of these IDs, or `None` if there are `most` or more.
    pub fn mappings(&self, ids: impl Iterator<Item = u32>, most: usize) -> Option<Vec<Mapping>> {
        let bounds = |id| {
            let Block { own, heap, mmap, mmap_end, .. } = self.block(id)?;
            Some(Bounds { id, own, heap, mmap, mmap_end })
        };
        let bounds: Vec<Bounds> = ids.filter_map(bounds).collect();
        let left = Cell::new(most);
        let mappings = self.each_domain(|pid, is_own| {
            let layout = self.space.layout();
            let found = maps::read(pid, &layout, is_own, &bounds, left.get()).unwrap_or_default();
            left.set(left.get() - found.len().min(left.get()));
            found
        });
        (left.get() > 0).then(|| mappings.into_iter().flatten().collect())
    }

    /// Calls `each` for each domain, with the PID of a process in its mm, and a function that
    /// returns true for the domain's IDs.
    fn each_domain<T>(&self, each: impl Fn(u32, &dyn Fn(u32) -> bool) -> T) -> Vec<T> {
        let one = |(number, domain): (usize, DomainInfo)| {
            each(domain.pid, &|id| self.space.domain_of(id) == number as u32)
        };
        self.space.domains().into_iter().enumerate().map(one).collect()
    }
}
