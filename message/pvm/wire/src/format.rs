//! Format strings of pvm_packf and pvm_unpackf. A directive is `%`, count, `.stride`, `h`, `l`
//! or `u`, and the type. `%+` at the start calls pvm_initsend. All other characters are skipped.

use crate::buffers::Buffers;
use crate::error::Error;
use crate::items::{Kind, Source, Target};

/// The arguments of a call after its format string.
pub trait Arguments {
    /// Returns the next argument, an `int` or a type promoted to it.
    fn int(&mut self) -> i32;
    /// Returns the next argument, a `long`.
    fn long(&mut self) -> i64;
    /// Returns the next argument, a `double` or a type promoted to it.
    fn double(&mut self) -> f64;
    /// Returns the next argument, a pointer.
    fn pointer(&mut self) -> *mut u8;
}

/// A count or a stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// A number in the string.
    Literal(i32),
    /// `*`: the next argument.
    Argument,
}

impl Number {
    fn value(self, arguments: &mut impl Arguments) -> i32 {
        match self {
            Number::Literal(value) => value,
            Number::Argument => arguments.int(),
        }
    }
}

/// The type of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// An array.
    Items(Kind),
    /// A string, which has no count or stride.
    String,
}

/// One `%` directive of a format string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The number of items.
    pub count: Number,
    /// The distance of items, in items.
    pub stride: Number,
    /// True if both are omitted: the argument itself is packed, not the memory to which it
    /// points.
    pub by_value: bool,
    /// The type; BadParam if it is unknown.
    pub of: Result<Type, Error>,
}

/// An iterator over the directives of a format string without its `%+`.
#[derive(Clone, Debug)]
pub struct Directives<'a> {
    rest: &'a [u8],
}

/// Removes `%+` from the start of the string. Returns true if it was there.
pub fn initsend(format: &[u8]) -> (bool, &[u8]) {
    match format.strip_prefix(b"%+") {
        Some(rest) => (true, rest),
        None => (false, format),
    }
}

/// Parses a format string.
pub fn directives(format: &[u8]) -> Directives<'_> {
    Directives { rest: format }
}

impl Directives<'_> {
    fn eat(&mut self, byte: u8) -> bool {
        let hit = self.rest.first() == Some(&byte);
        if hit {
            self.rest = &self.rest[1..];
        }
        hit
    }

    fn number(&mut self) -> Option<Number> {
        if self.eat(b'*') {
            return Some(Number::Argument);
        }
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let value = number.iter().fold(0i32, |value, digit| {
            value.saturating_mul(10).saturating_add((digit - b'0').into())
        });
        Some(Number::Literal(value))
    }
}

impl Iterator for Directives<'_> {
    type Item = Directive;

    fn next(&mut self) -> Option<Directive> {
        let percent = self.rest.iter().position(|&b| b == b'%')?;
        self.rest = &self.rest[percent + 1..];
        let count = self.number();
        let mut by_value = count.is_none();
        let mut stride = None;
        if self.eat(b'.') {
            by_value = false;
            stride = self.number();
        }
        let (mut short, mut long, mut unsigned) = (false, false, false);
        loop {
            if self.eat(b'h') {
                short = true;
            } else if self.eat(b'l') {
                long = true;
            } else if self.eat(b'u') {
                unsigned = true;
            } else {
                break;
            }
        }
        let letter = self.rest.first().copied();
        self.rest = self.rest.get(1..).unwrap_or_default();
        let of = match (letter, long, short, unsigned) {
            (Some(b'c'), ..) => Ok(Type::Items(Kind::Byte)),
            (Some(b'd'), true, _, false) => Ok(Type::Items(Kind::Long)),
            (Some(b'd'), true, _, true) => Ok(Type::Items(Kind::ULong)),
            (Some(b'd'), false, true, false) => Ok(Type::Items(Kind::Short)),
            (Some(b'd'), false, true, true) => Ok(Type::Items(Kind::UShort)),
            (Some(b'd'), false, false, false) => Ok(Type::Items(Kind::Int)),
            (Some(b'd'), false, false, true) => Ok(Type::Items(Kind::UInt)),
            (Some(b'f'), true, ..) => Ok(Type::Items(Kind::Double)),
            (Some(b'f'), false, ..) => Ok(Type::Items(Kind::Float)),
            (Some(b'x'), true, ..) => Ok(Type::Items(Kind::DoubleComplex)),
            (Some(b'x'), false, ..) => Ok(Type::Items(Kind::Complex)),
            (Some(b's'), ..) => Ok(Type::String),
            _ => Err(Error::BadParam),
        };
        Some(Directive {
            count: count.unwrap_or(Number::Literal(1)),
            stride: stride.unwrap_or(Number::Literal(1)),
            by_value,
            of,
        })
    }
}

impl Buffers {
    /// Executes pvm_packf.
    ///
    /// # Safety
    ///
    /// The arguments must match the format. Pointers must satisfy [`Source::new`], or point to
    /// NUL-terminated strings.
    pub unsafe fn pack_format(
        &mut self,
        format: &[u8],
        arguments: &mut impl Arguments,
    ) -> Result<(), Error> {
        let (init, format) = initsend(format);
        if init {
            self.initsend(arguments.int())?;
        }
        self.sending()?;
        for directive in directives(format) {
            let count = directive.count.value(arguments);
            let stride = directive.stride.value(arguments);
            let kind = match directive.of? {
                // `u` matters only for unpacking, as in libpvm.
                Type::Items(Kind::ULong) => Kind::Long,
                Type::Items(kind) => kind,
                Type::String => {
                    // SAFETY: the argument of `%s` points to a NUL-terminated string, which
                    // `pack_format` requires.
                    let string = unsafe { std::ffi::CStr::from_ptr(arguments.pointer().cast()) };
                    self.pack_string(string)?;
                    continue;
                }
            };
            let complex = matches!(kind, Kind::Complex | Kind::DoubleComplex);
            if !directive.by_value || complex {
                // SAFETY: the argument satisfies `Source::new`, which `pack_format` requires.
                let source = unsafe { Source::new(kind, arguments.pointer(), count, stride) };
                self.sending()?.pack(&source)?;
                continue;
            }
            let mut value = [0; 8];
            match kind {
                Kind::Long | Kind::ULong => value = arguments.long().to_ne_bytes(),
                Kind::Double => value = arguments.double().to_ne_bytes(),
                Kind::Float => {
                    value[..4].copy_from_slice(&(arguments.double() as f32).to_ne_bytes());
                }
                Kind::Short | Kind::UShort => {
                    value[..2].copy_from_slice(&(arguments.int() as i16).to_ne_bytes());
                }
                Kind::Byte => value[0] = arguments.int() as u8,
                _ => value[..4].copy_from_slice(&arguments.int().to_ne_bytes()),
            }
            // SAFETY: `value` holds one item of at most 8 bytes and outlives `source`.
            // `pack_copy` keeps no pointer.
            let source = unsafe { Source::new(kind, value.as_ptr(), 1, 1) };
            self.sending()?.pack_copy(&source)?;
        }
        Ok(())
    }

    /// Executes pvm_unpackf. All arguments except those of `*` are pointers.
    ///
    /// # Safety
    ///
    /// The arguments must match the format. Pointers must satisfy [`Target::new`], or point to
    /// room for the received strings.
    pub unsafe fn unpack_format(
        &mut self,
        format: &[u8],
        arguments: &mut impl Arguments,
    ) -> Result<(), Error> {
        self.receiving()?;
        for directive in directives(format) {
            let count = directive.count.value(arguments);
            let stride = directive.stride.value(arguments);
            match directive.of? {
                Type::Items(kind) => {
                    // SAFETY: the argument satisfies `Target::new`, which `unpack_format`
                    // requires.
                    let mut target =
                        unsafe { Target::new(kind, arguments.pointer(), count, stride) };
                    self.receiving()?.unpack(&mut target)?;
                }
                // SAFETY: the argument points to room for the string, which `unpack_format`
                // requires.
                Type::String => unsafe { self.unpack_string(arguments.pointer())? },
            }
        }
        Ok(())
    }
}
