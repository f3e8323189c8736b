//! The choice of a path. It depends on what all ranks of a node see alike.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use nagaya_server::Failure;

use crate::launched::{Kind, Launched, processors};
use crate::measured;
pub use crate::transport::Transport;

/// The executor of the collective operations of a node's ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collectives {
    /// Nagaya chooses.
    Auto,
    /// Nagaya's library, in place.
    Inplace,
    /// The MPI.
    Mpi,
}

impl Collectives {
    const ALL: [Self; 3] = [Collectives::Auto, Collectives::Inplace, Collectives::Mpi];

    /// Returns the name in options.
    pub fn name(self) -> &'static str {
        match self {
            Collectives::Auto => "auto",
            Collectives::Inplace => "inplace",
            Collectives::Mpi => "mpi",
        }
    }

    /// Returns the executor of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == text)
    }
}

/// The wishes of the user.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// By `--transport`.
    pub transport: Transport,
    /// By `--collectives`.
    pub collectives: Collectives,
}

/// The processors, libraries and measurements of this machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Processors for the ranks of this node.
    pub processors: u32,
    /// The directory of the provider.
    pub provider: Option<PathBuf>,
    /// The library of collective operations.
    pub collectives: Option<PathBuf>,
    /// The faster transport for this MPI, if it was measured, and the file that says so.
    pub measured: Option<(Transport, PathBuf)>,
    /// The tasks are protected from each other.
    pub is_protected: bool,
}

impl Machine {
    /// Returns what this machine has for a job.
    pub fn this(job: &Launched, is_protected: bool) -> Self {
        let (provider, collectives) = libraries();
        let measured = job.kind.zip(job.directory.as_deref());
        let measured = measured.and_then(|(kind, directory)| measured::find(kind, directory));
        Self { processors: processors(), provider, collectives, measured, is_protected }
    }
}

/// A choice and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen<T> {
    /// The choice, never `Auto`.
    pub value: T,
    /// The reason, a part of a sentence.
    pub why: String,
}

impl fmt::Display for Chosen<Transport> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.value.name(), self.why)
    }
}

impl fmt::Display for Chosen<Collectives> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.value.name(), self.why)
    }
}

/// The path of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The transport of messages.
    pub transport: Chosen<Transport>,
    /// The executor of collective operations.
    pub collectives: Chosen<Collectives>,
    /// Variables of the ranks that make the MPI use it.
    pub settings: Vec<(&'static str, OsString)>,
}

/// Most ranks of a communicator whose operations are done in place.
const TEAM_MAX: u32 = 128;

/// Intel MPI copies twice, through its shared memory, unless this variable gives the size in bytes
/// from which it uses CMA. Sender and receiver make the two copies at the same time. Below this
/// size they were up to 11 % faster than one copy for fresh data.
pub const INTEL_THRESHOLD: (&str, &str) = ("I_MPI_SHM_CMA_THRESHOLD", "65536");

/// Variables by which users select a transport.
fn selectors(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::OpenMpi4 | Kind::OpenMpi5 => &[
            "OMPI_MCA_pml",
            "OMPI_MCA_mtl",
            "OMPI_MCA_btl",
            "OMPI_MCA_mtl_ofi_provider_include",
            "OMPI_MCA_opal_common_ofi_provider_include",
        ],
        Kind::Mpich => &["MPIR_CVAR_CH4_NETMOD", "MPIR_CVAR_NOLOCAL", "MPIR_CVAR_ODD_EVEN_CLIQUES"],
        Kind::Intel => &["I_MPI_FABRICS", "I_MPI_SHM_CMA"],
    }
}

/// Variables by which libfabric's users select a provider.
const OF_LIBFABRIC: [&str; 2] = ["FI_PROVIDER", "FI_PROVIDER_PATH"];

/// Variable with the providers that libfabric's `lnx` joins.
const LINKS: &str = "FI_LNX_PROV_LINKS";

/// Returns the settings that make an MPI use the provider.
fn of_provider(kind: Kind, is_linked: bool) -> &'static [(&'static str, &'static str)] {
    match kind {
        Kind::OpenMpi4 => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_provider_include", "nagaya"),
        ],
        Kind::OpenMpi5 if is_linked => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_mtl_ofi_av", "table"),
            ("OMPI_MCA_opal_common_ofi_provider_include", "lnx"),
        ],
        Kind::OpenMpi5 => &[
            ("OMPI_MCA_pml", "cm"),
            ("OMPI_MCA_mtl", "ofi"),
            ("OMPI_MCA_opal_common_ofi_provider_include", "nagaya"),
        ],
        Kind::Mpich => &[
            ("MPIR_CVAR_CH4_NETMOD", "ofi"),
            ("MPIR_CVAR_NOLOCAL", "1"),
            ("FI_PROVIDER", "nagaya"),
        ],
        Kind::Intel => &[("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "nagaya")],
    }
}

/// Returns what the user wants: by the options, else by NAGAYA_TRANSPORT and NAGAYA_COLLECTIVES.
///
/// # Errors
/// A variable has an unknown value.
pub fn wanted(
    transport: Option<Transport>,
    collectives: Option<Collectives>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Wanted, Failure> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut wanted = Wanted {
        transport: transport.unwrap_or(Transport::Auto),
        collectives: collectives.unwrap_or(Collectives::Auto),
    };
    let unknown = |name: &str, text: &str, values: &str| {
        Failure::ours(format!("{name}={text}: must be {values}"))
    };
    if let (None, Some(text)) = (transport, set("NAGAYA_TRANSPORT")) {
        let parsed = Transport::parse(&text);
        wanted.transport =
            parsed.ok_or_else(|| unknown("NAGAYA_TRANSPORT", &text, "auto, copy or provider"))?;
    }
    if let (None, Some(text)) = (collectives, set("NAGAYA_COLLECTIVES")) {
        let parsed = Collectives::parse(&text);
        wanted.collectives =
            parsed.ok_or_else(|| unknown("NAGAYA_COLLECTIVES", &text, "auto, inplace or mpi"))?;
    }
    Ok(wanted)
}

/// Chooses the path of a job.
///
/// # Errors
/// The user wants a path that does not exist here. The line says why.
pub fn choose(
    wanted: Wanted,
    job: &Launched,
    machine: &Machine,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Path, Failure> {
    let mut settings = Vec::new();
    let transport = transport(wanted.transport, job, machine, variable, &mut settings)?;
    let collectives = collectives(wanted.collectives, job, machine, variable, &mut settings)?;
    Ok(Path { transport, collectives, settings })
}

type Settings = Vec<(&'static str, OsString)>;

fn transport(
    wanted: Transport,
    job: &Launched,
    machine: &Machine,
    variable: &dyn Fn(&str) -> Option<String>,
    settings: &mut Settings,
) -> Result<Chosen<Transport>, Failure> {
    let chosen = match wanted {
        Transport::Copy => Chosen { value: Transport::Copy, why: "as requested".into() },
        Transport::Auto => best_transport(job, machine, variable),
        Transport::Provider => match obstacle_to_provider(job, machine, variable) {
            Some(why) => return Err(Failure::ours(format!("--transport provider: {why}"))),
            None => Chosen { value: Transport::Provider, why: "as requested".into() },
        },
    };
    let Some(kind) = job.kind else { return Ok(chosen) };
    if chosen.value == Transport::Provider {
        let is_linked = variable(LINKS).is_some();
        let of_mpi = of_provider(kind, is_linked).iter();
        settings.extend(of_mpi.map(|&(name, value)| (name, value.into())));
        let directory = machine.provider.iter().map(|it| ("FI_PROVIDER_PATH", it.into()));
        settings.extend(directory);
    } else if kind == Kind::Intel && variable(INTEL_THRESHOLD.0).is_none() {
        settings.push((INTEL_THRESHOLD.0, INTEL_THRESHOLD.1.into()));
    }
    Ok(chosen)
}

/// Returns the reason why the job cannot use the provider.
fn obstacle_to_provider(
    job: &Launched,
    machine: &Machine,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    let Some(kind) = job.kind else {
        return Some(
            "the environment does not show which MPI this is: start the program by the launcher \
             of Open MPI, MPICH or Intel MPI"
                .into(),
        );
    };
    if machine.is_protected {
        return Some("it does not work with --protect".into());
    }
    if machine.provider.is_none() {
        return Some("libnagaya-fi.so is not installed with this nagaya".into());
    }
    let is_linked = kind == Kind::OpenMpi5 && variable(LINKS).is_some();
    if job.ranks != job.ranks_here && !is_linked {
        return Some(format!(
            "the job has ranks on other nodes: use --transport copy, or {LINKS} with Open MPI 5.0 \
             (see fi_nagaya(7))"
        ));
    }
    let settings = of_provider(kind, is_linked);
    let differs = |name: &&str| {
        let value = variable(name);
        let ours = settings.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        value.is_some() && value.as_deref() != ours
    };
    let set = selectors(kind).iter().copied().find(differs)?;
    Some(format!("{set}={} selects another path: unset it", variable(set).unwrap_or_default()))
}

fn best_transport(
    job: &Launched,
    machine: &Machine,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Chosen<Transport> {
    let copy = |why: String| Chosen { value: Transport::Copy, why };
    let Some(kind) = job.kind else {
        return copy("the environment does not show an MPI that nagaya knows".into());
    };
    let set = selectors(kind).iter().chain(&OF_LIBFABRIC).find(|name| variable(name).is_some());
    if let Some(name) = set {
        return copy(format!("{name} is set"));
    }
    let is_crowded = job.ranks_here.is_none_or(|ranks| ranks > machine.processors);
    match &machine.measured {
        _ if job.ranks != job.ranks_here => copy("the job has ranks on several nodes".into()),
        Some((Transport::Provider, file)) if !is_crowded => {
            match obstacle_to_provider(job, machine, variable) {
                None => {
                    let why = format!("faster in the measurement in {}", file.display());
                    Chosen { value: Transport::Provider, why }
                }
                Some(why) => copy(why),
            }
        }
        Some((Transport::Provider, _)) => copy("more ranks than processors".into()),
        Some((_, file)) => {
            copy(format!("the provider is slower at some size, says {}", file.display()))
        }
        None => copy("not compared with the provider yet: nagaya tune --mpi does that".into()),
    }
}

fn collectives(
    wanted: Collectives,
    job: &Launched,
    machine: &Machine,
    variable: &dyn Fn(&str) -> Option<String>,
    settings: &mut Settings,
) -> Result<Chosen<Collectives>, Failure> {
    let mpi = |why: String| Ok(Chosen { value: Collectives::Mpi, why });
    let preloaded = variable("LD_PRELOAD").unwrap_or_default();
    let names = |file: &str| preloaded.split([':', ' ']).any(|path| path.ends_with(file));
    if names("libnagaya-coll.so") || names("libnagaya_coll.so") {
        let why = "LD_PRELOAD names the library".into();
        return Ok(Chosen { value: Collectives::Inplace, why });
    }
    let obstacle = match &machine.collectives {
        _ if machine.is_protected => Some("they do not work with --protect".into()),
        None => Some("libnagaya-coll.so is not installed with this nagaya".to_owned()),
        Some(_) => None,
    };
    let why = match (wanted, obstacle) {
        (Collectives::Mpi, _) => return mpi("as requested".into()),
        (Collectives::Inplace, Some(why)) => {
            return Err(Failure::ours(format!("--collectives inplace: {why}")));
        }
        (Collectives::Inplace, None) => "as requested".into(),
        (Collectives::Auto, Some(why)) => return mpi(why),
        (Collectives::Auto, None) => match (job.by_launcher, job.ranks_here) {
            (false, _) => return mpi("no launcher of an MPI started this".into()),
            (true, None) => return mpi("the launcher gives no number of ranks on this node".into()),
            (true, Some(..2)) => return mpi("one rank on this node".into()),
            (true, Some(ranks)) if ranks > machine.processors => {
                return mpi(format!("{ranks} ranks on {} processors", machine.processors));
            }
            (true, Some(ranks)) if ranks > TEAM_MAX => {
                return mpi(format!("more than {TEAM_MAX} ranks on this node"));
            }
            (true, Some(ranks)) => {
                format!("{ranks} ranks on {} processors", machine.processors)
            }
        },
    };
    let library = machine.collectives.iter().map(|it| it.as_os_str().to_owned());
    let before = Some(OsString::from(preloaded)).filter(|text| !text.is_empty());
    let both: Vec<OsString> = library.chain(before).collect();
    settings.push(("LD_PRELOAD", both.join(&OsString::from(":"))));
    Ok(Chosen { value: Collectives::Inplace, why })
}

/// Returns the directory of the provider and the library of collective operations that belong to
/// this program: in the build directory, or installed.
pub fn libraries() -> (Option<PathBuf>, Option<PathBuf>) {
    let provider = find("libnagaya_fi.so", "libfabric/libnagaya-fi.so");
    let provider = provider.and_then(|file| Some(file.parent()?.to_owned()));
    (provider, find("libnagaya_coll.so", "mpi/libnagaya-coll.so"))
}

/// Returns the library that counts messages.
pub fn counting_library() -> Option<PathBuf> {
    find("libnagaya_traffic.so", "mpi/libnagaya-traffic.so")
}

/// Returns a library that belongs to this program: in the build directory, or installed.
fn find(built: &str, installed: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let bin = program.parent()?;
    let places = [bin.join(built), bin.parent()?.join("lib/nagaya").join(installed)];
    places.into_iter().find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Wanted = Wanted { transport: Transport::Auto, collectives: Collectives::Auto };

    fn job(kind: Kind) -> Launched {
        let ranks = Some(2);
        Launched {
            kind: Some(kind),
            by_launcher: true,
            ranks,
            ranks_here: ranks,
            ..Launched::default()
        }
    }

    fn machine() -> Machine {
        Machine {
            processors: 2,
            provider: Some("/lib".into()),
            collectives: Some("/lib/libnagaya-coll.so".into()),
            ..Machine::default()
        }
    }

    fn path(wanted: Wanted, job: &Launched, machine: &Machine, set: &[(&str, &str)]) -> Path {
        result(wanted, job, machine, set).expect("a path")
    }

    fn result(
        wanted: Wanted,
        job: &Launched,
        machine: &Machine,
        set: &[(&str, &str)],
    ) -> Result<Path, Failure> {
        let find = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        choose(wanted, job, machine, &find)
    }

    fn setting<'a>(path: &'a Path, name: &str) -> Option<&'a str> {
        path.settings.iter().find(|(known, _)| *known == name)?.1.to_str()
    }

    #[test]
    fn by_default_copies_are_single_and_collective_operations_in_place() {
        let path = path(AUTO, &job(Kind::Mpich), &machine(), &[]);
        assert_eq!(path.transport.value, Transport::Copy);
        assert_eq!(path.collectives.value, Collectives::Inplace);
        assert_eq!(path.settings, [("LD_PRELOAD", "/lib/libnagaya-coll.so".into())]);
    }

    #[test]
    fn intel_mpi_gets_a_threshold_unless_the_user_has_set_one() {
        let intel = |set: &[_]| path(AUTO, &job(Kind::Intel), &machine(), set);
        assert_eq!(setting(&intel(&[]), INTEL_THRESHOLD.0), Some("65536"));
        assert_eq!(setting(&intel(&[(INTEL_THRESHOLD.0, "1")]), INTEL_THRESHOLD.0), None);
    }

    #[test]
    fn a_measured_provider_is_taken_where_it_can_be() {
        let measured = Some((Transport::Provider, "/etc/nagaya/mpi".into()));
        let machine = Machine { measured, ..machine() };
        let chosen = |job: &Launched, machine: &Machine, set: &[_]| {
            path(AUTO, job, machine, set).transport.value
        };
        let mpich = job(Kind::Mpich);
        assert_eq!(chosen(&mpich, &machine, &[]), Transport::Provider);
        let taken = path(AUTO, &mpich, &machine, &[]);
        assert_eq!(setting(&taken, "FI_PROVIDER"), Some("nagaya"));
        assert_eq!(setting(&taken, "FI_PROVIDER_PATH"), Some("/lib"));
        let crowded = Launched { ranks: Some(4), ranks_here: Some(4), ..mpich.clone() };
        assert_eq!(chosen(&crowded, &machine, &[]), Transport::Copy);
        let several = Launched { ranks: Some(4), ..mpich.clone() };
        assert_eq!(chosen(&several, &machine, &[]), Transport::Copy);
        let protected = Machine { is_protected: true, ..machine.clone() };
        assert_eq!(chosen(&mpich, &protected, &[]), Transport::Copy);
        for name in ["MPIR_CVAR_CH4_NETMOD", "FI_PROVIDER"] {
            assert_eq!(chosen(&mpich, &machine, &[(name, "ucx")]), Transport::Copy);
        }
    }

    #[test]
    fn a_provider_that_cannot_be_used_is_refused_with_the_reason() {
        let provider = Wanted { transport: Transport::Provider, ..AUTO };
        let open_mpi = job(Kind::OpenMpi5);
        let refused = |job: &Launched, machine: &Machine, set: &[_]| {
            result(provider, job, machine, set).expect_err("refused").message
        };
        let unknown = Launched { kind: None, ..open_mpi.clone() };
        assert!(refused(&unknown, &machine(), &[]).contains("does not show which MPI"));
        let ob1 = refused(&open_mpi, &machine(), &[("OMPI_MCA_pml", "ob1")]);
        assert!(ob1.contains("OMPI_MCA_pml=ob1 selects another path"), "{ob1}");
        let several = Launched { ranks: Some(4), ..open_mpi.clone() };
        assert!(refused(&several, &machine(), &[]).contains("ranks on other nodes"));
        let linked = path(provider, &several, &machine(), &[(LINKS, "nagaya+tcp")]);
        assert_eq!(
            setting(&linked, "OMPI_MCA_opal_common_ofi_provider_include"),
            Some("lnx"),
            "lnx joins the provider to a network"
        );
        let without = Machine { provider: None, ..machine() };
        assert!(refused(&open_mpi, &without, &[]).contains("not installed"));
    }

    #[test]
    fn operations_are_the_mpis_where_others_are_slower_or_impossible() {
        let open_mpi = job(Kind::OpenMpi4);
        let value = |job: &Launched, machine: &Machine, set: &[_]| {
            path(AUTO, job, machine, set).collectives.value
        };
        let ranks = |count| Launched { ranks_here: Some(count), ..open_mpi.clone() };
        assert_eq!(value(&ranks(1), &machine(), &[]), Collectives::Mpi);
        assert_eq!(value(&ranks(3), &machine(), &[]), Collectives::Mpi);
        let many = Machine { processors: 256, ..machine() };
        assert_eq!(value(&ranks(128), &many, &[]), Collectives::Inplace);
        assert_eq!(value(&ranks(129), &many, &[]), Collectives::Mpi);
        let alone = Launched { by_launcher: false, ..open_mpi.clone() };
        assert_eq!(value(&alone, &machine(), &[]), Collectives::Mpi);
        let inplace = Wanted { collectives: Collectives::Inplace, ..AUTO };
        let forced = path(inplace, &ranks(3), &machine(), &[("LD_PRELOAD", "/a.so /b.so")]);
        assert_eq!(setting(&forced, "LD_PRELOAD"), Some("/lib/libnagaya-coll.so:/a.so /b.so"));
        let named = [("LD_PRELOAD", "/opt/libnagaya-coll.so")];
        let path = path(AUTO, &ranks(3), &machine(), &named);
        assert_eq!((path.collectives.value, path.settings), (Collectives::Inplace, vec![]));
    }
}
