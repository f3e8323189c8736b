//! Attackers who speak UCX, and peers who send malformed or forged messages, over UCX's TCP.

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use net::event::Dropped;
use net::fabric::{ANSWER_MAX, Fabric};
use net::secret::{Domain, Secret};
use net::ucx::ucp::*;
use net::wire::{Address, CarrierKind, Header, Hello, Kind, sections};
use zerocopy::IntoBytes as _;

mod node;
use node::{Node, TIME_LIMIT, lost_by_another_secret, play, random, round, secret};

#[test]
fn role() {
    play();
}

const CARRIERS: &str = "ucx-tcp";

fn fabric(id: u64, secret: &Secret) -> Fabric {
    Fabric::with_carriers(id, secret, CARRIERS).unwrap()
}

fn over_ucx() -> [(&'static str, String); 1] {
    [("NAGAYA_NET", CARRIERS.to_owned())]
}

/// A process that speaks UCX, and sends any messages.
struct Stranger {
    ucp: &'static Ucp,
    worker: *mut ucp_worker,
    ep: *mut ucp_ep,
    /// Buffers that UCX may still read.
    sent: Vec<Vec<u8>>,
}

impl Stranger {
    /// Connected to the fabric with that address.
    fn new(address: &[u8]) -> Self {
        let (_, address) = Address::parse(address).unwrap();
        let section = sections(address).find(|section| section.kind == CarrierKind::Ucx).unwrap();
        let address = section.bytes;
        let ucp = Ucp::get().unwrap();
        let params = ucp_params_t {
            field_mask: UCP_PARAM_FIELD_FEATURES,
            features: UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
            ..ucp_params_t::empty()
        };
        let [mut context, mut worker, mut ep] = [null_mut::<c_void>(); 3];
        let ep_params = ucp_ep_params_t {
            field_mask: UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
            address: address.as_ptr().cast(),
            err_mode: UCP_ERR_HANDLING_MODE_PEER,
            ..ucp_ep_params_t::empty()
        };
        let [name, value] = ["TLS", "^sm,self"].map(|s| CString::new(s).unwrap());
        // SAFETY: as UCX documents them; nothing is destroyed before the test ends.
        unsafe {
            let mut config = null_mut();
            (ucp.ucp_config_read)(null_mut(), null_mut(), &mut config);
            (ucp.ucp_config_modify)(config, name.as_ptr(), value.as_ptr());
            let context = (&raw mut context).cast();
            assert_eq!((ucp.ucp_init_version)(1, 10, &params, config, context), UCS_OK);
            let worker_params = ucp_worker_params_t::empty();
            let created =
                (ucp.ucp_worker_create)(*context, &worker_params, (&raw mut worker).cast());
            assert_eq!(created, UCS_OK);
            let created = (ucp.ucp_ep_create)(worker.cast(), &ep_params, (&raw mut ep).cast());
            assert_eq!(created, UCS_OK);
        }
        Self { ucp, worker: worker.cast(), ep: ep.cast(), sent: Vec::new() }
    }

    fn send(&mut self, header: &[u8], payload: &[u8]) {
        self.sent.push(header.to_vec());
        self.sent.push(payload.to_vec());
        let [header, payload] = self.sent.last_chunk().unwrap();
        let param = ucp_request_param_t::empty();
        // SAFETY: both stay until the test ends.
        let started = Started::of(unsafe {
            let (head, start) = (header.as_ptr().cast(), payload.as_ptr().cast());
            (self.ucp.ucp_am_send_nbx)(self.ep, 0, head, header.len(), start, payload.len(), &param)
        });
        assert!(!matches!(started, Started::Failed(_)));
    }

    fn progress(&mut self) {
        // SAFETY: our own worker.
        unsafe { (self.ucp.ucp_worker_progress)(self.worker) };
    }
}

/// Lets both work until the counters have these values. The fabric reports no event.
#[track_caller]
fn until_dropped(fabric: &mut Fabric, stranger: &mut Stranger, expected: Dropped) {
    let begin = Instant::now();
    while fabric.dropped() != expected {
        assert!(begin.elapsed() < TIME_LIMIT, "{:?}", fabric.dropped());
        stranger.progress();
        let event = fabric.poll();
        assert!(event.is_none(), "{event:?}");
    }
}

/// A hello as the fabric `from` says it to the fabric 1.
fn hello(secret: &Secret, from: u64, to: u64, ucx: &[u8]) -> (Header, Vec<u8>) {
    let body = Hello { from: from.into(), to: to.into(), session: 1.into(), nonce: [3; 16] };
    let payload = [body.as_bytes(), ucx].concat();
    let token = secret.token(Domain::Hello, &[&payload]);
    (Header::new(Kind::Hello, 0, 0, token, 0), payload)
}

#[test]
fn malformed_and_forged_messages_are_dropped_and_counted() {
    let mut fabric = fabric(1, &secret());
    let echo = Node::start("echo", 2, &over_ucx());
    let peer = fabric.connect(&echo.address).unwrap();
    round(&mut fabric, peer, 0);

    let mut stranger = Stranger::new(fabric.address());
    let mut random = random();
    let mut noise = |bytes: usize| (0..bytes).map(|_| random.u8(..)).collect::<Vec<_>>();
    let own = fabric.address().to_vec();
    let (_, ucx) = Address::parse(&own).unwrap();

    let mut expected = Dropped::default();
    // No header, part of one, noise, a user's header that is too long, large payloads of those.
    for (header, payload) in [(0, 0), (1, 0), (39, 9), (40, 1), (1000, 100), (500, 3 << 20)] {
        stranger.send(&noise(header), &noise(payload));
        expected.malformed += 1;
    }
    // A right header of a message that has none of its parts.
    let (header, payload) = hello(&secret(), 3, 1, ucx);
    stranger.send(header.as_bytes(), &payload[..20]);
    expected.malformed += 1;
    until_dropped(&mut fabric, &mut stranger, expected);

    // Another secret; another receiver; from ourselves; changed on its way.
    for (header, payload) in [
        hello(&Secret::random(), 3, 1, ucx),
        hello(&secret(), 3, 4, ucx),
        hello(&secret(), 1, 1, ucx),
    ] {
        stranger.send(header.as_bytes(), &payload);
        expected.unauthenticated += 1;
    }
    let (header, mut payload) = hello(&secret(), 3, 1, ucx);
    payload[50] ^= 1;
    stranger.send(header.as_bytes(), &payload);
    expected.unauthenticated += 1;
    // Messages of connections that may exist; their names can be guessed.
    for session in [0, 1, 1 << 32, 1 << 32 | 1, 1 << 32 | 2, 3 << 32 | 1, u64::MAX] {
        let token = Secret::random().token(Domain::Token, &[]);
        let kinds = [(Kind::Data, 100), (Kind::Data, 2 << 20), (Kind::Bye, 0), (Kind::Reset, 0)];
        for (kind, bytes) in kinds {
            // The number of the last message, and of the next one.
            for sequence in [1, 2] {
                let header = Header::new(kind, session, sequence, token, 0);
                stranger.send(header.as_bytes(), &noise(bytes));
                expected.unauthenticated += 1;
            }
        }
    }
    until_dropped(&mut fabric, &mut stranger, expected);
    round(&mut fabric, peer, 1);
}

#[test]
fn a_hello_that_is_played_back_makes_no_connection() {
    let mut fabric = fabric(1, &secret());
    let mut stranger = Stranger::new(fabric.address());
    // A fabric that has ended, and whose hello was recorded.
    let dead = Node::start("echo", 3, &over_ucx()).address.clone();
    let (_, ucx) = Address::parse(&dead).unwrap();
    let (header, payload) = hello(&secret(), 3, 1, ucx);
    for _ in 0..10 {
        stranger.send(header.as_bytes(), &payload);
    }
    let begin = Instant::now();
    while begin.elapsed() < ANSWER_MAX + Duration::from_secs(1) {
        stranger.progress();
        let event = fabric.wait(Duration::from_millis(10)).unwrap();
        assert!(event.is_none(), "{event:?}");
    }
    assert_eq!(fabric.deadline(), None, "nothing of it is left");
}

#[test]
fn a_peer_with_another_secret_gets_no_answer() {
    let mut fabric = fabric(1, &secret());
    let lost = lost_by_another_secret(&mut fabric, CARRIERS);
    assert!(lost.contains("has not answered") && lost.contains("secret"), "{lost}");
    assert_eq!(fabric.dropped(), Dropped { malformed: 0, unauthenticated: 1 });
}
