//! A thread's registers: taken from a signal frame, sent to another node, and restored.

use std::mem::offset_of;
use std::ptr;

/// Room for vector registers: AVX-512 needs 2.7 KiB, with AMX 11 KiB.
const VECTORS_MAX: usize = 12 << 10;
/// The kernel's mark in the reserved part of the FXSAVE area if more state follows.
const MAGIC: u32 = 0x4650_5853;
const RESERVED: usize = 464;
const FXSAVE: usize = 512;

/// The registers of a thread. Only the first `vectors_bytes` of `vectors` are set.
#[repr(C, align(64))]
pub struct Context {
    vectors: [u8; VECTORS_MAX],
    registers: libc::ucontext_t,
    vectors_bytes: u64,
    /// The FS base.
    pub thread_area: u64,
}

/// The vector registers do not fit, or the frame has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl Context {
    /// Bytes of the members after `vectors`.
    const TAIL: usize = size_of::<Self>() - VECTORS_MAX;

    /// Copies the registers of a signal frame. `stack` is the program's alternate stack.
    ///
    /// # Safety
    /// `this` must be writable and otherwise unused; the kernel must have written the frame
    /// `from`.
    pub unsafe fn take(
        this: *mut Self,
        from: *const libc::ucontext_t,
        stack: libc::stack_t,
        thread_area: u64,
    ) -> Result<(), TooLarge> {
        // SAFETY: by this function's contract both pointers are valid. libc's ucontext_t is longer
        // than the kernel's frame: only the part up to the mask is copied.
        unsafe {
            let vectors = (*from).uc_mcontext.fpregs.cast::<u8>();
            let bytes = vectors_bytes(vectors);
            if !(FXSAVE..=VECTORS_MAX).contains(&bytes) {
                return Err(TooLarge);
            }
            ptr::copy_nonoverlapping(vectors, (&raw mut (*this).vectors).cast(), bytes);
            let registers = &raw mut (*this).registers;
            let head = offset_of!(libc::ucontext_t, uc_sigmask) + 8;
            ptr::copy_nonoverlapping(from.cast::<u8>(), registers.cast(), head);
            (*registers).uc_stack = stack;
            (*this).vectors_bytes = bytes as u64;
            (*this).thread_area = thread_area;
        }
        Ok(())
    }

    /// Returns the registers for [`raw::go_on`](crate::raw::go_on).
    ///
    /// # Safety
    /// `this` was filled by [`take`](Self::take) or [`set`](Self::set).
    pub unsafe fn registers(this: *mut Self) -> *mut libc::ucontext_t {
        // SAFETY: `this` is valid by this function's contract.
        unsafe {
            (*this).registers.uc_mcontext.fpregs = (&raw mut (*this).vectors).cast();
            &raw mut (*this).registers
        }
    }

    /// Returns the signal mask.
    pub fn mask(&self) -> u64 {
        // SAFETY: the kernel's masks have 8 bytes, and `uc_sigmask` is longer.
        unsafe { *(&raw const self.registers.uc_sigmask).cast::<u64>() }
    }

    /// Returns the stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.registers.uc_mcontext.gregs[libc::REG_RSP as usize] as u64
    }

    /// Encodes it for another node.
    ///
    /// # Safety
    /// As for [`registers`](Self::registers).
    pub unsafe fn bytes(this: *const Self) -> Vec<u8> {
        // SAFETY: the members are plain numbers; `vectors_bytes` of `vectors` are set.
        unsafe {
            let vectors = (&raw const (*this).vectors).cast::<u8>();
            let tail = (&raw const (*this).registers).cast::<u8>();
            let count = (*this).vectors_bytes as usize;
            let vectors = std::slice::from_raw_parts(vectors, count);
            [std::slice::from_raw_parts(tail, Self::TAIL), vectors].concat()
        }
    }

    /// Decodes a message of another node. Returns false if it is not a context.
    ///
    /// # Safety
    /// `this` must be writable and otherwise unused.
    pub unsafe fn set(this: *mut Self, bytes: &[u8]) -> bool {
        let Some((tail, vectors)) = bytes.split_at_checked(Self::TAIL) else { return false };
        if !(FXSAVE..=VECTORS_MAX).contains(&vectors.len()) {
            return false;
        }
        // SAFETY: `this` is valid by this function's contract; any bytes are valid numbers, and
        // both lengths were checked.
        unsafe {
            ptr::copy_nonoverlapping(
                tail.as_ptr(),
                (&raw mut (*this).registers).cast(),
                tail.len(),
            );
            let to = (&raw mut (*this).vectors).cast::<u8>();
            ptr::copy_nonoverlapping(vectors.as_ptr(), to, vectors.len());
            (*this).vectors_bytes == vectors.len() as u64 && vectors_bytes(to) == vectors.len()
        }
    }
}

/// Returns the bytes of vector registers in a signal frame; 0 if it has none.
///
/// # Safety
/// `vectors` is null or points to an FXSAVE area at least.
pub unsafe fn vectors_bytes(vectors: *const u8) -> usize {
    if vectors.is_null() {
        return 0;
    }
    // SAFETY: both offsets lie within the 512 bytes of an FXSAVE area.
    let word = |at: usize| unsafe { vectors.add(at).cast::<u32>().read_unaligned() };
    match word(RESERVED) {
        MAGIC => word(RESERVED + 4) as usize,
        _ => FXSAVE,
    }
}
