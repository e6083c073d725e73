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

/// Functions of this program by address.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    base: u64,
    functions: Functions,
}

/// Start, end and name of each, sorted.
type Functions = Vec<(u64, u64, String)>;

impl SymbolTable {
    /// The table of the running program; empty when the system shows no file.
    pub(crate) fn of_this_program() -> SymbolTable {
        let exe = std::fs::read("/proc/self/exe").unwrap_or_default();
        let Ok(file) = object::File::parse(&*exe) else {
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
    pub(crate) fn name(&self, address: usize) -> Option<&str> {
        let address = (address as u64).checked_sub(self.base)?;
        let after = self
            .functions
            .partition_point(|(start, _, _)| *start <= address);
        let (_, end, name) = self.functions.get(after.checked_sub(1)?)?;
        (address < *end).then_some(name)
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

fn functions(file: &object::File<'_>) -> Functions {
    let named = |symbol: object::Symbol<'_, '_>| {
        let is_function = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
        let name = symbol.name_bytes().ok().filter(|_| is_function)?;
        let name = String::from_utf8_lossy(name);
        let name = clean_name(&format!("{:#}", rustc_demangle::demangle(&name)));
        let end = symbol.address().saturating_add(symbol.size());
        Some((symbol.address(), end, name))
    };
    let mut found: Functions = file.symbols().filter_map(named).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_finds_its_own_name() {
        let table = SymbolTable::of_this_program();
        let here = functions as fn(&object::File<'_>) -> Functions;
        let name = table.name(here as usize);
        assert_eq!(name, Some("dendra_server::admin::profile::elf::functions"));
        assert_eq!(table.name(1), None);
    }

    #[test]
    fn damaged_files_have_no_functions_and_do_no_harm() {
        let functions = |bytes: &[u8]| match object::File::parse(bytes) {
            Ok(file) => functions(&file),
            Err(_) => Functions::new(),
        };
        let mut elf = std::fs::read("/proc/self/exe").expect("this program is a file");
        assert_ne!(functions(&elf), []);
        elf.truncate(1 << 16);
        assert_eq!(functions(&elf), [], "the sections stand at the end");
        assert_eq!(functions(b"#!/bin/sh\n"), []);
        assert_eq!(functions(&[]), []);
    }
}
