//! Finds the mechanism by which an MPI copies large messages within a node, and the settings that
//! disable the one that the space answers: `process_vm_readv` and `process_vm_writev`.

use std::collections::HashMap;

use paths::choice::INTEL_THRESHOLD;

use super::library::{Family, Library};
use super::obstacle::Obstacle;

/// The behaviour of an MPI for large messages.
#[derive(Debug, Default)]
pub struct Plan {
    /// The part of the library that copies.
    pub method: String,
    /// Messages of this size and more are copied so, in bytes.
    pub threshold: Option<u64>,
    /// Settings that bear on it, as `NAME=VALUE (where from)`.
    pub settings: Vec<String>,
    /// Why it will not.
    pub obstacle: Option<Obstacle>,
}

/// Reads the library's settings.
pub fn plan(library: &Library) -> Plan {
    match library.family {
        Family::OpenMpi => open_mpi(library),
        Family::Mpich => mpich(library),
        Family::Intel => intel(),
    }
}

/// Open MPI's parameters, as `ompi_info` knows them: from files, the environment, built in.
struct Parameters(HashMap<String, (String, String)>, String);

impl Parameters {
    fn read(library: &Library) -> Option<Self> {
        let text = library.ask("ompi_info", &["--parsable", "--all"])?;
        let mut parameters: HashMap<String, (String, String)> = HashMap::new();
        for line in text.lines() {
            let Some((_, rest)) = line.split_once(":param:") else { continue };
            let mut parts = rest.splitn(3, ':');
            let (Some(name), Some(what), Some(value)) = (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let entry = parameters.entry(name.to_string()).or_default();
            match what {
                "value" => entry.0 = value.trim_matches('"').to_string(),
                "source" => entry.1 = value.to_string(),
                _ => {}
            }
        }
        Some(Self(parameters, text))
    }

    fn value(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |(value, _)| value)
    }

    /// Records the parameter if it is set.
    fn note(&self, name: &str, settings: &mut Vec<String>) {
        if let Some((value, source)) = self.0.get(name)
            && source != "default"
            && !value.is_empty()
        {
            settings.push(format!("{name}={value} ({source})"));
        }
    }

    /// Returns true if the selection `name` (`a,b` or `^a,b`) includes the component.
    fn selects(&self, name: &str, components: &[&str]) -> bool {
        selects(self.value(name), components)
    }

    fn has_component(&self, framework: &str, component: &str) -> bool {
        self.1.contains(&format!("mca:{framework}:{component}:version"))
    }
}

/// Returns true if a list `a,b` or `^a,b` includes one of the names. An empty list includes all.
fn selects(list: &str, names: &[&str]) -> bool {
    let (excluded, list) = match list.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, list),
    };
    let listed = |name: &&str| list.split(',').any(|item| item.trim() == *name);
    if list.is_empty() {
        true
    } else if excluded {
        !names.iter().all(listed)
    } else {
        names.iter().any(listed)
    }
}

fn open_mpi(library: &Library) -> Plan {
    let Some(parameters) = Parameters::read(library) else {
        return Plan {
            method: "unknown: there is no ompi_info beside the launcher".into(),
            ..Plan::default()
        };
    };
    let mut plan = Plan::default();
    for name in ["pml", "btl", "smsc", "btl_vader_single_copy_mechanism"] {
        parameters.note(name, &mut plan.settings);
    }
    let set = |name: &str, value: &str| format!("unset it, or set {name}={value}");
    match parameters.value("pml") {
        "cm" => {
            plan.method = "none: a network library's matching (pml cm)".into();
            plan.obstacle = Some(Obstacle::new(
                "pml=cm sends messages within the node through a network library",
                set("OMPI_MCA_pml", "ob1"),
            ));
            return plan;
        }
        "ucx" => {
            plan.method = "UCX, cma (process_vm_readv)".into();
            ucx(&mut plan);
            return plan;
        }
        _ => {}
    }
    let old = parameters.has_component("btl", "vader") && !parameters.has_component("smsc", "cma");
    let sm: &[&str] = if old { &["vader"] } else { &["sm", "vader"] };
    let transport = sm[0];
    plan.threshold = parameters.value(&format!("btl_{transport}_eager_limit")).parse().ok();
    // A message as long as the limit does not fit, since its header is added.
    if !parameters.selects("btl", sm) {
        plan.method = "none".into();
        plan.obstacle = Some(Obstacle::new(
            format!("btl={} leaves out {transport}, the shared memory", parameters.value("btl")),
            format!("add {transport} to OMPI_MCA_btl"),
        ));
    } else if old {
        let mechanism = parameters.value("btl_vader_single_copy_mechanism");
        plan.method = format!("btl/vader, {mechanism}");
        if mechanism == "cma" {
            plan.method += " (process_vm_readv)";
        } else {
            plan.obstacle = Some(Obstacle::new(
                format!("btl_vader_single_copy_mechanism={mechanism} is not cma"),
                set("OMPI_MCA_btl_vader_single_copy_mechanism", "cma"),
            ));
        }
    } else {
        plan.method = "btl/sm and smsc/cma (process_vm_readv)".into();
        if !parameters.has_component("smsc", "cma") {
            plan.obstacle = Some(Obstacle::new(
                "this Open MPI was built without smsc/cma",
                "build or install one with CMA",
            ));
        } else if !parameters.selects("smsc", &["cma"]) {
            plan.obstacle = Some(Obstacle::new(
                format!("smsc={} leaves out cma", parameters.value("smsc")),
                set("OMPI_MCA_smsc", "cma"),
            ));
        }
    }
    plan
}

/// The variable's value, if it is set, noted among the settings.
fn environment(name: &str, settings: &mut Vec<String>) -> Option<String> {
    let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
    settings.push(format!("{name}={value} (environment)"));
    Some(value)
}

fn is_true(value: &str) -> bool {
    ["1", "yes", "true", "on", "enable"].contains(&value.to_lowercase().as_str())
}

fn is_false(value: &str) -> bool {
    ["0", "no", "false", "off", "disable"].contains(&value.to_lowercase().as_str())
}

fn mpich(library: &Library) -> Plan {
    let mut plan = Plan::default();
    // Of the library if its tool is there, else of the launcher, which is built with it.
    let told = library.ask("mpichversion", &[]).unwrap_or_default();
    let device =
        told.lines().find_map(|line| line.strip_prefix("MPICH Device:")).map(str::trim).or_else(
            || library.about.split("--with-device=").nth(1)?.split(['\'', ' ', '\n']).next(),
        );
    let device = device.unwrap_or("an unknown device").to_string();
    let version = |n: usize| library.version.split('.').nth(n)?.parse::<u32>().ok();
    let release = (version(0).unwrap_or(0), version(1).unwrap_or(0));
    // ch4 copies by itself since 4.3.
    let by_itself = release >= (4, 3);
    let no_local = ["MPIR_CVAR_NOLOCAL", "MPIR_CVAR_ODD_EVEN_CLIQUES"]
        .into_iter()
        .find(|name| environment(name, &mut plan.settings).is_some_and(|value| is_true(&value)));
    let netmod = environment("MPIR_CVAR_CH4_NETMOD", &mut plan.settings);
    let uses_ucx = device.contains("ucx") && netmod.as_deref().is_none_or(|name| name == "ucx");
    let cma_off = environment("MPIR_CVAR_CH4_CMA_ENABLE", &mut plan.settings)
        .is_some_and(|value| is_false(&value));
    if by_itself && no_local.is_none() && !cma_off {
        plan.method = format!("{device}, ipc/cma (process_vm_readv)");
        let threshold = environment("MPIR_CVAR_CH4_IPC_CMA_P2P_THRESHOLD", &mut plan.settings);
        plan.threshold = threshold.and_then(|text| text.parse().ok());
    } else if uses_ucx {
        plan.method = format!("{device}, UCX's cma (process_vm_readv)");
        ucx(&mut plan);
    } else {
        plan.method = format!("none ({device})");
        plan.obstacle = Some(match no_local {
            Some(name) => Obstacle::new(
                format!("{name} sends messages within the node through the network"),
                "unset it",
            ),
            None if cma_off => Obstacle::new("MPIR_CVAR_CH4_CMA_ENABLE is off", "unset it"),
            None => Obstacle::new(
                format!("{library} with {device} copies twice through shared memory"),
                "use MPICH 4.3 or newer, or one built with ch4:ucx",
            ),
        });
    }
    plan
}

/// UCX_TLS may leave out the transport that copies.
fn ucx(plan: &mut Plan) {
    let Some(list) = environment("UCX_TLS", &mut plan.settings) else { return };
    let groups: &[&str] = match list.strip_prefix('^') {
        // Leaving out one name of the group is leaving it out.
        Some(rest) => {
            let left_out = rest.split(',').any(|name| ["cma", "sm", "shm"].contains(&name.trim()));
            if !left_out {
                return;
            }
            &[]
        }
        None => &["cma", "sm", "shm", "all"],
    };
    if !list.split(',').any(|name| groups.contains(&name.trim())) {
        plan.obstacle = Some(Obstacle::new(
            format!("UCX_TLS={list} leaves out cma"),
            "unset it, or add cma to UCX_TLS",
        ));
    }
}

fn intel() -> Plan {
    let mut plan = Plan::default();
    if environment("I_MPI_FABRICS", &mut plan.settings).is_some_and(|value| value == "ofi") {
        let provider = environment("FI_PROVIDER", &mut plan.settings);
        if provider.is_some_and(|list| list.split(',').any(|name| name == "shm")) {
            plan.method = "libfabric's shm, CMA (process_vm_readv)".into();
            return plan;
        }
        plan.method = "none: libfabric".into();
        plan.obstacle = Some(Obstacle::new(
            "I_MPI_FABRICS=ofi sends messages within the node through libfabric",
            "unset it, or set I_MPI_FABRICS=shm:ofi, or FI_PROVIDER=shm",
        ));
        return plan;
    }
    plan.method = "shm, CMA (process_vm_readv)".into();
    if environment("I_MPI_SHM_CMA", &mut plan.settings).is_some_and(|value| is_false(&value)) {
        plan.obstacle = Some(Obstacle::new("I_MPI_SHM_CMA is off", "unset it"));
        return plan;
    }
    let name = INTEL_THRESHOLD.0;
    let threshold = environment(name, &mut plan.settings).unwrap_or_else(|| {
        let value = INTEL_THRESHOLD.1;
        plan.settings.push(format!("{name}={value} (nagaya exec)"));
        value.to_string()
    });
    plan.threshold = threshold.parse().ok();
    plan
}
