//! The memory of a program under `nagaya span`: one map on all nodes, whoever changes it.

use nagaya_tests::nagaya;
use nagaya_tests::program::c;
use std::time::Duration;

#[test]
fn memory_that_is_mapped_anew_is_new_on_all_nodes() {
    let mappings = c("span/mappings.c");
    for (nodes, rounds) in [("1", "20"), ("2", "5"), ("3", "4"), ("4", "4")] {
        let span = nagaya("span").args(["--nodes", nodes]).arg(&mappings);
        span.arg(rounds).time_limit(Duration::from_secs(100)).run().prints("right\n");
    }
}
