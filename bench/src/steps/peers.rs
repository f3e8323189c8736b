//! The lower bounds of operations: UCX's messages as measured by `ucx_perftest` with the settings
//! of `net`, and faults served by a thread of the process. All run on the processors of the nodes,
//! one each.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{FaultKind, Reply, SHORT_BYTES, Series, Step, Times, times_of};
use crate::cores;
use crate::failure::Failure;
use crate::launch::{on_path, output_of};
use crate::programs;

/// The settings of `net` for UCX, unless the user has set others.
const SETTINGS: [(&str, &str); 5] = [
    ("UCX_TLS", "^sm,self"),
    ("UCX_RNDV_THRESH", "256K"),
    ("UCX_ZCOPY_THRESH", "inf"),
    ("UCX_TCP_TX_SEG_SIZE", "256K"),
    ("UCX_TCP_RX_SEG_SIZE", "256K"),
];

/// Bytes of a page message without the page.
const HEADER_BYTES: usize = 64;

const TIME_LIMIT: Duration = Duration::from_secs(120);
const START_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// All lower bounds, by threads that sleep and by threads that spin.
pub struct Peers {
    page_bytes: usize,
    /// One-way times, by bytes.
    messages: BTreeMap<(Series, usize), Times>,
    faults: BTreeMap<(Series, FaultKind), Times>,
}

impl Peers {
    /// Measures all of them, with pages of `page` bytes.
    pub fn measure(page_bytes: usize, samples: u32, out: &Path) -> Result<Self, Failure> {
        let mut peers = Peers { page_bytes, messages: BTreeMap::new(), faults: BTreeMap::new() };
        let program = programs::compile("dsm_fault", out)?;
        let mut command = cores::on(cores::first_pair().map(|(first, _)| first), program);
        command.args([samples.to_string(), page_bytes.to_string()]);
        let output = output_of(&mut command, TIME_LIMIT)?;
        for series in Series::PEERS {
            for (kind, name) in [(FaultKind::Read, "read"), (FaultKind::Write, "write")] {
                let times = times_of(&output, &[name, series.key()]).ok_or_else(|| {
                    Failure::new(format!("dsm_fault: unexpected output: {output}"))
                })?;
                peers.faults.insert((series, kind), times);
            }
            for bytes in [SHORT_BYTES, page_bytes + HEADER_BYTES] {
                let times = Times {
                    median_us: message_us(bytes, series, samples, 50)?,
                    tail_us: message_us(bytes, series, samples, 99)?,
                };
                peers.messages.insert((series, bytes), times);
            }
        }
        Ok(peers)
    }

    /// Returns the lower bound of an operation. Percentiles of the parts are added, although those
    /// of the sum may be slightly lower.
    pub fn least(&self, step: &Step, series: Series) -> Times {
        let there = step.round_trip.map(|_| self.messages[&(series, SHORT_BYTES)]);
        let back = step.round_trip.map(|reply| match reply {
            Reply::Short => self.messages[&(series, SHORT_BYTES)],
            Reply::Page => self.messages[&(series, self.page_bytes + HEADER_BYTES)],
        });
        let fault = step.fault.map(|kind| self.faults[&(series, kind)]);
        let parts = [there, back, fault];
        let sum = |of: fn(&Times) -> f64| parts.iter().flatten().map(of).sum();
        Times { median_us: sum(|times| times.median_us), tail_us: sum(|times| times.tail_us) }
    }
}

/// Returns the one-way time of an active message: half of the round trip at this percentile.
fn message_us(bytes: usize, series: Series, samples: u32, percentile: u32) -> Result<f64, Failure> {
    let program = on_path("ucx_perftest")
        .ok_or_else(|| Failure::new("ucx_perftest: not installed; apt-get install ucx-utils"))?;
    let pair = cores::first_pair();
    let perftest = |cpu, port: u16| {
        let mut command = cores::on(cpu, &program);
        let unset = |name: &str| std::env::var_os(name).is_none();
        command.envs(SETTINGS.into_iter().filter(|(name, _)| unset(name)));
        command.args(["-p", &port.to_string()]);
        command
    };
    let start = |port| Server::start(perftest(pair.map(|(_, second)| second), port));
    let mut port = free_port()?;
    let mut server = start(port)?;
    let begin = Instant::now();
    loop {
        let mut client = perftest(pair.map(|(first, _)| first), port);
        client.args(["127.0.0.1", "-t", "ucp_am_lat", "-f", "-v", "-w", "200"]);
        client.args(["-E", if series == Series::Spinning { "poll" } else { "sleep" }]);
        client.args(["-s", &bytes.to_string(), "-R", &percentile.to_string()]);
        client.args(["-n", &samples.to_string()]);
        match output_of(&mut client, TIME_LIMIT) {
            Ok(output) => {
                return percentile_of(&output).ok_or_else(|| {
                    Failure::new(format!("ucx_perftest: unexpected output: {output}"))
                });
            }
            Err(failure) if begin.elapsed() > START_MAX => return Err(failure),
            // The server does not listen yet.
            Err(_) if server.lives() => thread::sleep(LOOK),
            // Another process has taken the port meanwhile.
            Err(_) => {
                port = free_port()?;
                server = start(port)?;
            }
        }
    }
}

/// Returns the second number of the last line: `10000,8.180,20.082,…`.
fn percentile_of(output: &str) -> Option<f64> {
    output.lines().last()?.split(',').nth(1)?.parse().ok()
}

fn free_port() -> Result<u16, Failure> {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    port.map(|address| address.port())
        .map_err(|error| Failure::new(format!("no port on 127.0.0.1: {error}")))
}

/// The server. It ends with its client, or with this value.
struct Server(Child);

impl Server {
    fn start(mut command: Command) -> Result<Self, Failure> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
            .spawn()
            .map(Server)
            .map_err(|error| Failure::new(format!("ucx_perftest: cannot be started: {error}")))
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_none())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_found() {
        let output = "iterations,50.0_percentile_lat,avg_lat\n10000,8.180,20.082\n";
        assert_eq!(percentile_of(output), Some(8.18));
        assert_eq!(percentile_of(""), None);
    }

    #[test]
    fn parts_add_up() {
        let times = |us: f64| Times { median_us: us, tail_us: 10.0 * us };
        let page_bytes = 4096;
        let peers = Peers {
            page_bytes,
            messages: [(SHORT_BYTES, 1.0), (page_bytes + HEADER_BYTES, 2.0)]
                .map(|(bytes, us)| ((Series::Sleeping, bytes), times(us)))
                .into(),
            faults: [(FaultKind::Read, 4.0), (FaultKind::Write, 8.0)]
                .map(|(kind, us)| ((Series::Sleeping, kind), times(us)))
                .into(),
        };
        let of = |round_trip, fault| {
            let step = Step { name: "", round_trip, fault, bound: None };
            peers.least(&step, Series::Sleeping).median_us
        };
        assert_eq!(of(Some(Reply::Page), Some(FaultKind::Read)), 7.0);
        assert_eq!(of(None, Some(FaultKind::Write)), 8.0);
        assert_eq!(of(Some(Reply::Short), None), 2.0);
    }
}
