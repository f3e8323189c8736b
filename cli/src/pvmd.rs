//! `nagaya pvmd`: PVM's daemon, in the foreground. Stock PVM's name for it, `pvmd3`, works,
//! too, with its options.

use ::pvmd::socket::Refused;
use nagaya_server::Failure;

/// Options of `nagaya pvmd`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// This host's name in the virtual machine (else what hostname(1) says)
    #[arg(short = 'n', value_name = "NAME")]
    name: Option<String>,
    /// Join the virtual machine whose daemon invites by standard input
    #[arg(long, hide = true)]
    join: bool,
}

/// Runs until the virtual machine is halted.
pub fn pvmd(options: &Options) -> Result<i32, Failure> {
    let Options { name, join } = options;
    let vmid = std::env::var("PVM_VMID").ok();
    let options =
        ::pvmd::run::Options { vmid, name: name.clone(), signals: true, ..Default::default() };
    crate::server::raise_open_files();
    if *join {
        ::pvmd::join::join(&options)?;
    } else {
        ::pvmd::run::run(&options, |_| ()).map_err(Refused::failure)?;
    }
    Ok(0)
}
