//! PVM: Nagaya compared with stock PVM 3.4.6, which is the oracle.

mod chaos;
mod clients;
mod conformance;
mod console;
mod exports;
mod faults;
mod first_steps;
mod fortran;
mod group_calls;
mod headers;
mod space;
