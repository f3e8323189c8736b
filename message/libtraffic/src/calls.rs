//! The exported functions: each counts a call and passes it on.
//!
//! All arguments are words: a number, a handle or an address takes a whole register or slot of the
//! stack, and goes on as it came.
//!
//! A module has the functions of an operation: `int` those with counts of that type, and `_c` those
//! with 64-bit counts, which MPI 4 added. A program sees those that its MPI has (`loaded::names`).

use std::ffi::c_int;

use loaded::names::Name;

use crate::arguments::{Count, Data, What};
use crate::counts::{self, Outermost, of_success};
use crate::mpi::{Next, Word, mpi};
use crate::record;

/// The data of a call whose arguments do not give it simply.
const NO_DATA: Data = Data::NONE;

/// Passes a call on to the MPI: `pass!("PMPI_Send", [buffer, count])`.
macro_rules! pass {
    ($profiled:expr, [$($argument:expr),*]) => {{
        static NEXT: Next = Next::new($profiled);
        // SAFETY: the function has this number of arguments, each in a word.
        let function = unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn($(pass!(@word $argument)),*) -> c_int>(
                NEXT.address(),
            )
        };
        // SAFETY: the MPI's function gets the arguments of its caller.
        unsafe { function($($argument),*) }
    }};
    (@word $argument:expr) => { Word };
}

/// Defines a function under both of its names, and their table: `both! { [Send _c] (arguments)
/// {body} }`.
macro_rules! both {
    ([$name:ident $($suffix:ident)?] ($($argument:ident)*) $body:block) => {
        #[allow(dead_code, reason = "only some bodies use it")]
        const NAME: &str = concat!("MPI_", stringify!($name), stringify!($($suffix)?));
        const PROFILED: &str = concat!("PMPI_", stringify!($name), stringify!($($suffix)?));

        /// # Safety
        /// The contract of the function in MPI's standard.
        #[unsafe(export_name = concat!("MPI_", stringify!($name), stringify!($($suffix)?)))]
        unsafe extern "C" fn call($($argument: Word),*) -> c_int $body

        /// # Safety
        /// The contract of the function in MPI's standard.
        #[unsafe(export_name = concat!("PMPI_", stringify!($name), stringify!($($suffix)?)))]
        unsafe extern "C" fn profiled($($argument: Word),*) -> c_int {
            // SAFETY: both names have the same contract.
            unsafe { call($($argument),*) }
        }

        pub static NAMES: [Name; 2] = [
            loaded::name!(
                concat!("MPI_", stringify!($name), stringify!($($suffix)?)),
                concat!("PMPI_", stringify!($name), stringify!($($suffix)?)),
                call
            ),
            loaded::name!(
                concat!("PMPI_", stringify!($name), stringify!($($suffix)?)),
                concat!("PMPI_", stringify!($name), stringify!($($suffix)?)),
                profiled
            ),
        ];
    };
}

/// Defines functions that count. `$what` tells the meaning of the arguments.
macro_rules! calls {
    ($($($name:ident)/+ ($($argument:ident)*) $what:expr;)*) => {
        $(calls!(@both [$($name)*] ($($argument)*) $what);)*

        static COUNTED: &[&[&[Name]]] = &[$(calls!(@names $($name)*)),*];
    };
    (@names $name:ident $($large:ident)?) => {
        &[&$name::int::NAMES, $(&$name::$large::NAMES)?]
    };
    (@both [$name:ident $($large:ident)?] $arguments:tt $what:expr) => {
        #[allow(non_snake_case, reason = "the name of MPI's standard")]
        mod $name {
            pub mod int {
                calls!(@one Int, [$name] $arguments $what);
            }
            $(pub mod $large {
                calls!(@one Large, [$name $large] $arguments $what);
            })?
        }
    };
    (@one $count:ident, $name:tt ($($argument:ident)*) $what:expr) => {
        #[allow(unused_imports, reason = "most functions use some of these")]
        use super::super::*;

        #[allow(dead_code, reason = "not every function has a count")]
        const COUNT: Count = Count::$count;

        both! { $name ($($argument)*) {
            let outermost = Outermost::begin();
            let result = pass!(PROFILED, [$($argument),*]);
            if let Some(time_ns) = outermost.as_ref().and_then(Outermost::time_ns)
                && let Some(mpi) = of_success(result)
            {
                let mut counts = counts::counts();
                // SAFETY: the call has succeeded.
                let bytes = unsafe { What::count($what, mpi, &mut counts) };
                counts.call(NAME, bytes, time_ns);
            }
            result
        } }
    };
}

/// Defines functions with a body of their own.
macro_rules! others {
    ($table:ident: $($name:ident $arguments:tt $body:block)*) => {
        $(
            #[allow(non_snake_case, reason = "the name of MPI's standard")]
            mod $name {
                use super::*;

                both! { [$name] $arguments $body }
            }
        )*

        static $table: &[&[Name]] = &[$(&$name::NAMES),*];
    };
}

/// Defines functions that free a handle, and forget it.
macro_rules! forgets {
    ($($name:ident $forget:ident;)*) => {
        others! { FREED: $($name (handle) {
            let _outermost = Outermost::begin();
            // SAFETY: by MPI's standard it is the address of a handle.
            let freed = mpi().map(|mpi| unsafe { mpi.handle_at(handle, 0) });
            let result = pass!(PROFILED, [handle]);
            if let Some(freed) = freed {
                counts::counts().$forget(freed);
            }
            result
        })* }
    };
}

/// Returns the names of all exported functions.
pub fn names() -> impl Iterator<Item = &'static Name> + Clone {
    [ENDS, FREED].into_iter().chain(COUNTED.iter().copied()).flatten().copied().flatten()
}

others! { ENDS:
    Init (argc argv) {
        let _outermost = Outermost::begin();
        let result = pass!(PROFILED, [argc, argv]);
        counts::start();
        result
    }
    Init_thread (argc argv required provided) {
        let _outermost = Outermost::begin();
        let result = pass!(PROFILED, [argc, argv, required, provided]);
        counts::start();
        result
    }
    Finalize () {
        // An MPI may call MPI_Finalize's other name itself.
        let outermost = Outermost::begin();
        if outermost.is_some() {
            record::write();
        }
        pass!(PROFILED, [])
    }
}

forgets! {
    Comm_free forget;
    Comm_disconnect forget;
    Request_free freed;
}

calls! {
    Send/_c (buffer count kind to tag comm)
        What::Message(COUNT.data(count, kind), to, comm);
    Bsend/_c (buffer count kind to tag comm)
        What::Message(COUNT.data(count, kind), to, comm);
    Ssend/_c (buffer count kind to tag comm)
        What::Message(COUNT.data(count, kind), to, comm);
    Rsend/_c (buffer count kind to tag comm)
        What::Message(COUNT.data(count, kind), to, comm);
    Isend/_c (buffer count kind to tag comm request)
        What::Message(COUNT.data(count, kind), to, comm);
    Ibsend/_c (buffer count kind to tag comm request)
        What::Message(COUNT.data(count, kind), to, comm);
    Issend/_c (buffer count kind to tag comm request)
        What::Message(COUNT.data(count, kind), to, comm);
    Irsend/_c (buffer count kind to tag comm request)
        What::Message(COUNT.data(count, kind), to, comm);
    Send_init/_c (buffer count kind to tag comm request)
        What::Persistent(&What::Message(COUNT.data(count, kind), to, comm), request);
    Bsend_init/_c (buffer count kind to tag comm request)
        What::Persistent(&What::Message(COUNT.data(count, kind), to, comm), request);
    Ssend_init/_c (buffer count kind to tag comm request)
        What::Persistent(&What::Message(COUNT.data(count, kind), to, comm), request);
    Rsend_init/_c (buffer count kind to tag comm request)
        What::Persistent(&What::Message(COUNT.data(count, kind), to, comm), request);
    Psend_init (buffer partitions count kind to tag comm info request)
        What::Persistent(
            // Its count is large under its only name.
            &What::Message(
                Count::Large.data(count, kind).times(Count::Int.value(partitions)), to, comm,
            ),
            request,
        );
    Sendrecv/_c (from count kind to tag into room room_kind source source_tag comm status)
        What::Message(COUNT.data(count, kind), to, comm);
    Sendrecv_replace/_c (buffer count kind to tag source source_tag comm status)
        What::Message(COUNT.data(count, kind), to, comm);
    Isendrecv/_c (from count kind to tag into room room_kind source source_tag comm request)
        What::Message(COUNT.data(count, kind), to, comm);
    Isendrecv_replace/_c (buffer count kind to tag source source_tag comm request)
        What::Message(COUNT.data(count, kind), to, comm);
    Start (request)
        What::Start(1, request);
    Startall (count requests)
        What::Start(count as c_int as usize, requests);
    Recv/_c (buffer count kind source tag comm status)
        What::Data(COUNT.data(count, kind));
    Irecv/_c (buffer count kind source tag comm request)
        What::Data(COUNT.data(count, kind));
    Mrecv/_c (buffer count kind message status)
        What::Data(COUNT.data(count, kind));
    Imrecv/_c (buffer count kind message request)
        What::Data(COUNT.data(count, kind));
    Recv_init/_c (buffer count kind source tag comm request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Precv_init (buffer partitions count kind source tag comm info request)
        What::Persistent(
            &What::Data(Count::Large.data(count, kind).times(Count::Int.value(partitions))),
            request,
        );
    Pready (partition request)
        What::Plain;
    Pready_range (low high request)
        What::Plain;
    Pready_list (count partitions request)
        What::Plain;
    Parrived (request partition flag)
        What::Plain;
    Probe (source tag comm status)
        What::Plain;
    Iprobe (source tag comm flag status)
        What::Plain;
    Mprobe (source tag comm message status)
        What::Plain;
    Improbe (source tag comm flag message status)
        What::Plain;
    Wait (request status)
        What::Plain;
    Waitall (count requests statuses)
        What::Plain;
    Waitany (count requests index status)
        What::Plain;
    Waitsome (count requests done indices statuses)
        What::Plain;
    Test (request flag status)
        What::Plain;
    Testall (count requests flag statuses)
        What::Plain;
    Testany (count requests index flag status)
        What::Plain;
    Testsome (count requests done indices statuses)
        What::Plain;
    Request_get_status (request flag status)
        What::Plain;
    Request_get_status_any (count requests index flag status)
        What::Plain;
    Request_get_status_all (count requests flag statuses)
        What::Plain;
    Request_get_status_some (count requests done indices statuses)
        What::Plain;
    Cancel (request)
        What::Plain;
    Buffer_detach/_c (buffer bytes)
        What::Plain;
    Buffer_flush ()
        What::Plain;
    Buffer_iflush (request)
        What::Plain;
    Comm_detach_buffer/_c (comm buffer bytes)
        What::Plain;
    Comm_flush_buffer (comm)
        What::Plain;
    Comm_iflush_buffer (comm request)
        What::Plain;
    Session_detach_buffer/_c (session buffer bytes)
        What::Plain;
    Session_flush_buffer (session)
        What::Plain;
    Session_iflush_buffer (session request)
        What::Plain;
    Barrier (comm)
        What::Plain;
    Bcast/_c (buffer count kind root comm)
        What::Data(COUNT.data(count, kind));
    Reduce/_c (from into count kind operator root comm)
        What::Data(COUNT.data(count, kind));
    Allreduce/_c (from into count kind operator comm)
        What::Data(COUNT.data(count, kind));
    Scan/_c (from into count kind operator comm)
        What::Data(COUNT.data(count, kind));
    Exscan/_c (from into count kind operator comm)
        What::Data(COUNT.data(count, kind));
    Reduce_scatter/_c (from into counts kind operator comm)
        What::Parts(COUNT.array(counts), kind, comm);
    Reduce_scatter_block/_c (from into count kind operator comm)
        What::ToAll(COUNT.data(count, kind), comm);
    Gather/_c (from count kind into room room_kind root comm)
        What::Data(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind)));
    Allgather/_c (from count kind into room room_kind comm)
        What::Data(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind)));
    Gatherv/_c (from count kind into rooms offsets room_kind root comm)
        What::Data(COUNT.data(count, kind).unless_in_place(from, NO_DATA));
    Allgatherv/_c (from count kind into rooms offsets room_kind comm)
        What::Data(COUNT.data(count, kind).unless_in_place(from, NO_DATA));
    Scatter/_c (from count kind into room room_kind root comm)
        What::Data(COUNT.data(room, room_kind).unless_in_place(into, COUNT.data(count, kind)));
    Scatterv/_c (from counts offsets kind into room room_kind root comm)
        What::Data(COUNT.data(room, room_kind).unless_in_place(into, NO_DATA));
    Alltoall/_c (from count kind into room room_kind comm)
        What::ToAll(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind)), comm);
    Alltoallv/_c (from counts offsets kind into rooms room_offsets room_kind comm)
        What::Parts(COUNT.array(counts), kind, comm)
            .unless_in_place(from, What::Parts(COUNT.array(rooms), room_kind, comm));
    Alltoallw/_c (from counts offsets kinds into rooms room_offsets room_kinds comm)
        What::PartsOfTypes(COUNT.array(counts), kinds, comm)
            .unless_in_place(from, What::PartsOfTypes(COUNT.array(rooms), room_kinds, comm));
    Neighbor_allgather/_c (from count kind into room room_kind comm)
        What::Data(COUNT.data(count, kind));
    Neighbor_allgatherv/_c (from count kind into rooms offsets room_kind comm)
        What::Data(COUNT.data(count, kind));
    Neighbor_alltoall/_c (from count kind into room room_kind comm)
        What::Data(COUNT.data(count, kind));
    Neighbor_alltoallv/_c (from counts offsets kind into rooms room_offsets room_kind comm)
        What::Plain;
    Neighbor_alltoallw/_c (from counts offsets kinds into rooms room_offsets room_kinds comm)
        What::Plain;
    Ibarrier (comm request)
        What::Plain;
    Ibcast/_c (buffer count kind root comm request)
        What::Data(COUNT.data(count, kind));
    Ireduce/_c (from into count kind operator root comm request)
        What::Data(COUNT.data(count, kind));
    Iallreduce/_c (from into count kind operator comm request)
        What::Data(COUNT.data(count, kind));
    Iscan/_c (from into count kind operator comm request)
        What::Data(COUNT.data(count, kind));
    Iexscan/_c (from into count kind operator comm request)
        What::Data(COUNT.data(count, kind));
    Ireduce_scatter/_c (from into counts kind operator comm request)
        What::Parts(COUNT.array(counts), kind, comm);
    Ireduce_scatter_block/_c (from into count kind operator comm request)
        What::ToAll(COUNT.data(count, kind), comm);
    Igather/_c (from count kind into room room_kind root comm request)
        What::Data(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind)));
    Iallgather/_c (from count kind into room room_kind comm request)
        What::Data(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind)));
    Igatherv/_c (from count kind into rooms offsets room_kind root comm request)
        What::Data(COUNT.data(count, kind).unless_in_place(from, NO_DATA));
    Iallgatherv/_c (from count kind into rooms offsets room_kind comm request)
        What::Data(COUNT.data(count, kind).unless_in_place(from, NO_DATA));
    Iscatter/_c (from count kind into room room_kind root comm request)
        What::Data(COUNT.data(room, room_kind).unless_in_place(into, COUNT.data(count, kind)));
    Iscatterv/_c (from counts offsets kind into room room_kind root comm request)
        What::Data(COUNT.data(room, room_kind).unless_in_place(into, NO_DATA));
    Ialltoall/_c (from count kind into room room_kind comm request)
        What::ToAll(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind)), comm);
    Ialltoallv/_c (from counts offsets kind into rooms room_offsets room_kind comm request)
        What::Parts(COUNT.array(counts), kind, comm)
            .unless_in_place(from, What::Parts(COUNT.array(rooms), room_kind, comm));
    Ialltoallw/_c (from counts offsets kinds into rooms room_offsets room_kinds comm request)
        What::PartsOfTypes(COUNT.array(counts), kinds, comm)
            .unless_in_place(from, What::PartsOfTypes(COUNT.array(rooms), room_kinds, comm));
    Ineighbor_allgather/_c (from count kind into room room_kind comm request)
        What::Data(COUNT.data(count, kind));
    Ineighbor_allgatherv/_c (from count kind into rooms offsets room_kind comm request)
        What::Data(COUNT.data(count, kind));
    Ineighbor_alltoall/_c (from count kind into room room_kind comm request)
        What::Data(COUNT.data(count, kind));
    Ineighbor_alltoallv/_c (from counts offsets kind into rooms room_offsets room_kind comm request)
        What::Plain;
    Ineighbor_alltoallw/_c (from counts offsets kinds into rooms room_offsets room_kinds comm request)
        What::Plain;
    Barrier_init (comm info request)
        What::Persistent(&What::Plain, request);
    Bcast_init/_c (buffer count kind root comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Reduce_init/_c (from into count kind operator root comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Allreduce_init/_c (from into count kind operator comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Scan_init/_c (from into count kind operator comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Exscan_init/_c (from into count kind operator comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Reduce_scatter_init/_c (from into counts kind operator comm info request)
        What::Persistent(&What::Parts(COUNT.array(counts), kind, comm), request);
    Reduce_scatter_block_init/_c (from into count kind operator comm info request)
        What::Persistent(&What::ToAll(COUNT.data(count, kind), comm), request);
    Gather_init/_c (from count kind into room room_kind root comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind))), request);
    Allgather_init/_c (from count kind into room room_kind comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind))), request);
    Gatherv_init/_c (from count kind into rooms offsets room_kind root comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind).unless_in_place(from, NO_DATA)), request);
    Allgatherv_init/_c (from count kind into rooms offsets room_kind comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind).unless_in_place(from, NO_DATA)), request);
    Scatter_init/_c (from count kind into room room_kind root comm info request)
        What::Persistent(&What::Data(COUNT.data(room, room_kind).unless_in_place(into, COUNT.data(count, kind))), request);
    Scatterv_init/_c (from counts offsets kind into room room_kind root comm info request)
        What::Persistent(&What::Data(COUNT.data(room, room_kind).unless_in_place(into, NO_DATA)), request);
    Alltoall_init/_c (from count kind into room room_kind comm info request)
        What::Persistent(&What::ToAll(COUNT.data(count, kind).unless_in_place(from, COUNT.data(room, room_kind)), comm), request);
    Alltoallv_init/_c (from counts offsets kind into rooms room_offsets room_kind comm info request)
        What::Persistent(
            &What::Parts(COUNT.array(counts), kind, comm)
                .unless_in_place(from, What::Parts(COUNT.array(rooms), room_kind, comm)),
            request,
        );
    Alltoallw_init/_c (from counts offsets kinds into rooms room_offsets room_kinds comm info request)
        What::Persistent(
            &What::PartsOfTypes(COUNT.array(counts), kinds, comm)
                .unless_in_place(from, What::PartsOfTypes(COUNT.array(rooms), room_kinds, comm)),
            request,
        );
    Neighbor_allgather_init/_c (from count kind into room room_kind comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Neighbor_allgatherv_init/_c (from count kind into rooms offsets room_kind comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Neighbor_alltoall_init/_c (from count kind into room room_kind comm info request)
        What::Persistent(&What::Data(COUNT.data(count, kind)), request);
    Neighbor_alltoallv_init/_c (from counts offsets kind into rooms room_offsets room_kind comm info request)
        What::Persistent(&What::Plain, request);
    Neighbor_alltoallw_init/_c (from counts offsets kinds into rooms room_offsets room_kinds comm info request)
        What::Persistent(&What::Plain, request);
    Put/_c (from count kind to offset room room_kind window)
        What::Data(COUNT.data(count, kind));
    Get/_c (into count kind source offset room room_kind window)
        What::Data(COUNT.data(count, kind));
    Accumulate/_c (from count kind to offset room room_kind operator window)
        What::Data(COUNT.data(count, kind));
    Get_accumulate/_c (from count kind into room room_kind to offset there there_kind operator window)
        What::Data(COUNT.data(count, kind));
    Fetch_and_op (from into kind to offset operator window)
        What::Data(COUNT.data(1, kind));
    Compare_and_swap (from compare into kind to offset window)
        What::Data(COUNT.data(1, kind));
    Rput/_c (from count kind to offset room room_kind window request)
        What::Data(COUNT.data(count, kind));
    Rget/_c (into count kind source offset room room_kind window request)
        What::Data(COUNT.data(count, kind));
    Raccumulate/_c (from count kind to offset room room_kind operator window request)
        What::Data(COUNT.data(count, kind));
    Rget_accumulate/_c (from count kind into room room_kind to offset there there_kind operator window request)
        What::Data(COUNT.data(count, kind));
    Win_fence (asserted window)
        What::Plain;
    Win_lock (kind rank asserted window)
        What::Plain;
    Win_unlock (rank window)
        What::Plain;
    Win_lock_all (asserted window)
        What::Plain;
    Win_unlock_all (window)
        What::Plain;
    Win_flush (rank window)
        What::Plain;
    Win_flush_all (window)
        What::Plain;
    Win_flush_local (rank window)
        What::Plain;
    Win_flush_local_all (window)
        What::Plain;
    Win_start (group asserted window)
        What::Plain;
    Win_complete (window)
        What::Plain;
    Win_post (group asserted window)
        What::Plain;
    Win_wait (window)
        What::Plain;
    Win_test (window flag)
        What::Plain;
    Win_sync (window)
        What::Plain;
}
