//! Tasks enroll, send messages through the daemon, query it, and exit.

mod client;

use client::{Client, Host, enroll, parcel, send_bytes};
use pvm::error::Error;
use pvm::tid::Tid;
use pvm::wire::{Answer, Request, VERSION};

#[test]
fn tasks_get_the_tids_that_stock_pvm_gives_and_messages_pass_through_the_daemon() {
    let host = Host::start("route");
    let mut one = Client::new(&host.path);
    let mut two = Client::new(&host.path);
    assert_eq!((one.tid(), two.tid()), (Tid(0x40001), Tid(0x40002)));
    assert_eq!(one.welcome.parent, Error::NoParent.code());
    for n in 0..100u8 {
        one.ask(Request::Route(parcel(two.tid(), i32::from(n), &[n; 5]))).expect("sent");
    }
    for n in (0..100u8).rev() {
        let message = two.receive(i32::from(n));
        assert_eq!((message.header.source, &message.data[..]), (0x40001, &[n; 5][..]));
    }
    host.halt();
}

#[test]
fn tasks_and_hosts_are_told_as_they_are() {
    let host = Host::start("look");
    let mut one = Client::new(&host.path);
    let two = Client::new(&host.path);
    let Ok(Answer::Hosts(hosts)) = one.ask(Request::Config) else { panic!("no hosts") };
    assert_eq!((hosts.len(), hosts[0].tid, hosts[0].speed), (1, Tid(0x40000), 1000));
    let name = hosts[0].name.clone();
    assert_eq!(one.ask(Request::HostStatus(name)), Ok(Answer::Done));
    assert_eq!(one.ask(Request::HostStatus("nohost".into())), Err(Error::NoHost.code()));
    let tids = |answer| match answer {
        Ok(Answer::Tasks(tasks)) => tasks.iter().map(|task| task.tid.0).collect::<Vec<_>>(),
        other => panic!("{other:?} instead of tasks"),
    };
    assert_eq!(tids(one.ask(Request::Tasks(Tid(0)))), [0x40001, 0x40002]);
    assert_eq!(tids(one.ask(Request::Tasks(Tid(0x40000)))), [0x40001, 0x40002]);
    assert_eq!(tids(one.ask(Request::Tasks(two.tid()))), [0x40002]);
    assert_eq!(one.ask(Request::Tasks(Tid(0x80000))), Err(Error::NoHost.code()));
    let status = Request::TaskStatus(two.tid());
    assert_eq!(one.ask(status.clone()), Ok(Answer::Done));
    drop(two);
    while one.ask(status.clone()) != Err(Error::NoTask.code()) {
        std::thread::yield_now();
    }
    assert_eq!(one.ask(Request::TaskStatus(Tid(0x40000))), Err(Error::BadParam.code()));
    // Tids ascend, even if member indices are free again.
    assert_eq!(Client::new(&host.path).tid(), Tid(0x40003));
    assert_eq!(one.ask(Request::Exit), Ok(Answer::Done));
    host.halt();
}

#[test]
fn a_peer_that_breaks_the_protocol_is_refused_alone() {
    let host = Host::start("wrong");
    let mut good = Client::new(&host.path);
    let (_, refused) = enroll(&host.path, VERSION + 1, None);
    assert_eq!(refused.expect_err("another version"), Error::BadVersion.code());
    for bytes in [&b"\xff\xff\xff\xff\xff\xff"[..], b""] {
        let mut client = Client::new(&host.path);
        send_bytes(client.stream(), bytes);
        client.closed();
    }
    let mut client = Client::new(&host.path);
    std::io::Write::write_all(client.stream(), &u32::MAX.to_le_bytes()).expect("sent");
    client.closed();
    let none = pvm::wire::Parcel { bytes: vec![1, 2, 3] };
    assert_eq!(good.ask(Request::Route(none)), Err(Error::BadMsg.code()));
    let again = Request::Enroll { version: VERSION, started_as: None, name: String::new() };
    assert_eq!(good.ask(again), Err(Error::Already.code()));
    host.halt();
}
