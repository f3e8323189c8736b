//! The stream of sealed records: two bytes of length before each.

use super::noise::{PLAIN_BYTES_MAX, Session, TAG_BYTES};
use crate::stream::frame::FIRST_BYTES_MAX;
use crate::stream::input::{Arrival, Broken, Input};

/// Bytes of length before a record.
const LENGTH_BYTES: usize = 2;

const _: () = assert!(FIRST_BYTES_MAX <= PLAIN_BYTES_MAX);

/// Returns the length of a sealed record in the stream.
pub fn bytes_in_stream(plain_bytes: usize) -> usize {
    LENGTH_BYTES + plain_bytes + TAG_BYTES
}

/// Seals a record into a part of the stream that has its length ([`bytes_in_stream`]).
pub fn seal(stream: &mut [u8], plain: &[u8], session: &mut Session) {
    let (length, sealed) = stream.split_at_mut(LENGTH_BYTES);
    length.copy_from_slice(&(sealed.len() as u16).to_be_bytes());
    session.seal(plain, sealed);
}

/// Passes the first record of a stream to the incoming side. Returns the bytes that it took, which
/// are none if the record is not complete, and perhaps an event. `plain` has
/// [`SEALED_BYTES_MAX`](super::noise::SEALED_BYTES_MAX) bytes.
pub fn open(
    stream: &[u8],
    session: &mut Session,
    input: &mut Input,
    plain: &mut [u8],
) -> Result<(usize, Option<Arrival>), Broken> {
    let Some(length) = stream.first_chunk::<LENGTH_BYTES>() else { return Ok((0, None)) };
    let sealed_bytes = usize::from(u16::from_be_bytes(*length));
    let bytes = sealed_bytes.checked_sub(TAG_BYTES).filter(|&bytes| bytes > 0);
    let bytes = bytes.ok_or(Broken("a record without content came"))?;
    let Some(sealed) = stream.get(LENGTH_BYTES..LENGTH_BYTES + sealed_bytes) else {
        return Ok((0, None));
    };
    let open = |plain: &mut [u8]| match session.open(sealed, plain) {
        Ok(opened) if opened == bytes => Ok(()),
        _ => Err(Broken("a record came that is not of this session")),
    };
    let arrival = input.record(bytes, sealed_bytes, open, plain)?;
    Ok((LENGTH_BYTES + sealed_bytes, arrival))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::secret::Secret;
    use crate::tcp::noise::{Handshake, SEALED_BYTES_MAX};

    fn sessions() -> [Session; 2] {
        let secret = Secret::new([5; 32]);
        let (mut caller, mut called) =
            (Handshake::initiator(&secret, &[1; 16]), Handshake::responder(&secret, &[1; 16]));
        called.read(&caller.write()).unwrap();
        caller.read(&called.write()).unwrap();
        [caller.finish(), called.finish()]
    }

    #[test]
    fn records_without_content_and_of_others_are_refused() {
        let [mut ours, mut theirs] = sessions();
        let (mut input, mut plain) = (Input::default(), vec![0; SEALED_BYTES_MAX]);
        let mut open = |stream: &[u8]| open(stream, &mut theirs, &mut input, &mut plain).err();
        assert_eq!(open(&[0]), None);
        assert_eq!(open(&16u16.to_be_bytes()), Some(Broken("a record without content came")));
        let mut stream = vec![0; bytes_in_stream(8)];
        seal(&mut stream, b"no frame", &mut ours);
        stream[9] ^= 1;
        assert_eq!(open(&stream[..20]), None);
        let forged = "a record came that is not of this session";
        assert_eq!(open(&stream), Some(Broken(forged)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_too_few(bytes in prop::collection::vec(any::<u8>(), 0..70_000)) {
            let [_, mut theirs] = sessions();
            let (mut input, mut plain) = (Input::default(), vec![0; SEALED_BYTES_MAX]);
            let opened = open(&bytes, &mut theirs, &mut input, &mut plain);
            prop_assert!(opened.is_err() || matches!(opened, Ok((0, None))));
        }
    }
}
