//! libjia.so: `include/jia.h` and `include/nagaya_dsm.h` over the crate `dsm`.

#![allow(clippy::missing_safety_doc, reason = "the headers say what callers owe")]

mod jia;
mod modern;
mod reduction;
mod this;
