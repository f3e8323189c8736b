//! Defaults for UCX's settings. The environment variable of a setting (`UCX_` and its name) takes
//! precedence.

use std::ffi::CString;
use std::ptr::null;

use super::ucp::{UCS_OK, Ucp, ucp_config};
use crate::error::FabricError;

/// Name, value, and why.
const DEFAULTS: &[(&str, &str)] = &[
    // UCX prints on standard output, which belongs to the program. Events report failures.
    ("LOG_LEVEL", "fatal"),
    // A host that vanishes is noticed within 5 s: see `sockets`.
    ("TCP_KEEPIDLE", "2s"),
    ("TCP_KEEPINTVL", "1s"),
    ("TCP_KEEPCNT", "3"),
    ("KEEPALIVE_INTERVAL", "5s"),
];

/// The transports. Peers are on other nodes; and where they are other containers of this one, UCX
/// may think that they share memory when they do not. TCP executes memory writes of anybody who
/// reaches its port.
const TRANSPORTS: &str = "^sm,self,tcp";
/// The transports if TCP is requested by name.
const TRANSPORTS_WITH_TCP: &str = "^sm,self";

/// Segment size of TCP. A receive segment must not be smaller than any sender's, so both are set
/// or neither, and a user who sets one must set it on all hosts.
const SEGMENTS: [(&str, &str); 2] = [("TCP_TX_SEG_SIZE", "256K"), ("TCP_RX_SEG_SIZE", "256K")];

/// Settings if TCP is the only transport. A message up to a segment is sent from its buffer as far
/// as the socket accepts it, and the rest is copied. Longer ones are announced. In our
/// measurements 64 KiB then take 11 µs, with UCX's own settings 28 µs, and 1 MiB takes no longer.
/// Sending several segments without a copy (`ZCOPY`) is slower, and not safe. If the peer dies
/// during such a send, UCX (1.22 at least) completes it twice, and aborts if its assertions are
/// compiled in, as in Debian.
const DEFAULTS_TCP: &[(&str, &str)] = &[("RNDV_THRESH", "256K"), ("ZCOPY_THRESH", "inf")];

/// The kernel's directory of devices that are faster than TCP.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// Returns true if the kernel has a device that is faster than TCP.
pub fn has_rdma_device() -> bool {
    std::fs::read_dir(RDMA_DEVICES).is_ok_and(|mut devices| devices.next().is_some())
}

/// UCX's configuration, released when dropped.
pub struct Config {
    ucp: &'static Ucp,
    /// To be given to UCX.
    pub config: *mut ucp_config,
}

impl Config {
    /// The user's, with our defaults.
    pub fn new(ucp: &'static Ucp, with_tcp: bool) -> Result<Self, FabricError> {
        let mut config = std::ptr::null_mut();
        // SAFETY: no prefix and no file; `config` is a local pointer.
        let status = unsafe { (ucp.ucp_config_read)(null(), null(), &mut config) };
        if status != UCS_OK {
            return Err(FabricError::Ucx {
                doing: "read its configuration",
                why: ucp.reason(status),
            });
        }
        let config = Self { ucp, config };
        let tcp = if has_rdma_device() { &[] } else { DEFAULTS_TCP };
        let transports = [("TLS", if with_tcp { TRANSPORTS_WITH_TCP } else { TRANSPORTS })];
        let is_set = |name: &str| std::env::var_os(format!("UCX_{name}")).is_some();
        let segments = if SEGMENTS.iter().any(|s| is_set(s.0)) { &[][..] } else { &SEGMENTS };
        for (name, value) in DEFAULTS.iter().chain(&transports).chain(tcp).chain(segments) {
            if !is_set(name) {
                config.set(name, value);
            }
        }
        Ok(config)
    }

    /// A version of UCX that does not know the setting goes without.
    fn set(&self, name: &str, value: &str) {
        // Before 1.17, a transport's settings are known by the last part of their names.
        let name = match name.strip_prefix("TCP_") {
            Some(name) if self.ucp.version() < (1, 17) => name,
            _ => name,
        };
        let [name, value] = [name, value].map(|s| CString::new(s).expect("no zero byte"));
        // SAFETY: a configuration that was read, and two strings.
        unsafe { (self.ucp.ucp_config_modify)(self.config, name.as_ptr(), value.as_ptr()) };
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        // SAFETY: read above, released once.
        unsafe { (self.ucp.ucp_config_release)(self.config) };
    }
}
