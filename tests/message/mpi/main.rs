//! Stock MPI under its own launcher. Its ranks are tasks of one space by `nagaya exec`.
//!
//! Each cell of the matrix (an MPI and a topic) is a test, such as `openmpi5::collectives`. The
//! columns are in [`matrix`], [`copies`], [`ends`] and [`nodes`]. Rows that end in `_ofi` are over
//! Nagaya's provider for libfabric ([`provider`]), that in `_lnx` over libfabric's `lnx`, which
//! joins it to others.

mod applications;
mod coll;
mod copies;
mod ends;
mod halves;
mod jobs;
mod late;
mod matrix;
mod nodes;
mod path;
mod provider;

use nagaya_tests::mpi::{INTEL_MPI, MPICH_4, MPICH_5, OPEN_MPI_4, OPEN_MPI_5};

/// A module for each MPI, with a test for each thing that must work.
macro_rules! cells {
    ($($module:ident: $mpi:ident),* $(,)?) => {
        $(mod $module {
            use super::*;

            #[test]
            fn messages() {
                matrix::messages($mpi);
            }

            #[test]
            fn modes() {
                matrix::modes($mpi);
            }

            #[test]
            fn collectives() {
                matrix::collectives($mpi);
            }

            #[test]
            fn one_sided() {
                matrix::one_sided($mpi);
            }

            #[test]
            fn threads() {
                matrix::threads($mpi);
            }

            #[test]
            fn spawned_tasks() {
                matrix::spawned_tasks($mpi);
            }

            #[test]
            fn spawned_processes() {
                matrix::spawned_processes($mpi);
            }

            #[test]
            fn copies_are_in_user_space() {
                copies::are_in_user_space($mpi);
            }

            #[test]
            fn ends_are_seen() {
                ends::are_seen($mpi);
            }

            #[test]
            fn a_rank_killed_while_messages_fly() {
                ends::while_messages_fly($mpi);
            }

            #[test]
            fn in_place_has_the_functions_of_the_mpi_and_no_others() {
                coll::has_the_functions_of_the_mpi_and_no_others($mpi);
            }

            #[test]
            fn in_place_agrees_with_the_mpis_own() {
                coll::agrees_with_the_mpis_own($mpi);
            }

            #[test]
            fn in_place_goes_with_the_rest() {
                coll::goes_with_the_rest($mpi);
            }

            #[test]
            fn in_place_finishes_what_is_behind() {
                coll::finishes_what_is_behind($mpi);
            }

            #[test]
            fn a_rank_killed_in_an_operation_in_place() {
                coll::a_rank_is_killed($mpi);
            }

            #[test]
            fn sends_to_a_rank_that_computes_do_not_wait() {
                late::do_not_wait($mpi);
            }

            #[test]
            fn messages_in_halves_are_whole() {
                halves::are_whole($mpi);
            }

            #[test]
            fn a_rank_killed_while_both_copy() {
                halves::end_with_a_killed_rank($mpi);
            }

            #[test]
            fn the_path_is_chosen() {
                path::is_chosen($mpi);
            }

            #[test]
            fn across_nodes() {
                nodes::messages_and_collectives($mpi);
            }

            #[test]
            fn a_rank_killed_on_another_node() {
                nodes::a_rank_is_killed($mpi);
            }
        })*
    };
}

cells! {
    openmpi4: OPEN_MPI_4,
    openmpi5: OPEN_MPI_5,
    mpich4: MPICH_4,
    mpich5: MPICH_5,
    impi: INTEL_MPI,
}

/// The MPIs that use libfabric, with Nagaya's provider instead of their own paths.
macro_rules! cells_over_the_provider {
    ($($module:ident: $mpi:ident),* $(,)?) => {
        $(mod $module {
            use super::*;

            #[test]
            fn messages() {
                provider::messages($mpi.over_provider());
            }

            #[test]
            fn modes() {
                matrix::modes($mpi.over_provider());
            }

            #[test]
            fn collectives() {
                matrix::collectives($mpi.over_provider());
            }

            #[test]
            fn one_sided() {
                matrix::one_sided($mpi.over_provider());
            }

            #[test]
            fn threads() {
                matrix::threads($mpi.over_provider());
            }

            #[test]
            fn a_rank_killed_while_messages_fly() {
                ends::while_messages_fly($mpi.over_provider());
            }

            #[test]
            fn out_of_reach() {
                nodes::out_of_reach($mpi);
            }
        })*
    };
}

cells_over_the_provider! {
    openmpi4_ofi: OPEN_MPI_4,
    openmpi5_ofi: OPEN_MPI_5,
    mpich5_ofi: MPICH_5,
    impi_ofi: INTEL_MPI,
}

/// The only one of them that goes by `lnx`. (`lnx` 2.5 cannot cancel a receive, and its queues have
/// no lock: so not all modes work, and threads now and then do not.)
mod openmpi5_lnx {
    use super::*;

    /// Only Nagaya's provider.
    const LINKS: &str = "nagaya";

    #[test]
    fn messages() {
        provider::messages(OPEN_MPI_5.over_lnx(LINKS));
    }

    #[test]
    fn collectives() {
        matrix::collectives(OPEN_MPI_5.over_lnx(LINKS));
    }

    #[test]
    fn one_sided() {
        matrix::one_sided(OPEN_MPI_5.over_lnx(LINKS));
    }

    #[test]
    fn a_rank_killed_while_messages_fly() {
        ends::while_messages_fly(OPEN_MPI_5.over_lnx(LINKS));
    }

    #[test]
    fn across_nodes() {
        nodes::linked(OPEN_MPI_5);
    }
}
