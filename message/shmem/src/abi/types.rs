//! The standard's tables of types, as macros that call another macro for each row: the name in
//! functions, and the Rust type.

/// The types of point-to-point synchronization, and of atomic operations on integers.
macro_rules! sync_types {
    ($call:ident) => {
        $call!(short i16);
        $call!(int i32);
        $call!(long i64);
        $call!(longlong i64);
        $call!(ushort u16);
        $call!(uint u32);
        $call!(ulong u64);
        $call!(ulonglong u64);
        $call!(int32 i32);
        $call!(int64 i64);
        $call!(uint32 u32);
        $call!(uint64 u64);
        $call!(size u64);
        $call!(ptrdiff i64);
    };
}

/// The types of standard atomic operations, with the word of their size.
macro_rules! amo_types {
    ($call:ident) => {
        $call!(int i32 u32);
        $call!(long i64 u64);
        $call!(longlong i64 u64);
        $call!(uint u32 u32);
        $call!(ulong u64 u64);
        $call!(ulonglong u64 u64);
        $call!(int32 i32 u32);
        $call!(int64 i64 u64);
        $call!(uint32 u32 u32);
        $call!(uint64 u64 u64);
        $call!(size u64 u64);
        $call!(ptrdiff i64 u64);
    };
}

/// The types of bitwise atomic operations, with the word of their size.
macro_rules! bitwise_types {
    ($call:ident) => {
        $call!(uint u32 u32);
        $call!(ulong u64 u64);
        $call!(ulonglong u64 u64);
        $call!(int32 i32 u32);
        $call!(int64 i64 u64);
        $call!(uint32 u32 u32);
        $call!(uint64 u64 u64);
    };
}

/// The types of bitwise reductions.
macro_rules! bit_types {
    ($call:ident) => {
        $call!(uchar u8);
        $call!(ushort u16);
        $call!(uint u32);
        $call!(ulong u64);
        $call!(ulonglong u64);
        $call!(int8 i8);
        $call!(int16 i16);
        $call!(int32 i32);
        $call!(int64 i64);
        $call!(uint8 u8);
        $call!(uint16 u16);
        $call!(uint32 u32);
        $call!(uint64 u64);
        $call!(size u64);
    };
}

/// The types of put and get that are passed by value. (For `long double`
/// see `abi::long_double`.)
macro_rules! value_types {
    ($call:ident) => {
        $call!(float f32);
        $call!(double f64);
        $call!(char i8);
        $call!(schar i8);
        $call!(short i16);
        $call!(int i32);
        $call!(long i64);
        $call!(longlong i64);
        $call!(uchar u8);
        $call!(ushort u16);
        $call!(uint u32);
        $call!(ulong u64);
        $call!(ulonglong u64);
        $call!(int8 i8);
        $call!(int16 i16);
        $call!(int32 i32);
        $call!(int64 i64);
        $call!(uint8 u8);
        $call!(uint16 u16);
        $call!(uint32 u32);
        $call!(uint64 u64);
        $call!(size u64);
        $call!(ptrdiff i64);
    };
}

/// The types of put and get.
macro_rules! rma_types {
    ($call:ident) => {
        $crate::abi::types::value_types!($call);
        $call!(longdouble [u64; 2]);
    };
}

/// The sizes of put and get by size, in bits, with a type of that size.
macro_rules! rma_sizes {
    ($call:ident) => {
        $call!(8 u8);
        $call!(16 u16);
        $call!(32 u32);
        $call!(64 u64);
        $call!(128 [u64; 2]);
    };
}

pub(crate) use {
    amo_types, bit_types, bitwise_types, rma_sizes, rma_types, sync_types, value_types,
};
