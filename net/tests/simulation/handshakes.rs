//! Handshakes in an order that is rare in a real network: each test is a defect that random runs
//! have found.

use std::time::Duration;

use net::error::FabricError;
use net::event::{Event, Peer, Sending};
use net::fabric::Fabric;
use net::mesh::{Meeting, Mesh};
use net::secret::Secret;
use net::simulation::{Fault, Network, Plan};

/// Longer than a message takes.
const STEP: Duration = Duration::from_millis(1);

/// Two fabrics, which the test polls.
fn two(seed: u64, plan: Plan) -> (Network, Fabric, Fabric) {
    let mut network = Network::new(seed, plan);
    let secret = Secret::new([7; 32]);
    let mut fabric = |id| network.fabric(id, &secret).expect("a fabric");
    let (one, two) = (fabric(0), fabric(1));
    (network, one, two)
}

/// Polls both for some time. Returns their events.
fn run(network: &Network, one: &mut Fabric, two: &mut Fabric, time: Duration) -> [Vec<Event>; 2] {
    let (until, mut events) = (network.now() + time, [Vec::new(), Vec::new()]);
    while network.now() < until {
        network.advance(STEP);
        events[0].extend(std::iter::from_fn(|| one.poll()));
        events[1].extend(std::iter::from_fn(|| two.poll()));
    }
    events
}

fn is_lost(events: &[Event], lost: Peer) -> bool {
    events.iter().any(|event| matches!(event, Event::Lost { peer, .. } if *peer == lost))
}

fn messages(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Message { .. })).count()
}

#[test]
fn a_connection_that_is_closed_before_it_is_open_takes_no_messages() {
    let (network, mut one, mut two) = two(1, Plan::calm());
    let peer = one.connect(two.address()).expect("its address");
    assert!(matches!(one.send(peer, b"before", vec![]), Ok(Sending::Pending(_))));
    one.close(peer);
    assert!(matches!(one.send(peer, b"after", vec![]), Err(FabricError::Gone)));
    let [ours, theirs] = run(&network, &mut one, &mut two, 10 * STEP);
    assert_eq!(messages(&theirs), 1);
    assert!(ours.iter().any(|event| matches!(event, Event::Closed(closed) if *closed == peer)));
}

/// A connection of a peer that had not proved itself was given to the user, and its end was not
/// reported.
#[test]
fn a_caller_that_dies_is_lost_for_a_peer_that_calls_meanwhile() {
    for with_host in [false, true] {
        let (mut network, mut one, mut two) = two(1, Plan::calm());
        one.connect(two.address()).expect("its address");
        network.advance(STEP);
        assert!(two.poll().is_none(), "it answers");
        let peer = two.connect(one.address()).expect("its address");
        network.kill(0, with_host);
        let [_, events] = run(&network, &mut one, &mut two, Duration::from_secs(20));
        assert!(is_lost(&events, peer), "{events:?}");
    }
}

/// The new connection replaced the old one, with its messages.
#[test]
fn a_new_connection_lets_a_closed_one_deliver_its_messages() {
    let (network, mut one, mut two) = two(1, Plan { window_bytes: 1, ..Plan::calm() });
    let first = one.connect(two.address()).expect("its address");
    run(&network, &mut one, &mut two, 10 * STEP);
    for _ in 0..20 {
        one.send(first, b"first", vec![]).expect("it stands");
    }
    one.close(first);
    let second = one.connect(two.address()).expect("its address");
    assert_ne!(first, second);
    one.send(second, b"second", vec![]).expect("it begins");
    let [ours, theirs] = run(&network, &mut one, &mut two, 100 * STEP);
    assert!(!is_lost(&ours, first), "{ours:?}");
    assert_eq!(messages(&theirs), 21);
}

/// The second call was taken for the first one, and both sides believed in another connection.
#[test]
fn a_second_call_is_not_taken_for_the_first_if_both_sides_call() {
    for seed in 0..20 {
        let (network, mut one, mut two) = two(seed, Plan::calm());
        let first = one.connect(two.address()).expect("its address");
        two.connect(one.address()).expect("its address");
        network.advance(STEP);
        // Each answers the other's call. The second side does not see that of the first yet.
        assert!(two.poll().is_none());
        assert!(one.poll().is_none());
        network.advance(STEP);
        assert!(matches!(one.poll(), Some(Event::Connected(peer)) if peer == first));
        one.close(first);
        let second = one.connect(two.address()).expect("its address");
        one.send(second, b"second", vec![]).expect("it begins");
        let [_, theirs] = run(&network, &mut one, &mut two, 100 * STEP);
        assert_eq!(messages(&theirs), 1, "seed {seed}: {theirs:?}");
        one.close(second);
        let [ours, _] = run(&network, &mut one, &mut two, 100 * STEP);
        assert!(matches!(ours[..], [Event::Closed(peer)] if peer == second), "{ours:?}");
    }
}

/// Each side has the way of its own call. The end of one of them was not reported.
#[test]
fn a_connection_that_is_given_up_is_lost_if_both_sides_have_called() {
    let (network, mut one, mut two) = two(1, Plan { window_bytes: 1, ..Plan::calm() });
    let theirs = one.connect(two.address()).expect("its address");
    let ours = two.connect(one.address()).expect("its address");
    run(&network, &mut one, &mut two, 10 * STEP);
    // The notice waits behind this message, and is dropped.
    two.send(ours, b"first", vec![]).expect("it stands");
    two.send(ours, b"second", vec![]).expect("it stands");
    two.abandon(ours);
    let [events, _] = run(&network, &mut one, &mut two, 100 * STEP);
    assert!(is_lost(&events, theirs), "{events:?}");
}

/// A side that answered a close dropped what it had sent before, after 5 s.
#[test]
fn messages_that_were_sent_before_the_answer_to_a_close_may_take_long() {
    let (network, mut one, mut two) = two(1, Plan { window_bytes: 1, ..Plan::calm() });
    let theirs = one.connect(two.address()).expect("its address");
    let connected = run(&network, &mut one, &mut two, 10 * STEP);
    let [_, events] = connected;
    let Some(&Event::Connected(ours)) = events.first() else { panic!("{events:?}") };
    two.close(ours);
    for _ in 0..20 {
        one.send(theirs, b"first", vec![]).expect("it stands");
    }
    let mut events = Vec::new();
    for _ in 0..60 {
        // One message at a time has room on its way.
        network.advance(Duration::from_secs(1));
        while one.poll().is_some() {}
        events.extend(two.poll());
    }
    assert_eq!(messages(&events), 20, "{events:?}");
    assert!(matches!(events.last(), Some(Event::Closed(peer)) if *peer == ours), "{events:?}");
}

/// The caller believed in a connection that the other side had given up.
#[test]
fn a_caller_that_is_stopped_for_too_long_learns_that_it_was_given_up() {
    for overtakes in [false, true] {
        let (network, mut one, mut two) = two(1, Plan { overtakes, ..Plan::calm() });
        let peer = one.connect(two.address()).expect("its address");
        for _ in 0..10 {
            network.advance(Duration::from_secs(1));
            assert!(two.poll().is_none(), "it answers, and gives up after 5 s");
        }
        let [events, _] = run(&network, &mut one, &mut two, 100 * STEP);
        assert!(is_lost(&events, peer), "{events:?}");
    }
}

/// The mesh called again at once, and `receive` did not return.
#[test]
fn a_node_that_cannot_be_reached_is_called_again_after_a_pause() {
    let mut network = Network::new(1, Plan { connect: 1, ..Plan::calm() });
    let secret = Secret::new([7; 32]);
    let mut mesh = |me| network.mesh(me, &secret, None, vec![0]).expect("a mesh");
    let (mut one, two) = (mesh(0), mesh(1));
    one.connect(&[one.address().to_vec().as_slice(), two.address()]).expect("addresses");
    for _ in 0..100 {
        assert!(one.receive().is_none());
        network.advance(STEP);
    }
    assert_eq!(network.counts().of(Fault::ConnectFailed), 2, "once at first, and after 50 ms");
    assert!(one.deadline().is_some(), "a sleeper wakes for the next call");
}

/// The others waited for 30 s.
#[test]
fn nodes_that_meet_learn_that_one_has_left() {
    let mut network = Network::new(1, Plan::calm());
    let secret = Secret::new([7; 32]);
    let mut meshes: Vec<Mesh> =
        (0..3).map(|me| network.mesh(me, &secret, None, vec![0]).expect("a mesh")).collect();
    let addresses: Vec<Vec<u8>> = meshes.iter().map(|mesh| mesh.address().to_vec()).collect();
    let addresses: Vec<&[u8]> = addresses.iter().map(Vec::as_slice).collect();
    let mut meeting = Meeting::begin();
    for mesh in &mut meshes[..2] {
        mesh.connect(&addresses).expect("addresses");
    }
    let mut result = None;
    for round in 0..20 {
        network.advance(STEP);
        result = meeting.step(&mut meshes[0], &["a", "b", "c"], || false);
        if result.is_some() {
            break;
        }
        assert!(meshes[1].receive().is_none());
        if round == 10 {
            meshes[1].leave();
        }
    }
    assert_eq!(result, Some(Err("a does not find all: b has left".to_owned())));
}
