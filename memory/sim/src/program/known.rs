//! The programs, by name.

use super::parameters::{Made, defaults, make};
use super::{Program, ep, is, lu, mm, sor, tsp, water};
use crate::cluster::Cluster;

/// A program with a name.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The name.
    pub name: &'static str,
    /// A one-line description.
    pub about: &'static str,
    make: fn(&toml::Table, &Cluster) -> Made,
    defaults: fn() -> toml::Table,
}

impl Known {
    /// Creates the program with these parameters. All others have the paper's values.
    ///
    /// # Errors
    /// A line that names the invalid parameter.
    pub fn make(
        &self,
        parameters: &toml::Table,
        cluster: &Cluster,
    ) -> Result<Box<dyn Program>, String> {
        (self.make)(parameters, cluster)
    }

    /// Returns the default parameters.
    pub fn defaults(&self) -> toml::Table {
        (self.defaults)()
    }
}

/// All programs.
pub static ALL: [Known; 7] = [
    Known { name: "mm", about: mm::ABOUT, make: make::<mm::Mm>, defaults: defaults::<mm::Mm> },
    Known {
        name: "sor",
        about: sor::ABOUT,
        make: make::<sor::Sor>,
        defaults: defaults::<sor::Sor>,
    },
    Known { name: "lu", about: lu::ABOUT, make: make::<lu::Lu>, defaults: defaults::<lu::Lu> },
    Known { name: "is", about: is::ABOUT, make: make::<is::Is>, defaults: defaults::<is::Is> },
    Known { name: "ep", about: ep::ABOUT, make: make::<ep::Ep>, defaults: defaults::<ep::Ep> },
    Known {
        name: "tsp",
        about: tsp::ABOUT,
        make: make::<tsp::Tsp>,
        defaults: defaults::<tsp::Tsp>,
    },
    Known {
        name: "water",
        about: water::ABOUT,
        make: make::<water::Water>,
        defaults: defaults::<water::Water>,
    },
];
