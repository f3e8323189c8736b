//! Symbols of loaded ELF objects, found through the hash tables that the dynamic linker uses.
//!
//! This code runs while the dynamic linker relocates objects: it allocates nothing, and the
//! only function of libc that it calls is dl_iterate_phdr(3).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use libc::{Elf64_Phdr, Elf64_Sym, PT_DYNAMIC, PT_LOAD};
use object::LittleEndian as LE;
use object::elf::{
    DT_GNU_HASH, DT_HASH, DT_NULL, DT_STRTAB, DT_SYMTAB, Dyn64, SHN_UNDEF, gnu_hash, hash,
};

/// A loaded object.
pub struct Object {
    /// The difference between addresses in memory and in the file.
    pub base: usize,
    segments: &'static [Elf64_Phdr],
    symbols: *mut Elf64_Sym,
    strings: *const u8,
    gnu_hash: *const u32,
    sysv_hash: *const u32,
}

impl Object {
    fn new(info: &libc::dl_phdr_info) -> Option<Self> {
        if info.dlpi_phdr.is_null() {
            return None;
        }
        let base = info.dlpi_addr as usize;
        // SAFETY: the dynamic linker keeps the program headers of a loaded object.
        let segments =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        let dynamic = segments.iter().find(|segment| segment.p_type == PT_DYNAMIC)?;
        let mut entry = ptr::with_exposed_provenance::<Dyn64<LE>>(base + dynamic.p_vaddr as usize);
        let mut found = [0; 4];
        // SAFETY: the dynamic section of a loaded object ends with a tag of zero.
        while let Some(Dyn64 { d_tag, d_val }) = unsafe { entry.as_ref() }
            && d_tag.get(LE) != DT_NULL.into()
        {
            let tags = [DT_SYMTAB, DT_STRTAB, DT_GNU_HASH, DT_HASH].map(u64::from);
            if let Some(at) = tags.iter().position(|&wanted| wanted == d_tag.get(LE)) {
                let value = d_val.get(LE) as usize;
                // glibc replaces offsets by addresses, except in objects that are read-only.
                found[at] = if value < base { base + value } else { value };
            }
            // SAFETY: the terminating entry has not been reached.
            entry = unsafe { entry.add(1) };
        }
        let [symbols, strings, gnu_hash, sysv_hash] = found;
        (symbols != 0 && strings != 0).then_some(Self {
            base,
            segments,
            symbols: ptr::with_exposed_provenance_mut(symbols),
            strings: ptr::with_exposed_provenance(strings),
            gnu_hash: ptr::with_exposed_provenance(gnu_hash),
            sysv_hash: ptr::with_exposed_provenance(sysv_hash),
        })
    }

    /// Returns the loadable segment that contains `address`.
    pub fn segment(&self, address: usize) -> Option<&Elf64_Phdr> {
        let offset = address.checked_sub(self.base)? as u64;
        self.segments.iter().find(|segment| {
            segment.p_type == PT_LOAD
                && (segment.p_vaddr..segment.p_vaddr + segment.p_memsz).contains(&offset)
        })
    }

    /// Returns the symbol `name`, if the object defines it.
    pub fn symbol(&self, name: &CStr) -> Option<*mut Elf64_Sym> {
        let at = match (self.gnu_hash.is_null(), self.sysv_hash.is_null()) {
            (false, _) => self.by_gnu_hash(name),
            (true, false) => self.by_sysv_hash(name),
            (true, true) => None,
        }?;
        Some(self.symbols.wrapping_add(at as usize))
    }

    /// Returns the address of the function `name`, if the object defines it.
    pub fn function(&self, name: &CStr) -> Option<usize> {
        // SAFETY: `symbol` returns entries of the object's symbol table only.
        let value = unsafe { (*self.symbol(name)?).st_value };
        Some(self.base + value as usize)
    }

    fn is_defined_as(&self, at: u32, name: &CStr) -> bool {
        // SAFETY: `at` comes from the object's hash table, which holds indices of its symbols;
        // names are offsets of strings in its string table.
        unsafe {
            let symbol = self.symbols.wrapping_add(at as usize).read();
            symbol.st_shndx != SHN_UNDEF
                && symbol.st_value != 0
                && CStr::from_ptr(self.strings.add(symbol.st_name as usize).cast::<c_char>())
                    == name
        }
    }

    /// Reads a word of a hash table.
    fn word(table: *const u32, at: usize) -> u32 {
        // SAFETY: callers follow the table's own layout.
        unsafe { table.add(at).read() }
    }

    fn by_gnu_hash(&self, name: &CStr) -> Option<u32> {
        let hash = gnu_hash(name.to_bytes());
        let table = self.gnu_hash;
        let [n_buckets, first, bloom_words] = [0, 1, 2].map(|at| Self::word(table, at));
        if n_buckets == 0 {
            return None;
        }
        let buckets = 4 + 2 * bloom_words as usize;
        let chains = buckets + n_buckets as usize;
        let mut at = Self::word(table, buckets + (hash % n_buckets) as usize);
        if at < first {
            return None;
        }
        loop {
            let link = Self::word(table, chains + (at - first) as usize);
            if link | 1 == hash | 1 && self.is_defined_as(at, name) {
                return Some(at);
            }
            if link & 1 != 0 {
                return None;
            }
            at += 1;
        }
    }

    fn by_sysv_hash(&self, name: &CStr) -> Option<u32> {
        let hash = hash(name.to_bytes());
        let table = self.sysv_hash;
        let n_buckets = Self::word(table, 0);
        if n_buckets == 0 {
            return None;
        }
        let mut at = Self::word(table, 2 + (hash % n_buckets) as usize);
        while at != 0 && !self.is_defined_as(at, name) {
            at = Self::word(table, 2 + (n_buckets + at) as usize);
        }
        (at != 0).then_some(at)
    }
}

type Visit<'a> = &'a mut dyn FnMut(Object) -> bool;

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: `for_each` passes a pointer to its closure, and the dynamic linker its own data.
    let (info, visit) = unsafe { (&*info, &mut *data.cast::<Visit>()) };
    Object::new(info).is_some_and(visit).into()
}

/// Calls `f` for each loaded object, in the order in which they were loaded, until it returns
/// true.
pub fn for_each(mut f: impl FnMut(Object) -> bool) {
    let mut visitor: Visit = &mut f;
    // SAFETY: `visit` gets the type that it expects, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut visitor).cast()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_the_dynamic_linker_finds() {
        // SAFETY: looks a name up in the objects that are loaded.
        let wanted = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mprotect".as_ptr()) } as usize;
        let (mut found, mut absent) = (None, true);
        for_each(|object| {
            found = found.or_else(|| object.function(c"mprotect"));
            absent &= object.symbol(c"no such function").is_none();
            false
        });
        assert_eq!(found, Some(wanted));
        assert!(absent);
    }

    #[test]
    fn both_hash_tables_agree() {
        let mut compared = 0;
        for_each(|object| {
            if !object.gnu_hash.is_null() && !object.sysv_hash.is_null() {
                for name in [c"clock_gettime", c"__vdso_clock_gettime", c"malloc", c"MPI_Init"] {
                    // One name can have several versions, which the two tables order differently.
                    // SAFETY: both return indices of the object's symbol table.
                    let value = |at: u32| unsafe { (*object.symbols.add(at as usize)).st_value };
                    let [gnu, sysv] = [object.by_gnu_hash(name), object.by_sysv_hash(name)];
                    assert_eq!(gnu.map(value), sysv.map(value), "{name:?}");
                    compared += 1;
                }
            }
            false
        });
        println!("{compared} look-ups compared");
    }
}
