//! Endpoints: they send and receive messages, and access remote memory.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use libc::{size_t, ssize_t};
use sync::wait::Backoff;

use crate::abi;
use crate::engine::address::{Address, Target};
use crate::engine::completion::Completion;
use crate::engine::log;
use crate::engine::port::Port;
use crate::engine::registry::{self, Refusal};
use crate::engine::space::Here;
use crate::engine::state::{Binding, Endpoint, State};
use crate::face::args::{self, copy_out};
use crate::face::atomic;
use crate::face::av::AddressVector;
use crate::face::counter::Counter;
use crate::face::cq::CompletionQueue;
use crate::face::domain_object::Domain;
use crate::face::endpoint_object::{EndpointObject, of};
use crate::face::message;
use crate::face::peer::SharedReceive;
use crate::face::rma;
use crate::protocol::matching::Matching;
use crate::protocol::slab::Slab;
use crate::protocol::slot_use::SlotUse;

/// Default of FI_OPT_MIN_MULTI_RECV, in bytes.
const MIN_MULTIPLE: u64 = 64;

static FID: abi::OpsFid = abi::OpsFid::of(close, Some(bind), Some(control));

static OPS: abi::OpsEp = abi::OpsEp {
    size: size_of::<abi::OpsEp>(),
    cancel: Some(cancel),
    getopt: Some(getopt),
    setopt: Some(setopt),
    tx_ctx: Some(no_send_context),
    rx_ctx: Some(no_receive_context),
    rx_size_left: None,
    tx_size_left: None,
};

static CM: abi::OpsCm = abi::OpsCm {
    size: size_of::<abi::OpsCm>(),
    setname: Some(setname),
    getname: Some(getname),
    getpeer: Some(getpeer),
    connect: Some(connect),
    listen: None,
    accept: Some(accept),
    reject: None,
    shutdown: Some(shutdown),
    join: Some(join),
};

/// fi_endpoint(3).
pub unsafe extern "C" fn open(
    domain: *mut abi::FidDomain,
    info: *mut abi::Info,
    endpoint: *mut *mut abi::FidEp,
    context: *mut c_void,
) -> c_int {
    static NUMBERS: AtomicU32 = AtomicU32::new(1);
    // SAFETY: fi_endpoint(3): an open domain of this provider, whose fid is its first field.
    let core = unsafe { &*domain.cast::<Domain>() }.core.clone();
    // SAFETY: fi_endpoint(3): NULL, or an answer of fi_getinfo(3) that the program may have
    // changed. Its source address is NULL or an address in the domain's format.
    let asked = unsafe { info.as_ref().and_then(|info| args::address(core.format, info.src_addr)) };
    let name = match asked {
        Some((Target::Name(name), _)) => Some(name),
        _ => None,
    };
    // The source number contains a 16-bit count of this task's endpoints, which wraps around.
    let source = core.here.us.id << 16 | NUMBERS.fetch_add(1, Relaxed) & 0xffff;
    let Some(port) = Port::open(source, &core.doorbell, &core.regions) else { return -abi::ENOMEM };
    // SAFETY: fi_endpoint(3): NULL, or an answer of fi_getinfo(3), whose parts may be NULL.
    let (caps, send_flags, receive_flags) = unsafe {
        let info = info.as_ref();
        (
            info.map_or(0, |info| info.caps),
            info.and_then(|info| info.tx_attr.as_ref()).map_or(0, |tx| tx.op_flags),
            info.and_then(|info| info.rx_attr.as_ref()).map_or(0, |rx| rx.op_flags),
        )
    };
    let made = Endpoint {
        port,
        source,
        vector: None,
        send: Binding::default(),
        receive: Binding::default(),
        read: Binding::default(),
        write: Binding::default(),
        plain: Matching::default(),
        tagged: Matching::default(),
        unexpected_bytes: 0,
        pending: Slab::default(),
        claimed_sends: Slab::default(),
        records: Vec::new(),
        transfers: VecDeque::new(),
        unfinished: Vec::new(),
        helping: VecDeque::new(),
        send_flags,
        receive_flags,
        min_multiple: MIN_MULTIPLE,
        directed: caps & abi::DIRECTED_RECV != 0,
        enabled: false,
        receives: false,
        owner: None,
        name,
        is_named: false,
        must_have_name: false,
        last: None,
        holds: Vec::new(),
    };
    let mut state = core.lock();
    let number = state.endpoints.add(made);
    state.watch_all(&core.news);
    drop(state);
    let fid = abi::FidEp {
        fid: abi::Fid { fclass: abi::CLASS_EP as size_t, context, ops: &FID },
        ops: &OPS,
        cm: &CM,
        msg: &message::PLAIN,
        rma: &rma::OPS,
        tagged: &message::TAGGED,
        atomic: &atomic::OPS,
        collective: std::ptr::null(),
    };
    let made = EndpointObject { fid, core, number };
    // SAFETY: fi_endpoint(3) lets us write the endpoint there.
    unsafe { endpoint.write(Box::into_raw(Box::new(made)).cast()) };
    0
}

unsafe extern "C" fn close(fid: *mut abi::Fid) -> c_int {
    // SAFETY: `open` has made the endpoint with `Box::into_raw`, and fi_close(3) is called once.
    let object = unsafe { Box::from_raw(fid.cast::<EndpointObject>()) };
    let mut state = object.core.lock();
    let mut backoff = Backoff::default();
    while state.endpoints.get_mut(object.number).is_some_and(|endpoint| !endpoint.withdraw()) {
        // Peers write into the program's buffers.
        drop(state);
        object.core.progress_all();
        object.core.check_peers();
        backoff.pause();
        state = object.core.lock();
    }
    let Some(endpoint) = state.endpoints.remove(object.number) else { return -abi::EINVAL };
    if let Some(owner) = &endpoint.owner {
        owner.close();
    }
    if let Some(name) = endpoint.name.filter(|_| endpoint.is_named) {
        registry::remove(object.core.here, &name);
    }
    let queues: Vec<_> = state.queues.numbers().collect();
    for number in queues {
        if let Some(queue) = state.queues.get_mut(number) {
            queue.endpoints.retain(|&other| other != object.number);
        }
        state.watch(number);
    }
    state.watch_all(&object.core.news);
    // Receivers that have a request to send may still read the records, so these are leaked.
    let Endpoint { port, pending, .. } = endpoint;
    std::mem::forget(pending);
    port.close();
    0
}

unsafe extern "C" fn bind(fid: *mut abi::Fid, other: *mut abi::Fid, flags: u64) -> c_int {
    // SAFETY: fi_ep_bind(3): an open endpoint of this provider, and an open object of its domain.
    let (object, class) = unsafe { (of(fid.cast()), (*other).fclass as u32) };
    let mut state = object.core.lock();
    let State { endpoints, queues, .. } = &mut *state;
    let Some(endpoint) = endpoints.get_mut(object.number) else { return -abi::EINVAL };
    match class {
        abi::CLASS_AV => {
            // SAFETY: its class says that it is an address vector, and its domain is ours.
            endpoint.vector = Some(unsafe { &*other.cast::<AddressVector>() }.number);
        }
        abi::CLASS_CQ => {
            // SAFETY: its class says that it is a completion queue, and its domain is ours.
            let number = unsafe { &*other.cast::<CompletionQueue>() }.number;
            let selective = flags & abi::SELECTIVE_COMPLETION != 0;
            let binding = |binding: &mut Binding| {
                binding.queue = Some(number);
                binding.selective = selective;
            };
            if flags & abi::SEND != 0 {
                binding(&mut endpoint.send);
                binding(&mut endpoint.read);
                binding(&mut endpoint.write);
            }
            if flags & abi::RECV != 0 {
                binding(&mut endpoint.receive);
            }
            let Some(queue) = queues.get_mut(number) else { return -abi::EINVAL };
            if !queue.endpoints.contains(&object.number) {
                queue.endpoints.push(object.number);
            }
            state.watch(number);
        }
        abi::CLASS_CNTR => {
            // SAFETY: its class says that it is a counter, and its domain is ours.
            let counts = &unsafe { &*other.cast::<Counter>() }.counts;
            let places = [
                (abi::SEND, &mut endpoint.send.counter),
                (abi::RECV, &mut endpoint.receive.counter),
                (abi::READ, &mut endpoint.read.counter),
                (abi::WRITE, &mut endpoint.write.counter),
            ];
            for (flag, place) in places {
                if flags & flag != 0 {
                    *place = Some(counts.clone());
                }
            }
            for (flag, was_read) in [(abi::REMOTE_READ, true), (abi::REMOTE_WRITE, false)] {
                if flags & flag != 0 {
                    endpoint.port.head().count_remote(counts, was_read);
                }
            }
        }
        abi::CLASS_SRX_CTX => {
            // SAFETY: its class says that it is a shared receive context, and its domain is ours.
            let shared = unsafe { &*other.cast::<SharedReceive>() };
            endpoint.owner = Some(Box::new(shared.of(&object.core, object.number)));
        }
        abi::CLASS_EQ => {}
        _ => return -abi::EINVAL,
    }
    0
}

unsafe extern "C" fn control(fid: *mut abi::Fid, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: fi_control(3): an open endpoint of this provider.
    let object = unsafe { of(fid.cast()) };
    let mut state = object.core.lock();
    let Some(endpoint) = state.endpoints.get_mut(object.number) else { return -abi::EINVAL };
    match command as u32 {
        abi::ENABLE => {
            if endpoint.vector.is_none() {
                return -abi::ENOAV;
            }
            if endpoint.enabled {
                return 0;
            }
            if let Err(error) = endpoint.register_name(object.core.here) {
                return -error;
            }
            (endpoint.enabled, endpoint.receives) = (true, endpoint.owner.is_none());
        }
        abi::GETOPSFLAG | abi::SETOPSFLAG => {
            // SAFETY: fi_control(3): the argument of these commands is a word of flags.
            let flags = unsafe { &mut *argument.cast::<u64>() };
            let place = match *flags & (abi::SEND | abi::RECV) {
                abi::SEND => &mut endpoint.send_flags,
                abi::RECV => &mut endpoint.receive_flags,
                _ => return -abi::EINVAL,
            };
            if command as u32 == abi::GETOPSFLAG {
                *flags = *place;
            } else {
                *place = *flags & !(abi::SEND | abi::RECV);
            }
        }
        _ => return -abi::ENOSYS,
    }
    0
}

unsafe extern "C" fn cancel(fid: *mut abi::Fid, context: *mut c_void) -> ssize_t {
    // SAFETY: fi_cancel(3): an open endpoint of this provider.
    let object = unsafe { of(fid.cast()) };
    let mut state = object.core.lock();
    let State { endpoints, queues, .. } = &mut *state;
    let Some(endpoint) = endpoints.get_mut(object.number) else {
        return -(abi::EINVAL as ssize_t);
    };
    let context = context as usize;
    let table = &endpoint.port.head().posted.table;
    let withdraw = |slot_use: SlotUse| table.withdraw(slot_use);
    let (receive, flag) = match endpoint.tagged.cancel(context, withdraw) {
        Some(receive) => (receive, abi::TAGGED),
        None => match endpoint.plain.cancel(context, withdraw) {
            Some(receive) => (receive, abi::MSG),
            None => return -(abi::ENOENT as ssize_t),
        },
    };
    let completion = Completion {
        context,
        flags: abi::RECV | flag,
        tag: receive.tag,
        error: abi::ECANCELED,
        ..Completion::default()
    };
    endpoint.receive.complete(queues, completion, true);
    0
}

unsafe extern "C" fn getopt(
    fid: *mut abi::Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut size_t,
) -> c_int {
    // SAFETY: fi_getopt(3): an open endpoint of this provider.
    let object = unsafe { of(fid.cast()) };
    if (level as u32, name as u32) != (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) {
        return -libc::ENOPROTOOPT;
    }
    let state = object.core.lock();
    let Some(endpoint) = state.endpoints.get(object.number) else { return -abi::EINVAL };
    // SAFETY: fi_getopt(3): `value` has room for `*length` bytes, which is enough for the value.
    unsafe {
        if *length < size_of::<size_t>() {
            return -abi::ETOOSMALL;
        }
        value.cast::<size_t>().write(endpoint.min_multiple as size_t);
        length.write(size_of::<size_t>());
    }
    0
}

unsafe extern "C" fn setopt(
    fid: *mut abi::Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: size_t,
) -> c_int {
    // SAFETY: fi_setopt(3): an open endpoint of this provider.
    let object = unsafe { of(fid.cast()) };
    if (level as u32, name as u32) != (abi::OPT_ENDPOINT, abi::OPT_MIN_MULTI_RECV) {
        return -libc::ENOPROTOOPT;
    }
    if length != size_of::<size_t>() {
        return -abi::EINVAL;
    }
    let mut state = object.core.lock();
    let Some(endpoint) = state.endpoints.get_mut(object.number) else { return -abi::EINVAL };
    // SAFETY: fi_setopt(3): a value of this length. With 0 a receive would never end.
    endpoint.min_multiple = unsafe { value.cast::<size_t>().read() }.max(1) as u64;
    0
}

unsafe extern "C" fn no_send_context(
    _: abi::Ep,
    _: c_int,
    _: *mut abi::TxAttr,
    _: *mut abi::Ep,
    _: *mut c_void,
) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn no_receive_context(
    _: abi::Ep,
    _: c_int,
    _: *mut abi::RxAttr,
    _: *mut abi::Ep,
    _: *mut c_void,
) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn setname(fid: *mut abi::Fid, address: *mut c_void, _: size_t) -> c_int {
    // SAFETY: fi_setname(3): an open endpoint of this provider.
    let object = unsafe { of(fid.cast()) };
    let mut state = object.core.lock();
    let Some(endpoint) = state.endpoints.get_mut(object.number) else { return -abi::EINVAL };
    if endpoint.enabled {
        return -abi::EBUSY;
    }
    // SAFETY: fi_setname(3): NULL, or an address in the domain's format.
    endpoint.name = match unsafe { args::address(object.core.format, address) } {
        Some((Target::Name(name), _)) => Some(name),
        Some((Target::Unnamed, _)) => None,
        // A program cannot choose the location of an endpoint.
        Some((Target::Endpoint(_), _)) | None => return -abi::EINVAL,
    };
    endpoint.must_have_name = true;
    0
}

impl Endpoint {
    /// Registers the endpoint's name, if it has one. Error: EADDRINUSE, ENOMEM.
    fn register_name(&mut self, here: &Here) -> Result<(), c_int> {
        let Some(name) = self.name else { return Ok(()) };
        match registry::add(here, &name, self.port.address(), self.source) {
            Ok(()) => self.is_named = true,
            Err(Refusal::Full) => return Err(abi::ENOMEM),
            Err(Refusal::Taken) if self.must_have_name => return Err(abi::EADDRINUSE),
            // Programs that exchange addresses name the same service in all tasks, so this is no
            // error.
            Err(Refusal::Taken) => {
                log::write(abi::LOG_WARN, abi::LOG_EP_CTRL, || {
                    format!("{}: another endpoint has this name; ours has none", name.text())
                });
                self.name = None;
            }
        }
        Ok(())
    }
}

unsafe extern "C" fn getname(
    fid: *mut abi::Fid,
    address: *mut c_void,
    length: *mut size_t,
) -> c_int {
    // SAFETY: fi_getname(3): an open endpoint of this provider.
    let object = unsafe { of(fid.cast()) };
    let state = object.core.lock();
    let Some(endpoint) = state.endpoints.get(object.number) else { return -abi::EINVAL };
    let here = object.core.here;
    let target = match endpoint.name.filter(|_| endpoint.must_have_name) {
        Some(name) => Target::Name(name),
        None => {
            let (port, source) = (endpoint.port.address(), endpoint.source);
            Target::Endpoint(Address { mark: here.mark, task: here.us, port, source })
        }
    };
    // SAFETY: fi_getname(3): `address` has `*length` bytes, and `length` may be written.
    match unsafe { copy_out(&target.written(object.core.format), address, length) } {
        Ok(()) => 0,
        Err(error) => -error,
    }
}

unsafe extern "C" fn getpeer(_: abi::Ep, _: *mut c_void, _: *mut size_t) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn connect(_: abi::Ep, _: *const c_void, _: *const c_void, _: size_t) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn accept(_: abi::Ep, _: *const c_void, _: size_t) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn shutdown(_: abi::Ep, _: u64) -> c_int {
    -abi::ENOSYS
}

unsafe extern "C" fn join(
    _: abi::Ep,
    _: *const c_void,
    _: u64,
    _: *mut *mut c_void,
    _: *mut c_void,
) -> c_int {
    -abi::ENOSYS
}
