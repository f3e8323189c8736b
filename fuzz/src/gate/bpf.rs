//! The gate's evaluation of seccomp filters, compared with classic BPF as Linux has it:
//! `bpf_check_classic`, `seccomp_check_filter`, and the conversion in `bpf_convert_filter`.

/// The kernel's `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions that are passed over if a comparison is true.
    pub if_true: u8,
    /// Or false.
    pub if_false: u8,
    /// The operand.
    pub k: u32,
}

/// The kernel's `struct seccomp_data`.
pub type Call = [u32; 16];

unsafe extern "C" {
    fn fuzz_gate_filter(instructions: *const Instruction, length: u16, call: *const Call) -> u32;
}

/// Returns the value that the gate computes.
pub fn evaluate(program: &[Instruction], call: &Call) -> u32 {
    let length = u16::try_from(program.len()).expect("a short program");
    // SAFETY: the program has that length, and `Call` has the size of `struct seccomp_data`.
    unsafe { fuzz_gate_filter(program.as_ptr(), length, call) }
}

/// Words of memory of a program.
const WORDS: u32 = 16;
const WORDS_BYTES: u32 = size_of::<Call>() as u32;

/// Returns true if the kernel accepts the program as a seccomp filter.
pub fn is_valid(program: &[Instruction]) -> bool {
    let length = program.len();
    let check = |(at, i): (usize, &Instruction)| match i.code {
        0x20 => i.k < WORDS_BYTES && i.k & 3 == 0,
        0x00 | 0x01 | 0x80 | 0x81 | 0x06 | 0x16 | 0x07 | 0x87 => true,
        0x60 | 0x61 | 0x02 | 0x03 => i.k < WORDS,
        0x34 => i.k != 0,
        0x64 | 0x74 => i.k < 32,
        0x04 | 0x0c | 0x14 | 0x1c | 0x24 | 0x2c | 0x3c | 0x54 | 0x5c | 0x44 | 0x4c | 0xa4
        | 0xac | 0x6c | 0x7c | 0x84 => true,
        0x05 => (i.k as usize) < length - at - 1,
        0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
            at + usize::from(i.if_true.max(i.if_false)) + 1 < length
        }
        _ => false,
    };
    let ends = program.last().is_some_and(|last| matches!(last.code, 0x06 | 0x16));
    ends && program.iter().enumerate().all(check) && loads_follow_stores(program)
}

/// Returns true if no word of memory is read before it was written, on any path.
fn loads_follow_stores(program: &[Instruction]) -> bool {
    let mut masks = vec![u16::MAX; program.len()];
    let mut written = 0;
    for (at, i) in program.iter().enumerate() {
        written &= masks[at];
        let bit = 1 << (i.k & (WORDS - 1));
        match i.code {
            0x02 | 0x03 => written |= bit,
            0x60 | 0x61 if written & bit == 0 => return false,
            0x05 => {
                masks[at + 1 + i.k as usize] &= written;
                written = u16::MAX;
            }
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                masks[at + 1 + usize::from(i.if_true)] &= written;
                masks[at + 1 + usize::from(i.if_false)] &= written;
                written = u16::MAX;
            }
            _ => {}
        }
    }
    true
}

/// Returns the value of a valid program for a call.
pub fn reference(program: &[Instruction], call: &Call) -> u32 {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0; WORDS as usize]);
    let mut at = 0;
    loop {
        let i = program[at];
        let operand = if i.code & 8 != 0 { x } else { i.k };
        let jump = |is: bool| usize::from(if is { i.if_true } else { i.if_false });
        at += 1;
        match i.code {
            0x20 => a = call[i.k as usize / 4],
            0x00 => a = i.k,
            0x01 => x = i.k,
            0x80 => a = WORDS_BYTES,
            0x81 => x = WORDS_BYTES,
            0x60 => a = memory[i.k as usize],
            0x61 => x = memory[i.k as usize],
            0x02 => memory[i.k as usize] = a,
            0x03 => memory[i.k as usize] = x,
            0x06 => return i.k,
            0x16 => return a,
            0x07 => x = a,
            0x87 => a = x,
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            0x34 | 0x3c => match a.checked_div(operand) {
                Some(quotient) => a = quotient,
                // A division by zero ends the program.
                None => return 0,
            },
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0x64 | 0x6c => a = a.wrapping_shl(operand),
            0x74 | 0x7c => a = a.wrapping_shr(operand),
            0x84 => a = a.wrapping_neg(),
            0xa4 | 0xac => a ^= operand,
            0x05 => at += i.k as usize,
            0x15 | 0x1d => at += jump(a == operand),
            0x25 | 0x2d => at += jump(a > operand),
            0x35 | 0x3d => at += jump(a >= operand),
            0x45 | 0x4d => at += jump(a & operand != 0),
            code => unreachable!("{code:#x} is not valid"),
        }
    }
}
