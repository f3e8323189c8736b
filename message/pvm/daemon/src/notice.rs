//! pvm_notify: notices of ends and of new hosts. Each host knows the notices that its own tasks
//! requested; every host learns of every end through the total order.

use pvm::constants::{PvmHostAdd, PvmHostDelete, PvmNotifyCancel, PvmTaskExit};
use pvm::error::Error;
use pvm::parcel::Data;
use pvm::tid::Tid;
use pvm::wire::Sink;

use crate::daemon::{Continuation, Daemon, Subscription};
use crate::errand::{Errand, Reply};
use crate::task_message::TaskMessage;

/// The arguments of pvm_notify.
#[derive(Clone, Debug)]
pub(crate) struct NotifyRequest {
    pub what: i32,
    pub sink: Sink,
    pub tids: Vec<Tid>,
    pub count: i32,
}

impl Daemon {
    /// Executes pvm_notify. Errors: BadParam.
    pub(crate) fn notify(
        &mut self,
        NotifyRequest { what, sink, tids, count }: NotifyRequest,
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
                let own = |subscription: &Subscription| {
                    subscription.what == what && subscription.sink.tid == sink.tid
                };
                self.subscriptions.retain(|subscription| !own(subscription));
                if !cancel && count != 0 {
                    self.subscriptions.push(Subscription { what, sink, of: Tid(0), count });
                }
            }
            PvmTaskExit | PvmHostDelete if tids.iter().all(fits) => {
                for of in tids {
                    let subscription = Subscription { what, sink, of, count: 1 };
                    if cancel {
                        // As in stock PVM, a cancelled notice is sent at once.
                        if let Some(at) =
                            self.subscriptions.iter().position(|known| *known == subscription)
                        {
                            self.subscriptions.remove(at);
                            self.send_notice(subscription);
                        }
                    } else {
                        self.subscribe(subscription);
                    }
                }
            }
            _ => return Err(Error::BadParam),
        }
        Ok(())
    }

    fn subscribe(&mut self, subscription: Subscription) {
        let host = subscription.of.host();
        if self.machine.host(host).is_none() {
            return self.send_notice(subscription);
        }
        self.subscriptions.push(subscription);
        if subscription.what == PvmTaskExit {
            // The task may have ended before.
            self.send_on(
                host,
                Errand::Status(subscription.of),
                Continuation::Notice(subscription.of),
            );
        }
    }

    /// Handles the reply of a task's host to the request whether the task exists.
    pub(crate) fn noticed(&mut self, tid: Tid, reply: &Reply) {
        if *reply == Err(Error::NoTask.code()) {
            self.has_ended(tid);
        }
    }

    fn send_notice(&mut self, subscription: Subscription) {
        let bytes = Data::default().int(subscription.of.as_int()).message(subscription.sink, 0);
        self.route(TaskMessage::Whole(bytes));
    }

    /// Sends the notices of a task's end.
    pub(crate) fn has_ended(&mut self, tid: Tid) {
        // Requests of the task itself end with it.
        self.subscriptions.retain(|subscription| subscription.sink.tid != tid.as_int());
        self.fire(|subscription| subscription.what == PvmTaskExit && subscription.of == tid);
    }

    /// Sends the notices of a host's end, and of the end of its tasks.
    pub(crate) fn host_gone(&mut self, host: u16) {
        self.fire(|subscription| subscription.what != PvmHostAdd && subscription.of.host() == host);
    }

    fn fire(&mut self, fits: impl Fn(&Subscription) -> bool) {
        let (due, left) =
            self.subscriptions.iter().copied().partition(|subscription| fits(subscription));
        self.subscriptions = left;
        let due: Vec<Subscription> = due;
        for subscription in due {
            self.send_notice(subscription);
        }
    }

    /// Sends the notices of new hosts.
    pub(crate) fn hosts_added(&mut self, hosts: &[Tid]) {
        let mut due = Vec::new();
        self.subscriptions.retain_mut(|subscription| {
            if subscription.what != PvmHostAdd {
                return true;
            }
            due.push(subscription.sink);
            subscription.count -= i32::from(subscription.count > 0);
            subscription.count != 0
        });
        for sink in due {
            let data = Data::default().int(hosts.len() as i32);
            let data = hosts.iter().fold(data, |data, host| data.int(host.as_int()));
            let bytes = data.message(sink, 0);
            self.route(TaskMessage::Whole(bytes));
        }
    }
}
