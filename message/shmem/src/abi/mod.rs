//! The exported C functions, each under its name and under that of the profiling interface
//! (`pshmem_`). The declarations are in `include/shmem.h`.
//!
//! | module | the standard's chapter |
//! |---|---|
//! | `setup` | library setup, exit, query; threads |
//! | `memory` | memory management |
//! | `teams` | team management |
//! | `contexts` | communication management |
//! | `rma` | remote memory access, blocking and not |
//! | `blocks` | put and get of blocks at regular distances (1.6) |
//! | `atomics` | atomic memory operations, blocking and not |
//! | `long_double` | put and get of one `long double` |
//! | `signals` | signalling operations |
//! | `collectives`, `sets` | collective routines: of teams, of active sets |
//! | `sync` | point-to-point synchronization |
//! | `order` | memory ordering |
//! | `locks` | distributed locks |
//! | `old` | deprecated names, and operations on caches |
//! | `export`, `types` | the macros that define all these functions |

mod atomics;
mod blocks;
mod collectives;
mod contexts;
mod export;
mod locks;
mod long_double;
mod memory;
mod old;
mod order;
mod rma;
mod sets;
mod setup;
mod signals;
mod sync;
mod teams;
mod types;
