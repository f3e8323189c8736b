//! The parameters of programs: their defaults, checks and conversion from TOML.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Program;
use crate::cluster::Cluster;

/// A program, or the error in its parameters.
pub(super) type Made = Result<Box<dyn Program>, String>;

/// A program with parameters, whose fields are the parameters.
pub(super) trait Make: Program + Default + Serialize + DeserializeOwned + 'static {
    /// Returns the program with the times of a cluster.
    fn on(self, cluster: &Cluster) -> Self;

    /// Checks the parameters.
    fn check(&self) -> Result<(), String>;
}

/// Creates a program with these parameters. All others have their defaults.
pub(super) fn make<P: Make>(parameters: &toml::Table, cluster: &Cluster) -> Made {
    let program: P = toml::Value::Table(parameters.clone())
        .try_into()
        .map_err(|error: toml::de::Error| error.message().to_string())?;
    program.check()?;
    Ok(Box::new(program.on(cluster)))
}

/// Returns the default parameters of a program.
pub(super) fn defaults<P: Make>() -> toml::Table {
    toml::Table::try_from(P::default()).expect("numbers")
}
