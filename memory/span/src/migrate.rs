//! `nagaya_migrate`, `nagaya_node` and `nagaya_nodes` of `include/nagaya_span.h`.

use crate::here::Here;
use crate::slot::Slot;

/// The number of `nagaya_migrate`, `nagaya_node` and `nagaya_nodes` (`include/nagaya_span.h`): a
/// system call that no kernel has.
pub const CALL: u64 = 0x4e61_6761;
const MIGRATE: u64 = 0;
const NODE: u64 = 1;
const NODES: u64 = 2;

/// Makes that call. The thread moves on its way back to the program.
pub fn call(here: &Here, slot: &Slot, a: [u64; 6]) -> i64 {
    match a[0] {
        MIGRATE if a[1] >= here.nodes.into() => -i64::from(libc::EINVAL),
        MIGRATE => {
            slot.set_destination(a[1] as u32);
            0
        }
        NODE => here.node.into(),
        NODES => here.nodes.into(),
        _ => -i64::from(libc::ENOSYS),
    }
}
