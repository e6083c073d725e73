//! The names of functions from the program's own symbol table.
//!
//! ```text
//! /proc/self/exe   symbols of functions ─► (start, end, name), sorted
//! /proc/self/maps  where the file's first byte is in memory ─► the number to subtract from an address
//! ```
//!
//! Line tables alone know `next` where the symbol table knows
//! `dendra_server::disk::store_pool::StorePool::next`.
//!
//! Invariants
//! 1. Any file gives a table: damaged or stripped ones give an empty one.
//!
//! Not here: inlined functions, which have no symbol (`symbols.rs` takes them from the line
//! tables). See: docs/decisions/0010-dependencies.md.

use dendra_flame::clean_name;
use object::{Object, ObjectKind, ObjectSymbol, SymbolKind};

/// The bytes of the running program; none when the system shows no file.
pub(crate) fn this_program() -> Vec<u8> {
    std::fs::read("/proc/self/exe").unwrap_or_default()
}

/// Functions of this program by address. It borrows the names: a program has a hundred thousand of
/// them, and a profile shows a few.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable<'a> {
    base: u64,
    functions: Functions<'a>,
}

/// Start, end and mangled name of each, sorted.
type Functions<'a> = Vec<(u64, u64, &'a [u8])>;

impl<'a> SymbolTable<'a> {
    /// The table of `exe`, the running program; empty when it is no such file.
    pub(crate) fn of(exe: &'a [u8]) -> SymbolTable<'a> {
        let Ok(file) = object::File::parse(exe) else {
            return SymbolTable::default();
        };
        let base = match file.kind() {
            ObjectKind::Executable => 0,
            _ => start_of_this_program().unwrap_or(0),
        };
        SymbolTable {
            base,
            functions: functions(&file),
        }
    }

    /// The function that holds `address`.
    pub(crate) fn name(&self, address: usize) -> Option<String> {
        let address = (address as u64).checked_sub(self.base)?;
        let after = self
            .functions
            .partition_point(|(start, _, _)| *start <= address);
        let (_, end, name) = self.functions.get(after.checked_sub(1)?)?;
        (address < *end).then(|| readable(name))
    }
}

/// Where the first byte of the program's file is in memory.
fn start_of_this_program() -> Option<u64> {
    let path = std::fs::read_link("/proc/self/exe").ok()?;
    let path = path.to_str().filter(|path| !path.is_empty())?;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let own = maps.lines().find(|line| line.ends_with(path))?;
    u64::from_str_radix(own.split('-').next()?, 16).ok()
}

fn readable(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    clean_name(&format!("{:#}", rustc_demangle::demangle(&name)))
}

fn functions<'a>(file: &object::File<'a>) -> Functions<'a> {
    let named = |symbol: object::Symbol<'a, '_>| {
        let is_function = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
        let name = symbol.name_bytes().ok().filter(|_| is_function)?;
        let end = symbol.address().saturating_add(symbol.size());
        Some((symbol.address(), end, name))
    };
    let mut found: Functions<'a> = file.symbols().filter_map(named).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_finds_its_own_name() {
        let exe = this_program();
        let table = SymbolTable::of(&exe);
        let here = readable as fn(&[u8]) -> String;
        let name = table.name(here as usize);
        let own = "dendra_server::measure::profile::elf::readable";
        assert_eq!(name.as_deref(), Some(own));
        assert_eq!(table.name(1), None);
    }

    #[test]
    fn damaged_files_have_no_functions_and_do_no_harm() {
        let functions = |bytes: &[u8]| match object::File::parse(bytes) {
            Ok(file) => functions(&file).len(),
            Err(_) => 0,
        };
        let mut elf = std::fs::read("/proc/self/exe").expect("this program is a file");
        assert_ne!(functions(&elf), 0);
        elf.truncate(1 << 16);
        assert_eq!(functions(&elf), 0, "the sections stand at the end");
        assert_eq!(functions(b"#!/bin/sh\n"), 0);
        assert_eq!(functions(&[]), 0);
    }
}
