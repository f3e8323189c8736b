//! Address vectors: other endpoints by number, whichever type was asked for.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Once};

use libc::size_t;

use crate::abi;
use crate::abi::peer::{AV_USER_ID, PEER};
use crate::engine::address::{Format, SIZE, Target, copy_out};
use crate::engine::log;
use crate::engine::port::{Absence, Peer};
use crate::engine::resolve;
use crate::engine::state::Core;
use crate::engine::vector::Vector;
use crate::face::domain_object::Domain;
use crate::face::peer;

/// libfabric's object.
#[repr(C)]
pub struct AddressVector {
    fid: abi::FidAv,
    pub core: Arc<Core>,
    /// Its number among the domain's.
    pub number: usize,
}

static FID: abi::OpsFid = abi::OpsFid::of(close, Some(bind), None);

static OPS: abi::OpsAv = abi::OpsAv {
    size: size_of::<abi::OpsAv>(),
    insert: Some(insert),
    insertsvc: Some(insert_service),
    insertsym: Some(insert_services),
    remove: Some(remove),
    lookup: Some(look_up),
    straddr: Some(to_string),
    av_set: None,
};

/// fi_av_open(3). A vector has no name that others could share it by.
pub unsafe extern "C" fn open(
    domain: *mut abi::FidDomain,
    attr: *mut abi::AvAttr,
    vector: *mut *mut abi::FidAv,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's, and an open domain of ours.
    let (domain, attr) = unsafe { (&*domain.cast::<Domain>(), attr.as_mut()) };
    let Some(attr) = attr else { return -abi::EINVAL };
    if !attr.name.is_null() {
        return -abi::ENOSYS;
    }
    if attr.flags & (PEER | AV_USER_ID) != 0 {
        return -abi::EINVAL;
    }
    if attr.r#type == 0 {
        attr.r#type = abi::AV_TABLE;
    }
    let core = domain.core.clone();
    let number = core.lock().vectors.add(Vector::default());
    let fid = abi::Fid { fclass: abi::CLASS_AV as size_t, context, ops: &FID };
    let made = AddressVector { fid: abi::FidAv { fid, ops: &OPS }, core, number };
    // SAFETY: the caller waits for it there.
    unsafe { vector.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

/// # Safety
/// An open vector of ours.
unsafe fn of<'a>(vector: *mut abi::FidAv) -> &'a AddressVector {
    // SAFETY: its fid is its first member.
    unsafe { &*vector.cast::<AddressVector>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: made by `open`, and closed once.
    let vector = unsafe { Box::from_raw(fid.cast::<AddressVector>()) };
    vector.core.lock().vectors.remove(vector.number);
    0
}

unsafe extern "C" fn bind(_: *mut abi::Fid, _: *mut abi::Fid, _: u64) -> c_int {
    0
}

/// Where a program is told of each address that it inserts.
struct Answers {
    /// The numbers, or the names that the program gives.
    numbers: *mut u64,
    /// With FI_SYNC_ERR, errors.
    errors: *mut c_int,
    /// The program says what completions call the peers.
    is_named: bool,
}

impl Answers {
    /// As fi_av_insert(3) has it. Error: EINVAL.
    fn of(numbers: *mut u64, flags: u64, context: *mut c_void) -> Result<Self, c_int> {
        let is_named = flags & AV_USER_ID != 0;
        let tells = flags & abi::SYNC_ERR != 0;
        if is_named && numbers.is_null() || tells && context.is_null() {
            return Err(-abi::EINVAL);
        }
        let errors = if tells { context.cast::<c_int>() } else { ptr::null_mut() };
        Ok(Self { numbers, errors, is_named })
    }

    /// Inserts one. Whether that succeeds.
    ///
    /// # Safety
    /// There is room for as many answers.
    unsafe fn insert(&self, vector: &AddressVector, n: usize, target: Option<&Target>) -> bool {
        // SAFETY: as the caller says.
        let name = self.is_named.then(|| unsafe { self.numbers.add(n).read() });
        let added = target.ok_or(abi::EINVAL).and_then(|target| add(vector, target, name));
        // SAFETY: as above.
        unsafe {
            if !self.numbers.is_null() {
                self.numbers.add(n).write(added.unwrap_or(abi::ADDR_UNSPEC));
            }
            if !self.errors.is_null() {
                self.errors.add(n).write(added.err().unwrap_or(0));
            }
        }
        added.is_ok()
    }

    /// What a call returns that was to insert so many.
    fn result(&self, inserted: usize, count: usize) -> c_int {
        peer::look_again();
        // `lnx` takes 0 for a peer that is there.
        match self.is_named && inserted == 0 && count != 0 {
            true => -abi::EADDRNOTAVAIL,
            false => inserted as c_int,
        }
    }
}

unsafe extern "C" fn insert(
    vector: *mut abi::FidAv,
    addresses: *const c_void,
    count: size_t,
    numbers: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the caller of libfabric says.
    let vector = unsafe { of(vector) };
    if addresses.is_null() && count != 0 {
        return -abi::EINVAL;
    }
    let answers = match Answers::of(numbers, flags, context) {
        Ok(answers) => answers,
        Err(error) => return error,
    };
    let (mut inserted, mut at) = (0, addresses);
    for n in 0..count {
        // SAFETY: as above: so many addresses, in the domain's format, and answers.
        unsafe {
            let read = vector.core.format.read(at);
            at = at.byte_add(read.as_ref().map_or_else(|| vector.skip(at), |(_, bytes)| *bytes));
            let target = read.map(|(target, _)| target);
            inserted += usize::from(answers.insert(vector, n, target.as_ref()));
        }
    }
    answers.result(inserted, count)
}

impl AddressVector {
    /// Bytes of what is no address.
    ///
    /// # Safety
    /// It is of the domain's format, if of any.
    unsafe fn skip(&self, at: *const c_void) -> usize {
        match self.core.format {
            Format::Own => SIZE,
            // SAFETY: as the caller says.
            Format::String => unsafe { CStr::from_ptr(at.cast()) }.count_bytes() + 1,
        }
    }
}

/// The number of a new peer. Error: EADDRNOTAVAIL, if no endpoint can be there.
fn add(vector: &AddressVector, target: &Target, name: Option<u64>) -> Result<u64, c_int> {
    let here = vector.core.here;
    let mut state = vector.core.lock();
    let peers = state.vectors.get_mut(vector.number).ok_or(abi::EINVAL)?;
    let address = match target {
        Target::Endpoint(address) => address,
        Target::Name(called) => return Ok(peers.add_named(here, *called, name)),
        Target::Unnamed => return Err(abi::EADDRNOTAVAIL),
    };
    match Peer::find(here, address) {
        Ok(peer) => Ok(peers.add(peer, name)),
        Err(Absence::Ended) => Ok(peers.add_ended(*address, name)),
        Err(Absence::Elsewhere | Absence::Invalid) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                log::say(abi::LOG_WARN, abi::LOG_AV, || {
                    "a peer cannot be reached: it is not in this space".to_owned()
                });
            });
            Err(abi::EADDRNOTAVAIL)
        }
    }
}

/// A program's string, if there is one. Error: EINVAL.
///
/// # Safety
/// It is null or a C string.
unsafe fn text<'a>(at: *const c_char) -> Result<Option<&'a str>, c_int> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller says.
    unsafe { CStr::from_ptr(at) }.to_str().map(Some).map_err(|_| -abi::EINVAL)
}

unsafe extern "C" fn insert_service(
    vector: *mut abi::FidAv,
    node: *const c_char,
    service: *const c_char,
    number: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the caller of libfabric says.
    unsafe { insert_services(vector, node, 1, service, 1, number, flags, context) }
}

/// The `n`th of names that count up: `node7` is followed by `node8`.
fn counted(name: &str, n: usize) -> Option<String> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (stem, number) = name.split_at(name.len() - digits);
    match (n, digits) {
        (0, _) => Some(name.to_owned()),
        (_, 0) => None,
        _ => {
            let next = number.parse::<u64>().ok()?.checked_add(n as u64)?;
            Some(format!("{stem}{next:0digits$}"))
        }
    }
}

unsafe extern "C" fn insert_services(
    vector: *mut abi::FidAv,
    node: *const c_char,
    nodes: size_t,
    service: *const c_char,
    services: size_t,
    numbers: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: as the caller of libfabric says.
    let (vector, node, service) = unsafe { (of(vector), text(node), text(service)) };
    let (node, service) = match (node, service) {
        (Ok(node), Ok(service)) if node.is_some() || service.is_some() => (node, service),
        _ => return -abi::EINVAL,
    };
    let answers = match Answers::of(numbers, flags, context) {
        Ok(answers) => answers,
        Err(error) => return error,
    };
    let mut inserted = 0;
    for n in 0..nodes * services {
        // All services of a node follow each other.
        let (node, service) = (
            node.map(|node| counted(node, n / services)),
            service.map(|service| counted(service, n % services)),
        );
        let target = match (node, service) {
            (Some(None), _) | (_, Some(None)) => None,
            (node, service) => {
                let (node, service) = (node.flatten(), service.flatten());
                let numeric = flags & abi::NUMERICHOST != 0;
                resolve::resolve(node.as_deref(), service.as_deref(), numeric).ok()
            }
        };
        // SAFETY: as above: so many answers.
        inserted += usize::from(unsafe { answers.insert(vector, n, target.as_ref()) });
    }
    answers.result(inserted, nodes * services)
}

unsafe extern "C" fn remove(
    vector: *mut abi::FidAv,
    numbers: *mut u64,
    count: size_t,
    _flags: u64,
) -> c_int {
    // SAFETY: as the caller of libfabric says.
    let vector = unsafe { of(vector) };
    if numbers.is_null() && count != 0 {
        return -abi::EINVAL;
    }
    let mut state = vector.core.lock();
    let Some(vector) = state.vectors.get_mut(vector.number) else { return -abi::EINVAL };
    for n in 0..count {
        // SAFETY: as above: so many numbers.
        let number = unsafe { numbers.add(n).read() } as usize;
        if vector.remove(number).is_none() {
            return -abi::EINVAL;
        }
    }
    0
}

unsafe extern "C" fn look_up(
    vector: *mut abi::FidAv,
    number: u64,
    address: *mut c_void,
    length: *mut size_t,
) -> c_int {
    // SAFETY: as the caller of libfabric says.
    let vector = unsafe { of(vector) };
    let state = vector.core.lock();
    let peers = state.vectors.get(vector.number);
    let target = peers.and_then(|peers| peers.target(vector.core.here, number as usize));
    let Some(target) = target else { return -abi::EINVAL };
    if address.is_null() {
        return -abi::EINVAL;
    }
    // SAFETY: as above: as much room as the length says, which we set.
    match unsafe { copy_out(&target.written(vector.core.format), address, length) } {
        // The length says what does not fit.
        Ok(()) | Err(abi::ETOOSMALL) => 0,
        Err(error) => -error,
    }
}

unsafe extern "C" fn to_string(
    vector: *mut abi::FidAv,
    address: *const c_void,
    buffer: *mut c_char,
    length: *mut size_t,
) -> *const c_char {
    if buffer.is_null() || length.is_null() {
        return ptr::null();
    }
    // SAFETY: as the caller of libfabric says.
    let target = unsafe { of(vector).core.format.read(address) };
    let text = match target {
        Some((target, _)) => target.text(),
        None => "no address of nagaya's".to_owned(),
    };
    let bytes = [text.as_bytes(), &[0]].concat();
    // SAFETY: as above: as much room as the length says, which we set.
    unsafe {
        let room = length.replace(bytes.len());
        if room > 0 {
            let copied = bytes.len().min(room);
            ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buffer, copied);
            buffer.add(copied - 1).write(0);
        }
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_up() {
        let all = [("node7", 2, Some("node9")), ("n08", 2, Some("n10")), ("a", 0, Some("a"))];
        for (name, n, expected) in all {
            assert_eq!(counted(name, n).as_deref(), expected);
        }
        assert_eq!(counted("a", 1), None);
        assert_eq!(counted("99999999999999999999", 1), None);
    }
}
