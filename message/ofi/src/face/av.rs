//! Address vectors: other endpoints by number. Both types (FI_AV_MAP, FI_AV_TABLE) are tables.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::{Arc, Once};

use libc::size_t;

use crate::abi;
use crate::abi::peer::{AV_USER_ID, PEER};
use crate::engine::address::{Format, SIZE, Target};
use crate::engine::log;
use crate::engine::port::{Absence, Peer};
use crate::engine::resolve;
use crate::engine::state::Core;
use crate::engine::vector::Vector;
use crate::face::args::{self, copy_out, text};
use crate::face::domain_object::Domain;
use crate::face::peer;

/// libfabric's object, with our part behind it.
#[repr(C)]
pub struct AddressVector {
    fid: abi::FidAv,
    pub core: Arc<Core>,
    /// The number in the domain.
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

/// fi_av_open(3). Vectors have no names, so processes cannot share them.
pub unsafe extern "C" fn open(
    domain: *mut abi::FidDomain,
    attr: *mut abi::AvAttr,
    vector: *mut *mut abi::FidAv,
    context: *mut c_void,
) -> c_int {
    // SAFETY: fi_av_open(3): an open domain of this provider, and attributes of the caller or NULL.
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
    // SAFETY: fi_av_open(3) lets us write the vector there.
    unsafe { vector.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

/// Returns our object.
///
/// # Safety
/// `vector` is an open address vector of this provider.
unsafe fn of<'a>(vector: *mut abi::FidAv) -> &'a AddressVector {
    // SAFETY: `open` has made an `AddressVector`, whose fid is its first field.
    unsafe { &*vector.cast::<AddressVector>() }
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: `open` has made the vector with `Box::into_raw`, and fi_close(3) is called once.
    let vector = unsafe { Box::from_raw(fid.cast::<AddressVector>()) };
    vector.core.lock().vectors.remove(vector.number);
    0
}

unsafe extern "C" fn bind(_: *mut abi::Fid, _: *mut abi::Fid, _: u64) -> c_int {
    0
}

/// The arrays in which a call reports the result of each insertion.
struct Results {
    /// The numbers of the peers. With FI_AV_USER_ID, they contain user IDs before.
    numbers: *mut u64,
    /// Errors, with FI_SYNC_ERR; otherwise NULL.
    errors: *mut c_int,
    /// The program chooses the addresses in completions (FI_AV_USER_ID).
    has_user_ids: bool,
}

impl Results {
    /// Makes the arrays of a call (fi_av_insert(3)). Error: EINVAL.
    fn of(numbers: *mut u64, flags: u64, context: *mut c_void) -> Result<Self, c_int> {
        let has_user_ids = flags & AV_USER_ID != 0;
        let tells = flags & abi::SYNC_ERR != 0;
        if has_user_ids && numbers.is_null() || tells && context.is_null() {
            return Err(-abi::EINVAL);
        }
        let errors = if tells { context.cast::<c_int>() } else { ptr::null_mut() };
        Ok(Self { numbers, errors, has_user_ids })
    }

    /// Inserts the `n`th address. Returns true if that succeeds.
    ///
    /// # Safety
    /// The arrays are longer than `n`.
    unsafe fn insert(&self, vector: &AddressVector, n: usize, target: Option<&Target>) -> bool {
        // SAFETY: with FI_AV_USER_ID, `numbers` is not NULL (`of`), and longer than `n`.
        let user_id = self.has_user_ids.then(|| unsafe { self.numbers.add(n).read() });
        let added = target.ok_or(abi::EINVAL).and_then(|target| add(vector, target, user_id));
        // SAFETY: both are NULL or longer than `n`, by this function's contract.
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

    /// Returns the return value of a call that has inserted `inserted` of `count` addresses.
    fn returned(&self, inserted: usize, count: usize) -> c_int {
        peer::find_unnamed();
        // `lnx` takes 0 for success.
        match self.has_user_ids && inserted == 0 && count != 0 {
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
    // SAFETY: fi_av_insert(3): an open address vector of this provider.
    let vector = unsafe { of(vector) };
    if addresses.is_null() && count != 0 {
        return -abi::EINVAL;
    }
    let results = match Results::of(numbers, flags, context) {
        Ok(results) => results,
        Err(error) => return error,
    };
    let (mut inserted, mut at) = (0, addresses);
    for n in 0..count {
        // SAFETY: fi_av_insert(3): `count` addresses in the domain's format, and arrays of this
        // length.
        unsafe {
            let read = args::address(vector.core.format, at);
            at = at.byte_add(read.as_ref().map_or_else(|| vector.skip(at), |(_, bytes)| *bytes));
            let target = read.map(|(target, _)| target);
            inserted += usize::from(results.insert(vector, n, target.as_ref()));
        }
    }
    results.returned(inserted, count)
}

impl AddressVector {
    /// Returns the number of bytes of a malformed address.
    ///
    /// # Safety
    /// `at` has a string or [`SIZE`] bytes, as the domain's format says.
    unsafe fn skip(&self, at: *const c_void) -> usize {
        match self.core.format {
            Format::Own => SIZE,
            // SAFETY: a C string, by this function's contract.
            Format::String => unsafe { CStr::from_ptr(at.cast()) }.count_bytes() + 1,
        }
    }
}

/// Adds a peer, and returns its number. Error: EADDRNOTAVAIL, if no endpoint can be there.
fn add(vector: &AddressVector, target: &Target, user_id: Option<u64>) -> Result<u64, c_int> {
    let here = vector.core.here;
    let mut state = vector.core.lock();
    let peers = state.vectors.get_mut(vector.number).ok_or(abi::EINVAL)?;
    let address = match target {
        Target::Endpoint(address) => address,
        Target::Name(name) => return Ok(peers.add_named(here, *name, user_id)),
        Target::Unnamed => return Err(abi::EADDRNOTAVAIL),
    };
    match Peer::find(here, address) {
        Ok(peer) => Ok(peers.add(peer, user_id)),
        Err(Absence::Ended) => Ok(peers.add_ended(*address, user_id)),
        Err(Absence::Elsewhere | Absence::Invalid) => {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                log::write(abi::LOG_WARN, abi::LOG_AV, || {
                    "a peer cannot be reached: it is not in this space".to_owned()
                });
            });
            Err(abi::EADDRNOTAVAIL)
        }
    }
}

unsafe extern "C" fn insert_service(
    vector: *mut abi::FidAv,
    node: *const c_char,
    service: *const c_char,
    number: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: fi_av_insertsvc(3) has the arguments of fi_av_insertsym(3), for one address.
    unsafe { insert_services(vector, node, 1, service, 1, number, flags, context) }
}

/// Returns the `n`th of consecutive names: `node8` comes after `node7`.
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
    // SAFETY: fi_av_insertsym(3): an open address vector of this provider, and C strings or NULL.
    let (vector, node, service) = unsafe { (of(vector), text(node), text(service)) };
    let (node, service) = match (node, service) {
        (Ok(node), Ok(service)) if node.is_some() || service.is_some() => (node, service),
        _ => return -abi::EINVAL,
    };
    let results = match Results::of(numbers, flags, context) {
        Ok(results) => results,
        Err(error) => return error,
    };
    let mut inserted = 0;
    for n in 0..nodes * services {
        // The services of a node are consecutive.
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
        // SAFETY: fi_av_insertsym(3): arrays for `nodes * services` results.
        inserted += usize::from(unsafe { results.insert(vector, n, target.as_ref()) });
    }
    results.returned(inserted, nodes * services)
}

unsafe extern "C" fn remove(
    vector: *mut abi::FidAv,
    numbers: *mut u64,
    count: size_t,
    _flags: u64,
) -> c_int {
    // SAFETY: fi_av_remove(3): an open address vector of this provider.
    let vector = unsafe { of(vector) };
    if numbers.is_null() && count != 0 {
        return -abi::EINVAL;
    }
    let mut state = vector.core.lock();
    let Some(vector) = state.vectors.get_mut(vector.number) else { return -abi::EINVAL };
    for n in 0..count {
        // SAFETY: fi_av_remove(3): an array of `count` numbers.
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
    // SAFETY: fi_av_lookup(3): an open address vector of this provider.
    let vector = unsafe { of(vector) };
    let state = vector.core.lock();
    let peers = state.vectors.get(vector.number);
    let target = peers.and_then(|peers| peers.target(vector.core.here, number as usize));
    let Some(target) = target else { return -abi::EINVAL };
    if address.is_null() {
        return -abi::EINVAL;
    }
    // SAFETY: fi_av_lookup(3): `address` has `*length` bytes, and `length` may be written.
    match unsafe { copy_out(&target.written(vector.core.format), address, length) } {
        // The caller compares the length with its room.
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
    // SAFETY: fi_av_straddr(3): an open address vector of this provider, and an address.
    let target = unsafe { args::address(of(vector).core.format, address) };
    let text = match target {
        Some((target, _)) => target.text(),
        None => "not an address of nagaya".to_owned(),
    };
    let bytes = [text.as_bytes(), &[0]].concat();
    // SAFETY: neither is NULL, and fi_av_straddr(3) gives `buffer` room for `*length` bytes.
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
