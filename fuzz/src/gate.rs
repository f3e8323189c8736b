//! The files of the gate that read foreign bytes, compiled for this host (`c/`), and references to
//! compare them with: iced-x86 for instructions, and classic BPF as the kernel checks and evaluates
//! it for seccomp(2).

pub mod bpf;
pub mod text;
