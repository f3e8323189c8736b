//! The hints of fi_getinfo(3): the properties that a program asks for, and the test if this
//! provider has them.

use std::ffi::{CStr, c_int, c_void};

use crate::abi;
use crate::abi::peer::{AV_USER_ID, PEER};
use crate::engine::address;
use crate::engine::address::{Format, Target};
use crate::face::args;
use crate::face::peer;
use crate::protocol::parts::PARTS;
use crate::protocol::wire;

/// The name of provider, fabric and domain.
pub const NAME: &CStr = c"nagaya";

/// All capabilities of an endpoint.
pub const CAPS: u64 = TX_CAPS | RX_CAPS | DOMAIN_CAPS;
pub const TX_CAPS: u64 =
    abi::MSG | abi::TAGGED | abi::RMA | abi::ATOMIC | abi::SEND | abi::READ | abi::WRITE;
pub const RX_CAPS: u64 = abi::MSG
    | abi::TAGGED
    | abi::RMA
    | abi::ATOMIC
    | abi::RECV
    | abi::REMOTE_READ
    | abi::REMOTE_WRITE
    | abi::MULTI_RECV
    | abi::SOURCE
    | abi::DIRECTED_RECV
    | abi::RMA_EVENT;
pub const DOMAIN_CAPS: u64 = abi::LOCAL_COMM | abi::REMOTE_COMM;

/// The capabilities of a peer (FI_PEER): all that an owner uses.
const PEER_CAPS: u64 = abi::MSG
    | abi::TAGGED
    | abi::SEND
    | abi::RECV
    | abi::DIRECTED_RECV
    | DOMAIN_CAPS
    | PEER
    | AV_USER_ID;

/// Primary capabilities: a program gets those that it asks for. It gets all others anyway.
const PRIMARY: u64 =
    abi::MSG | abi::TAGGED | abi::RMA | abi::ATOMIC | abi::MULTI_RECV | abi::DIRECTED_RECV;

/// Flags that an endpoint can have as defaults for its operations.
const TX_FLAGS: u64 = abi::COMPLETION
    | abi::INJECT
    | abi::INJECT_COMPLETE
    | abi::TRANSMIT_COMPLETE
    | abi::DELIVERY_COMPLETE
    | abi::MATCH_COMPLETE;
const RX_FLAGS: u64 = abi::COMPLETION | abi::MULTI_RECV;

/// All operations take place in the order of the calls.
const ORDER: u64 = abi::ORDER_STRICT | abi::ORDER_EACH;

/// Number of operations that an endpoint has room for, as we report it. There is no limit.
const QUEUE_LENGTH: usize = 4096;
/// Number of bytes of the longest message.
pub const LENGTH_MAX: usize = usize::MAX >> 1;
/// Most parts of a buffer.
pub const IOV_MAX: usize = PARTS;

/// The hints of a program, with those parts that it has set.
pub struct Hints<'a> {
    info: &'a abi::Info,
    endpoint: Option<&'a abi::EpAttr>,
    send: Option<&'a abi::TxAttr>,
    receive: Option<&'a abi::RxAttr>,
    domain: Option<&'a abi::DomainAttr>,
    domain_name: Option<&'a CStr>,
    fabric_name: Option<&'a CStr>,
    /// Addresses, or the name of the address that cannot be read.
    source: Result<Target, &'static str>,
    destination: Result<Target, &'static str>,
}

/// Reads a C string, if there is one.
///
/// # Safety
/// `at` is NULL or a C string that does not change while the string is in use.
unsafe fn name<'a>(at: *const std::ffi::c_char) -> Option<&'a CStr> {
    // SAFETY: not NULL, so a C string by this function's contract.
    (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) })
}

impl<'a> Hints<'a> {
    /// Reads the hints. Returns `None` without hints.
    ///
    /// # Safety
    /// `hints` is NULL, or a structure as fi_getinfo(3) describes it, which does not change while
    /// the hints are in use.
    pub unsafe fn read(hints: *const abi::Info) -> Option<Self> {
        // SAFETY: each pointer in the structure is NULL or leads to a structure, a C string, or an
        // address of the length beside it, by this function's contract.
        unsafe {
            let info = hints.as_ref()?;
            let (domain, fabric) = (info.domain_attr.as_ref(), info.fabric_attr.as_ref());
            let address = |at: *mut c_void, length: usize, error: &'static str| {
                if at.is_null() {
                    return Ok(Target::Unnamed);
                }
                let format = Format::of(info.addr_format).ok_or(error)?;
                if format == Format::Own && length < address::SIZE {
                    return Err(error);
                }
                args::address(format, at).map(|(target, _)| target).ok_or(error)
            };
            Some(Self {
                info,
                endpoint: info.ep_attr.as_ref(),
                send: info.tx_attr.as_ref(),
                receive: info.rx_attr.as_ref(),
                domain,
                domain_name: domain.and_then(|domain| name(domain.name)),
                fabric_name: fabric.and_then(|fabric| name(fabric.name)),
                source: address(info.src_addr, info.src_addrlen, "the source address of the hints"),
                destination: address(
                    info.dest_addr,
                    info.dest_addrlen,
                    "the destination address of the hints",
                ),
            })
        }
    }
}

/// The properties of an endpoint that the program can choose.
pub struct Wanted {
    pub caps: u64,
    pub tx_flags: u64,
    pub rx_flags: u64,
    pub threading: u32,
    pub av_type: u32,
    pub mr_mode: c_int,
    pub control_progress: u32,
    pub data_progress: u32,
    /// The endpoint is a peer (FI_PEER). The owner reports the properties of a peer for all peers
    /// that it joins, so it promises only what the owner asks for.
    pub peer: bool,
    pub tx_order: u64,
    pub rx_order: u64,
    pub tx_size: usize,
    pub rx_size: usize,
    pub format: Format,
    pub from: Target,
    pub to: Target,
}

/// The property that this provider does not have.
pub type Missing = &'static str;

impl Wanted {
    /// Returns the properties without hints, for a program of this version of libfabric.
    pub fn new(version: u32) -> Self {
        Self {
            // Intel MPI 2021.18 uses atomics where it finds them, also on windows of
            // MPI_Win_allocate_shared that it has not registered. That fails with FI_ENOKEY here,
            // and loses data with libfabric's own `shm`.
            caps: CAPS & !abi::ATOMIC,
            tx_flags: 0,
            rx_flags: 0,
            threading: abi::THREAD_SAFE,
            av_type: abi::AV_UNSPEC,
            mr_mode: if version < abi::version(1, 5) { abi::MR_SCALABLE as c_int } else { 0 },
            control_progress: abi::PROGRESS_AUTO,
            data_progress: abi::PROGRESS_MANUAL,
            peer: false,
            tx_order: ORDER,
            rx_order: ORDER,
            tx_size: QUEUE_LENGTH,
            rx_size: QUEUE_LENGTH,
            format: Format::Own,
            from: Target::Unnamed,
            to: Target::Unnamed,
        }
    }

    /// Applies hints.
    pub fn apply(&mut self, hints: &Hints<'_>) -> Result<(), Missing> {
        self.apply_caps(hints.info.caps)?;
        self.format = Format::of(hints.info.addr_format).ok_or("the format of addresses")?;
        if let Some(endpoint) = hints.endpoint {
            self.check_endpoint(endpoint)?;
        }
        if let Some(send) = hints.send {
            self.apply_send(send)?;
        }
        if let Some(receive) = hints.receive {
            self.apply_receive(receive)?;
        }
        if hints.domain_name.is_some_and(|name| name != NAME) {
            return Err("the domain's name");
        }
        if let Some(domain) = hints.domain {
            self.apply_domain(domain)?;
        }
        if hints.fabric_name.is_some_and(|name| name != NAME) {
            return Err("the fabric's name");
        }
        Ok(())
    }

    /// Applies the addresses of hints, but for one that node and service have named: `named` says
    /// if that is the source.
    pub fn apply_addresses(
        &mut self,
        hints: Hints<'_>,
        named: Option<bool>,
    ) -> Result<(), Missing> {
        if named != Some(true) {
            self.from = hints.source?;
        }
        if named != Some(false) {
            self.to = hints.destination?;
        }
        Ok(())
    }

    /// The capabilities that this kind of endpoint has.
    fn all_caps(&self) -> u64 {
        if self.peer { PEER_CAPS } else { CAPS }
    }

    fn apply_caps(&mut self, caps: u64) -> Result<(), Missing> {
        self.peer = caps & PEER != 0;
        if caps & !self.all_caps() != 0 {
            return Err("capabilities");
        }
        if self.peer {
            if !peer::is_known() {
                return Err("a peer of this libfabric");
            }
            (self.caps, self.tx_order, self.rx_order) = (PEER_CAPS, 0, 0);
            (self.tx_size, self.rx_size) = (peer::QUEUE_LENGTH, peer::QUEUE_LENGTH);
            self.av_type = abi::AV_TABLE;
        } else if caps & PRIMARY != 0 {
            self.caps = caps & PRIMARY | CAPS & !PRIMARY;
        }
        Ok(())
    }

    fn check_endpoint(&self, endpoint: &abi::EpAttr) -> Result<(), Missing> {
        if ![abi::EP_UNSPEC, abi::EP_RDM].contains(&endpoint.r#type) {
            return Err("the type of the endpoint");
        }
        if endpoint.protocol != 0 && endpoint.protocol != address::FORMAT {
            return Err("the protocol");
        }
        // A peer's owner may share contexts between endpoints.
        let contexts = |count: usize| count > 1 && (count != usize::MAX || !self.peer);
        let is_longer = |bytes: usize| bytes > LENGTH_MAX;
        if contexts(endpoint.tx_ctx_cnt)
            || contexts(endpoint.rx_ctx_cnt)
            || endpoint.auth_key_size != 0
            || is_longer(endpoint.max_msg_size)
            || is_longer(endpoint.max_order_raw_size)
            || is_longer(endpoint.max_order_war_size)
            || is_longer(endpoint.max_order_waw_size)
        {
            return Err("the endpoint's attributes");
        }
        Ok(())
    }

    fn apply_send(&mut self, send: &abi::TxAttr) -> Result<(), Missing> {
        let fits = send.caps & !CAPS == 0
            && send.op_flags & !TX_FLAGS == 0
            && send.msg_order & !ORDER == 0
            && send.comp_order == 0
            && send.inject_size <= wire::EAGER_MAX
            && send.iov_limit <= IOV_MAX
            && send.rma_iov_limit <= IOV_MAX;
        if !fits {
            return Err("the attributes for sending");
        }
        self.tx_flags = send.op_flags;
        self.tx_size = self.tx_size.max(send.size);
        if self.peer {
            self.tx_order = send.msg_order;
        }
        Ok(())
    }

    fn apply_receive(&mut self, receive: &abi::RxAttr) -> Result<(), Missing> {
        let fits = receive.caps & !CAPS == 0
            && receive.op_flags & !RX_FLAGS == 0
            && receive.msg_order & !ORDER == 0
            && receive.comp_order == 0
            && receive.iov_limit <= IOV_MAX;
        if !fits {
            return Err("the attributes for receiving");
        }
        self.rx_flags = receive.op_flags;
        self.rx_size = self.rx_size.max(receive.size);
        if self.peer {
            self.rx_order = receive.msg_order;
        }
        Ok(())
    }

    fn apply_domain(&mut self, domain: &abi::DomainAttr) -> Result<(), Missing> {
        if domain.data_progress == abi::PROGRESS_AUTO {
            return Err("automatic progress");
        }
        let fits = domain.cq_data_size <= size_of::<u64>()
            && domain.mr_key_size <= size_of::<u64>()
            && domain.caps & !(self.all_caps() & (DOMAIN_CAPS | PEER | AV_USER_ID)) == 0
            && domain.auth_key_size == 0;
        if !fits {
            return Err("the domain's attributes");
        }
        if domain.threading != abi::THREAD_UNSPEC {
            self.threading = domain.threading;
        }
        if domain.av_type != 0 {
            self.av_type = domain.av_type;
        }
        if domain.control_progress != abi::PROGRESS_UNSPEC {
            self.control_progress = domain.control_progress;
        }
        if [abi::MR_BASIC as c_int, abi::MR_SCALABLE as c_int].contains(&domain.mr_mode) {
            self.mr_mode = domain.mr_mode;
        }
        Ok(())
    }
}
