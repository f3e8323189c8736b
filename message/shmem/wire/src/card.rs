//! The facts that all PEs exchange when they start, and the nodes that follow from them.

use serde::{Deserialize, Serialize};

/// The version of the messages between nodes, which all PEs must share.
pub const VERSION: u32 = 1;

/// The facts about a PE.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// See [`VERSION`].
    pub version: u32,
    /// Identifies the space, among all spaces of all hosts.
    pub space: u64,
    /// The host's name, for messages.
    pub host: String,
    /// The PID, for messages.
    pub pid: u32,
    /// A secret. The job uses that of PE 0.
    pub secret: [u8; 32],
    /// Bytes of the symmetric heap.
    pub heap_bytes: u64,
    /// Bytes of static data.
    pub data_bytes: u64,
    /// Identifies the program: PEs with different programs share no static data.
    pub program: u64,
}

impl Card {
    /// Returns the bytes to exchange.
    pub fn bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("into memory")
    }

    /// Parses the cards of all PEs, and checks that they form a job. The error is one line.
    pub fn parse_all<'a>(all: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Self>, String> {
        let mut cards: Vec<Self> = Vec::new();
        for (pe, bytes) in all.into_iter().enumerate() {
            let card = postcard::from_bytes::<Self>(bytes).ok();
            let card = card.filter(|card| card.version == VERSION).ok_or_else(|| {
                format!("PE {pe} has another version of nagaya: install the same on all hosts")
            })?;
            let first = cards.first().unwrap_or(&card);
            if card.heap_bytes != first.heap_bytes {
                return Err(format!(
                    "PE {pe} has another size of the symmetric heap: set SHMEM_SYMMETRIC_SIZE alike"
                ));
            }
            cards.push(card);
        }
        Ok(cards)
    }
}

/// The nodes of a job: a node is a space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// The PEs of each node, by number. The first runs the agent.
    pub pes: Vec<Vec<usize>>,
    /// The node of each PE.
    pub of_pe: Vec<usize>,
}

impl Nodes {
    /// Computes the nodes, in the order of their first PEs.
    pub fn new(cards: &[Card]) -> Self {
        let mut spaces: Vec<u64> = Vec::new();
        let mut this = Self { pes: Vec::new(), of_pe: Vec::new() };
        for (pe, card) in cards.iter().enumerate() {
            let node = spaces.iter().position(|space| *space == card.space).unwrap_or_else(|| {
                spaces.push(card.space);
                this.pes.push(Vec::new());
                spaces.len() - 1
            });
            this.pes[node].push(pe);
            this.of_pe.push(node);
        }
        this
    }

    /// Number of nodes.
    pub fn n(&self) -> usize {
        self.pes.len()
    }

    /// Returns the PE that runs a node's agent.
    pub fn first(&self, node: usize) -> usize {
        self.pes[node][0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(space: u64) -> Card {
        let (host, pid, secret) = ("a".to_owned(), 7, [3; 32]);
        let (heap_bytes, data_bytes, program) = (1 << 20, 100, 5);
        Card { version: VERSION, space, host, pid, secret, heap_bytes, data_bytes, program }
    }

    fn parse(cards: &[Card]) -> Result<Vec<Card>, String> {
        let bytes: Vec<_> = cards.iter().map(Card::bytes).collect();
        Card::parse_all(bytes.iter().map(Vec::as_slice))
    }

    #[test]
    fn nodes_are_spaces_in_the_order_of_their_first_pes() {
        let cards = parse(&[9, 4, 9, 9, 4, 1].map(card)).expect("cards");
        let nodes = Nodes::new(&cards);
        assert_eq!(nodes.pes, [vec![0, 2, 3], vec![1, 4], vec![5]]);
        assert_eq!(nodes.of_pe, [0, 1, 0, 0, 1, 2]);
        assert_eq!((nodes.n(), nodes.first(1)), (3, 1));
    }

    #[test]
    fn cards_that_form_no_job_are_named() {
        let other = Card { heap_bytes: 5, ..card(1) };
        let line = parse(&[card(1), other]).expect_err("another heap");
        assert!(line.starts_with("PE 1 has another size of the symmetric heap"), "{line}");
        let newer = Card { version: VERSION + 1, ..card(1) };
        let line = parse(&[card(1), card(2), newer]).expect_err("another version");
        assert!(line.starts_with("PE 2 has another version"), "{line}");
        assert!(Card::parse_all([&[1_u8, 2][..]]).is_err());
    }
}
