//! All messages of an MPI over Nagaya's provider for libfabric, alone or joined to others
//! (`mpi` says how).

use nagaya_tests::mpi::Mpi;

/// Point-to-point messages of all sizes. Ordinary processes that may use nothing else cannot
/// start, so the messages use the provider.
pub fn messages(mpi: Mpi) {
    let program = mpi.compile("mpi_messages.c");
    for ranks in [2, 4] {
        mpi.launch_tasks(ranks, &program).run().prints("messages arrived\n");
    }
    let plain = mpi.launch(2).arg(&program).run();
    assert_ne!(plain.code(), 0, "{plain}");
}
