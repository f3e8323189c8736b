//! MPI's predefined types and operators: sizes, and the operators that apply to a type.

use loaded::Abi;

use crate::abi::Handle;

/// A class of types, by which MPI's standard defines operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Integers of C and Fortran.
    Integer,
    /// Floating-point numbers.
    Real,
    /// Complex numbers.
    Complex,
    /// Logical values.
    Logical,
    /// MPI_BYTE.
    Byte,
    /// A value and its index.
    Pair,
    /// Characters, without operators.
    Text,
}

/// A type of number that this library reduces itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    I32,
    I64,
    U32,
    U64,
    F32,
    F64,
}

/// A predefined type. None has gaps.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Size in bytes.
    pub size: usize,
    /// The class of the type.
    pub class: Class,
    /// The number, if this library reduces it.
    pub number: Option<Number>,
}

/// A predefined operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Max,
    Min,
    Sum,
    Prod,
    LogicalAnd,
    BitAnd,
    LogicalOr,
    BitOr,
    LogicalXor,
    BitXor,
    MinLoc,
    MaxLoc,
}

impl Operator {
    /// Returns true if the standard defines the operator for this class.
    pub fn is_for(self, class: Class) -> bool {
        use Class::*;
        match self {
            Self::Max | Self::Min => matches!(class, Integer | Real),
            Self::Sum | Self::Prod => matches!(class, Integer | Real | Complex),
            Self::LogicalAnd | Self::LogicalOr | Self::LogicalXor => {
                matches!(class, Integer | Logical)
            }
            Self::BitAnd | Self::BitOr | Self::BitXor => matches!(class, Integer | Byte),
            Self::MinLoc | Self::MaxLoc => class == Pair,
        }
    }
}

/// An operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// A predefined operator.
    Predefined(Operator),
    /// An operator of the program, which may not be commutative.
    User,
    /// A predefined operator that does not reduce.
    Other,
}

/// The handles of predefined types and operators in one MPI.
pub struct Types {
    named: Vec<(Handle, Named)>,
    operators: Vec<(Handle, Operator)>,
    others: Vec<Handle>,
    /// `MPI_BYTE`, `MPI_INT` and `MPI_MIN`.
    pub byte: Handle,
    pub int: Handle,
    pub min: Handle,
}

use Class::*;
use Number::*;

/// Open MPI's symbols without `ompi_mpi_`, MPICH's handles, sizes in bytes, classes, and numbers.
/// Fortran's types have the default sizes of all compilers. MPICH's handles contain the size.
const TYPES: &[(&str, u32, usize, Class, Option<Number>)] = &[
    ("char", 0x4c00_0101, 1, Text, None),
    ("signed_char", 0x4c00_0118, 1, Integer, None),
    ("unsigned_char", 0x4c00_0102, 1, Integer, None),
    ("byte", 0x4c00_010d, 1, Byte, None),
    ("packed", 0x4c00_010f, 1, Text, None),
    ("wchar", 0x4c00_040e, 4, Text, None),
    ("short", 0x4c00_0203, 2, Integer, None),
    ("unsigned_short", 0x4c00_0204, 2, Integer, None),
    ("int", 0x4c00_0405, 4, Integer, Some(I32)),
    ("unsigned", 0x4c00_0406, 4, Integer, Some(U32)),
    ("long", 0x4c00_0807, 8, Integer, Some(I64)),
    ("unsigned_long", 0x4c00_0808, 8, Integer, Some(U64)),
    ("long_long_int", 0x4c00_0809, 8, Integer, Some(I64)),
    ("unsigned_long_long", 0x4c00_0819, 8, Integer, Some(U64)),
    ("float", 0x4c00_040a, 4, Real, Some(F32)),
    ("double", 0x4c00_080b, 8, Real, Some(F64)),
    ("long_double", 0x4c00_100c, 16, Real, None),
    ("int8_t", 0x4c00_0137, 1, Integer, None),
    ("int16_t", 0x4c00_0238, 2, Integer, None),
    ("int32_t", 0x4c00_0439, 4, Integer, Some(I32)),
    ("int64_t", 0x4c00_083a, 8, Integer, Some(I64)),
    ("uint8_t", 0x4c00_013b, 1, Integer, None),
    ("uint16_t", 0x4c00_023c, 2, Integer, None),
    ("uint32_t", 0x4c00_043d, 4, Integer, Some(U32)),
    ("uint64_t", 0x4c00_083e, 8, Integer, Some(U64)),
    ("aint", 0x4c00_0843, 8, Integer, Some(I64)),
    ("offset", 0x4c00_0844, 8, Integer, Some(I64)),
    ("count", 0x4c00_0845, 8, Integer, Some(I64)),
    ("c_bool", 0x4c00_013f, 1, Logical, None),
    ("c_float_complex", 0x4c00_0840, 8, Complex, None),
    ("c_double_complex", 0x4c00_1041, 16, Complex, None),
    ("2int", 0x4c00_0816, 8, Pair, None),
    ("integer", 0x4c00_041b, 4, Integer, Some(I32)),
    ("integer4", 0x4c00_0430, 4, Integer, Some(I32)),
    ("integer8", 0x4c00_0831, 8, Integer, Some(I64)),
    ("real", 0x4c00_041c, 4, Real, Some(F32)),
    ("real4", 0x4c00_0427, 4, Real, Some(F32)),
    ("real8", 0x4c00_0829, 8, Real, Some(F64)),
    ("dblprec", 0x4c00_081f, 8, Real, Some(F64)),
    ("cplex", 0x4c00_081e, 8, Complex, None),
    ("dblcplex", 0x4c00_1022, 16, Complex, None),
    ("logical", 0x4c00_041d, 4, Logical, None),
    ("character", 0x4c00_011a, 1, Text, None),
];

/// Open MPI's symbols without `ompi_mpi_op_`, MPICH's handles, and operators. Those without an
/// operator are passed to the MPI.
const OPERATORS: &[(&str, u32, Option<Operator>)] = &[
    ("null", 0x1800_0000, None),
    ("max", 0x5800_0001, Some(Operator::Max)),
    ("min", 0x5800_0002, Some(Operator::Min)),
    ("sum", 0x5800_0003, Some(Operator::Sum)),
    ("prod", 0x5800_0004, Some(Operator::Prod)),
    ("land", 0x5800_0005, Some(Operator::LogicalAnd)),
    ("band", 0x5800_0006, Some(Operator::BitAnd)),
    ("lor", 0x5800_0007, Some(Operator::LogicalOr)),
    ("bor", 0x5800_0008, Some(Operator::BitOr)),
    ("lxor", 0x5800_0009, Some(Operator::LogicalXor)),
    ("bxor", 0x5800_000a, Some(Operator::BitXor)),
    ("minloc", 0x5800_000b, Some(Operator::MinLoc)),
    ("maxloc", 0x5800_000c, Some(Operator::MaxLoc)),
    ("replace", 0x5800_000d, None),
    ("no_op", 0x5800_000e, None),
];

impl Types {
    /// Returns the handles of an interface: none of the standard's. `symbol` finds Open MPI's.
    pub fn new(abi: Abi, symbol: impl Fn(&str) -> Option<usize>) -> Self {
        let handle = |prefix: &str, name: &str, mpich: u32| match abi {
            Abi::Standard => None,
            Abi::OpenMpi => symbol(&format!("ompi_mpi_{prefix}{name}")),
            Abi::Mpich => Some(mpich as Handle),
        };
        let mut named: Vec<(Handle, Named)> = Vec::new();
        for &(name, mpich, size, class, number) in TYPES {
            if let Some(handle) = handle("", name, mpich) {
                named.push((handle, Named { size, class, number }));
            }
        }
        named.sort_unstable_by_key(|row| row.0);
        let (mut operators, mut others) = (Vec::new(), Vec::new());
        for &(name, mpich, operator) in OPERATORS {
            match (handle("op_", name, mpich), operator) {
                (Some(handle), Some(operator)) => operators.push((handle, operator)),
                (Some(handle), None) => others.push(handle),
                (None, _) => {}
            }
        }
        let find = |prefix, name, mpich| handle(prefix, name, mpich).unwrap_or(0);
        let (byte, int) = (find("", "byte", 0x4c00_010d), find("", "int", 0x4c00_0405));
        Self { named, operators, others, byte, int, min: find("op_", "min", 0x5800_0002) }
    }

    /// Returns the predefined type of a handle; `None` for another type.
    #[inline]
    pub fn named(&self, handle: Handle) -> Option<Named> {
        let at = self.named.binary_search_by_key(&handle, |row| row.0).ok()?;
        Some(self.named[at].1)
    }

    /// Returns the kind of an operator.
    #[inline]
    pub fn function(&self, handle: Handle) -> Function {
        match self.operators.iter().find(|row| row.0 == handle) {
            Some(row) => Function::Predefined(row.1),
            None if self.others.contains(&handle) => Function::Other,
            None => Function::User,
        }
    }
}
