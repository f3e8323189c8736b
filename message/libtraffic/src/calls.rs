//! The exported functions: each counts a call and passes it on.
//!
//! All arguments are words: a number, a handle or an address takes a whole register or slot of the
//! stack, and goes on as it came.

use std::ffi::c_int;

use crate::arguments::{Data, What, is_in_place};
use crate::counts::{self, Outermost, of_success};
use crate::mpi::{Next, Word, mpi};
use crate::record;

/// The data of a call whose arguments do not give it simply.
const NO_DATA: Data = Data::NONE;

/// Passes a call on to the MPI: `pass!(PMPI_Send, [buffer, count])`.
macro_rules! pass {
    ($profiled:ident, [$($argument:expr),*]) => {{
        static NEXT: Next = Next::new(stringify!($profiled));
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

/// Defines functions under both of their names. `$what` tells what the arguments mean.
macro_rules! calls {
    ($($name:ident $profiled:ident ($($argument:ident)*) $what:expr;)*) => {
        $(
            /// # Safety
            /// The contract of the function in MPI's standard.
            #[unsafe(no_mangle)]
            #[allow(unused_variables, reason = "most arguments have no size")]
            pub unsafe extern "C" fn $name($($argument: Word),*) -> c_int {
                let outermost = Outermost::begin();
                let result = pass!($profiled, [$($argument),*]);
                if let Some(time_ns) = outermost.as_ref().and_then(Outermost::time_ns)
                    && let Some(mpi) = of_success(result)
                {
                    let what: What = $what;
                    let mut counts = counts::counts();
                    // SAFETY: the call has succeeded.
                    let bytes = unsafe { what.count(mpi, &mut counts) };
                    counts.call(stringify!($name), bytes, time_ns);
                }
                result
            }

            /// # Safety
            /// The contract of the function in MPI's standard.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $profiled($($argument: Word),*) -> c_int {
                // SAFETY: both names have the same contract.
                unsafe { $name($($argument),*) }
            }
        )*
    };
}

/// Defines a function under both of its names.
macro_rules! both {
    ($name:ident $profiled:ident ($($argument:ident)*) $body:block) => {
        /// # Safety
        /// The contract of the function in MPI's standard.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: Word),*) -> c_int $body

        /// # Safety
        /// The contract of the function in MPI's standard.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled($($argument: Word),*) -> c_int {
            // SAFETY: both names have the same contract.
            unsafe { $name($($argument),*) }
        }
    };
}

both! { MPI_Init PMPI_Init (argc argv) {
    let _outermost = Outermost::begin();
    let result = pass!(PMPI_Init, [argc, argv]);
    counts::start();
    result
} }

both! { MPI_Init_thread PMPI_Init_thread (argc argv required provided) {
    let _outermost = Outermost::begin();
    let result = pass!(PMPI_Init_thread, [argc, argv, required, provided]);
    counts::start();
    result
} }

both! { MPI_Finalize PMPI_Finalize () {
    // An MPI may call MPI_Finalize's other name itself.
    let outermost = Outermost::begin();
    if outermost.is_some() {
        record::write();
    }
    pass!(PMPI_Finalize, [])
} }

/// Passes on a call that frees a handle, and forgets it.
macro_rules! forgets {
    ($($name:ident $profiled:ident $forget:ident;)*) => {
        $(both! { $name $profiled (handle) {
            let _outermost = Outermost::begin();
            // SAFETY: by MPI's standard it is the address of a handle.
            let freed = mpi().map(|mpi| unsafe { mpi.handle_at(handle, 0) });
            let result = pass!($profiled, [handle]);
            if let Some(freed) = freed {
                counts::counts().$forget(freed);
            }
            result
        } })*
    };
}

forgets! {
    MPI_Comm_free PMPI_Comm_free forget;
    MPI_Comm_disconnect PMPI_Comm_disconnect forget;
    MPI_Request_free PMPI_Request_free freed;
}

calls! {
    MPI_Send PMPI_Send (buffer count kind to tag comm)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Bsend PMPI_Bsend (buffer count kind to tag comm)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Ssend PMPI_Ssend (buffer count kind to tag comm)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Rsend PMPI_Rsend (buffer count kind to tag comm)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Isend PMPI_Isend (buffer count kind to tag comm request)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Ibsend PMPI_Ibsend (buffer count kind to tag comm request)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Issend PMPI_Issend (buffer count kind to tag comm request)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Irsend PMPI_Irsend (buffer count kind to tag comm request)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Send_init PMPI_Send_init (buffer count kind to tag comm request)
        What::Persistent(Data::new(count, kind), to, comm, request);
    MPI_Bsend_init PMPI_Bsend_init (buffer count kind to tag comm request)
        What::Persistent(Data::new(count, kind), to, comm, request);
    MPI_Ssend_init PMPI_Ssend_init (buffer count kind to tag comm request)
        What::Persistent(Data::new(count, kind), to, comm, request);
    MPI_Rsend_init PMPI_Rsend_init (buffer count kind to tag comm request)
        What::Persistent(Data::new(count, kind), to, comm, request);
    MPI_Sendrecv PMPI_Sendrecv (from count kind to tag into room room_kind source source_tag comm status)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Sendrecv_replace PMPI_Sendrecv_replace (buffer count kind to tag source source_tag comm status)
        What::Message(Data::new(count, kind), to, comm);
    MPI_Start PMPI_Start (request)
        What::Start(1, request);
    MPI_Startall PMPI_Startall (count requests)
        What::Start(count as c_int as usize, requests);
    MPI_Recv PMPI_Recv (buffer count kind source tag comm status)
        What::Data(Data::new(count, kind));
    MPI_Irecv PMPI_Irecv (buffer count kind source tag comm request)
        What::Data(Data::new(count, kind));
    MPI_Mrecv PMPI_Mrecv (buffer count kind message status)
        What::Data(Data::new(count, kind));
    MPI_Imrecv PMPI_Imrecv (buffer count kind message request)
        What::Data(Data::new(count, kind));
    MPI_Probe PMPI_Probe (source tag comm status)
        What::Plain;
    MPI_Iprobe PMPI_Iprobe (source tag comm flag status)
        What::Plain;
    MPI_Mprobe PMPI_Mprobe (source tag comm message status)
        What::Plain;
    MPI_Improbe PMPI_Improbe (source tag comm flag message status)
        What::Plain;
    MPI_Wait PMPI_Wait (request status)
        What::Plain;
    MPI_Waitall PMPI_Waitall (count requests statuses)
        What::Plain;
    MPI_Waitany PMPI_Waitany (count requests index status)
        What::Plain;
    MPI_Waitsome PMPI_Waitsome (count requests done indices statuses)
        What::Plain;
    MPI_Test PMPI_Test (request flag status)
        What::Plain;
    MPI_Testall PMPI_Testall (count requests flag statuses)
        What::Plain;
    MPI_Testany PMPI_Testany (count requests index flag status)
        What::Plain;
    MPI_Testsome PMPI_Testsome (count requests done indices statuses)
        What::Plain;
    MPI_Barrier PMPI_Barrier (comm)
        What::Plain;
    MPI_Bcast PMPI_Bcast (buffer count kind root comm)
        What::Data(Data::new(count, kind));
    MPI_Reduce PMPI_Reduce (from into count kind operator root comm)
        What::Data(Data::new(count, kind));
    MPI_Allreduce PMPI_Allreduce (from into count kind operator comm)
        What::Data(Data::new(count, kind));
    MPI_Scan PMPI_Scan (from into count kind operator comm)
        What::Data(Data::new(count, kind));
    MPI_Exscan PMPI_Exscan (from into count kind operator comm)
        What::Data(Data::new(count, kind));
    MPI_Reduce_scatter PMPI_Reduce_scatter (from into counts kind operator comm)
        What::Parts(counts, kind, comm);
    MPI_Reduce_scatter_block PMPI_Reduce_scatter_block (from into count kind operator comm)
        What::ToAll(Data::new(count, kind), comm);
    MPI_Gather PMPI_Gather (from count kind into room room_kind root comm)
        What::Data(Data::new(count, kind).unless_in_place(from, Data::new(room, room_kind)));
    MPI_Allgather PMPI_Allgather (from count kind into room room_kind comm)
        What::Data(Data::new(count, kind).unless_in_place(from, Data::new(room, room_kind)));
    MPI_Gatherv PMPI_Gatherv (from count kind into rooms offsets room_kind root comm)
        What::Data(Data::new(count, kind).unless_in_place(from, NO_DATA));
    MPI_Allgatherv PMPI_Allgatherv (from count kind into rooms offsets room_kind comm)
        What::Data(Data::new(count, kind).unless_in_place(from, NO_DATA));
    MPI_Scatter PMPI_Scatter (from count kind into room room_kind root comm)
        What::Data(Data::new(room, room_kind).unless_in_place(into, Data::new(count, kind)));
    MPI_Scatterv PMPI_Scatterv (from counts offsets kind into room room_kind root comm)
        What::Data(Data::new(room, room_kind).unless_in_place(into, NO_DATA));
    MPI_Alltoall PMPI_Alltoall (from count kind into room room_kind comm)
        What::ToAll(Data::new(count, kind).unless_in_place(from, Data::new(room, room_kind)), comm);
    MPI_Alltoallv PMPI_Alltoallv (from counts offsets kind into rooms room_offsets room_kind comm)
        if is_in_place(from) { What::Parts(rooms, room_kind, comm) } else { What::Parts(counts, kind, comm) };
    MPI_Alltoallw PMPI_Alltoallw (from counts offsets kinds into rooms room_offsets room_kinds comm)
        What::Plain;
    MPI_Neighbor_allgather PMPI_Neighbor_allgather (from count kind into room room_kind comm)
        What::Data(Data::new(count, kind));
    MPI_Neighbor_allgatherv PMPI_Neighbor_allgatherv (from count kind into rooms offsets room_kind comm)
        What::Data(Data::new(count, kind));
    MPI_Neighbor_alltoall PMPI_Neighbor_alltoall (from count kind into room room_kind comm)
        What::Data(Data::new(count, kind));
    MPI_Neighbor_alltoallv PMPI_Neighbor_alltoallv (from counts offsets kind into rooms room_offsets room_kind comm)
        What::Plain;
    MPI_Neighbor_alltoallw PMPI_Neighbor_alltoallw (from counts offsets kinds into rooms room_offsets room_kinds comm)
        What::Plain;
    MPI_Ibarrier PMPI_Ibarrier (comm request)
        What::Plain;
    MPI_Ibcast PMPI_Ibcast (buffer count kind root comm request)
        What::Data(Data::new(count, kind));
    MPI_Ireduce PMPI_Ireduce (from into count kind operator root comm request)
        What::Data(Data::new(count, kind));
    MPI_Iallreduce PMPI_Iallreduce (from into count kind operator comm request)
        What::Data(Data::new(count, kind));
    MPI_Iscan PMPI_Iscan (from into count kind operator comm request)
        What::Data(Data::new(count, kind));
    MPI_Iexscan PMPI_Iexscan (from into count kind operator comm request)
        What::Data(Data::new(count, kind));
    MPI_Ireduce_scatter PMPI_Ireduce_scatter (from into counts kind operator comm request)
        What::Parts(counts, kind, comm);
    MPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block (from into count kind operator comm request)
        What::ToAll(Data::new(count, kind), comm);
    MPI_Igather PMPI_Igather (from count kind into room room_kind root comm request)
        What::Data(Data::new(count, kind).unless_in_place(from, Data::new(room, room_kind)));
    MPI_Iallgather PMPI_Iallgather (from count kind into room room_kind comm request)
        What::Data(Data::new(count, kind).unless_in_place(from, Data::new(room, room_kind)));
    MPI_Igatherv PMPI_Igatherv (from count kind into rooms offsets room_kind root comm request)
        What::Data(Data::new(count, kind).unless_in_place(from, NO_DATA));
    MPI_Iallgatherv PMPI_Iallgatherv (from count kind into rooms offsets room_kind comm request)
        What::Data(Data::new(count, kind).unless_in_place(from, NO_DATA));
    MPI_Iscatter PMPI_Iscatter (from count kind into room room_kind root comm request)
        What::Data(Data::new(room, room_kind).unless_in_place(into, Data::new(count, kind)));
    MPI_Iscatterv PMPI_Iscatterv (from counts offsets kind into room room_kind root comm request)
        What::Data(Data::new(room, room_kind).unless_in_place(into, NO_DATA));
    MPI_Ialltoall PMPI_Ialltoall (from count kind into room room_kind comm request)
        What::ToAll(Data::new(count, kind).unless_in_place(from, Data::new(room, room_kind)), comm);
    MPI_Ialltoallv PMPI_Ialltoallv (from counts offsets kind into rooms room_offsets room_kind comm request)
        if is_in_place(from) { What::Parts(rooms, room_kind, comm) } else { What::Parts(counts, kind, comm) };
    MPI_Ialltoallw PMPI_Ialltoallw (from counts offsets kinds into rooms room_offsets room_kinds comm request)
        What::Plain;
    MPI_Ineighbor_allgather PMPI_Ineighbor_allgather (from count kind into room room_kind comm request)
        What::Data(Data::new(count, kind));
    MPI_Ineighbor_allgatherv PMPI_Ineighbor_allgatherv (from count kind into rooms offsets room_kind comm request)
        What::Data(Data::new(count, kind));
    MPI_Ineighbor_alltoall PMPI_Ineighbor_alltoall (from count kind into room room_kind comm request)
        What::Data(Data::new(count, kind));
    MPI_Ineighbor_alltoallv PMPI_Ineighbor_alltoallv (from counts offsets kind into rooms room_offsets room_kind comm request)
        What::Plain;
    MPI_Ineighbor_alltoallw PMPI_Ineighbor_alltoallw (from counts offsets kinds into rooms room_offsets room_kinds comm request)
        What::Plain;
    MPI_Put PMPI_Put (from count kind to offset room room_kind window)
        What::Data(Data::new(count, kind));
    MPI_Get PMPI_Get (into count kind source offset room room_kind window)
        What::Data(Data::new(count, kind));
    MPI_Accumulate PMPI_Accumulate (from count kind to offset room room_kind operator window)
        What::Data(Data::new(count, kind));
    MPI_Get_accumulate PMPI_Get_accumulate (from count kind into room room_kind to offset there there_kind operator window)
        What::Data(Data::new(count, kind));
    MPI_Fetch_and_op PMPI_Fetch_and_op (from into kind to offset operator window)
        What::Data(Data::new(1, kind));
    MPI_Compare_and_swap PMPI_Compare_and_swap (from compare into kind to offset window)
        What::Data(Data::new(1, kind));
    MPI_Rput PMPI_Rput (from count kind to offset room room_kind window request)
        What::Data(Data::new(count, kind));
    MPI_Rget PMPI_Rget (into count kind source offset room room_kind window request)
        What::Data(Data::new(count, kind));
    MPI_Raccumulate PMPI_Raccumulate (from count kind to offset room room_kind operator window request)
        What::Data(Data::new(count, kind));
    MPI_Win_fence PMPI_Win_fence (asserted window)
        What::Plain;
    MPI_Win_lock PMPI_Win_lock (kind rank asserted window)
        What::Plain;
    MPI_Win_unlock PMPI_Win_unlock (rank window)
        What::Plain;
    MPI_Win_lock_all PMPI_Win_lock_all (asserted window)
        What::Plain;
    MPI_Win_unlock_all PMPI_Win_unlock_all (window)
        What::Plain;
    MPI_Win_flush PMPI_Win_flush (rank window)
        What::Plain;
    MPI_Win_flush_all PMPI_Win_flush_all (window)
        What::Plain;
    MPI_Win_flush_local PMPI_Win_flush_local (rank window)
        What::Plain;
    MPI_Win_flush_local_all PMPI_Win_flush_local_all (window)
        What::Plain;
    MPI_Win_start PMPI_Win_start (group asserted window)
        What::Plain;
    MPI_Win_complete PMPI_Win_complete (window)
        What::Plain;
    MPI_Win_post PMPI_Win_post (group asserted window)
        What::Plain;
    MPI_Win_wait PMPI_Win_wait (window)
        What::Plain;
}
