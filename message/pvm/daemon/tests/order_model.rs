//! Explores every order of events in small virtual machines. Hosts crash, join, and lose the
//! connection to living hosts, while changes are proposed.

use std::collections::{BTreeMap, VecDeque};

use pvmd::order::{Entry, Host, Item, Message, Order, Output};
use stateright::{Checker, Model, Property, UniformChooser};

type State = Vec<Entry<u8>>;
type Machine = Order<u8, State>;

/// The possible events, and their number.
#[derive(Clone)]
struct Cluster {
    members: Host,
    /// Changes that hosts propose.
    proposals: Vec<Host>,
    crashes: u8,
    /// Lost connections between living hosts.
    cuts: u8,
    /// The host that proposes the join of the next host.
    join: Option<Host>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    order: Machine,
    state: State,
    crashed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    nodes: BTreeMap<Host, Node>,
    messages: BTreeMap<(Host, Host), VecDeque<Message<u8, State>>>,
    proposed: usize,
    crashes: u8,
    cuts: u8,
    joined: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Event {
    Arrive(Host, Host),
    Crash(Host),
    /// The first loses the second.
    Lose(Host, Host),
    Propose,
    Join,
}

impl World {
    fn settle(&mut self, host: Host) {
        let node = self.nodes.get_mut(&host).expect("it exists");
        for output in node.order.outputs() {
            match output {
                Output::Send(to, message) => {
                    assert_ne!(to, host);
                    self.messages.entry((host, to)).or_default().push_back(message);
                }
                Output::Apply(entry) => node.state.push(entry),
                Output::Snapshot(to, head) => {
                    let message = Message::Snapshot(head, node.state.clone());
                    self.messages.entry((host, to)).or_default().push_back(message);
                }
                Output::Install(state) => node.state = state,
                Output::Expelled => {}
            }
        }
    }

    fn runs(&self, host: Host) -> bool {
        self.nodes.get(&host).is_some_and(|node| !node.crashed && !node.order.is_expelled())
    }

    fn running(&self) -> impl Iterator<Item = (Host, &Node)> {
        self.nodes.iter().filter(|(host, _)| self.runs(**host)).map(|(&host, node)| (host, node))
    }

    /// Returns the pairs of running hosts that are connected.
    fn pairs(&self) -> impl Iterator<Item = (&Node, &Node)> {
        self.running().flat_map(move |(a, one)| {
            self.running()
                .filter(move |&(b, other)| {
                    a < b && !one.order.is_lost(b) && !other.order.is_lost(a)
                })
                .map(move |(_, other)| (one, other))
        })
    }
}

impl Model for Cluster {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let mut world = World {
            nodes: BTreeMap::new(),
            messages: BTreeMap::new(),
            proposed: 0,
            crashes: 0,
            cuts: 0,
            joined: false,
        };
        let node = |order| Node { order, state: Vec::new(), crashed: false };
        world.nodes.insert(1, node(Order::first(1)));
        for host in 2..=self.members {
            world.nodes.insert(host, node(Order::joining(host)));
            let first = world.nodes.get_mut(&1).expect("just made");
            first.order.propose(Item::Join(host, 0));
            world.settle(1);
            // The machine starts without failures.
            while let Some((from, to)) = waiting(&world).first().copied() {
                self.arrive(&mut world, from, to);
            }
        }
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Event>) {
        actions.extend(waiting(world).into_iter().map(|(from, to)| Event::Arrive(from, to)));
        for (host, node) in world.running() {
            if world.crashes < self.crashes {
                actions.push(Event::Crash(host));
            }
            for &other in node.order.members() {
                if other == host || node.order.is_lost(other) {
                    continue;
                }
                let ended = !world.runs(other);
                if ended || world.cuts < self.cuts {
                    actions.push(Event::Lose(host, other));
                }
            }
        }
        let proposer = self.proposals.get(world.proposed);
        if proposer.is_some_and(|&host| world.runs(host)) {
            actions.push(Event::Propose);
        }
        if !world.joined && self.join.is_some_and(|host| world.runs(host)) {
            actions.push(Event::Join);
        }
    }

    fn next_state(&self, last: &World, event: Event) -> Option<World> {
        let mut world = last.clone();
        match event {
            Event::Arrive(from, to) => self.arrive(&mut world, from, to),
            Event::Crash(host) => {
                world.crashes += 1;
                world.nodes.get_mut(&host)?.crashed = true;
                world.messages.retain(|&(_, to), _| to != host);
            }
            Event::Lose(host, other) => {
                world.cuts += u8::from(world.runs(other));
                // Messages in flight are lost with the connection.
                world.messages.remove(&(other, host));
                world.nodes.get_mut(&host)?.order.lost(other);
                world.settle(host);
            }
            Event::Propose => {
                let host = self.proposals[world.proposed];
                world.proposed += 1;
                let change = world.proposed as u8;
                world.nodes.get_mut(&host)?.order.propose(Item::Change(change));
                world.settle(host);
            }
            Event::Join => {
                world.joined = true;
                let host = self.members + 1;
                let order = Order::joining(host);
                world.nodes.insert(host, Node { order, state: Vec::new(), crashed: false });
                let by = self.join?;
                world.nodes.get_mut(&by)?.order.propose(Item::Join(host, 0));
                world.settle(by);
            }
        }
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one order", |_, world: &World| {
                world.pairs().all(|(one, other)| {
                    let both = one.state.len().min(other.state.len());
                    one.state[..both] == other.state[..both]
                })
            }),
            Property::always("nothing twice", |_, world: &World| {
                world.running().all(|(_, node)| {
                    let mut changes: Vec<(Host, u64)> =
                        node.state.iter().map(|entry| (entry.origin, entry.number)).collect();
                    changes.sort_unstable();
                    changes.windows(2).all(|two| two[0] != two[1])
                })
            }),
            Property::always("all is done in the end", |model: &Cluster, world: &World| {
                if !is_over(model, world) {
                    return true;
                }
                let settled = world.running().all(|(_, node)| {
                    let joining = node.order.members().is_empty();
                    let waits = node.order.is_waiting();
                    let lost = node.order.members().iter().any(|&h| node.order.is_lost(h));
                    // The joining host may never have become a member, if its starter crashed.
                    joining || (!waits && !lost)
                });
                let same = world.pairs().all(|(one, other)| {
                    let joining = |node: &Node| node.order.members().is_empty();
                    joining(one) || joining(other) || one.state == other.state
                });
                settled && same
            }),
            Property::always("only a cut expels", |_, world: &World| {
                let expelled = |node: &Node| !node.crashed && node.order.is_expelled();
                world.cuts > 0 || !world.nodes.values().any(expelled)
            }),
            Property::always("a crash or a cut leaves somebody", |_, world: &World| {
                world.crashes + world.cuts > 1 || world.running().next().is_some()
            }),
            // Without these states, the model would prove nothing.
            Property::sometimes("a sequencer follows another", |_, world: &World| {
                world.running().any(|(host, node)| host > 1 && node.order.sequencer() == Some(host))
            }),
        ]
    }
}

impl Cluster {
    fn arrive(&self, world: &mut World, from: Host, to: Host) {
        let channel = world.messages.get_mut(&(from, to)).expect("it is in `waiting`");
        let message = channel.pop_front().expect("it is in `waiting`");
        if channel.is_empty() {
            world.messages.remove(&(from, to));
        }
        if world.runs(to) {
            world.nodes.get_mut(&to).expect("runs").order.receive(from, message);
            world.settle(to);
        }
    }
}

fn waiting(world: &World) -> Vec<(Host, Host)> {
    let open = |&&(from, to): &&(Host, Host)| world.nodes.contains_key(&to) && from != to;
    world.messages.keys().filter(open).copied().collect()
}

/// Returns true if no message is in flight, and all hosts know all losses.
fn is_over(model: &Cluster, world: &World) -> bool {
    let mut events = Vec::new();
    model.actions(world, &mut events);
    events.iter().all(|event| match event {
        Event::Crash(_) => true,
        Event::Lose(_, other) => world.runs(*other),
        _ => false,
    })
}

fn check(cluster: Cluster) {
    let checker = cluster.checker().threads(2).spawn_dfs().join();
    eprintln!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

fn cluster(members: Host, proposals: &[Host], crashes: u8, cuts: u8) -> Cluster {
    Cluster { members, proposals: proposals.to_vec(), crashes, cuts, join: None }
}

#[test]
fn two_hosts_and_a_crash() {
    check(cluster(2, &[1, 2, 2], 1, 0));
}

#[test]
fn three_hosts_and_two_crashes() {
    check(cluster(3, &[2, 3], 2, 0));
}

#[test]
fn three_hosts_and_a_cut() {
    check(cluster(3, &[1, 3], 0, 1));
}

#[test]
fn a_host_joins_while_another_crashes() {
    check(Cluster { join: Some(2), ..cluster(2, &[2], 1, 0) });
}

#[test]
fn a_host_joins_three_of_which_one_crashes() {
    check(Cluster { join: Some(2), ..cluster(3, &[3], 1, 0) });
}

#[test]
fn a_host_joins_during_a_cut() {
    check(Cluster { join: Some(1), ..cluster(2, &[2], 0, 1) });
}

/// Explores larger machines, which have too many states, by random walks. `NAGAYA_SEED` replays
/// one, `STATES=` explores more states.
#[test]
fn five_hosts_at_random() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("NAGAYA_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let states = number("STATES").unwrap_or(20_000) as usize;
    eprintln!("NAGAYA_SEED={seed}");
    for (crashes, cuts) in [(3, 0), (1, 2)] {
        let cluster = Cluster { join: Some(2), ..cluster(4, &[1, 3, 4, 2, 3], crashes, cuts) };
        let checker = cluster.checker().target_state_count(states);
        let checker = checker.spawn_simulation(seed, UniformChooser).join();
        eprintln!("{} states", checker.state_count());
        for (name, path) in checker.discoveries() {
            let running: Vec<_> = path.last_state().running().collect();
            assert_eq!(
                name, "a sequencer follows another",
                "NAGAYA_SEED={seed}: {path}{running:#?}"
            );
        }
    }
}

/// Replays these events, then all remaining ones. The properties hold at the end.
fn replay(cluster: &Cluster, events: &[Event]) {
    let mut world = cluster.init_states().remove(0);
    for event in events {
        let mut possible = Vec::new();
        cluster.actions(&world, &mut possible);
        assert!(possible.contains(event), "{event:?} is not possible: {possible:?}");
        world = cluster.next_state(&world, event.clone()).unwrap_or(world);
    }
    loop {
        let mut possible = Vec::new();
        cluster.actions(&world, &mut possible);
        let must = |event: &Event| match *event {
            Event::Arrive(..) => true,
            Event::Lose(_, other) => !world.runs(other),
            _ => false,
        };
        let Some(event) = possible.into_iter().find(must) else { break };
        world = cluster.next_state(&world, event).unwrap_or(world);
    }
    // The remaining proposals are cancelled.
    let over = Cluster { proposals: Vec::new(), join: None, ..cluster.clone() };
    for property in over.properties() {
        if property.name != "a sequencer follows another" {
            assert!((property.condition)(&over, &world), "{}: {world:#?}", property.name);
        }
    }
}

use Event::{Arrive, Crash, Join, Lose};

/// Two hosts lose each other. A joining host has received messages from one side only.
#[test]
fn a_host_that_joins_hears_one_side_of_a_cut() {
    let cluster = Cluster { join: Some(2), ..cluster(4, &[], 1, 2) };
    let cut = [Join, Arrive(2, 1), Lose(1, 2), Lose(2, 3), Crash(1), Arrive(1, 2)];
    replay(&cluster, &[&cut[..], &[Lose(3, 1), Lose(4, 1), Lose(2, 1)]].concat());
}
