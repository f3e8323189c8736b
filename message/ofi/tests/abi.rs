//! Compares `abi` with libfabric's installed headers, by a C program that compiles only if they
//! agree. Newer headers may have appended to structures.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use nagaya_fi::abi;

#[test]
fn structures_and_numbers_are_libfabrics() {
    let mut source = String::from(
        "#include <stddef.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_domain.h>\n\
         #include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n#include <rdma/fi_cm.h>\n\
         #include <rdma/fi_tagged.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_atomic.h>\n\
         #include <rdma/fi_errno.h>\n#include <rdma/providers/fi_prov.h>\n\
         #include <rdma/providers/fi_log.h>\n\
         #define SAME(a, b) _Static_assert((unsigned long long)(a) == (b), #a)\n",
    );
    let checks = compare(
        &mut source,
        [abi::FLAGS, abi::NUMBERS, abi::ERRORS].into_iter().flatten(),
        abi::layouts(),
    );
    assert!(checks > 300, "only {checks}");
    // Distributions may leave this header out, and old versions have another one.
    source.push_str(
        "#if __has_include(<rdma/providers/fi_peer.h>)\n#include <rdma/providers/fi_peer.h>\n\
         #if FI_MAJOR_VERSION > 2 || FI_MAJOR_VERSION == 2 && FI_MINOR_VERSION >= 3\n",
    );
    compare(&mut source, abi::peer::FLAGS.iter(), abi::peer::layouts());
    source.push_str("#endif\n#endif\n");
    let file = std::env::temp_dir().join(format!("nagaya-fi-abi-{}.c", std::process::id()));
    std::fs::write(&file, source).expect("a file");
    let output = Command::new("gcc")
        .args(["-std=gnu11", "-w", "-fsyntax-only"])
        .arg(&file)
        .output()
        .expect("gcc");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let hint =
        if Path::new("/usr/include/rdma/fabric.h").exists() { "" } else { "run scripts/deps" };
    assert!(output.status.success(), "{errors}{hint}");
    std::fs::remove_file(file).expect("it is there");
}

/// A structure's name, its size, and its fields with their offsets.
type Layout<'a> = (&'a str, usize, Vec<(&'a str, usize)>);

/// Appends checks of numbers and of structures. Returns their number.
fn compare<'a>(
    source: &mut String,
    numbers: impl Iterator<Item = &'a (&'a str, u64)>,
    structures: Vec<Layout<'_>>,
) -> usize {
    let mut checks = 0;
    for &(name, value) in numbers {
        writeln!(source, "SAME({name}, {value}ULL);").unwrap();
        checks += 1;
    }
    for (name, size, fields) in structures {
        writeln!(source, "_Static_assert(sizeof({name}) >= {size}, \"{name}\");").unwrap();
        for (field, offset) in fields {
            let field = field.trim_start_matches("r#");
            writeln!(source, "SAME(offsetof({name}, {field}), {offset});").unwrap();
            checks += 1;
        }
    }
    checks
}
