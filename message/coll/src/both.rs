//! The two names of a function: MPI's own, and that of the profiling interface.

/// Defines a function under both of its names.
macro_rules! both {
    ($name:ident $profiled:ident ($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        /// # Safety
        /// The contract of the function in MPI's standard.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int $body

        /// # Safety
        /// The contract of the function in MPI's standard.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $profiled($($argument: $type),*) -> c_int {
            // SAFETY: both names have the same contract.
            unsafe { $name($($argument),*) }
        }
    };
}

pub(crate) use both;
