//! Queues and receives that another provider owns: fi_peer(3), as of libfabric 2.3. Other versions
//! may change it, and only sizes of structures show that: see `face/peer.rs`.

#![allow(missing_docs)]

use std::ffi::{c_int, c_void};

use super::{Call, CqErrEntry, Fid, FidEp, iovec, size_t, ssize_t};

constants! {
    /// Capabilities and flags.
    FLAGS: u64 {
        AV_USER_ID = 1 << 41, "FI_AV_USER_ID";
        PEER = 1 << 43, "FI_PEER";
    }
}

structures! {
    OpsCqOwner = "struct fi_ops_cq_owner" {
        size: size_t,
        write: Call<unsafe extern "C" fn(
            *mut FidPeerCq, *mut c_void, u64, size_t, *mut c_void, u64, u64, u64,
        ) -> ssize_t>,
        writeerr: Call<unsafe extern "C" fn(*mut FidPeerCq, *const CqErrEntry) -> ssize_t>,
    }
    FidPeerCq = "struct fid_peer_cq" { fid: Fid, owner_ops: *const OpsCqOwner, }
    PeerCqContext = "struct fi_peer_cq_context" { size: size_t, cq: *mut FidPeerCq, }
    PeerRxEntry = "struct fi_peer_rx_entry" {
        srx: *mut FidPeerSrx, addr: u64, msg_size: size_t, tag: u64, cq_data: u64, flags: u64,
        context: *mut c_void, count: size_t, desc: *mut *mut c_void, peer_context: *mut c_void,
        owner_context: *mut c_void, iov: *mut iovec,
    }
    PeerMatchAttr = "struct fi_peer_match_attr" { addr: u64, msg_size: size_t, tag: u64, }
    OpsSrxOwner = "struct fi_ops_srx_owner" {
        size: size_t,
        get_msg: Call<Get>,
        get_tag: Call<Get>,
        queue_msg: Call<OfEntry>,
        queue_tag: Call<OfEntry>,
        foreach_unspec_addr: Call<unsafe extern "C" fn(
            *mut FidPeerSrx, unsafe extern "C" fn(*mut PeerRxEntry) -> u64,
        )>,
        free_entry: Call<unsafe extern "C" fn(*mut PeerRxEntry)>,
    }
    OpsSrxPeer = "struct fi_ops_srx_peer" {
        size: size_t,
        start_msg: Call<OfEntry>,
        start_tag: Call<OfEntry>,
        discard_msg: Call<OfEntry>,
        discard_tag: Call<OfEntry>,
    }
    FidPeerSrx = "struct fid_peer_srx" {
        ep_fid: FidEp, owner_ops: *const OpsSrxOwner, peer_ops: *const OpsSrxPeer,
    }
    PeerSrxContext = "struct fi_peer_srx_context" { size: size_t, srx: *mut FidPeerSrx, }
}

type Get =
    unsafe extern "C" fn(*mut FidPeerSrx, *mut PeerMatchAttr, *mut *mut PeerRxEntry) -> c_int;
type OfEntry = unsafe extern "C" fn(*mut PeerRxEntry) -> c_int;
