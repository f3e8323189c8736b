//! Placement of tasks: their domains, and the processors and machine of each domain, as given by
//! `nagaya run --domains`.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::Error;
use crate::processors;
use crate::ssh::is_name;

/// All domains of a job, in the order of their tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domains(Vec<Wanted>);

/// A domain as the user gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    /// Host of another machine; `None` for this one.
    host: Option<String>,
    place: Place,
    /// Text of the place, for that machine.
    text: String,
    tasks: u32,
}

/// A machine's part of a job over several machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Name of the host for ssh; `None` for this machine.
    pub host: Option<String>,
    /// Value of `--domains` on that machine.
    pub domains: String,
    /// Number of tasks.
    pub tasks: u32,
}

/// Processors as the user gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// All that this process may use.
    All,
    /// By number.
    List(Vec<usize>),
    /// The processors of a NUMA node.
    Node(u32),
    /// The fastest.
    Big,
    /// All but the fastest.
    Little,
    /// The processors that a cgroup may use, by the cgroup's path.
    Cgroup(PathBuf),
}

/// A domain's tasks and processors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// Number of tasks.
    pub tasks: u32,
    /// Numbers of its processors, in ascending order.
    pub processors: Vec<usize>,
}

impl Domain {
    /// Returns the CPU mask for sched_setaffinity.
    pub fn mask(&self) -> Vec<u8> {
        let bytes = self.processors.last().map_or(0, |last| last / 64 * 8 + 8);
        let mut mask = vec![0; bytes];
        self.processors.iter().for_each(|cpu| mask[cpu / 8] |= 1 << (cpu % 8));
        mask
    }
}

impl FromStr for Domains {
    type Err = String;

    /// Parses `PLACE:TASKS,PLACE:TASKS…`. A place may contain commas. A place on another machine is
    /// `@HOST` or `@HOST/PLACE`.
    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text, "tasks")
    }
}

impl Domains {
    /// Parses such a list. `counted` names the things that are counted, for messages.
    pub fn of(text: &str, counted: &str) -> Result<Self, String> {
        let mut all = Vec::new();
        let mut place = String::new();
        for part in text.split(',') {
            if !place.is_empty() {
                place.push(',');
            }
            let Some((end, tasks)) = part.rsplit_once(':') else {
                place.push_str(part);
                continue;
            };
            place.push_str(end);
            let tasks = tasks.parse().ok().filter(|&tasks| tasks > 0);
            let none = || format!("{part}: no number of {counted} behind the :");
            all.push(wanted(&place, tasks.ok_or_else(none)?)?);
            place.clear();
        }
        match place.as_str() {
            "" if all.is_empty() => Err("no domain (such as 0-1:4,2-3:4)".into()),
            "" => Ok(Self(all)),
            rest => Err(format!("{rest}: how many {counted}? (such as {rest}:4)")),
        }
    }
}

fn wanted(text: &str, tasks: u32) -> Result<Wanted, String> {
    let (host, place) = match text.strip_prefix('@') {
        None => (None, text),
        Some(far) => {
            let (host, place) = far.split_once('/').unwrap_or((far, "all"));
            if !is_name(host) {
                return Err(format!("{text}: no host (such as @b, or @b/0-3)"));
            }
            (Some(host.to_owned()), place)
        }
    };
    Ok(Wanted { host, place: place.parse()?, text: place.to_owned(), tasks })
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("cgroup=") {
            return Ok(Self::Cgroup(path.into()));
        }
        if let Some(node) = text.strip_prefix("node") {
            let node = node.parse().map_err(|_| format!("{text}: no NUMA node (such as node0)"))?;
            return Ok(Self::Node(node));
        }
        match text {
            "all" => Ok(Self::All),
            "big" => Ok(Self::Big),
            "little" => Ok(Self::Little),
            list => match numbers(list).filter(|numbers| !numbers.is_empty()) {
                Some(numbers) => Ok(Self::List(numbers)),
                None => Err(format!(
                    "{text:?}: no processors (a list such as 0-3,8; all, node0, big, little or \
                     cgroup=PATH)"
                )),
            },
        }
    }
}

/// Parses a list of processors in the kernel's format: 0-3,8.
fn numbers(list: &str) -> Option<Vec<usize>> {
    const PROCESSORS_MAX: usize = 1 << 16;
    let mut all = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // The limit on all ranges together bounds the memory that they take.
        if last < first || last >= PROCESSORS_MAX || all.len() + last - first >= PROCESSORS_MAX {
            return None;
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

impl Domains {
    /// Returns the number of tasks in all domains.
    pub fn tasks(&self) -> u32 {
        self.0.iter().fold(0, |sum: u32, domain| sum.saturating_add(domain.tasks))
    }

    /// Returns the number of domains.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns the machines, this one first, or `None` if all domains are on this machine.
    pub fn machines(&self) -> Result<Option<Vec<Machine>>, Error> {
        let machine = |Wanted { host, text, tasks, .. }: &Wanted| Machine {
            host: host.clone(),
            domains: format!("{text}:{tasks}"),
            tasks: *tasks,
        };
        let failed = |line: String| Error::new(format!("--domains: {line}"));
        let all: Vec<Machine> = self.0.iter().map(machine).collect();
        if all.iter().all(|it| it.host.is_none()) {
            return Ok(None);
        }
        if all[0].host.is_some() || all[1..].iter().any(|it| it.host.is_none()) {
            return Err(failed(
                "with other machines, the first domain is this one's, and there is one a machine"
                    .into(),
            ));
        }
        for (at, it) in all.iter().enumerate() {
            if all[..at].iter().any(|other| other.host == it.host) {
                let host = it.host.as_deref().unwrap_or_default();
                return Err(failed(format!(
                    "@{host} is named twice: there is one domain a machine"
                )));
            }
        }
        Ok(Some(all))
    }

    /// Returns the domains with their processors. This process must be allowed to use each of them.
    pub fn found(&self, option: &str) -> Result<Vec<Domain>, Error> {
        let ours = processors::ours();
        let mut ours = ours.map_err(|e| Error::new(format!("{option}: processors: {e}")))?;
        ours.sort_unstable();
        self.within(&ours, Path::new("/sys")).map_err(|e| Error::new(format!("{option} {e}")))
    }

    fn within(&self, ours: &[usize], sys: &Path) -> Result<Vec<Domain>, String> {
        let found = |wanted: &Wanted| {
            let processors = wanted.place.processors(ours, sys)?;
            Ok(Domain { tasks: wanted.tasks, processors })
        };
        self.0.iter().map(found).collect()
    }
}

impl Place {
    fn processors(&self, ours: &[usize], sys: &Path) -> Result<Vec<usize>, String> {
        let is_ours = |cpu: &usize| ours.contains(cpu);
        let named = |path: &Path, name: &str| {
            let text =
                fs::read_to_string(path).map_err(|_| format!("{name}: there is none here"))?;
            numbers(&text).ok_or_else(|| format!("{name}: {}: not a list", path.display()))
        };
        let (name, all) = match self {
            Self::All => return Ok(ours.to_vec()),
            Self::List(list) => {
                return match list.iter().find(|cpu| !is_ours(cpu)) {
                    None => Ok(list.clone()),
                    Some(cpu) => Err(format!("{cpu}: not a processor that we may use ({ours:?})")),
                };
            }
            Self::Node(node) => {
                let name = format!("node{node}");
                let path = sys.join(format!("devices/system/node/{name}/cpulist"));
                (name.clone(), named(&path, &name)?)
            }
            Self::Cgroup(path) => {
                let name = format!("cgroup={}", path.display());
                let path = sys.join("fs/cgroup").join(path.strip_prefix("/").unwrap_or(path));
                (name.clone(), named(&path.join("cpuset.cpus.effective"), &name)?)
            }
            Self::Big => ("big".into(), by_speed(ours, sys)?.0),
            Self::Little => ("little".into(), by_speed(ours, sys)?.1),
        };
        let processors: Vec<usize> = all.into_iter().filter(is_ours).collect();
        match processors.is_empty() {
            true => Err(format!("{name}: none of its processors is ours to use ({ours:?})")),
            false => Ok(processors),
        }
    }
}

/// Returns the fastest processors and the others: by the scheduler's capacity (Arm), or by their
/// kind (Intel).
fn by_speed(ours: &[usize], sys: &Path) -> Result<(Vec<usize>, Vec<usize>), String> {
    let list = |kind: &str| {
        fs::read_to_string(sys.join(format!("devices/{kind}/cpus")))
            .ok()
            .as_deref()
            .and_then(numbers)
    };
    if let (Some(big), Some(little)) = (list("cpu_core"), list("cpu_atom")) {
        return Ok((big, little));
    }
    let speed = |&cpu: &usize| -> Option<u32> {
        let path = sys.join(format!("devices/system/cpu/cpu{cpu}/cpu_capacity"));
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    let speeds: Vec<Option<u32>> = ours.iter().map(speed).collect();
    let most = speeds.iter().flatten().max();
    let is_big = |speed: &Option<u32>| speed.is_some() && speed.as_ref() == most;
    let (big, little): (Vec<_>, Vec<_>) =
        ours.iter().zip(&speeds).partition(|(_, speed)| is_big(speed));
    if big.is_empty() || little.is_empty() {
        return Err("big, little: this machine's processors are all alike".into());
    }
    let numbers = |list: Vec<(&usize, _)>| list.into_iter().map(|(&cpu, _)| cpu).collect();
    Ok((numbers(big), numbers(little)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a machine's /sys.
    struct System(PathBuf);

    impl System {
        fn of(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("nagaya-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for System {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn on(machine: &System, ours: &[usize], text: &str) -> Result<Vec<Vec<usize>>, String> {
        let domains = text.parse::<Domains>()?.within(ours, &machine.0)?;
        Ok(domains.into_iter().map(|domain| domain.processors).collect())
    }

    #[test]
    fn a_list_of_domains_may_have_lists_of_processors() {
        let machine = System::of("lists", &[]);
        let ours: Vec<usize> = (0..10).collect();
        let domains: Domains = "0-1:4,2,4-5:3,all:1".parse().unwrap();
        assert_eq!(domains.tasks(), 8);
        let found = domains.within(&ours, &machine.0).unwrap();
        assert_eq!(found[0], Domain { tasks: 4, processors: vec![0, 1] });
        assert_eq!(found[1], Domain { tasks: 3, processors: vec![2, 4, 5] });
        assert_eq!(found[2], Domain { tasks: 1, processors: ours });
        assert_eq!(found[1].mask(), [0b11_0100, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn domains_may_be_on_other_machines() {
        let machines = |text: &str| text.parse::<Domains>().unwrap().machines();
        assert!(machines("0:1,1:1").unwrap().is_none());
        let found = machines("0-1,3:4,@b:2,@me@c/0,2:3").unwrap().unwrap();
        let machine = |host: Option<&str>, domains: &str, tasks| Machine {
            host: host.map(str::to_owned),
            domains: domains.to_owned(),
            tasks,
        };
        let wanted = [
            machine(None, "0-1,3:4", 4),
            machine(Some("b"), "all:2", 2),
            machine(Some("me@c"), "0,2:3", 3),
        ];
        assert_eq!(found, wanted);
        for text in ["@b:1,0:1", "0:1,@b:1,1:1", "0:1,@b:1,@b/0:1"] {
            assert!(machines(text).is_err(), "{text}");
        }
        for text in ["@:1", "@-oProxyCommand=x:1", "@b;c:1", "@b/fast:1"] {
            assert!(text.parse::<Domains>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_invalid_domain_is_refused() {
        for text in
            ["", "0-1", "0:0", "0:x", "3-1:2", "node:1", "fast:1", "0:1,2", ":1", "0-99999999:1"]
        {
            assert!(text.parse::<Domains>().is_err(), "{text}");
        }
        let machine = System::of("refused", &[("devices/system/node/node1/cpulist", "4-7\n")]);
        for text in ["2:1", "node0:1", "node1:1", "big:1", "cgroup=/none:1"] {
            assert!(on(&machine, &[0, 1], text).is_err(), "{text}");
        }
    }

    #[test]
    fn processors_are_found_by_node_speed_and_cgroup() {
        let machine = System::of(
            "found",
            &[
                ("devices/system/node/node1/cpulist", "2-3\n"),
                ("devices/system/cpu/cpu0/cpu_capacity", "1024\n"),
                ("devices/system/cpu/cpu1/cpu_capacity", "446\n"),
                ("devices/system/cpu/cpu2/cpu_capacity", "1024\n"),
                ("devices/system/cpu/cpu3/cpu_capacity", "446\n"),
                ("fs/cgroup/a/b/cpuset.cpus.effective", "1,3\n"),
            ],
        );
        let ours = [0, 1, 2, 3];
        let found = on(&machine, &ours, "node1:1,big:1,little:1,cgroup=/a/b:1").unwrap();
        assert_eq!(found, [vec![2, 3], vec![0, 2], vec![1, 3], vec![1, 3]]);
        assert_eq!(on(&machine, &[0, 3], "node1:1").unwrap(), [vec![3]]);
        let hybrid = System::of(
            "hybrid",
            &[("devices/cpu_core/cpus", "0-1"), ("devices/cpu_atom/cpus", "2-3")],
        );
        assert_eq!(on(&hybrid, &ours, "big:1,little:1").unwrap(), [vec![0, 1], vec![2, 3]]);
    }
}
