//! Fabrics and meshes of several processes in one thread, over a simulated network with faults.

mod handshakes;
