//! Reads and writes of peers' memory by UCX.

use std::ptr::{NonNull, null_mut};

use super::inbox::Work;
use super::ucp::*;
use super::worker::Worker;
use crate::carrier::{EndpointId, OneSided, Reason, RegionId, Sending, key_of};
use crate::payload::Payload;

/// The reason of a failure after the end of a connection.
const CLOSED: &str = "the connection is closed";

impl OneSided for Worker {
    unsafe fn register(&mut self, start: NonNull<u8>, bytes: usize) -> Result<Vec<u8>, Reason> {
        let params = ucp_mem_map_params_t {
            field_mask: UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
            address: start.as_ptr().cast(),
            length: bytes,
            ..ucp_mem_map_params_t::empty()
        };
        let (mut memory, mut packed, mut size) = (null_mut(), null_mut(), 0);
        // SAFETY: the caller guarantees the memory. The key has the length that comes with it, and
        // is released once.
        unsafe {
            let status = (self.ucp.ucp_mem_map)(self.context, &params, &mut memory);
            if status != UCS_OK {
                return Err(self.ucp.reason(status).into());
            }
            self.registered.push(memory);
            let status = (self.ucp.ucp_rkey_pack)(self.context, memory, &mut packed, &mut size);
            if status != UCS_OK {
                return Err(self.ucp.reason(status).into());
            }
            let key = std::slice::from_raw_parts(packed.cast::<u8>(), size).to_vec();
            (self.ucp.ucp_rkey_buffer_release)(packed);
            Ok(key)
        }
    }

    fn import(&mut self, endpoint: EndpointId, key: &[u8]) -> Result<RegionId, Reason> {
        let Some(endpoint) = self.endpoints.get_mut(key_of(endpoint)) else {
            return Err(CLOSED.into());
        };
        let mut rkey = null_mut();
        // SAFETY: an open endpoint, whose peer holds the secret of the job: UCX has made the key.
        let status =
            unsafe { (self.ucp.ucp_ep_rkey_unpack)(endpoint.ep, key.as_ptr().cast(), &mut rkey) };
        if status != UCS_OK {
            return Err(self.ucp.reason(status).into());
        }
        endpoint.keys.push(rkey);
        Ok(endpoint.keys.len() as u64 - 1)
    }

    fn write(
        &mut self,
        endpoint: EndpointId,
        region: RegionId,
        address: u64,
        payload: Payload,
        tag: u64,
    ) -> Sending {
        let (start, bytes) = payload.extent();
        let work = Work::Send { tag, _header: Vec::new(), _payload: payload };
        self.operate(endpoint, work, |this, ep, keys, param| {
            // SAFETY: an open endpoint and a key of its own. The payload stays until the operation
            // is complete.
            unsafe {
                let key = keys[region as usize];
                (this.ucp.ucp_put_nbx)(ep, start.cast(), bytes, address, key, param)
            }
        })
    }

    unsafe fn read(
        &mut self,
        endpoint: EndpointId,
        region: RegionId,
        address: u64,
        to: NonNull<u8>,
        bytes: usize,
        tag: u64,
    ) -> Sending {
        let work = Work::Send { tag, _header: Vec::new(), _payload: Payload::EMPTY };
        self.operate(endpoint, work, |this, ep, keys, param| {
            // SAFETY: an open endpoint and a key of its own. The caller guarantees the memory until
            // the operation is complete.
            unsafe {
                let key = keys[region as usize];
                (this.ucp.ucp_get_nbx)(ep, to.as_ptr().cast(), bytes, address, key, param)
            }
        })
    }

    fn flush(&mut self, endpoint: EndpointId, tag: u64) -> Sending {
        let work = Work::Send { tag, _header: Vec::new(), _payload: Payload::EMPTY };
        self.operate(endpoint, work, |this, ep, _, param| {
            // SAFETY: an open endpoint.
            unsafe { (this.ucp.ucp_ep_flush_nbx)(ep, param) }
        })
    }
}
