//! Address vectors: other endpoints by number, whichever type was asked for.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, Once};

use libc::size_t;

use crate::abi::peer::{AV_USER_ID, PEER};
use crate::address::{Address, SIZE};
use crate::domain::Domain;
use crate::port::Peer;
use crate::state::{Core, Vector};
use crate::{abi, log, peer};

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
    let (domain, attr) = unsafe { (&*domain.cast::<Domain>(), &mut *attr) };
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

unsafe extern "C" fn insert(
    vector: *mut abi::FidAv,
    addresses: *const c_void,
    count: size_t,
    numbers: *mut u64,
    flags: u64,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: as the caller of libfabric says.
    let vector = unsafe { of(vector) };
    let is_named = flags & AV_USER_ID != 0;
    if is_named && numbers.is_null() {
        return -abi::EINVAL;
    }
    let mut inserted = 0;
    for n in 0..count {
        // SAFETY: as above: so many addresses, of the size that fi_getname told, and names.
        let (bytes, name) = unsafe {
            let bytes = &*addresses.cast::<[u8; SIZE]>().add(n);
            (bytes, is_named.then(|| numbers.add(n).read()))
        };
        let number = add(vector, bytes, name);
        inserted += c_int::from(number.is_some());
        if !numbers.is_null() {
            // SAFETY: as above: room for as many numbers.
            unsafe { numbers.add(n).write(number.unwrap_or(abi::ADDR_UNSPEC)) };
        }
    }
    peer::look_again();
    // `lnx` takes 0 for a peer that is there.
    if is_named && inserted == 0 && count != 0 { -abi::EADDRNOTAVAIL } else { inserted }
}

/// The number of a new peer.
fn add(vector: &AddressVector, bytes: &[u8; SIZE], name: Option<u64>) -> Option<u64> {
    let here = vector.core.here;
    let peer = Address::parse(bytes).and_then(|address| Peer::find(here, &address));
    if peer.is_none() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            log::say(abi::LOG_WARN, abi::LOG_AV, || {
                "a peer cannot be reached: it is not in this space, or has ended".to_owned()
            });
        });
    }
    let peer = peer?;
    let mut state = vector.core.lock();
    Some(state.vectors.get_mut(vector.number)?.add(peer, name))
}

unsafe extern "C" fn insert_service(
    _: *mut abi::FidAv,
    _: *const c_char,
    _: *const c_char,
    _: *mut u64,
    _: u64,
    _: *mut c_void,
) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn insert_services(
    _: *mut abi::FidAv,
    _: *const c_char,
    _: size_t,
    _: *const c_char,
    _: size_t,
    _: *mut u64,
    _: u64,
    _: *mut c_void,
) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn remove(
    vector: *mut abi::FidAv,
    numbers: *mut u64,
    count: size_t,
    _flags: u64,
) -> c_int {
    // SAFETY: as the caller of libfabric says.
    let vector = unsafe { of(vector) };
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
    let peers = state.vectors.get(vector.number).map(|vector| &vector.peers);
    let peer = peers.and_then(|peers| peers.get(number as usize)).and_then(Option::as_ref);
    let Some(peer) = peer else { return -abi::EINVAL };
    let bytes = peer.address(vector.core.here).bytes();
    // SAFETY: as above: as much room as the length says, which we set.
    unsafe {
        let room = length.replace(SIZE);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast::<u8>(), room.min(SIZE));
    }
    0
}

unsafe extern "C" fn to_string(
    _: *mut abi::FidAv,
    address: *const c_void,
    buffer: *mut c_char,
    length: *mut size_t,
) -> *const c_char {
    // SAFETY: as the caller of libfabric says.
    let text = match Address::parse(unsafe { &*address.cast::<[u8; SIZE]>() }) {
        Some(address) => format!(
            "nagaya://{:016x}/{}.{}/{:x}\0",
            address.mark, address.whom.id, address.whom.generation, address.port
        ),
        None => "no address of nagaya's\0".to_owned(),
    };
    let bytes =
        CStr::from_bytes_until_nul(text.as_bytes()).expect("it ends so").to_bytes_with_nul();
    // SAFETY: as above: as much room as the length says, which we set.
    unsafe {
        let room = length.replace(bytes.len());
        if room > 0 {
            let copied = bytes.len().min(room);
            std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buffer, copied);
            buffer.add(copied - 1).write(0);
        }
    }
    buffer
}
