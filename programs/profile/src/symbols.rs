//! Names of code addresses.

use std::collections::HashMap;
use std::io;

use backtrace::SymbolName;
use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

use crate::images::{Content, first_address, images};

/// Longer names are cut.
const NAME_CHARS_MAX: usize = 240;
/// Rust's runtime calls the program through this one; what is outside of it says nothing.
const RUNTIME_START: &str = "std::sys::backtrace::__rust_begin_short_backtrace";

/// Names that were looked up. The debug information that the process reads for them is given back at the end.
#[derive(Default)]
pub(crate) struct Symbols {
    names: HashMap<u64, Vec<String>>,
    functions: Functions,
}

impl Symbols {
    /// *Blocking*: reads the program's symbol table, some ten megabytes.
    pub(crate) fn of_this_process() -> Symbols {
        // A stripped program has no table. Then the names come from the debug package, if there is one, without paths.
        Symbols { names: HashMap::new(), functions: Functions::of_program().unwrap_or_default() }
    }

    /// Adds the function at an address, and before it those that it was inlined into. A frame without a name is `[unknown]`,
    /// and several such frames in a row are one.
    pub(crate) fn push_names(&mut self, address: u64, frames: &mut Vec<String>) {
        let names = self.names.entry(address).or_insert_with(|| names(address, &self.functions));
        for name in names {
            if name.starts_with(RUNTIME_START) {
                frames.truncate(1); // the thread's name stays
            } else if name != UNKNOWN || frames.last().is_none_or(|last| last != UNKNOWN) {
                frames.push(name.clone());
            }
        }
    }
}

pub(crate) const UNKNOWN: &str = "[unknown]";

impl Drop for Symbols {
    fn drop(&mut self) {
        backtrace::clear_symbol_cache();
    }
}

/// The outermost first. The debug information is line tables: its names are those of inlined functions too, but without
/// the path. The function that was compiled has its whole name in the symbol table.
fn names(address: u64, functions: &Functions) -> Vec<String> {
    let mut names = Vec::new();
    // The library looks up what is before a return address, and ours lie within their instruction already.
    let behind = address.saturating_add(1) as usize as *mut std::ffi::c_void;
    backtrace::resolve(behind, |symbol| {
        if let Some(name) = symbol.name() {
            names.push(readable(&name));
        }
    });
    if let Some(name) = functions.name(address) {
        names.pop();
        names.push(readable(&SymbolName::new(name.as_bytes())));
    }
    if names.is_empty() {
        names.push(UNKNOWN.to_string());
    }
    names.reverse();
    names
}

/// Without the hash.
fn readable(name: &SymbolName<'_>) -> String {
    format!("{name:#}").chars().take(NAME_CHARS_MAX).collect()
}

/// Functions of the program, in the order of their addresses.
#[derive(Default)]
struct Functions(Vec<Function>);

struct Function {
    start: u64,
    len: u64,
    /// As in the symbol table.
    name: String,
}

impl Functions {
    fn of_program() -> io::Result<Functions> {
        let program = images()?.into_iter().find(|image| image.is_program());
        let program = program.ok_or(io::ErrorKind::NotFound)?;
        let Content::File(file) = program.content()? else { return Ok(Functions::default()) };
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).map_err(io::Error::other)?;
        let base = program.base.wrapping_sub(first_address(&file));
        let functions =
            file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let function = |symbol: object::Symbol<'_, '_, _>| {
            let name = symbol.name().ok()?.to_string();
            Some(Function { start: symbol.address().wrapping_add(base), len: symbol.size(), name })
        };
        let mut functions: Vec<Function> = functions.filter_map(function).collect();
        functions.sort_by_key(|function| function.start);
        Ok(Functions(functions))
    }

    fn name(&self, address: u64) -> Option<&str> {
        let behind = self.0.partition_point(|function| function.start <= address);
        let function = &self.0[behind.checked_sub(1)?];
        (address - function.start < function.len).then_some(&function.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn a_function_to_find() {
        std::hint::black_box(());
    }

    #[test]
    fn functions_have_names_and_other_addresses_none() {
        let mut symbols = Symbols::of_this_process();
        let mut frames = vec!["thread".to_string()];
        symbols.push_names(a_function_to_find as fn() as usize as u64, &mut frames);
        assert!(frames.iter().any(|name| name.ends_with("symbols::tests::a_function_to_find")), "{frames:?}");
        let mut frames = vec!["thread".to_string()];
        for address in [1, 2, u64::MAX] {
            symbols.push_names(address, &mut frames);
        }
        assert_eq!(frames, ["thread", UNKNOWN]);
    }

    #[test]
    fn what_calls_the_program_is_left_out() {
        let mut symbols = Symbols::default();
        symbols.names.insert(1, vec!["start_thread".into()]);
        symbols.names.insert(2, vec!["inlined_into".into(), RUNTIME_START.into()]);
        symbols.names.insert(3, vec!["body".into()]);
        let mut frames = vec!["thread".to_string()];
        [1, 2, 3].iter().for_each(|address| symbols.push_names(*address, &mut frames));
        assert_eq!(frames, ["thread", "body"]);
    }
}
