//! A thread's registers, as they go from a signal's frame to where the thread goes on: on this
//! node or another.

use std::mem::offset_of;
use std::ptr;

/// Bytes of vector registers that there is room for: AVX-512 needs 2.7 KiB; with AMX 11 KiB.
const VECTORS_MAX: usize = 12 << 10;
/// What the kernel writes into the reserved part of the FXSAVE area, if more follows.
const MAGIC: u32 = 0x4650_5853;
const RESERVED: usize = 464;
const FXSAVE: usize = 512;

/// All of it. What follows the vectors that there are is not set.
#[repr(C, align(64))]
pub struct Context {
    vectors: [u8; VECTORS_MAX],
    registers: libc::ucontext_t,
    vectors_bytes: u64,
    /// Its thread area.
    pub thread_area: u64,
}

/// There is no room for the vector registers, or the frame has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl Context {
    /// Bytes of the part that is fixed.
    const TAIL: usize = size_of::<Self>() - VECTORS_MAX;

    /// Copies the registers of a signal frame. `stack` is the program's alternate stack.
    ///
    /// # Safety
    /// `this` can be written and nobody else uses it; the kernel wrote the frame `from`.
    pub unsafe fn take(
        this: *mut Self,
        from: *const libc::ucontext_t,
        stack: libc::stack_t,
        thread_area: u64,
    ) -> Result<(), TooLarge> {
        // SAFETY: as the caller says. What libc declares is longer than the kernel's frame:
        // only that is copied, up to the mask.
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

    /// Registers to go on with, once [`raw::go_on`](crate::raw::go_on) gets them.
    ///
    /// # Safety
    /// `this` was taken, or given by [`set`](Self::set).
    pub unsafe fn registers(this: *mut Self) -> *mut libc::ucontext_t {
        // SAFETY: as the caller says.
        unsafe {
            (*this).registers.uc_mcontext.fpregs = (&raw mut (*this).vectors).cast();
            &raw mut (*this).registers
        }
    }

    /// The mask of signals.
    pub fn mask(&self) -> u64 {
        // SAFETY: the kernel's masks are 8 bytes.
        unsafe { *(&raw const self.registers.uc_sigmask).cast::<u64>() }
    }

    /// The stack pointer.
    pub fn stack_pointer(&self) -> u64 {
        self.registers.uc_mcontext.gregs[libc::REG_RSP as usize] as u64
    }

    /// As bytes, for another node.
    ///
    /// # Safety
    /// As for [`registers`](Self::registers).
    pub unsafe fn bytes(this: *const Self) -> Vec<u8> {
        // SAFETY: plain bytes of ours, so many as are set.
        unsafe {
            let vectors = (&raw const (*this).vectors).cast::<u8>();
            let tail = (&raw const (*this).registers).cast::<u8>();
            let count = (*this).vectors_bytes as usize;
            let vectors = std::slice::from_raw_parts(vectors, count);
            [std::slice::from_raw_parts(tail, Self::TAIL), vectors].concat()
        }
    }

    /// Of what another node sent; whether it can be one.
    ///
    /// # Safety
    /// `this` can be written.
    pub unsafe fn set(this: *mut Self, bytes: &[u8]) -> bool {
        let Some((tail, vectors)) = bytes.split_at_checked(Self::TAIL) else { return false };
        if !(FXSAVE..=VECTORS_MAX).contains(&vectors.len()) {
            return false;
        }
        // SAFETY: as the caller says; all bytes are numbers.
        unsafe {
            ptr::copy_nonoverlapping(
                tail.as_ptr(),
                (&raw mut (*this).registers).cast(),
                tail.len(),
            );
            let to = (&raw mut (*this).vectors).cast::<u8>();
            ptr::copy_nonoverlapping(vectors.as_ptr(), to, vectors.len());
            (*this).vectors_bytes = vectors.len() as u64;
            vectors_bytes(to) == vectors.len()
        }
    }
}

/// Bytes of vector registers in a signal's frame; 0 if it has none.
///
/// # Safety
/// Points to an FXSAVE area, at least, or is null.
pub unsafe fn vectors_bytes(vectors: *const u8) -> usize {
    if vectors.is_null() {
        return 0;
    }
    // SAFETY: within the area.
    let word = |at: usize| unsafe { vectors.add(at).cast::<u32>().read_unaligned() };
    match word(RESERVED) {
        MAGIC => word(RESERVED + 4) as usize,
        _ => FXSAVE,
    }
}
