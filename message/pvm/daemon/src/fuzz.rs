//! Entry points of the fuzz targets (docs/fuzzing.md): lines and frames that other processes send
//! to a daemon before its state machine gets them. Nothing else uses them.

use pvm::wire::Frame;

use crate::call;
use crate::frames::{Frames, TooLong};
use crate::invitation::{Acceptance, Invitation, Line};

/// Reads a line as each of the messages between daemons that are lines. Returns true if it is one.
pub fn line(text: &str) -> bool {
    let invitation = Invitation::parse(text);
    if let Some(invitation) = &invitation {
        assert_eq!(Invitation::parse(&invitation.to_line()).as_ref(), Some(invitation));
        let fault = invitation.fault();
        assert!(fault.is_none_or(|fault| !fault.contains('\n')));
    }
    let acceptance = Acceptance::parse(text);
    if let Some(acceptance) = &acceptance {
        assert_eq!(Acceptance::parse(&acceptance.to_line()).as_ref(), Some(acceptance));
    }
    call::fuzz(text) | invitation.is_some() | acceptance.is_some()
}

/// Reads the pieces of a task's stream. Returns the frames, and whether the stream is broken.
pub fn frames(pieces: &[&[u8]]) -> (Vec<Frame>, bool) {
    let (mut stream, mut frames) = (Frames::default(), Vec::new());
    for piece in pieces {
        stream.add(piece);
        loop {
            match stream.next() {
                Ok(None) => break,
                Ok(Some(bytes)) => match postcard::from_bytes(bytes) {
                    Ok(frame) => frames.push(frame),
                    Err(_) => return (frames, true),
                },
                Err(TooLong(_)) => return (frames, true),
            }
        }
    }
    (frames, false)
}
