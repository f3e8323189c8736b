//! Requests of pages that no task needs yet. A node sees all page faults of its tasks, also those
//! that cost no message. So it predicts pages better than their homes, if they are not those that
//! it needed before ([`tracks`](crate::ride::tracks)).
//!
//! **Along.** A request names further pages of the same home. The grant carries them as
//! [rides](super::rides), in place of those that the home predicts. So there are no further
//! messages and no further states.
//!
//! **Apart.** If the task also needs pages of other homes, the node requests them from there at the
//! same time. Such a page is Prefetching, and arrives as a ride does: its first use is a fault
//! without a message. Like any request it is answered before the node has reached a barrier.
//!
//! Both kinds only ask a home for pages that it may send at that time, so consistency is that of
//! requests and rides.

use super::event::Action;
use super::node::Node;
use super::page::{PageEvent, State};
use super::state::rides::Arrival;
use super::table::Table;
use crate::message::{NodeId, Page};
use crate::ride::tracks::{Pages, Wants};
use crate::ride::{By, Carrier, Fate, Policy, Ride};

impl Pages for Table {
    fn home(&self, page: Page) -> Option<NodeId> {
        Some(self.get(page)?.home)
    }

    fn is_absent(&self, page: Page) -> bool {
        self.get(page).is_some_and(|entry| entry.state == State::Invalid)
    }
}

impl Node {
    /// Applies a page fault, and requests further pages that the tasks are predicted to need.
    pub(super) fn fault_and_prefetch(
        &mut self,
        page: Page,
        event: PageEvent,
        actions: &mut Vec<Action>,
    ) {
        let state = self.pages.of(page).state;
        let is_absent = state == State::Invalid;
        let is_coming = is_absent && self.rides.coming.contains_key(&page);
        let mut wants = Wants::default();
        if !self.rides.suggested.is_empty() {
            let home = self.pages.home(page);
            let others = self.rides.suggested.iter().copied().filter(|&other| other != page);
            let (along, apart): (Vec<_>, Vec<_>) =
                others.partition(|&other| self.pages.home(other) == home && other > page);
            let apart = apart.into_iter().map(|page| vec![page]).collect();
            wants = Wants { along, apart };
        } else if self.options.rides == Policy::Auto {
            let is_needed = is_absent || matches!(state, State::Prefetching | State::Ridden);
            if is_needed && self.rides.tracks.needs(self.epoch, page, &self.pages) {
                let is_absent = is_absent && !is_coming;
                wants = self.rides.tracks.wants(page, is_absent, &self.pages);
            }
        }
        if is_coming {
            self.rides.stopped.push(page);
        } else {
            self.rides.along = wants.along;
            self.apply(page, event, None, actions);
            self.rides.along.clear();
        }
        self.prefetch(wants.apart, actions);
    }

    /// Handles the end of a request: the pages that it asked for along with its own are here, or
    /// will not come. Tasks that wait for one of these pages retry.
    pub(super) fn end_request(&mut self, page: Page, actions: &mut Vec<Action>) {
        let rides = &mut self.rides;
        rides.coming.retain(|_, with| *with != page);
        let (coming, stopped) = (&rides.coming, &mut rides.stopped);
        for page in stopped.extract_if(.., |page| !coming.contains_key(page)) {
            actions.push(Action::Wake(page));
        }
    }

    /// Requests the pages that the tasks are predicted to need in the phase that begins. Call this
    /// before requests of other nodes are answered, since answers are long messages.
    pub(super) fn prefetch_phase(&mut self, actions: &mut Vec<Action>) {
        if self.options.rides == Policy::Auto {
            let groups = self.rides.tracks.begins(self.epoch, &self.pages);
            self.prefetch(groups, actions);
        }
    }

    /// Requests groups of pages, each from one home.
    fn prefetch(&mut self, groups: Vec<Vec<Page>>, actions: &mut Vec<Action>) {
        for mut group in groups {
            let coming = &self.rides.coming;
            group.retain(|page| self.pages.is_absent(*page) && !coming.contains_key(page));
            if !group.is_empty() {
                let first = group.remove(0);
                self.rides.along = group;
                let counts = &mut self.counts.rides[Carrier::Page as usize][By::Prefetch as usize];
                counts.predicted += 1;
                counts.sent += 1;
                self.apply(first, PageEvent::Prefetch, None, actions);
            }
        }
    }

    /// Takes the records of the pages that the request of `page` asks for along with it.
    pub(super) fn take_along(&mut self, page: Page) -> Vec<Ride> {
        let most = (self.options.pages_max as usize).saturating_sub(1);
        let mut along = std::mem::take(&mut self.rides.along);
        along.retain(|page| self.pages.is_absent(*page) && !self.rides.coming.contains_key(page));
        along.truncate(most);
        self.rides.coming.extend(along.iter().map(|&other| (other, page)));
        let record = |page| Ride { page, by: By::Wanted, fate: Fate::Wanted };
        along.into_iter().map(record).collect()
    }

    /// Learns that a prefetched page has left its state for `next`.
    pub(super) fn end_prefetch(&mut self, page: Page, next: State) {
        let from = self.pages.of(page).home;
        let arrival = Arrival { from, carrier: Carrier::Page, by: By::Prefetch, is_idle: false };
        match next {
            State::Ridden => {
                self.rides.unused.insert(page, arrival);
            }
            State::Stale => self.count_fate(page, arrival, Fate::Wasted),
            _ => self.count_fate(page, arrival, Fate::Used),
        }
    }
}
