//! The way to a node that was started, and what is said by it until the node has begun: by a
//! thread of its own, since one host may be slower than others.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender};

use net::talk::{self, Answer, Begun, Refusal};

use super::start::Job;

/// A way, in both directions.
pub struct Way {
    pub from: Box<dyn Read + Send>,
    pub to: Box<dyn Write + Send>,
    /// What a host says that does not come that far, if it is another host.
    pub errors: Option<Box<dyn Read + Send>>,
}

/// How far a node has come.
pub enum Said<R> {
    Ready(R),
    /// The way is to be kept as long as the program runs: the node ends with it.
    Begun(Way),
    /// It will not begin. Empty: it has said why itself.
    Refused(Refusal),
}

/// Tells a node what it is to do, hears where it is, and tells it where all are.
pub fn converse<J: Job>(
    mut way: Way,
    node: usize,
    order: &J::Order,
    everybody: &Receiver<J::Everybody>,
    said: &Sender<(usize, Said<J::Ready>)>,
) {
    let ready = match begin::<J>(&mut way, order) {
        Ok(ready) => ready,
        Err(refusal) => return drop(said.send((node, Said::Refused(refusal)))),
    };
    let _ = said.send((node, Said::Ready(ready)));
    // Nobody tells it if another node does not begin.
    let Ok(everybody) = everybody.recv() else { return };
    let begun = talk::say(&mut way.to, &everybody)
        .and_then(|()| talk::hear::<Answer<Begun>>(&mut way.from))
        .unwrap_or_else(|why| Err(last_words(&mut way, &why)));
    let last = match begun {
        Ok(Begun) => Said::Begun(way),
        Err(refusal) => Said::Refused(refusal),
    };
    let _ = said.send((node, last));
}

fn begin<J: Job>(way: &mut Way, order: &J::Order) -> Answer<J::Ready> {
    let version = match J::KIND.greeted(&mut way.from) {
        Ok(version) => version,
        Err(why) => return Err(last_words(way, &why)),
    };
    if version != J::KIND.version {
        let ours = J::KIND.version;
        let line = format!("its nagaya is {version}, and here is {ours}: install the same");
        return Err(line.into());
    }
    talk::say(&mut way.to, order)
        .and_then(|()| talk::hear::<Answer<J::Ready>>(&mut way.from))
        .unwrap_or_else(|why| Err(last_words(way, &why)))
}

/// Why nothing came: what it said last.
fn last_words(way: &mut Way, why: &std::io::Error) -> Refusal {
    let line = match &mut way.errors {
        Some(errors) => net::remote::last_line(errors).unwrap_or_else(|| {
            format!(
                "nagaya did not begin there: {why}, without an error message; check that ssh (or \
                 the command in NAGAYA_RSH) runs commands on that host"
            )
        }),
        None => format!("it does not begin: {why}"),
    };
    line.strip_prefix("nagaya: ").unwrap_or(&line).into()
}
