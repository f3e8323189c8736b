//! The gate's instruction decoder and its search for system calls, compared with iced-x86.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register,
};

/// Longest instruction.
const INSTRUCTION_BYTES_MAX: usize = 15;
/// Most bytes that the gate reads at the start of an instruction.
const READ_BYTES: usize = 16;
/// Sites of a text that are checked.
const SITES_MAX: usize = 64;
/// Bytes that the gate reserves for a stub.
const STUB_BYTES: usize = 96;
/// Address at which a text is decoded.
const ADDRESS: u64 = 0x5555_0000_0000;
/// Longest distance from an instruction to its operand that programs have.
const REACH_MAX: u64 = 1 << 30;
/// Most bytes of a nop that compilers put between functions.
const PADDING_MAX: usize = 10;
/// Bytes of a jump to any place nearby. A shorter site leads there by padding.
const JUMP_BYTES: u32 = 5;
/// `SITE_ANY` of the gate: the number is in a register.
const ANY: u32 = 0xffff;

/// A system-call site, as `c/patch.c` describes it.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Site {
    offset: u64,
    number: u32,
    moved: u32,
    first: u32,
}

unsafe extern "C" {
    fn fuzz_gate_decode(start: *const u8, displacement: *mut i32) -> i32;
    fn fuzz_gate_scan(text: *const u8, length: u64, found: *mut Site, room: u32) -> u32;
    fn fuzz_gate_stub(site: *const Site, text: *const u8, to: *mut u8) -> u64;
    fn fuzz_gate_redirect(
        site: *const Site,
        text: *mut u8,
        length: u64,
        address: u64,
        stub: u64,
    ) -> i32;
}

/// The gate's view of an instruction: its length, and the place of its RIP-relative displacement,
/// or 0. `None` if the gate does not move such instructions.
fn decode(bytes: &[u8; READ_BYTES]) -> Option<(usize, usize)> {
    let mut displacement = 0;
    // SAFETY: the decoder reads at most an instruction, which has 15 bytes; `bytes` has 16.
    let length = unsafe { fuzz_gate_decode(bytes.as_ptr(), &raw mut displacement) };
    assert!((0..=INSTRUCTION_BYTES_MAX as i32).contains(&length), "length {length}");
    assert!((0..=length).contains(&displacement), "displacement at {displacement} of {length}");
    (length > 0).then_some((length as usize, displacement as usize))
}

fn reference(bytes: &[u8], address: u64) -> (Instruction, usize) {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let offsets = decoder.get_constant_offsets(&instruction);
    let displacement = match instruction.is_ip_rel_memory_operand() {
        true => offsets.displacement_offset(),
        false => 0,
    };
    (instruction, displacement)
}

/// Returns true if the instruction writes any part of rax.
fn writes_rax(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(instruction).used_registers();
    used.iter().any(|used| {
        used.register().full_register() == Register::RAX
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
    })
}

/// Checks the decoder on the instruction at the start of some bytes. Returns the reason why the
/// gate must not move the instruction as it would, if there is one.
pub fn defect(bytes: &[u8]) -> Option<String> {
    let mut padded = [0; READ_BYTES];
    let count = bytes.len().min(READ_BYTES);
    padded[..count].copy_from_slice(&bytes[..count]);
    let (length, displacement) = decode(&padded)?;
    let (instruction, its) = reference(&padded[..INSTRUCTION_BYTES_MAX], ADDRESS);
    let what = |why: &str| {
        let bytes = &padded[..length];
        Some(format!("{bytes:02x?} ({:?}): {why}", instruction.code()))
    };
    // The processor refuses it, in its place or in a stub, and never gets to the system call.
    if instruction.code() == Code::INVALID {
        return None;
    }
    if instruction.len() != length {
        return what(&format!("{} bytes", instruction.len()));
    }
    if instruction.flow_control() != FlowControl::Next {
        return what("it branches");
    }
    if writes_rax(&instruction) {
        return what("it writes rax");
    }
    if its != displacement {
        return what(&format!("its displacement is at {its}, not at {displacement}"));
    }
    None
}

/// Finds the system-call sites of a text and checks them. Returns their number, or the first
/// defect: a wrong number, a moved instruction that writes rax, a stub whose instructions differ
/// from the moved ones, or a site that does not lead to its stub.
///
/// # Errors
/// The defect, in one line.
pub fn check_sites(text: &[u8]) -> Result<usize, String> {
    let mut sites = [Site::default(); SITES_MAX];
    // SAFETY: the text has that length, and the array that room.
    let count = unsafe {
        let (length, room) = (text.len() as u64, SITES_MAX as u32);
        fuzz_gate_scan(text.as_ptr(), length, sites.as_mut_ptr(), room)
    };
    let count = count as usize;
    for site in &sites[..count.min(SITES_MAX)] {
        check_site(text, site).map_err(|why| format!("{site:x?}: {why}"))?;
    }
    Ok(count)
}

fn check_site(text: &[u8], site: &Site) -> Result<(), String> {
    let first = site.offset as usize;
    let call = first + (site.first + site.moved) as usize;
    if text.get(call..call + 2) != Some(&[0x0f, 0x05]) {
        return Err("no syscall behind it".into());
    }
    if site.first < 2 {
        return Err("a jump has no room".into());
    }
    // The stub lies behind the text, so that both are near each other.
    let stub_at = text.len().next_multiple_of(16);
    let mut both = text.to_vec();
    both.resize(stub_at + STUB_BYTES + READ_BYTES, 0xcc);
    // SAFETY: the site is one of this text, and behind it a stub has room.
    let bytes = unsafe {
        let text = both.as_mut_ptr();
        fuzz_gate_stub(site, text, text.add(stub_at))
    };
    if bytes as usize > STUB_BYTES {
        return Err(format!("its stub has {bytes} bytes"));
    }
    let at = |offset: usize| reference(&both[offset..], ADDRESS + offset as u64).0;
    let (mut from, mut to) = (first, stub_at);
    while from < call {
        let (ours, moved) = (at(from), at(to));
        // The first part loads the number; it may have several instructions.
        let is_number = from < first + site.first as usize;
        let loads = from + ours.len() == first + site.first as usize;
        if !is_number && writes_rax(&ours) {
            return Err(format!("{:?} writes rax", ours.code()));
        }
        if loads && site.number != ANY && number(&ours) != Some(site.number) {
            return Err(format!("{:?} does not load the number", ours.code()));
        }
        // See `defect`.
        if ours.code() == Code::INVALID {
            return Ok(());
        }
        if ours.flow_control() != FlowControl::Next {
            return Err(format!("{:?} is moved", ours.code()));
        }
        // A displacement near its limits does not reach from the stub. Programs are shorter.
        let reach = ours.memory_displacement64().abs_diff(ADDRESS + from as u64);
        let is_far = ours.is_ip_rel_memory_operand() && reach > REACH_MAX;
        let is_same = if is_far { ours.code() == moved.code() } else { ours == moved };
        if !is_same || ours.len() != moved.len() {
            return Err(format!("{:?} becomes {:?}", ours.code(), moved.code()));
        }
        (from, to) = (from + ours.len(), to + moved.len());
    }
    if from != call {
        return Err("the moved instructions do not end at the syscall".into());
    }
    check_redirection(text, site)
}

/// Checks that a site leads to its stub, and that nothing else changes but padding.
fn check_redirection(text: &[u8], site: &Site) -> Result<(), String> {
    let stub_at = text.len().next_multiple_of(16) as u64;
    let mut after = text.to_vec();
    // SAFETY: the site is one of this text, which has that length.
    let is_redirected = unsafe {
        let (start, length) = (after.as_mut_ptr(), after.len() as u64);
        fuzz_gate_redirect(site, start, length, ADDRESS, ADDRESS + stub_at)
    };
    if is_redirected == 0 {
        let is_unchanged = site.first < JUMP_BYTES && after == text;
        return if is_unchanged { Ok(()) } else { Err("it does not lead anywhere".into()) };
    }
    let mut at = site.offset;
    for _ in 0..2 {
        let jump = reference(&after[at as usize..], ADDRESS + at).0;
        if jump.flow_control() != FlowControl::UnconditionalBranch {
            return Err(format!("{:?} at {at:#x} is no jump", jump.code()));
        }
        at = jump.near_branch_target().wrapping_sub(ADDRESS);
        if at == stub_at {
            break;
        }
        if site.first >= JUMP_BYTES || at >= after.len() as u64 {
            return Err(format!("it leads to {at:#x}"));
        }
    }
    if at != stub_at {
        return Err(format!("it leads to {at:#x}"));
    }
    let first = site.offset as usize..(site.offset + u64::from(site.first)) as usize;
    let is_padding = |at: usize| {
        let starts = (at + 1).saturating_sub(PADDING_MAX)..=at;
        starts.map(|start| (start, reference(&text[start..], ADDRESS).0)).any(|(start, found)| {
            found.mnemonic() == Mnemonic::Nop && at < start + found.len() && found.len() >= 7
        })
    };
    let mut changed = (0..text.len()).filter(|at| text[*at] != after[*at]);
    match changed.find(|at| !first.contains(at) && !is_padding(*at)) {
        Some(at) => Err(format!("it changes {at:#x}")),
        None => Ok(()),
    }
}

/// Returns the number that an instruction loads into eax.
fn number(instruction: &Instruction) -> Option<u32> {
    let into = instruction.op0_register();
    if !matches!(into, Register::EAX | Register::RAX) {
        return None;
    }
    match instruction.code() {
        Code::Mov_r32_imm32 => Some(instruction.immediate32()),
        Code::Mov_rm64_imm32 => u32::try_from(instruction.immediate32to64()).ok(),
        Code::Xor_rm32_r32 | Code::Xor_r32_rm32 if instruction.op1_register() == into => Some(0),
        _ => None,
    }
}
