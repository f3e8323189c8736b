//! A region of all addresses of programs. The number of a page is its address divided by its size,
//! and the memory is a file of the same length, of which only used pages take memory. The user
//! [opens](Region::open) and [closes](Region::close) parts of the programs' view, so that other
//! mappings of this process can lie between them. There is no alias: the user reads and writes the
//! file.
//!
//! Such a region may be *unwatched* at first: threads use its pages as they use other memory, at
//! the kernel's speed, and no fault is reported. [`Region::watch`] ends that.

use std::ops::Range;

use rustix::fs::{SeekFrom, ftruncate, seek};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, ProtFlags};

use crate::access::{Access, Place, Stops};
use crate::error::PagerError;
use crate::ranges::Ranges;
use crate::region::Region;

/// End of the addresses of programs.
const END: u64 = 1 << 47;

impl Region {
    /// Creates a region of all addresses, without access.
    pub fn everywhere(stops: Stops) -> Result<Self, PagerError> {
        let page_bytes = rustix::param::page_size();
        let mut region = Self::new(Place { start: 0, page_bytes }, stops)?;
        ftruncate(&region.memory, END)
            .map_err(|why| PagerError::System { doing: "make shared memory", why })?;
        region.count = END / page_bytes as u64;
        region.opened = Some(Ranges::default());
        Ok(region)
    }

    /// The same, but threads stop at no page until [`watch`](Self::watch).
    pub fn unwatched(stops: Stops) -> Result<Self, PagerError> {
        let mut region = Self::everywhere(stops)?;
        region.is_watched = false;
        Ok(region)
    }

    /// Returns true if threads stop at pages.
    pub fn is_watched(&self) -> bool {
        self.is_watched
    }

    /// From now on threads stop at pages that they may not access. They may write all pages that
    /// the memory has, which are returned, and access no others. `except`: pages that show other
    /// mappings. Threads may run meanwhile.
    pub fn watch(&mut self, except: &[Range<u64>]) -> Result<Vec<Range<u64>>, PagerError> {
        if self.is_watched {
            return Ok(Vec::new());
        }
        for view in self.opened_without(except).iter() {
            self.register(view.start as usize..view.end as usize)?;
        }
        self.is_watched = true;
        // After the registration no page is added but by this region: none is missed.
        let held = self.held()?;
        for pages in &held {
            self.pages.change(pages.clone(), |page| {
                (page.access, page.is_there) = (Access::Write, true);
            });
        }
        Ok(held)
    }

    /// Ends [`watch`](Self::watch): threads use all pages, and stopped threads resume. The memory
    /// must have the current content of all pages. Faults that were not read may still be
    /// reported.
    pub fn unwatch(&mut self, except: &[Range<u64>]) -> Result<(), PagerError> {
        let system = |why| PagerError::System { doing: "end the watch of memory", why };
        for view in self.opened_without(except).iter() {
            let view = view.start as usize..view.end as usize;
            self.userfault.unregister(view).map_err(system)?;
        }
        self.pages.forget(0..self.count);
        self.is_watched = false;
        Ok(())
    }

    /// Returns the mapped addresses, without those of these pages.
    fn opened_without(&self, except: &[Range<u64>]) -> Ranges {
        let mut views = Ranges::default();
        let opened = self.opened.as_ref().expect("a region that is everywhere");
        opened.iter().for_each(|range| views.insert(range));
        for pages in except {
            let view = self.view(pages.clone());
            views.remove(view.start as u64..view.end as u64);
        }
        views
    }

    /// Returns the pages that the memory has, in order.
    pub fn held(&self) -> Result<Vec<Range<u64>>, PagerError> {
        let bytes = self.place.page_bytes as u64;
        let (mut held, mut at) = (Vec::new(), 0);
        loop {
            let ends = seek(&self.memory, SeekFrom::Data(at)).and_then(|start| {
                seek(&self.memory, SeekFrom::Hole(start)).map(|end| (start, end))
            });
            match ends {
                Ok((start, end)) => {
                    held.push(start / bytes..end.div_ceil(bytes));
                    at = end;
                }
                // There is nothing beyond.
                Err(Errno::NXIO) => return Ok(held),
                Err(why) => {
                    return Err(PagerError::System { doing: "look for pages of memory", why });
                }
            }
        }
    }

    /// Maps the unmapped ones of these pages, without access.
    ///
    /// # Errors
    /// [`PagerError::Taken`] if another mapping lies there. Nothing has changed then.
    pub fn open(&mut self, pages: Range<u64>) -> Result<(), PagerError> {
        let mut missing = Ranges::default();
        let view = self.view(pages);
        missing.insert(view.start as u64..view.end as u64);
        let opened = self.opened.as_ref().expect("a region that is everywhere");
        opened.met(&(view.start as u64..view.end as u64)).for_each(|range| missing.remove(range));
        let mut done: Vec<Range<usize>> = Vec::new();
        for range in missing.iter() {
            let range = range.start as usize..range.end as usize;
            let mapped = self.map(range.clone());
            if mapped.is_ok() {
                done.push(range.clone());
            }
            let registered = mapped.and_then(|()| match self.is_watched {
                true => self.register(range),
                false => Ok(()),
            });
            if let Err(error) = registered {
                done.into_iter().for_each(|range| self.unmap_view(range));
                return Err(error);
            }
        }
        let opened = self.opened.as_mut().expect("a region that is everywhere");
        missing.iter().for_each(|range| opened.insert(range));
        Ok(())
    }

    /// Unmaps these pages, which are empty. An access gives SIGSEGV, and other mappings may be
    /// placed there.
    pub fn close(&mut self, pages: Range<u64>) {
        let view = self.view(pages);
        let of = view.start as u64..view.end as u64;
        let opened = self.opened.as_mut().expect("a region that is everywhere");
        let met: Vec<Range<u64>> = opened.met(&of).collect();
        opened.remove(of.clone());
        for range in met {
            self.unmap_view(range.start.max(of.start) as usize..range.end.min(of.end) as usize);
        }
    }

    /// Shows open pages again in place of another mapping, with its content and this protection.
    /// Threads may read them all the time, and write them from now on.
    pub fn take(
        &mut self,
        pages: Range<u64>,
        bytes: &[u8],
        protection: ProtFlags,
    ) -> Result<(), PagerError> {
        let view = self.view(pages.clone());
        assert!(bytes.len() == view.len(), "as many bytes as pages have");
        self.write_memory(view.start, bytes)?;
        self.show(view.clone(), protection)?;
        if self.is_watched {
            self.register(view)?;
            self.pages.change(pages, |page| (page.access, page.is_there) = (Access::Write, true));
        }
        Ok(())
    }

    /// Returns true if this page is mapped.
    pub fn is_open(&self, page: u64) -> bool {
        let view = self.view(page..page + 1);
        let opened = self.opened.as_ref().expect("a region that is everywhere");
        opened.covers(&(view.start as u64..view.end as u64))
    }

    /// As [`restrict`](Self::restrict), for the open ones of these pages.
    pub fn restrict_open(&self, pages: Range<u64>, to: MprotectFlags) -> Result<(), PagerError> {
        let view = self.view(pages);
        let of = view.start as u64..view.end as u64;
        let opened = self.opened.as_ref().expect("a region that is everywhere");
        let bytes = self.place.page_bytes as u64;
        let page = |at: u64| at / bytes;
        opened.met(&of).try_for_each(|range| {
            self.restrict(page(range.start.max(of.start))..page(range.end.min(of.end)), to)
        })
    }

    /// The pages that the memory has, or that threads may use; in order.
    pub fn known(&self) -> impl Iterator<Item = Range<u64>> {
        self.pages.known()
    }

    fn register(&self, view: Range<usize>) -> Result<(), PagerError> {
        match self.userfault.register(view) {
            Ok(()) => Ok(()),
            Err(Errno::NOMEM) => Err(PagerError::Mappings),
            Err(why) => {
                let doing = "register shared memory with userfaultfd";
                Err(PagerError::System { doing, why })
            }
        }
    }

    /// Copies what pages hold. It takes no memory for pages that were
    /// never used.
    ///
    /// # Panics
    /// There is not as much room as the pages have bytes.
    pub fn read_into(&self, pages: Range<u64>, mut to: &mut [u8]) -> Result<(), PagerError> {
        let view = self.view(pages);
        assert!(to.len() == view.len(), "as many bytes as pages have");
        let mut from = (view.start - self.place.start) as u64;
        while !to.is_empty() {
            match rustix::io::pread(&self.memory, &mut *to, from) {
                Ok(0) => return Err(PagerError::Memory),
                Ok(count) => (from, to) = (from + count as u64, &mut to[count..]),
                Err(Errno::INTR) => {}
                Err(why) => return Err(PagerError::System { doing: "read shared memory", why }),
            }
        }
        Ok(())
    }

    /// Writes to where the programs' view has this address.
    pub(crate) fn write_memory(&self, at: usize, mut bytes: &[u8]) -> Result<(), PagerError> {
        let mut to = (at - self.place.start) as u64;
        while !bytes.is_empty() {
            match rustix::io::pwrite(&self.memory, bytes, to) {
                Ok(0) | Err(Errno::NOSPC | Errno::NOMEM) => return Err(PagerError::Memory),
                Ok(count) => (to, bytes) = (to + count as u64, &bytes[count..]),
                Err(Errno::INTR) => {}
                Err(why) => return Err(PagerError::System { doing: "write shared memory", why }),
            }
        }
        Ok(())
    }

    /// Brings swapped-out pages of this range back into memory.
    pub(crate) fn populate_memory(&self, view: Range<usize>) -> Result<(), PagerError> {
        for at in view.step_by(self.place.page_bytes) {
            let from = (at - self.place.start) as u64;
            match rustix::io::pread(&self.memory, &mut [0; 1], from) {
                Ok(_) => {}
                Err(Errno::NOMEM | Errno::NOSPC) => return Err(PagerError::Memory),
                Err(why) => return Err(PagerError::System { doing: "read shared memory", why }),
            }
        }
        Ok(())
    }
}
