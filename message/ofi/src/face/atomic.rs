//! Atomic operations: fi_atomic, fi_fetch_atomic, fi_compare_atomic and similar calls. The caller
//! executes the operation on the target's memory, at once.

use std::ffi::{c_int, c_void};

use libc::{size_t, ssize_t};

use crate::abi::{self, Context, Desc, Descs, Ep, Ioc, RmaIoc};
use crate::engine::copy::{self, Direction};
use crate::engine::space::Here;
use crate::face::args::{answer, list};
use crate::face::endpoint_object::{self, EndpointObject};
use crate::face::number::{self, DataType, Method, data_type};
use crate::face::rma::Reached;
use crate::face::wide;
use crate::protocol::parts::Part;
use crate::protocol::wire::Kind;

/// The calls.
pub static OPS: abi::OpsAtomic = abi::OpsAtomic {
    size: size_of::<abi::OpsAtomic>(),
    write: Some(write),
    writev: Some(writev),
    writemsg: Some(writemsg),
    inject: Some(inject),
    readwrite: Some(readwrite),
    readwritev: Some(readwritev),
    readwritemsg: Some(readwritemsg),
    compwrite: Some(compwrite),
    compwritev: Some(compwritev),
    compwritemsg: Some(compwritemsg),
    writevalid: Some(writevalid),
    readwritevalid: Some(readwritevalid),
    compwritevalid: Some(compwritevalid),
};

/// Most bytes of one operation, as the calls for limits report it.
const BYTES_MAX: usize = 1 << 20;

/// The form of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Changes the target's memory.
    Change,
    /// Also returns the old values.
    Fetch,
    /// Also returns the old values, and changes only those that compare.
    Compare,
}

/// Returns the type of an operation's numbers. `None`: there is no such operation.
fn valid_type(form: Form, datatype: u32, op: u32) -> Option<DataType> {
    let belongs = match form {
        Form::Change => op <= abi::BXOR || op == abi::ATOMIC_WRITE,
        Form::Fetch => op <= abi::ATOMIC_WRITE,
        Form::Compare => (abi::CSWAP..=abi::MSWAP).contains(&op),
    };
    data_type(datatype).filter(|found| belongs && found.method.has(op))
}

/// Returns the addresses of all numbers in a list of the program's.
fn each(list: &[Ioc], size: usize) -> impl Iterator<Item = u64> {
    list.iter()
        .flat_map(move |ioc| (0..ioc.count).map(move |n| (ioc.addr as usize + n * size) as u64))
}

/// Returns the number of numbers in a list of the program's.
fn count(list: &[Ioc]) -> usize {
    list.iter().map(|ioc| ioc.count).sum()
}

/// A call.
struct Atomic<'a> {
    form: Form,
    operands: &'a [Ioc],
    compares: &'a [Ioc],
    results: &'a [Ioc],
    remote: &'a [RmaIoc],
    to: u64,
    datatype: u32,
    op: u32,
    data: Option<u64>,
    context: Context,
    /// `None`: the endpoint's flags apply.
    flags: Option<u64>,
    injected: bool,
}

/// The addresses of one number: the target's, and those of the program's lists.
struct Place {
    at: u64,
    operand: Option<u64>,
    compare: Option<u64>,
    result: Option<u64>,
}

impl Atomic<'_> {
    /// Executes the call.
    ///
    /// # Safety
    /// The lists of operands, compares and results have readable or writable numbers of the type.
    unsafe fn run(&self, object: &EndpointObject) -> Result<(), c_int> {
        let numbers = valid_type(self.form, self.datatype, self.op).ok_or(abi::EOPNOTSUPP)?;
        let size = numbers.size;
        let reached = Reached::new(object, self.to)?;
        let here = object.core.here;
        let total: usize = self.remote.iter().map(|remote| remote.count).sum();
        let fits = (self.op == abi::ATOMIC_READ || count(self.operands) == total)
            && (self.form != Form::Compare || count(self.compares) == total)
            && (self.form == Form::Change || count(self.results) == total);
        if !fits {
            return Err(abi::EINVAL);
        }
        let access = match self.op {
            abi::ATOMIC_READ => abi::REMOTE_READ,
            _ => abi::REMOTE_WRITE,
        };
        // The room for the notice is reserved first: a change cannot be undone without it.
        let mut notice = self.data.map(|_| reached.reserve(here)).transpose()?;
        let mut error = 0;
        let mut operands = each(self.operands, size);
        let mut compares = each(self.compares, size);
        let mut results = each(self.results, size);
        let mut counts = Vec::new();
        for remote in self.remote {
            let bytes = (remote.count * size) as u64;
            let found = reached.peer.regions().look_up(remote.key, remote.addr, bytes, access)?;
            if found.counts != 0 {
                counts.push(found.counts);
            }
            if !found.address.is_multiple_of(numbers.align as u64) {
                return Err(abi::EINVAL);
            }
            if !is_there(here, &reached, found.address, bytes) {
                error = abi::EFAULT;
                break;
            }
            let at = here.task.found_at(reached.peer.task.id, found.address);
            let is_wide = matches!(numbers.method, Method::Wide(_));
            let _lock = is_wide.then(|| reached.peer.regions().change(here));
            for n in 0..remote.count {
                let place = Place {
                    at: at + (n * size) as u64,
                    operand: operands.next(),
                    compare: compares.next(),
                    result: results.next(),
                };
                // SAFETY: the program's numbers, by this function's contract. `is_there` has read
                // the target's, which are aligned, and locked if they are wide.
                unsafe { self.apply(numbers, &place) };
            }
        }
        let reads = self.form != Form::Change;
        if error == 0 {
            if let Some((notice, data)) = notice.as_mut().zip(self.data) {
                notice.set(Kind::Changed, (total * size) as u64, data);
            }
            reached.count(here, reads, &counts);
        }
        drop(notice);
        let flags = abi::ATOMIC | if reads { abi::READ } else { abi::WRITE };
        let direction = if reads { Direction::Pull } else { Direction::Push };
        let wanted = if self.injected { None } else { Some(self.flags) };
        reached.complete(object, direction, flags, self.context, wanted, error)
    }

    /// Executes the operation on one number.
    ///
    /// # Safety
    /// There are numbers of this type at all addresses. The target's is aligned; if it is wide, the
    /// caller has the target's lock.
    unsafe fn apply(&self, numbers: DataType, place: &Place) {
        let (size, op) = (numbers.size, self.op);
        let Place { at, operand, compare, result } = *place;
        // SAFETY: this function's contract.
        unsafe {
            match numbers.method {
                Method::Word(change) => {
                    let operand = operand.map_or(0, |at| number::load(at, size));
                    let compare = compare.map_or(0, |at| number::load(at, size));
                    let old = match op {
                        abi::ATOMIC_READ => number::read(at, size),
                        _ => number::update(at, size, |old| {
                            change(op, old, operand, compare).unwrap_or(old)
                        }),
                    };
                    if let Some(result) = result {
                        number::store(result, size, old);
                    }
                }
                Method::Wide(change) => {
                    let of = |at: Option<u64>| at.map(|at| wide::load(at, size));
                    let operand = of(operand).unwrap_or_default();
                    let compare = of(compare).unwrap_or_default();
                    let old = wide::load(at, size);
                    let new = change(op, &old, &operand, &compare);
                    if let Some(new) = new.filter(|_| op != abi::ATOMIC_READ) {
                        wide::store(at, size, &new);
                    }
                    if let Some(result) = result {
                        wide::store(result, size, &old);
                    }
                }
            }
        }
    }
}

/// Returns true if the target's memory can be read. It reads a byte of each page: a plain load from
/// an unmapped page would end the task.
fn is_there(here: &Here, reached: &Reached, at: u64, bytes: u64) -> bool {
    const PAGE_BYTES: u64 = 4096;
    let (mut next, end) = (at, at + bytes);
    while next < end {
        let mut byte = 0u8;
        let ours = [Part { address: &raw mut byte as u64, length: 1 }];
        let theirs = [Part { address: next, length: 1 }];
        let (peer, pull) = (&reached.peer, Direction::Pull);
        if copy::copy(here, peer.task, peer.is_far, pull, &ours, &theirs, 1).is_err() {
            return false;
        }
        next = (next | (PAGE_BYTES - 1)) + 1;
    }
    true
}

/// Executes a call.
///
/// # Safety
/// `ep` is an open endpoint of this provider. The lists are as in `Atomic::run`.
unsafe fn run(ep: Ep, atomic: &Atomic<'_>) -> ssize_t {
    // SAFETY: this function's contract.
    answer(unsafe { atomic.run(endpoint_object::of(ep)) })
}

fn ioc(at: *const c_void, count: usize) -> [Ioc; 1] {
    [Ioc { addr: at.cast_mut(), count }]
}

/// A range of the target's memory, and the operation.
#[derive(Clone, Copy)]
struct There {
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
}

/// Executes an operation on one range of the target's memory.
///
/// # Safety
/// As fi_atomic(3) asks for: the endpoint is open, and the lists have numbers of this type.
unsafe fn one(
    ep: Ep,
    form: Form,
    [operands, compares, results]: [&[Ioc]; 3],
    there: There,
    context: Option<Context>,
) -> ssize_t {
    let There { to, address, key, datatype, op } = there;
    let longest = if op == abi::ATOMIC_READ { results } else { operands };
    let count = longest.iter().map(|ioc| ioc.count).sum();
    let remote = &[RmaIoc { addr: address, count, key }];
    let (data, flags, injected) = (None, None, context.is_none());
    let context = context.unwrap_or(std::ptr::null_mut());
    // SAFETY: this function's contract.
    unsafe {
        run(
            ep,
            &Atomic {
                form,
                operands,
                compares,
                results,
                remote,
                to,
                datatype,
                op,
                data,
                context,
                flags,
                injected,
            },
        )
    }
}

/// # Safety
/// As fi_atomic(3) asks for: the endpoint is open, and the lists have numbers of this type.
unsafe fn message(
    ep: Ep,
    form: Form,
    message: *const abi::MsgAtomic,
    compares: &[Ioc],
    results: &[Ioc],
    flags: u64,
) -> ssize_t {
    // SAFETY: this function's contract.
    unsafe {
        let Some(message) = message.as_ref() else { return -(abi::EINVAL as ssize_t) };
        let atomic = Atomic {
            form,
            operands: list(message.msg_iov, message.iov_count),
            compares,
            results,
            remote: list(message.rma_iov, message.rma_iov_count),
            to: message.addr,
            datatype: message.datatype,
            op: message.op,
            data: (flags & abi::REMOTE_CQ_DATA != 0).then_some(message.data),
            context: message.context,
            flags: Some(flags),
            injected: false,
        };
        run(ep, &atomic)
    }
}

unsafe extern "C" fn write(
    ep: Ep,
    buffer: *const c_void,
    count: size_t,
    _: Desc,
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> ssize_t {
    let there = There { to, address, key, datatype, op };
    let operands = ioc(buffer, count);
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe { one(ep, Form::Change, [&operands, &[], &[]], there, Some(context)) }
}

unsafe extern "C" fn writev(
    ep: Ep,
    buffers: *const Ioc,
    _: Descs,
    count: size_t,
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> ssize_t {
    let there = There { to, address, key, datatype, op };
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe { one(ep, Form::Change, [list(buffers, count), &[], &[]], there, Some(context)) }
}

unsafe extern "C" fn writemsg(ep: Ep, msg: *const abi::MsgAtomic, flags: u64) -> ssize_t {
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe { message(ep, Form::Change, msg, &[], &[], flags) }
}

unsafe extern "C" fn inject(
    ep: Ep,
    buffer: *const c_void,
    count: size_t,
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
) -> ssize_t {
    let there = There { to, address, key, datatype, op };
    let operands = ioc(buffer, count);
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe { one(ep, Form::Change, [&operands, &[], &[]], there, None) }
}

unsafe extern "C" fn readwrite(
    ep: Ep,
    buffer: *const c_void,
    count: size_t,
    _: Desc,
    result: *mut c_void,
    _: Desc,
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> ssize_t {
    let there = There { to, address, key, datatype, op };
    let (operands, results) = (ioc(buffer, count), ioc(result, count));
    // A pure read has no operand.
    let operands = if op == abi::ATOMIC_READ { &[][..] } else { &operands[..] };
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe { one(ep, Form::Fetch, [operands, &[], &results], there, Some(context)) }
}

unsafe extern "C" fn readwritev(
    ep: Ep,
    buffers: *const Ioc,
    _: Descs,
    count: size_t,
    results: *mut Ioc,
    _: Descs,
    result_count: size_t,
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> ssize_t {
    let there = There { to, address, key, datatype, op };
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe {
        let operands = if op == abi::ATOMIC_READ { &[] } else { list(buffers, count) };
        let results = list(results, result_count);
        one(ep, Form::Fetch, [operands, &[], results], there, Some(context))
    }
}

unsafe extern "C" fn readwritemsg(
    ep: Ep,
    msg: *const abi::MsgAtomic,
    results: *mut Ioc,
    _: Descs,
    result_count: size_t,
    flags: u64,
) -> ssize_t {
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe { message(ep, Form::Fetch, msg, &[], list(results, result_count), flags) }
}

unsafe extern "C" fn compwrite(
    ep: Ep,
    buffer: *const c_void,
    count: size_t,
    _: Desc,
    compare: *const c_void,
    _: Desc,
    result: *mut c_void,
    _: Desc,
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> ssize_t {
    let there = There { to, address, key, datatype, op };
    let all = [ioc(buffer, count), ioc(compare, count), ioc(result, count)];
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe { one(ep, Form::Compare, [&all[0], &all[1], &all[2]], there, Some(context)) }
}

unsafe extern "C" fn compwritev(
    ep: Ep,
    buffers: *const Ioc,
    _: Descs,
    count: size_t,
    compares: *const Ioc,
    _: Descs,
    compare_count: size_t,
    results: *mut Ioc,
    _: Descs,
    result_count: size_t,
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
    context: Context,
) -> ssize_t {
    let there = There { to, address, key, datatype, op };
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe {
        let all =
            [list(buffers, count), list(compares, compare_count), list(results, result_count)];
        one(ep, Form::Compare, all, there, Some(context))
    }
}

unsafe extern "C" fn compwritemsg(
    ep: Ep,
    msg: *const abi::MsgAtomic,
    compares: *const Ioc,
    _: Descs,
    compare_count: size_t,
    results: *mut Ioc,
    _: Descs,
    result_count: size_t,
    flags: u64,
) -> ssize_t {
    // SAFETY: fi_atomic(3): the endpoint is open, and the lists have numbers of this type.
    unsafe {
        let (compares, results) = (list(compares, compare_count), list(results, result_count));
        message(ep, Form::Compare, msg, compares, results, flags)
    }
}

/// # Safety
/// `count` is NULL or may be written.
unsafe fn valid(form: Form, datatype: u32, op: u32, count: *mut size_t) -> c_int {
    let Some(DataType { size, .. }) = valid_type(form, datatype, op) else {
        return -abi::EOPNOTSUPP;
    };
    if !count.is_null() {
        // SAFETY: this function's contract.
        unsafe { count.write(BYTES_MAX / size) };
    }
    0
}

unsafe extern "C" fn writevalid(_: Ep, datatype: u32, op: u32, count: *mut size_t) -> c_int {
    // SAFETY: fi_atomic(3): `count` is NULL or may be written.
    unsafe { valid(Form::Change, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(_: Ep, datatype: u32, op: u32, count: *mut size_t) -> c_int {
    // SAFETY: fi_atomic(3): `count` is NULL or may be written.
    unsafe { valid(Form::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(_: Ep, datatype: u32, op: u32, count: *mut size_t) -> c_int {
    // SAFETY: fi_atomic(3): `count` is NULL or may be written.
    unsafe { valid(Form::Compare, datatype, op, count) }
}

/// fi_query_atomic(3).
pub unsafe extern "C" fn query(
    _: *mut abi::FidDomain,
    datatype: u32,
    op: u32,
    attr: *mut abi::AtomicAttr,
    flags: u64,
) -> c_int {
    let form = match flags {
        abi::FETCH_ATOMIC => Form::Fetch,
        abi::COMPARE_ATOMIC => Form::Compare,
        0 => Form::Change,
        _ => return -abi::EINVAL,
    };
    let Some(DataType { size, .. }) = valid_type(form, datatype, op) else {
        return -abi::EOPNOTSUPP;
    };
    // SAFETY: fi_query_atomic(3) lets us write the answer there.
    unsafe { attr.write(abi::AtomicAttr { count: BYTES_MAX / size, size }) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_its_operations() {
        let size = |form, datatype, op| valid_type(form, datatype, op).map(|it| it.size);
        assert_eq!(size(Form::Change, abi::DOUBLE, abi::BXOR), None);
        assert_eq!(size(Form::Change, abi::INT64, abi::ATOMIC_READ), None);
        assert_eq!(size(Form::Fetch, abi::INT64, abi::ATOMIC_READ), Some(8));
        assert_eq!(size(Form::Compare, abi::FLOAT, abi::CSWAP), Some(4));
        assert_eq!(size(Form::Compare, abi::FLOAT, abi::SUM), None);
        assert_eq!(size(Form::Change, abi::DOUBLE_COMPLEX, abi::SUM), Some(16));
        assert_eq!(size(Form::Change, abi::DOUBLE_COMPLEX, abi::MAX), None);
        assert_eq!(size(Form::Fetch, abi::LONG_DOUBLE, abi::MAX), Some(16));
    }
}
