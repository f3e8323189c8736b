//! Macros for hand-written declarations of C interfaces. They also list their declarations, so
//! that a test can compare them with the libraries' headers.

macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// A type of the library's, of which only pointers are used.
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(#[allow(missing_docs)] pub const $name: $type = $value;)*
        /// All of them with their names, for the test that compares them with the headers.
        pub const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $value as i64)),*];
    };
}

/// Declares structures, and lists their layout for the test.
macro_rules! structures {
    ($($(#[$attribute:meta])* pub struct $name:ident { $($field:ident: $type:ty,)* })*) => {
        $($(#[$attribute])* #[repr(C)] #[allow(missing_docs)] #[derive(Clone, Copy)]
        pub struct $name { $(pub $field: $type,)* })*
        $(impl $name {
            /// All zeros: no field is valid.
            pub const fn empty() -> Self {
                // SAFETY: integers, pointers and optional functions, for which zeros are valid.
                unsafe { std::mem::zeroed() }
            }
        })*
        /// Structure, size, and name, offset and size of each field.
        pub const LAYOUT: &[(&str, usize, &[(&str, usize, usize)])] = &[$((
            stringify!($name),
            size_of::<$name>(),
            &[$((
                stringify!($field),
                std::mem::offset_of!($name, $field),
                size_of::<$type>(),
            )),*],
        )),*];
    };
}

/// Declares the functions, and loads them by name.
macro_rules! functions {
    ($(#[$attribute:meta])* pub struct $library:ident {
        $($name:ident: fn($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*
    }) => {
        $(#[$attribute])*
        #[allow(missing_docs)]
        pub struct $library {
            $(pub $name: unsafe extern "C" fn($($arg: $type),*) $(-> $result)?,)*
        }

        impl $library {
            fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the library's header.
                unsafe {
                    Ok(Self { $($name: *library.get(concat!(stringify!($name), "\0").as_bytes())?,)* })
                }
            }
        }
    };
}

pub(crate) use {constants, functions, opaque, structures};
