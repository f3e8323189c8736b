//! The macro that exports a function under its two names.

/// Exports a C function as `shmem_NAME` and as `pshmem_NAME`. NAME is a list of literals and
/// `stringify!` calls that `concat!` joins. Within the body, `$f` is the name for messages.
macro_rules! export {
    ([$($name:tt)*] ($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? { $($body:tt)* }) => {
        const _: () = {
            #[inline(always)]
            #[allow(unused_unsafe, clippy::too_many_arguments)]
            unsafe fn body($($argument: $type),*) $(-> $result)? { $($body)* }

            #[unsafe(export_name = concat!("shmem_", $($name)*))]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn public($($argument: $type),*) $(-> $result)? {
                // SAFETY: the standard's contract of this function.
                unsafe { body($($argument),*) }
            }

            #[unsafe(export_name = concat!("pshmem_", $($name)*))]
            #[allow(clippy::too_many_arguments)]
            unsafe extern "C" fn profiled($($argument: $type),*) $(-> $result)? {
                // SAFETY: the standard's contract of this function.
                unsafe { body($($argument),*) }
            }
        };
    };
}
pub(crate) use export;
