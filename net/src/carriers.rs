//! The carriers of a fabric: their choice, their common address and descriptor.
//!
//! `NAGAYA_NET` names the carriers, with commas between them, the preferred one first: `local`,
//! `tcp`, `ucx`, or `ucx-tcp`, which lets UCX use TCP. Without it, these are `local`, `ucx` where
//! the kernel has an RDMA device, and `tcp`.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::epoll;

use crate::carrier::{
    Carrier, EndpointId, Happened, Landing, OneSided, Reason, Sending, There, Way,
};
use crate::error::FabricError;
use crate::local::Local;
use crate::payload::Payload;
use crate::secret::Secret;
use crate::tcp::Tcp;
use crate::ucx;
use crate::ucx::worker::Wants;
use crate::wire::{CarrierKind, Section, sections};

/// The variable that names the carriers.
pub const VARIABLE: &str = "NAGAYA_NET";

/// The carriers of a fabric, the preferred one first.
pub struct Carriers {
    list: Vec<(CarrierKind, Box<dyn Carrier>)>,
    /// Readable when the descriptor of any of several carriers is.
    epoll: Option<OwnedFd>,
}

/// A way to a peer: the carrier's place in the list, and its own name.
#[derive(Clone, Copy)]
pub struct Endpoint {
    carrier: usize,
    id: EndpointId,
}

impl Carriers {
    /// The carriers that `NAGAYA_NET` names; if it names none, the usual ones. If `one_sided`,
    /// those that can do so read and write peers' memory.
    pub fn new(secret: &Secret, named: &str, one_sided: bool) -> Result<Self, FabricError> {
        let ucx = |tcp| ucx::worker::Worker::new(Wants { tcp, one_sided });
        let mut list: Vec<(CarrierKind, Box<dyn Carrier>)> = Vec::new();
        if named.is_empty() {
            // Without a directory for its socket, TCP takes messages within this machine, too.
            if let Ok(local) = Local::new() {
                list.push((CarrierKind::Local, Box::new(local)));
            }
            // A library that cannot be loaded, or a device without a link, leaves TCP.
            if ucx::config::has_rdma_device()
                && let Ok(worker) = ucx(false)
            {
                list.push((CarrierKind::Ucx, Box::new(worker)));
            }
            list.push((CarrierKind::Tcp, Box::new(Tcp::new(secret)?)));
        }
        for name in named.split(',').filter(|name| !name.is_empty()) {
            list.push(match name {
                "local" => (CarrierKind::Local, Box::new(Local::new()?)),
                "tcp" => (CarrierKind::Tcp, Box::new(Tcp::new(secret)?)),
                "ucx" => (CarrierKind::Ucx, Box::new(ucx(false)?)),
                "ucx-tcp" => {
                    warn_of_ucx_tcp();
                    (CarrierKind::Ucx, Box::new(ucx(true)?))
                }
                _ => return Err(FabricError::Carrier(name.to_owned())),
            });
        }
        Self::of(list)
    }

    /// These carriers, the preferred one first.
    pub fn of(list: Vec<(CarrierKind, Box<dyn Carrier>)>) -> Result<Self, FabricError> {
        let epoll = match &list[..] {
            [_] => None,
            several => Some(epoll_of(several.iter().map(|(_, carrier)| carrier.descriptor()))?),
        };
        Ok(Self { list, epoll })
    }

    /// Returns true if UCX is one of them.
    pub fn have_ucx(&self) -> bool {
        self.list.iter().any(|(kind, _)| *kind == CarrierKind::Ucx)
    }

    /// Returns true if all of them are memory of this machine: what they have sent stays there if
    /// this process exits.
    pub fn are_local(&self) -> bool {
        self.list.iter().all(|(kind, _)| *kind == CarrierKind::Local)
    }

    /// Returns the addresses of all carriers, for a peer's [`connect`](Self::connect).
    pub fn address(&self) -> Result<Vec<u8>, FabricError> {
        let mut bytes = Vec::new();
        for (kind, carrier) in &self.list {
            Section::write(&mut bytes, *kind, &carrier.address()?);
        }
        Ok(bytes)
    }

    /// Connects by the first carrier that both sides have and that reaches the peer.
    pub fn connect(&mut self, address: &[u8], tag: u64) -> Result<Endpoint, Reason> {
        let none = "it has none of our carriers; set NAGAYA_NET to the same value on all hosts";
        let mut last = Reason::from(none);
        for (index, (kind, carrier)) in self.list.iter_mut().enumerate() {
            let common = sections(address).find(|section| section.kind == *kind);
            let Some(section) = common else { continue };
            match carrier.connect(section.bytes, tag) {
                Ok(id) => return Ok(Endpoint { carrier: index, id }),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    /// Connects to the sender of a message, which came by `carrier`.
    pub fn answer(
        &mut self,
        (carrier, way): (usize, Way),
        address: &[u8],
        tag: u64,
    ) -> Result<Endpoint, Reason> {
        let (kind, answering) = &mut self.list[carrier];
        let section = sections(address).find(|section| section.kind == *kind);
        let section = section.ok_or("its address lacks the carrier by which it came")?;
        let id = answering.answer(way, section.bytes, tag)?;
        Ok(Endpoint { carrier, id })
    }

    /// See [`Carrier::adopt`].
    pub fn adopt(&mut self, (carrier, way): (usize, Way), tag: u64) -> Option<Endpoint> {
        let id = self.list[carrier].1.adopt(way, tag)?;
        Some(Endpoint { carrier, id })
    }

    /// See [`Carrier::close`].
    pub fn close(&mut self, endpoint: Endpoint) {
        self.list[endpoint.carrier].1.close(endpoint.id);
    }

    /// See [`Carrier::send`].
    pub fn send(
        &mut self,
        endpoint: Endpoint,
        header: &[u8],
        payload: Payload,
        tag: u64,
    ) -> Sending {
        self.list[endpoint.carrier].1.send(endpoint.id, header, payload, tag)
    }

    /// Returns true if a carrier [holds messages](Carrier::holds_sent).
    pub fn hold_sent(&self) -> bool {
        self.list.iter().any(|(_, carrier)| carrier.holds_sent())
    }

    /// Returns the carriers that read and write peers' memory.
    pub fn one_sided(&mut self) -> impl Iterator<Item = &mut dyn OneSided> {
        self.list.iter_mut().filter_map(|(_, carrier)| carrier.one_sided())
    }

    /// Returns an endpoint as its carrier names it, and the carrier if it reads and writes the
    /// peer's memory.
    pub fn one_sided_of(&mut self, at: Endpoint) -> Option<(EndpointId, &mut dyn OneSided)> {
        Some((at.id, self.list[at.carrier].1.one_sided()?))
    }

    /// See [`Carrier::receive`].
    pub fn receive(
        &mut self,
        carrier: usize,
        there: There,
        landing: Landing,
        tag: u64,
    ) -> Option<Landing> {
        self.list[carrier].1.receive(there, landing, tag)
    }

    /// See [`Carrier::refuse`].
    pub fn refuse(&mut self, carrier: usize, there: There) {
        self.list[carrier].1.refuse(there);
    }

    /// Becomes readable when there may be work for any carrier.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.epoll {
            Some(epoll) => epoll.as_fd(),
            None => self.list[0].1.descriptor(),
        }
    }

    /// Returns true if all carriers will report their next event by the descriptor.
    pub fn arm(&mut self) -> Result<bool, FabricError> {
        for (_, carrier) in &mut self.list {
            if !carrier.arm()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lets all carriers make progress. Returns true if any did any work.
    pub fn progress(&mut self) -> bool {
        self.list.iter_mut().fold(false, |did, (_, carrier)| carrier.progress() | did)
    }

    /// Returns the next event, with the place of its carrier.
    pub fn next(&mut self) -> Option<(usize, Happened)> {
        let mut carriers = self.list.iter_mut().enumerate();
        carriers.find_map(|(index, (_, carrier))| Some((index, carrier.next()?)))
    }

    /// See [`Carrier::settle`].
    pub fn settle(&mut self) {
        self.list.iter_mut().for_each(|(_, carrier)| carrier.settle());
    }

    /// See [`Carrier::tend`].
    pub fn tend(&mut self) {
        self.list.iter_mut().for_each(|(_, carrier)| carrier.tend());
    }

    /// Returns true if a carrier has something to do in [`tend`](Self::tend).
    pub fn need_tending(&self) -> bool {
        self.list.iter().any(|(_, carrier)| carrier.needs_tending())
    }

    /// Returns the number of connections that carriers have refused.
    pub fn refused(&self) -> u64 {
        self.list.iter().map(|(_, carrier)| carrier.refused()).sum()
    }

    /// See [`Carrier::expect`]. The peers' addresses are as [`address`](Self::address) returns
    /// them.
    pub fn expect(&mut self, peers: &[&[u8]]) {
        for (kind, carrier) in &mut self.list {
            let found = peers.iter().flat_map(|peer| sections(peer)).filter(|it| it.kind == *kind);
            let theirs: Vec<_> = found.map(|section| section.bytes).collect();
            carrier.expect(&theirs);
        }
    }

    /// See [`Carrier::stop_listening`].
    pub fn stop_listening(&mut self) {
        self.list.iter_mut().for_each(|(_, carrier)| carrier.stop_listening());
    }
}

fn epoll_of<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>) -> Result<OwnedFd, FabricError> {
    let failed = |errno| FabricError::System { doing: "wait for several carriers", errno };
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    for descriptor in descriptors {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, descriptor, data, epoll::EventFlags::IN).map_err(failed)?;
    }
    Ok(epoll)
}

/// Warns once per process.
fn warn_of_ucx_tcp() {
    static WARNED: std::sync::Once = std::sync::Once::new();
    WARNED.call_once(|| {
        proc::error_line!(
            "nagaya: warning: {VARIABLE}=ucx-tcp: UCX's TCP lets anybody who reaches its port write \
             into this process; use it in a trusted network only"
        );
    });
}
