//! Message handlers (pvm_addmhf): functions that process arriving messages. Numbers are assigned
//! as in libpvm: the number freed last is assigned next.

use std::ffi::c_int;

use pvm::error::Error;
use pvm::message::Header;

/// A program's function. Its argument is the number of the message's buffer.
pub type Function = unsafe extern "C" fn(c_int) -> c_int;

/// The messages that a handler takes; -1 matches any value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The sender.
    pub source: i32,
    /// The tag.
    pub tag: i32,
    /// The context.
    pub context: i32,
}

fn both(a: i32, b: i32) -> bool {
    a == -1 || b == -1 || a == b
}

impl Pattern {
    fn fits(&self, header: &Header) -> bool {
        let fits = |wanted: i32, is: i32| wanted == -1 || wanted == is;
        fits(self.tag, header.tag)
            && fits(self.context, header.context)
            && fits(self.source, header.source)
    }

    /// Returns true if a message can match both patterns.
    fn overlaps(&self, other: &Pattern) -> bool {
        both(self.tag, other.tag)
            && both(self.context, other.context)
            && both(self.source, other.source)
    }
}

/// A handler.
#[derive(Clone, Copy, Debug)]
pub struct Handler {
    /// Its number.
    pub number: i32,
    /// The messages that it takes.
    pub pattern: Pattern,
    /// The function that processes them.
    pub function: Function,
}

/// All handlers.
#[derive(Debug, Default)]
pub struct Handlers {
    active: Vec<Handler>,
    /// Freed numbers; the last one is assigned next.
    free: Vec<i32>,
}

impl Handlers {
    /// Executes pvm_addmhf. Errors: Exists if a message can match another handler, too.
    pub fn add(&mut self, pattern: Pattern, function: Function) -> Result<i32, Error> {
        if self.active.iter().any(|handler| handler.pattern.overlaps(&pattern)) {
            return Err(Error::Exists);
        }
        let number = self.free.pop().unwrap_or(self.active.len() as i32);
        self.active.push(Handler { number, pattern, function });
        Ok(number)
    }

    /// Executes pvm_delmhf. Errors: BadParam if `number` is negative, NotFound.
    pub fn delete(&mut self, number: i32) -> Result<(), Error> {
        if number < 0 {
            return Err(Error::BadParam);
        }
        let at = self.active.iter().position(|handler| handler.number == number);
        self.active.swap_remove(at.ok_or(Error::NotFound)?);
        self.free.push(number);
        Ok(())
    }

    /// Returns the count of numbers assigned so far, free ones included.
    pub fn given(&self) -> usize {
        self.active.len() + self.free.len()
    }

    /// Returns the handlers.
    pub fn active(&self) -> &[Handler] {
        &self.active
    }

    /// Returns the free numbers; the last one is assigned next.
    pub fn free(&self) -> &[i32] {
        &self.free
    }

    /// Returns the handler of a message with this header.
    #[inline]
    pub fn find(&self, header: &Header) -> Option<Handler> {
        let fits = |handler: &&Handler| handler.pattern.fits(header);
        self.active.iter().rev().find(fits).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn nothing(_: c_int) -> c_int {
        0
    }

    fn pattern(source: i32, tag: i32, context: i32) -> Pattern {
        Pattern { source, tag, context }
    }

    #[test]
    fn numbers_are_given_as_libpvm_gives_them() {
        let mut handlers = Handlers::default();
        for tag in 0..4 {
            assert_eq!(handlers.add(pattern(-1, tag, 0), nothing), Ok(tag));
        }
        assert_eq!(handlers.delete(1), Ok(()));
        assert_eq!(handlers.delete(3), Ok(()));
        assert_eq!(handlers.delete(3), Err(Error::NotFound));
        assert_eq!(handlers.delete(-1), Err(Error::BadParam));
        assert_eq!(handlers.delete(9), Err(Error::NotFound));
        assert_eq!(handlers.add(pattern(-1, 8, 0), nothing), Ok(3));
        assert_eq!(handlers.add(pattern(-1, 9, 0), nothing), Ok(1));
        assert_eq!(handlers.add(pattern(-1, 10, 0), nothing), Ok(4));
    }

    #[test]
    fn no_message_fits_two() {
        let mut handlers = Handlers::default();
        handlers.add(pattern(5, -1, 0), nothing).expect("free");
        assert_eq!(handlers.add(pattern(-1, 7, 0), nothing), Err(Error::Exists));
        assert_eq!(handlers.add(pattern(-1, 7, -1), nothing), Err(Error::Exists));
        assert_eq!(handlers.add(pattern(6, 7, 0), nothing), Ok(1));
        let header = Header { source: 6, tag: 7, context: 0, ..Header::default() };
        assert!(handlers.find(&header).is_some());
        assert!(handlers.find(&Header { tag: 8, ..header }).is_none());
    }
}
