//! What we ask of UCX where the user has not: each setting is UCX's own, and its environment
//! variable (`UCX_` and the name) wins.

use std::ffi::CString;
use std::ptr::null;

use crate::error::FabricError;
use crate::ucp::{UCS_OK, Ucp, ucp_config};

/// Name, value, and why.
const DEFAULTS: &[(&str, &str)] = &[
    // UCX prints on standard output, the program's own. What goes wrong, our events say.
    ("LOG_LEVEL", "fatal"),
    // Peers are on other nodes; and where they are other containers of this one, UCX may
    // think that they share memory when they do not.
    ("TLS", "^sm,self"),
    // A host that vanishes is noticed within 5 s: silent for 2 s, then three probes.
    ("TCP_KEEPIDLE", "2s"),
    ("TCP_KEEPINTVL", "1s"),
    ("TCP_KEEPCNT", "3"),
    ("KEEPALIVE_INTERVAL", "2s"),
];

/// UCX's configuration, released when dropped.
pub struct Config {
    ucp: &'static Ucp,
    /// To be given to UCX.
    pub config: *mut ucp_config,
}

impl Config {
    /// The user's, with our defaults.
    pub fn new(ucp: &'static Ucp) -> Result<Self, FabricError> {
        let mut config = std::ptr::null_mut();
        // SAFETY: no prefix and no file; the pointer is ours.
        let status = unsafe { (ucp.ucp_config_read)(null(), null(), &mut config) };
        if status != UCS_OK {
            return Err(FabricError::Ucx {
                doing: "read its configuration",
                why: ucp.reason(status),
            });
        }
        let config = Self { ucp, config };
        for (name, value) in DEFAULTS {
            if std::env::var_os(format!("UCX_{name}")).is_none() {
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
