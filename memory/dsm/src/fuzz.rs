//! Entry points of the fuzz targets (docs/fuzzing.md): the data that tasks of a job exchange before
//! they share memory. Nothing else uses them.

use net::rendezvous;

use crate::{neighbours, task, world};

/// Reads the contribution of each task, as each of the values that tasks contribute. Returns the
/// number of nodes that the cards form, if all are cards.
pub fn contributions(all: &[&[u8]]) -> Option<usize> {
    for bytes in all {
        task::fuzz(bytes);
        rendezvous::fuzz(bytes);
        let _ = postcard::from_bytes::<neighbours::Invitation>(bytes);
    }
    let cards: Result<Vec<_>, _> = all.iter().map(|bytes| world::Card::parse(bytes)).collect();
    let cards = cards.ok().filter(|cards| !cards.is_empty())?;
    let agreed = world::Card::agree(&cards);
    let world = world::World::new(cards.len() as u32 - 1, &cards);
    for (node, tasks) in world.nodes.iter().enumerate() {
        assert!(!tasks.is_empty() && !world.name(node as u32).is_empty());
    }
    assert!(world.neighbours().contains(&world.rank), "{agreed:?}");
    Some(world.nodes.len())
}
