//! Reads values from the bytes of a fuzz input. Missing bytes are zero.

/// The rest of an input.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Returns true if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes a byte.
    pub fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }

    /// Takes a truth value.
    pub fn is(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Takes a number of `bytes` bytes, little endian.
    pub fn number(&mut self, bytes: usize) -> u64 {
        let (now, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        now.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// Takes a number, whose first byte is its length: many are short, and all are possible.
    pub fn any(&mut self) -> u64 {
        match self.byte() {
            255 => self.number(8),
            254 => u64::MAX - self.number(1),
            253 => (1 << 63) - 4 + self.number(1),
            252 => self.number(4),
            251 => self.number(2),
            small => small.into(),
        }
    }

    /// Takes bytes, after their length in one or two bytes.
    pub fn bytes(&mut self) -> &'a [u8] {
        let length = match self.byte() {
            255 => self.number(2) as usize,
            length => length.into(),
        };
        let (now, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        now
    }

    /// Takes all bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Writes what [`Input`] reads, for seeds.
#[derive(Debug, Clone, Default)]
pub struct Output(pub Vec<u8>);

impl Output {
    /// Appends bytes as they are.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a number for [`Input::any`].
    pub fn any(self, number: u64) -> Self {
        match number {
            0..=250 => self.raw(&[number as u8]),
            _ => self.raw(&[255]).raw(&number.to_le_bytes()),
        }
    }

    /// Appends bytes for [`Input::bytes`].
    pub fn bytes(self, bytes: &[u8]) -> Self {
        match bytes.len() {
            length @ 0..=254 => self.raw(&[length as u8]).raw(bytes),
            length => self.raw(&[255]).raw(&(length as u16).to_le_bytes()).raw(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let long = [7; 300];
        let output =
            Output::default().any(3).any(1 << 40).bytes(b"ab").bytes(&long).raw(&[1, 2, 3]);
        let mut input = Input(&output.0);
        assert_eq!((input.any(), input.any()), (3, 1 << 40));
        assert_eq!((input.bytes(), input.bytes()), (&b"ab"[..], &long[..]));
        assert_eq!((input.is(), input.number(2), input.is_empty()), (true, 0x302, true));
        assert_eq!((input.byte(), input.any(), input.bytes()), (0, 0, &[][..]));
    }
}
