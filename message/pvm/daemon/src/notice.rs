//! pvm_notify: who wants to be told of what. Each host knows what its own tasks want; all
//! hear of every end.

use pvm::constants::{PvmHostAdd, PvmHostDelete, PvmNotifyCancel, PvmTaskExit};
use pvm::error::Error;
use pvm::parcel::Data;
use pvm::tid::Tid;
use pvm::wire::Sink;

use crate::daemon::{Daemon, Then};
use crate::errand::{Errand, Reply};
use crate::load::Load;

/// One notice that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    what: i32,
    /// To whom, and how.
    sink: Sink,
    /// Of whom.
    of: Tid,
    /// How many times more, -1 without end.
    count: i32,
}

/// What a task asks pvm_notify for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub what: i32,
    pub sink: Sink,
    pub tids: Vec<Tid>,
    pub count: i32,
}

impl Daemon {
    /// pvm_notify. Errors: BadParam.
    pub(crate) fn notify(
        &mut self,
        Wanted { what, sink, tids, count }: Wanted,
    ) -> Result<(), Error> {
        let cancel = what & PvmNotifyCancel != 0;
        let what = what & !PvmNotifyCancel;
        let fits = |tid: &Tid| match what {
            PvmTaskExit => tid.is_task(),
            _ => tid.local() == 0 && tid.host() != 0,
        };
        match what {
            // The last wish counts.
            PvmHostAdd => {
                let own = |wish: &Wish| wish.what == what && wish.sink.tid == sink.tid;
                self.wishes.retain(|wish| !own(wish));
                if !cancel && count != 0 {
                    self.wishes.push(Wish { what, sink, of: Tid(0), count });
                }
            }
            PvmTaskExit | PvmHostDelete if tids.iter().all(fits) => {
                for of in tids {
                    let wish = Wish { what, sink, of, count: 1 };
                    if cancel {
                        // As in stock PVM, it comes at once, and once.
                        if let Some(at) = self.wishes.iter().position(|known| *known == wish) {
                            self.wishes.remove(at);
                            self.tell_one(wish);
                        }
                    } else {
                        self.wish(wish);
                    }
                }
            }
            _ => return Err(Error::BadParam),
        }
        Ok(())
    }

    fn wish(&mut self, wish: Wish) {
        let host = wish.of.host();
        if self.machine.host(host).is_none() {
            return self.tell_one(wish);
        }
        self.wishes.push(wish);
        if wish.what == PvmTaskExit {
            // It may have ended before.
            self.send_on(host, Errand::Status(wish.of), Then::Notice(wish.of));
        }
    }

    /// Its host has said whether this task is there.
    pub(crate) fn noticed(&mut self, tid: Tid, reply: &Reply) {
        if *reply == Err(Error::NoTask.code()) {
            self.has_ended(tid);
        }
    }

    fn tell_one(&mut self, wish: Wish) {
        let bytes = Data::default().int(wish.of.as_int()).message(wish.sink, 0);
        self.route(Load::Whole(bytes));
    }

    /// Tells those who want to know that this task has ended.
    pub(crate) fn has_ended(&mut self, tid: Tid) {
        // What it wants itself, it wants no more.
        self.wishes.retain(|wish| wish.sink.tid != tid.as_int());
        self.fire(|wish| wish.what == PvmTaskExit && wish.of == tid);
    }

    /// Tells those who want to know that this host has gone, with all its tasks.
    pub(crate) fn host_gone(&mut self, host: u16) {
        self.fire(|wish| wish.what != PvmHostAdd && wish.of.host() == host);
    }

    fn fire(&mut self, fits: impl Fn(&Wish) -> bool) {
        let (told, left) = self.wishes.iter().copied().partition(|wish| fits(wish));
        self.wishes = left;
        let told: Vec<Wish> = told;
        for wish in told {
            self.tell_one(wish);
        }
    }

    /// Tells those who want to know that these hosts have come.
    pub(crate) fn hosts_added(&mut self, hosts: &[Tid]) {
        let mut told = Vec::new();
        self.wishes.retain_mut(|wish| {
            if wish.what != PvmHostAdd {
                return true;
            }
            told.push(wish.sink);
            wish.count -= i32::from(wish.count > 0);
            wish.count != 0
        });
        for sink in told {
            let data = Data::default().int(hosts.len() as i32);
            let data = hosts.iter().fold(data, |data, host| data.int(host.as_int()));
            let bytes = data.message(sink, 0);
            self.route(Load::Whole(bytes));
        }
    }
}
