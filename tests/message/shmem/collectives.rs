//! Collective operations of teams and of active sets, and the functions on teams.

use nagaya_tests::seed;

use crate::{compiled, oshrun};

#[track_caller]
fn agree(n: usize) {
    let seed = (seed() >> 1 | 1).to_string();
    oshrun(n, &compiled("collectives.c", &[])).arg(&seed).run().prints("collectives agree\n");
}

#[test]
fn of_one_pe() {
    agree(1);
}

#[test]
fn of_two_pes() {
    agree(2);
}

#[test]
fn of_three_pes() {
    agree(3);
}

#[test]
fn of_more_pes_than_processors() {
    agree(5);
    agree(8);
}

/// PE 0 of 3 makes an error; the others wait for ever.
#[track_caller]
fn ends_with(error: &str, line: &str) {
    let output = oshrun(3, &compiled("collectives.c", &[])).arg(error).run().ends_with(1);
    let stderr = output.stderr.trim_end();
    assert_eq!(stderr.lines().count(), 1, "{error}: {output}");
    let wanted = format!("nagaya-shmem: PE 0: {line}");
    assert!(stderr.starts_with(&wanted), "{error}: {stderr}, not {wanted}");
}

#[test]
fn wrong_arguments_end_the_job() {
    ends_with("root", "shmem_long_broadcast: PE_root 3 does not exist; there are 3 PEs");
    ends_with("root of set", "shmem_broadcast64: PE_root -1 does not exist; there are 3 PEs");
    ends_with("dest", "shmem_long_sum_reduce: 0x");
    ends_with("source", "shmem_longdouble_fcollect: 0x");
    ends_with("end", "shmem_alltoallmem: 3298534883328 bytes at 0x");
    ends_with("stride", "shmem_int_alltoalls: a stride is less than 1: dst 1, sst 0");
    ends_with("set", "shmem_barrier: PE_start 0, logPE_stride 1 and PE_size 3 are no active set;");
    ends_with("outside", "shmem_sync: PE 0 is not in the active set of PE_start 1,");
    ends_with("negative", "shmem_long_sum_to_all: nreduce is -1");
    ends_with("destroy", "shmem_team_destroy: a predefined team cannot be destroyed");
}
