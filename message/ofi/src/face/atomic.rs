//! Atomics: fi_atomic, fi_fetch_atomic, fi_compare_atomic and their like. Who asks does it, at
//! once. Integers and floating-point numbers of up to eight bytes are changed by compare-and-swap
//! on the target's memory: so they are atomic with the target's own atomic instructions, too.
//! Longer ones are `wide`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use libc::{size_t, ssize_t};

use crate::abi::{self, Context, Desc, Descs, Ep, Ioc, RmaIoc};
use crate::engine::copy::{self, Way};
use crate::face::args::list;
use crate::face::endpoint_object;
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

/// Most bytes of one operation that we name where asked.
const BYTES_MAX: usize = 1 << 20;

/// What is asked for, beside the change of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Nothing.
    Change,
    /// What was there.
    Fetch,
    /// What was there; and to change it only if it compares.
    Compare,
}

/// A number, as it stands in memory: the low bytes of a word.
trait Number: Copy + PartialOrd {
    fn of(bits: u64) -> Self;
    fn bits(self) -> u64;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn truth(is: bool) -> Self;
    /// `None`: not for these numbers.
    fn bitwise(op: u32, left: u64, right: u64) -> Option<u64>;
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Number for $type {
            #[inline]
            fn of(bits: u64) -> Self {
                bits as Self
            }
            #[inline]
            fn bits(self) -> u64 {
                // Nothing above the number's own bytes.
                u64::from_le_bytes(std::array::from_fn(|i| {
                    self.to_le_bytes().get(i).copied().unwrap_or(0)
                }))
            }
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            fn truth(is: bool) -> Self {
                Self::from(is)
            }
            fn bitwise(op: u32, left: u64, right: u64) -> Option<u64> {
                match op {
                    abi::BOR => Some(left | right),
                    abi::BAND => Some(left & right),
                    abi::BXOR => Some(left ^ right),
                    _ => None,
                }
            }
        })*
    };
}

macro_rules! floats {
    ($($type:ty: $bits:ty),*) => {
        $(impl Number for $type {
            #[inline]
            fn of(bits: u64) -> Self {
                Self::from_bits(bits as $bits)
            }
            #[inline]
            fn bits(self) -> u64 {
                self.to_bits().into()
            }
            fn sum(self, other: Self) -> Self {
                self + other
            }
            fn product(self, other: Self) -> Self {
                self * other
            }
            fn truth(is: bool) -> Self {
                if is { 1.0 } else { 0.0 }
            }
            fn bitwise(_: u32, _: u64, _: u64) -> Option<u64> {
                None
            }
        })*
    };
}

integers!(i8, u8, i16, u16, i32, u32, i64, u64);
floats!(f32: u32, f64: u64);

/// What becomes of `old`; `None`: no such operation.
#[inline]
fn change<N: Number>(op: u32, old: u64, operand: u64, compare: u64) -> Option<u64> {
    let (was, by, with) = (N::of(old), N::of(operand), N::of(compare));
    let is_true = |number: N| number != N::truth(false);
    let logical = |is: bool| Some(N::truth(is).bits());
    let if_so = |is: bool| Some(if is { operand } else { old });
    match op {
        abi::MIN => if_so(by < was),
        abi::MAX => if_so(by > was),
        abi::SUM => Some(was.sum(by).bits()),
        abi::PROD => Some(was.product(by).bits()),
        abi::LOR => logical(is_true(was) || is_true(by)),
        abi::LAND => logical(is_true(was) && is_true(by)),
        abi::LXOR => logical(is_true(was) != is_true(by)),
        abi::ATOMIC_READ => Some(old),
        abi::ATOMIC_WRITE => Some(operand),
        abi::CSWAP => if_so(with == was),
        abi::CSWAP_NE => if_so(with != was),
        abi::CSWAP_LE => if_so(with <= was),
        abi::CSWAP_LT => if_so(with < was),
        abi::CSWAP_GE => if_so(with >= was),
        abi::CSWAP_GT => if_so(with > was),
        abi::MSWAP => {
            let taken = N::bitwise(abi::BAND, operand, compare)?;
            let left = N::bitwise(abi::BAND, old, !compare)?;
            N::bitwise(abi::BOR, taken, left)
        }
        _ => N::bitwise(op, old, operand),
    }
}

type Change = fn(u32, u64, u64, u64) -> Option<u64>;

/// How numbers of a type change.
#[derive(Clone, Copy)]
enum How {
    /// As words.
    Word(Change),
    /// Under the target's lock.
    Wide(wide::Change),
}

impl How {
    fn has(self, op: u32) -> bool {
        let none = wide::Bytes::default();
        match self {
            Self::Word(change) => change(op, 0, 0, 0).is_some(),
            Self::Wide(change) => change(op, &none, &none, &none).is_some(),
        }
    }
}

/// Numbers of one type.
#[derive(Clone, Copy)]
struct Numbers {
    how: How,
    size: usize,
    /// What their addresses are multiples of.
    align: usize,
}

/// Those of this type.
fn numbers(datatype: u32) -> Option<Numbers> {
    let (change, size): (Change, usize) = match datatype {
        abi::INT8 => (change::<i8>, 1),
        abi::UINT8 => (change::<u8>, 1),
        abi::INT16 => (change::<i16>, 2),
        abi::UINT16 => (change::<u16>, 2),
        abi::INT32 => (change::<i32>, 4),
        abi::UINT32 => (change::<u32>, 4),
        abi::INT64 => (change::<i64>, 8),
        abi::UINT64 => (change::<u64>, 8),
        abi::FLOAT => (change::<f32>, 4),
        abi::DOUBLE => (change::<f64>, 8),
        _ => {
            let (change, size, align) = wide::numbers(datatype)?;
            return Some(Numbers { how: How::Wide(change), size, align });
        }
    };
    Some(Numbers { how: How::Word(change), size, align: size })
}

/// The numbers that an operation is on; `None`: there is no such operation.
fn valid_numbers(form: Form, datatype: u32, op: u32) -> Option<Numbers> {
    let belongs = match form {
        Form::Change => op <= abi::BXOR || op == abi::ATOMIC_WRITE,
        Form::Fetch => op <= abi::ATOMIC_WRITE,
        Form::Compare => (abi::CSWAP..=abi::MSWAP).contains(&op),
    };
    numbers(datatype).filter(|numbers| belongs && numbers.how.has(op))
}

/// Changes what is there by compare-and-swap; what was there before.
///
/// # Safety
/// A number of `size` bytes is there, aligned, and may be read and written.
unsafe fn update(at: u64, size: usize, mut change: impl FnMut(u64) -> u64) -> u64 {
    macro_rules! swap {
        ($atomic:ty, $word:ty) => {{
            // SAFETY: as the caller says.
            let word = unsafe { &*(at as *const $atomic) };
            let mut old = word.load(Acquire);
            loop {
                let new = change(old.into()) as $word;
                match word.compare_exchange_weak(old, new, AcqRel, Acquire) {
                    Ok(_) => return old.into(),
                    Err(now) => old = now,
                }
            }
        }};
    }
    match size {
        1 => swap!(AtomicU8, u8),
        2 => swap!(AtomicU16, u16),
        4 => swap!(AtomicU32, u32),
        _ => swap!(AtomicU64, u64),
    }
}

/// What is there.
///
/// # Safety
/// As for `update`, but it need not be writable.
unsafe fn look(at: u64, size: usize) -> u64 {
    // SAFETY: as the caller says.
    unsafe {
        match size {
            1 => (*(at as *const AtomicU8)).load(Acquire).into(),
            2 => (*(at as *const AtomicU16)).load(Acquire).into(),
            4 => (*(at as *const AtomicU32)).load(Acquire).into(),
            _ => (*(at as *const AtomicU64)).load(Acquire),
        }
    }
}

/// A number of the program's own.
///
/// # Safety
/// There is one of `size` bytes.
unsafe fn load(at: u64, size: usize) -> u64 {
    let mut bytes = [0; 8];
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(at as *const u8, bytes.as_mut_ptr(), size) };
    u64::from_le_bytes(bytes)
}

/// The same, written.
///
/// # Safety
/// There is room for `size` bytes.
unsafe fn store(at: u64, size: usize, bits: u64) {
    // SAFETY: as the caller says.
    unsafe { std::ptr::copy_nonoverlapping(bits.to_le_bytes().as_ptr(), at as *mut u8, size) };
}

/// Addresses of the numbers in a program's lists, one after the other.
fn each(list: &[Ioc], size: usize) -> impl Iterator<Item = u64> {
    list.iter()
        .flat_map(move |ioc| (0..ioc.count).map(move |n| (ioc.addr as usize + n * size) as u64))
}

/// What is to be done.
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
    /// `None`: the endpoint's.
    flags: Option<u64>,
    injected: bool,
}

impl Atomic<'_> {
    /// # Safety
    /// The lists are as libfabric's manual has them.
    unsafe fn run(&self, ep: Ep) -> Result<(), c_int> {
        // SAFETY: as the caller says.
        let object = unsafe { endpoint_object::of(ep) };
        let Self { op, .. } = *self;
        let numbers = valid_numbers(self.form, self.datatype, op).ok_or(abi::EOPNOTSUPP)?;
        let Numbers { how, size, align } = numbers;
        let reached = Reached::new(object, self.to)?;
        let here = object.core.here;
        let count: usize = self.remote.iter().map(|remote| remote.count).sum();
        let has = |list: &[Ioc]| list.iter().map(|ioc| ioc.count).sum::<usize>() == count;
        let fits = (op == abi::ATOMIC_READ || has(self.operands))
            && (self.form != Form::Compare || has(self.compares))
            && (self.form == Form::Change || has(self.results));
        if !fits {
            return Err(abi::EINVAL);
        }
        let access = match op {
            abi::ATOMIC_READ => abi::REMOTE_READ,
            _ => abi::REMOTE_WRITE,
        };
        // Once the numbers are changed it is too late to find that there is no room.
        let mut announced = self.data.map(|_| reached.announce(here)).transpose()?;
        let mut error = 0;
        let mut operands = each(self.operands, size);
        let mut compares = each(self.compares, size);
        let mut results = each(self.results, size);
        let mut counts = Vec::new();
        for remote in self.remote {
            let bytes = (remote.count * size) as u64;
            let found = reached.peer.regions().look_up(remote.key, remote.addr, bytes, access)?;
            let at = found.address;
            if found.counts != 0 {
                counts.push(found.counts);
            }
            if !at.is_multiple_of(align as u64) {
                return Err(abi::EINVAL);
            }
            if !self.is_there(here, &reached, at, bytes) {
                error = abi::EFAULT;
                break;
            }
            let at = here.task.found_at(reached.peer.whom.id, at);
            let _one = matches!(how, How::Wide(_)).then(|| reached.peer.regions().change(here));
            for n in 0..remote.count {
                let at = at + (n * size) as u64;
                let (operand, compare) = (operands.next(), compares.next());
                // SAFETY: the program's numbers, as the caller says; the target's were just seen,
                // and are locked where they are wide.
                unsafe {
                    match how {
                        How::Word(change) => {
                            let operand = operand.map_or(0, |at| load(at, size));
                            let compare = compare.map_or(0, |at| load(at, size));
                            let old = match op {
                                abi::ATOMIC_READ => look(at, size),
                                _ => update(at, size, |old| {
                                    change(op, old, operand, compare).unwrap_or(old)
                                }),
                            };
                            if let Some(result) = results.next() {
                                store(result, size, old);
                            }
                        }
                        How::Wide(change) => {
                            let of = |at: Option<u64>| at.map(|at| wide::load(at, size));
                            let operand = of(operand).unwrap_or_default();
                            let compare = of(compare).unwrap_or_default();
                            let old = wide::load(at, size);
                            let new = change(op, &old, &operand, &compare);
                            if let Some(new) = new.filter(|_| op != abi::ATOMIC_READ) {
                                wide::store(at, size, &new);
                            }
                            if let Some(result) = results.next() {
                                wide::store(result, size, &old);
                            }
                        }
                    }
                }
            }
        }
        let reads = self.form != Form::Change;
        if error == 0 {
            if let Some((announced, data)) = announced.as_mut().zip(self.data) {
                announced.tell(Kind::Changed, (count * size) as u64, data);
            }
            reached.count(here, reads, &counts);
        }
        drop(announced);
        let flags = abi::ATOMIC | if reads { abi::READ } else { abi::WRITE };
        let way = if reads { Way::Pull } else { Way::Push };
        let wanted = if self.injected { None } else { Some(self.flags) };
        reached.complete(object, way, flags, self.context, wanted, error)
    }

    /// Whether the target's memory can be read, page by page: plain loads of what is not there
    /// would end the task.
    fn is_there(
        &self,
        here: &crate::engine::space::Here,
        reached: &Reached,
        at: u64,
        bytes: u64,
    ) -> bool {
        const PAGE: u64 = 4096;
        let (mut next, end) = (at, at + bytes);
        while next < end {
            let mut byte = 0u8;
            let ours = [Part { address: &raw mut byte as u64, length: 1 }];
            let theirs = [Part { address: next, length: 1 }];
            let peer = &reached.peer;
            if copy::copy(here, peer.whom, peer.is_far, Way::Pull, &ours, &theirs, 1).is_err() {
                return false;
            }
            next = (next | (PAGE - 1)) + 1;
        }
        true
    }
}

/// # Safety
/// As libfabric's manual has it.
unsafe fn run(ep: Ep, atomic: &Atomic<'_>) -> ssize_t {
    // SAFETY: as the caller says.
    unsafe { atomic.run(ep) }.map_or_else(|error| -(error as ssize_t), |()| 0)
}

fn ioc(at: *const c_void, count: usize) -> [Ioc; 1] {
    [Ioc { addr: at.cast_mut(), count }]
}

/// Where in the target's memory, and what.
#[derive(Clone, Copy)]
struct There {
    to: u64,
    address: u64,
    key: u64,
    datatype: u32,
    op: u32,
}

/// An operation on one place.
///
/// # Safety
/// As libfabric's manual has it.
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
    // SAFETY: as the caller says.
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
/// As libfabric's manual has it.
unsafe fn message(
    ep: Ep,
    form: Form,
    message: *const abi::MsgAtomic,
    compares: &[Ioc],
    results: &[Ioc],
    flags: u64,
) -> ssize_t {
    // SAFETY: as the caller says.
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
    // SAFETY: as libfabric's manual has it.
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
    // SAFETY: as libfabric's manual has it.
    unsafe { one(ep, Form::Change, [list(buffers, count), &[], &[]], there, Some(context)) }
}

unsafe extern "C" fn writemsg(ep: Ep, msg: *const abi::MsgAtomic, flags: u64) -> ssize_t {
    // SAFETY: as libfabric's manual has it.
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
    // SAFETY: as libfabric's manual has it.
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
    // What is only read has no operand.
    let operands = if op == abi::ATOMIC_READ { &[][..] } else { &operands[..] };
    // SAFETY: as libfabric's manual has it.
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
    // SAFETY: as libfabric's manual has it.
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
    // SAFETY: as libfabric's manual has it.
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
    // SAFETY: as libfabric's manual has it.
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
    // SAFETY: as libfabric's manual has it.
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
    // SAFETY: as libfabric's manual has it.
    unsafe {
        let (compares, results) = (list(compares, compare_count), list(results, result_count));
        message(ep, Form::Compare, msg, compares, results, flags)
    }
}

/// # Safety
/// `count` may be written.
unsafe fn valid(form: Form, datatype: u32, op: u32, count: *mut size_t) -> c_int {
    let Some(Numbers { size, .. }) = valid_numbers(form, datatype, op) else {
        return -abi::EOPNOTSUPP;
    };
    if !count.is_null() {
        // SAFETY: as the caller says.
        unsafe { count.write(BYTES_MAX / size) };
    }
    0
}

unsafe extern "C" fn writevalid(_: Ep, datatype: u32, op: u32, count: *mut size_t) -> c_int {
    // SAFETY: as libfabric's manual has it.
    unsafe { valid(Form::Change, datatype, op, count) }
}

unsafe extern "C" fn readwritevalid(_: Ep, datatype: u32, op: u32, count: *mut size_t) -> c_int {
    // SAFETY: as libfabric's manual has it.
    unsafe { valid(Form::Fetch, datatype, op, count) }
}

unsafe extern "C" fn compwritevalid(_: Ep, datatype: u32, op: u32, count: *mut size_t) -> c_int {
    // SAFETY: as libfabric's manual has it.
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
    let Some(Numbers { size, .. }) = valid_numbers(form, datatype, op) else {
        return -abi::EOPNOTSUPP;
    };
    // SAFETY: as libfabric's manual has it.
    unsafe { attr.write(abi::AtomicAttr { count: BYTES_MAX / size, size }) };
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each operation makes of 6, with 3, compared with 6.
    #[test]
    fn operations_are_what_their_names_say() {
        let wanted = [3, 6, 9, 18, 1, 1, 7, 2, 0, 5, 6, 3, 3, 6, 3, 6, 3, 6, 2];
        for (op, wanted) in (abi::MIN..=abi::MSWAP).zip(wanted) {
            assert_eq!(change::<i32>(op, 6, 3, 6), Some(wanted), "operation {op}");
            let bits = |number: u64| (number as f64).to_bits();
            let is_bitwise = [abi::BOR, abi::BAND, abi::BXOR, abi::MSWAP].contains(&op);
            let wanted = (!is_bitwise).then(|| bits(wanted));
            assert_eq!(change::<f64>(op, bits(6), bits(3), bits(6)), wanted, "operation {op}");
        }
    }

    #[test]
    fn signs_and_widths_count() {
        let (minus, plus) = (0xff, 1);
        assert_eq!(change::<i8>(abi::MIN, plus, minus, 0), Some(minus));
        assert_eq!(change::<u8>(abi::MIN, plus, minus, 0), Some(plus));
        assert_eq!(change::<i8>(abi::SUM, 127, 1, 0), Some(0x80));
        assert_eq!(change::<u16>(abi::PROD, 0x8001, 2, 0), Some(2));
        let size = |form, datatype, op| valid_numbers(form, datatype, op).map(|it| it.size);
        assert_eq!(size(Form::Change, abi::DOUBLE, abi::BXOR), None);
        assert_eq!(size(Form::Change, abi::INT64, abi::ATOMIC_READ), None);
        assert_eq!(size(Form::Fetch, abi::INT64, abi::ATOMIC_READ), Some(8));
        assert_eq!(size(Form::Compare, abi::FLOAT, abi::CSWAP), Some(4));
        assert_eq!(size(Form::Compare, abi::FLOAT, abi::SUM), None);
        assert_eq!(size(Form::Change, abi::DOUBLE_COMPLEX, abi::SUM), Some(16));
        assert_eq!(size(Form::Change, abi::DOUBLE_COMPLEX, abi::MAX), None);
        assert_eq!(size(Form::Fetch, abi::LONG_DOUBLE, abi::MAX), Some(16));
    }

    #[test]
    fn only_the_number_is_changed() {
        let mut memory = [0x11u8; 16];
        let at = memory.as_mut_ptr() as u64;
        let at = at.next_multiple_of(8);
        // SAFETY: within the array.
        let old = unsafe { update(at + 2, 2, |old| old + 1) };
        assert_eq!(old, 0x1111);
        assert_eq!(memory.iter().filter(|&&byte| byte != 0x11).count(), 1);
    }
}
