//! The names of functions from the program's own symbol table.
//!
//! ```text
//! /proc/self/exe   ELF64 ─► .symtab + .strtab ─► (start, end, name), sorted
//! /proc/self/maps  where the file's first byte is in memory ─► the number to subtract from an address
//! ```
//!
//! Line tables alone know `next` where the symbol table knows `dendra_server::disk::store_pool::StorePool::next`.
//!
//! Invariants
//! 1. Any file gives a table: damaged or stripped ones give an empty one.
//!
//! Not here: inlined functions, which have no symbol (`symbols.rs` takes them from the line tables).
//! See: elf(5).

use dendra_flame::clean_name;

/// Functions of this program by address.
#[derive(Debug, Default)]
pub(crate) struct Table {
    base: u64,
    functions: Vec<(u64, u64, String)>,
}

fn word<const N: usize>(bytes: &[u8], at: u64) -> Option<[u8; N]> {
    let at = usize::try_from(at).ok()?;
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u64_at(bytes: &[u8], at: u64) -> Option<u64> {
    word(bytes, at).map(u64::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: u64) -> Option<u32> {
    word(bytes, at).map(u32::from_le_bytes)
}

fn u16_at(bytes: &[u8], at: u64) -> Option<u16> {
    word(bytes, at).map(u16::from_le_bytes)
}

impl Table {
    /// The table of the running program; empty when the system shows no file.
    pub(crate) fn of_this_program() -> Table {
        let exe = std::fs::read("/proc/self/exe").unwrap_or_default();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let path = path.to_string_lossy();
        let own = maps
            .lines()
            .find(|line| !path.is_empty() && line.ends_with(path.as_ref()));
        let start = own.and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok());
        let is_fixed = u16_at(&exe, 16) == Some(2);
        Table {
            base: if is_fixed { 0 } else { start.unwrap_or(0) },
            functions: functions(&exe).unwrap_or_default(),
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

fn functions(elf: &[u8]) -> Option<Vec<(u64, u64, String)>> {
    const SYMBOLS: u32 = 2;
    const FUNCTION: u8 = 2;
    if elf.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (sections, size, count) = (u64_at(elf, 40)?, u16_at(elf, 58)?, u16_at(elf, 60)?);
    let section = |n: u64| sections.checked_add(n.checked_mul(u64::from(size))?);
    let symtab = (0..u64::from(count))
        .filter_map(section)
        .find(|at| u32_at(elf, at.saturating_add(4)) == Some(SYMBOLS))?;
    let (from, bytes, link) = (
        u64_at(elf, symtab.saturating_add(24))?,
        u64_at(elf, symtab.saturating_add(32))?,
        u32_at(elf, symtab.saturating_add(40))?,
    );
    let strings = u64_at(elf, section(u64::from(link))?.saturating_add(24))?;
    let mut found = Vec::new();
    for n in 0..bytes / 24 {
        let at = from.saturating_add(n * 24);
        let (name, info) = (u32_at(elf, at)?, word::<1>(elf, at.saturating_add(4))?[0]);
        let (start, length) = (
            u64_at(elf, at.saturating_add(8))?,
            u64_at(elf, at.saturating_add(16))?,
        );
        if info & 15 != FUNCTION || length == 0 {
            continue;
        }
        let text = elf.get(usize::try_from(strings.saturating_add(u64::from(name))).ok()?..)?;
        let text = &text[..text.iter().position(|byte| *byte == 0)?];
        let name = String::from_utf8_lossy(text);
        let name = clean_name(&format!("{:#}", rustc_demangle::demangle(&name)));
        found.push((start, start.saturating_add(length), name));
    }
    found.sort_unstable();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_finds_its_own_name() {
        let table = Table::of_this_program();
        let here = functions as fn(&[u8]) -> Option<Vec<(u64, u64, String)>>;
        let name = table.name(here as usize);
        assert_eq!(name, Some("dendra_server::admin::profile::elf::functions"));
        assert_eq!(table.name(1), None);
    }

    #[test]
    fn damaged_files_have_no_functions_and_do_no_harm() {
        let mut elf = std::fs::read("/proc/self/exe").expect("this program is a file");
        elf.truncate(1 << 16);
        assert_eq!(functions(&elf), None, "the sections stand at the end");
        assert_eq!(functions(b"#!/bin/sh\n"), None);
        assert_eq!(functions(&[]), None);
    }
}
