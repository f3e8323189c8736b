//! pvm_notify: notices of ends and of new hosts. Each host knows the notices that its own tasks
//! requested; every host learns of every end through the total order.

use pvm::constants::{PvmHostAdd, PvmHostDelete, PvmNotifyCancel, PvmTaskExit};
use pvm::error::Error;
use pvm::parcel::Data;
use pvm::tid::Tid;
use pvm::wire::Sink;

use crate::daemon::{Daemon, Then};
use crate::errand::{Errand, Reply};
use crate::load::Load;

/// One requested notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    what: i32,
    /// Receiver, context and tag of the notice.
    sink: Sink,
    /// The task or host that it concerns.
    of: Tid,
    /// Remaining number of notices; -1 for no limit.
    count: i32,
}

/// The arguments of pvm_notify.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub what: i32,
    pub sink: Sink,
    pub tids: Vec<Tid>,
    pub count: i32,
}

impl Daemon {
    /// Executes pvm_notify. Errors: BadParam.
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
            // A task's last request replaces its earlier ones.
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
                        // As in stock PVM, a cancelled notice is sent at once.
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
            // The task may have ended before.
            self.send_on(host, Errand::Status(wish.of), Then::Notice(wish.of));
        }
    }

    /// Handles the reply of a task's host to the request whether the task exists.
    pub(crate) fn noticed(&mut self, tid: Tid, reply: &Reply) {
        if *reply == Err(Error::NoTask.code()) {
            self.has_ended(tid);
        }
    }

    fn tell_one(&mut self, wish: Wish) {
        let bytes = Data::default().int(wish.of.as_int()).message(wish.sink, 0);
        self.route(Load::Whole(bytes));
    }

    /// Sends the notices of a task's end.
    pub(crate) fn has_ended(&mut self, tid: Tid) {
        // Requests of the task itself end with it.
        self.wishes.retain(|wish| wish.sink.tid != tid.as_int());
        self.fire(|wish| wish.what == PvmTaskExit && wish.of == tid);
    }

    /// Sends the notices of a host's end, and of the end of its tasks.
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

    /// Sends the notices of new hosts.
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
