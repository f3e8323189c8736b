//! `nagaya span`: files that threads of all nodes map, or read past the page cache. Each program
//! does the same alone.

use nagaya_tests::span::{LIMIT, program, span};
use nagaya_tests::{Cmd, WorkDir};

#[track_caller]
fn is_right(what: &str) {
    says_right("files", what);
}

#[track_caller]
fn says_right(name: &str, what: &str) {
    let work = WorkDir::new();
    let (files, file) = (program(name, &[]), work.join("file"));
    Cmd::new(&files).arg(what).arg(&file).time_limit(LIMIT).run().prints("right\n");
    for nodes in [1, 2, 3] {
        span(nodes, &files).arg(what).arg(&file).run().prints("right\n");
    }
}

#[test]
fn shared_read_only_mappings_show_later_writes() {
    is_right("shared");
}

#[test]
fn a_use_of_pages_past_a_file_raises_sigbus() {
    is_right("end");
}

#[test]
fn direct_reads_lose_nothing_while_others_write_the_page() {
    is_right("direct");
}

#[test]
fn processes_copy_to_pages_that_others_write() {
    is_right("copied");
}

#[test]
fn later_kernel_reads_see_the_original_data() {
    is_right("lent");
}

#[test]
fn threads_that_read_a_shared_mapping_stay_on_their_nodes() {
    says_right("leases", "stay");
}

#[test]
fn writes_through_a_descriptor_of_a_mapped_file_are_seen_by_all() {
    says_right("leases", "written");
}

#[test]
fn a_read_past_the_new_end_of_a_mapped_file_raises_sigbus() {
    says_right("leases", "cut");
}

#[test]
fn a_mapping_over_a_shared_mapping_is_new_on_all_nodes() {
    says_right("leases", "unmapped");
}

#[test]
fn threads_that_read_a_private_mapping_stay_on_their_nodes() {
    says_right("private", "read");
}

#[test]
fn a_private_mapping_that_becomes_writable_is_memory_of_all_nodes() {
    says_right("private", "written");
}

#[test]
fn a_use_of_a_private_mapping_past_the_new_end_of_its_file_raises_sigbus() {
    says_right("private", "cut");
}

#[test]
fn children_have_private_mappings_also_while_these_become_writable() {
    says_right("private", "forked");
}
