//! libjia.so: `include/jia.h`, `include/jiaf.h` and `include/nagaya_dsm.h` over the crate `dsm`.

#![allow(clippy::missing_safety_doc, reason = "the headers say what callers owe")]

mod allocations;
mod fortran;
mod jia;
mod modern;
mod reduction;
mod this;
mod variables;
