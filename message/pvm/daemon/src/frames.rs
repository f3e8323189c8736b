//! Frames in a byte stream: a length, then that many bytes. The buffer grows with the bytes
//! received, not with the announced length.

use pvm::wire::FRAME_MAX;

const LENGTH_SIZE: usize = size_of::<u32>();

/// The announced length exceeds the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong(pub usize);

/// Received bytes that were not taken yet.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    taken: usize,
}

impl Frames {
    /// Appends received bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next frame, if it is complete.
    pub fn next(&mut self) -> Result<Option<&[u8]>, TooLong> {
        debug_assert!(self.taken <= self.bytes.len(), "only received bytes are taken");
        let left = &self.bytes[self.taken..];
        let Some(length) = left.first_chunk::<LENGTH_SIZE>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > FRAME_MAX {
            return Err(TooLong(length));
        }
        if left.len() - LENGTH_SIZE < length {
            // Remove the taken bytes before the buffer grows.
            self.bytes.drain(..self.taken);
            self.taken = 0;
            return Ok(None);
        }
        let start = self.taken + LENGTH_SIZE;
        self.taken = start + length;
        Ok(Some(&self.bytes[start..start + length]))
    }
}

/// Returns `bytes` as a frame.
pub fn frame(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_out_as_they_went_in_however_the_stream_is_cut(
            sent: Vec<Vec<u8>>,
            cuts in proptest::collection::vec(1..9usize, 1..400),
        ) {
            let stream: Vec<u8> = sent.iter().flat_map(|bytes| frame(bytes)).collect();
            let mut frames = Frames::default();
            let mut came = Vec::new();
            let mut left = &stream[..];
            for cut in cuts.iter().cycle() {
                let (piece, rest) = left.split_at((*cut).min(left.len()));
                frames.add(piece);
                while let Some(bytes) = frames.next().expect("no frame is too long") {
                    came.push(bytes.to_vec());
                }
                left = rest;
                if left.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(came, sent);
        }
    }

    #[test]
    fn a_frame_that_is_too_long_is_refused_before_it_comes() {
        let mut frames = Frames::default();
        frames.add(&u32::MAX.to_le_bytes());
        assert_eq!(frames.next(), Err(TooLong(u32::MAX as usize)));
    }
}
