//! The incoming side of a connection: records in, messages out.

use super::frame::First;
use crate::carrier::{Data, Happened, Landing, There, Way};

/// The frame whose payload comes in several records.
struct Frame {
    /// Length of the payload, and of the part that has come.
    bytes: usize,
    filled: usize,
    to: Target,
}

/// The destination of a payload.
enum Target {
    /// The user has not chosen one yet.
    Unknown,
    /// This memory, and the tag of the receive.
    Landing(Landing, u64),
    /// The user does not want it.
    Nowhere,
}

/// The incoming side of a connection.
#[derive(Default)]
pub struct Input {
    frame: Option<Frame>,
}

/// An event of the incoming side.
pub enum Arrival {
    /// A message: its header, and its payload.
    Whole(Vec<u8>, Vec<u8>),
    /// A message whose payload of this length needs a place before more can be read.
    Announced(Vec<u8>, usize),
    /// An announced payload is complete: the tag and the memory.
    Received(u64, Landing),
}

impl Arrival {
    /// Returns the carrier's event, for the connection with this name.
    pub fn into_event(self, name: u64) -> Happened {
        let way = Way(name);
        match self {
            Self::Whole(header, payload) => {
                Happened::Came { header, data: Data::Here(payload), way }
            }
            Self::Announced(header, bytes) => {
                let data = Data::There(There { name, bytes, announced: true });
                Happened::Came { header, data, way }
            }
            Self::Received(tag, landing) => Happened::Received(tag, Some(landing)),
        }
    }
}

/// The stream is not one of records of this session: why the connection ends.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

impl Input {
    /// Returns true if a payload was announced and has no place yet.
    pub fn is_paused(&self) -> bool {
        matches!(&self.frame, Some(Frame { to: Target::Unknown, .. }))
    }

    /// Selects the place of the announced payload, whose length it has.
    fn accept(&mut self, mut landing: Landing, tag: u64) {
        let frame = self.frame.as_mut().filter(|frame| matches!(frame.to, Target::Unknown));
        let frame = frame.expect("a payload was announced");
        assert_eq!(landing.extent().1, frame.bytes, "the place has the announced length");
        frame.to = Target::Landing(landing, tag);
    }

    /// Drops the announced payload when it comes.
    pub fn refuse(&mut self) {
        if let Some(frame) = self.frame.as_mut().filter(|it| matches!(it.to, Target::Unknown)) {
            frame.to = Target::Nowhere;
        }
    }

    /// Selects the place of the payload that the connection with this incoming side has announced.
    /// Returns the event of a receive that fails, since the connection has ended meanwhile.
    pub fn accept_from(input: Option<&mut Self>, landing: Landing, tag: u64) -> Option<Happened> {
        match input.filter(|input| input.is_paused()) {
            Some(input) => input.accept(landing, tag),
            None => return Some(Happened::Received(tag, None)),
        }
        None
    }

    /// Gives up the payload under way; returns the tag of its receive.
    pub fn abandon(&mut self) -> Option<u64> {
        match self.frame.take()?.to {
            Target::Landing(_, tag) => Some(tag),
            Target::Unknown | Target::Nowhere => None,
        }
    }

    /// Handles a record of `bytes` bytes. `open` writes it to the start of the memory that it is
    /// given, and needs `room` bytes there. A record that begins a frame, or does not fit its
    /// place, is written to `plain`, which has this room.
    pub fn record(
        &mut self,
        bytes: usize,
        room: usize,
        open: impl FnOnce(&mut [u8]) -> Result<(), Broken>,
        plain: &mut [u8],
    ) -> Result<Option<Arrival>, Broken> {
        debug_assert!(!self.is_paused(), "the place comes first");
        let Some(frame) = &mut self.frame else {
            open(plain)?;
            let first = First::parse(&plain[..bytes])
                .map_err(|_| Broken("a record came that begins no message"))?;
            let header = first.header.to_vec();
            if first.follows == 0 {
                return Ok(Some(Arrival::Whole(header, first.payload.to_vec())));
            }
            let bytes = first.follows;
            self.frame = Some(Frame { bytes, filled: 0, to: Target::Unknown });
            return Ok(Some(Arrival::Announced(header, bytes)));
        };
        let left = frame.bytes - frame.filled;
        if bytes > left {
            return Err(Broken("a message came that is longer than announced"));
        }
        let place: &mut [u8] = match &mut frame.to {
            Target::Landing(landing, _) => {
                let (start, _) = landing.extent();
                // SAFETY: the landing has `frame.bytes` bytes, which `accept` checked, and
                // `filled` never exceeds them. It is owned here, or `Fabric::place_with` requires
                // that nothing else uses it.
                unsafe { std::slice::from_raw_parts_mut(start.add(frame.filled), left) }
            }
            Target::Unknown | Target::Nowhere => &mut [],
        };
        if place.len() >= room {
            open(place)?;
        } else {
            open(plain)?;
            if let Some(place) = place.get_mut(..bytes) {
                place.copy_from_slice(&plain[..bytes]);
            }
        }
        frame.filled += bytes;
        if frame.filled < frame.bytes {
            return Ok(None);
        }
        Ok(match self.frame.take().expect("it is complete").to {
            Target::Landing(landing, tag) => Some(Arrival::Received(tag, landing)),
            Target::Unknown | Target::Nowhere => None,
        })
    }
}
