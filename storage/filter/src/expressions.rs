//! The regular expressions of one request, and what they may take together.

use std::collections::HashMap;
use std::sync::Arc;

use halcyon_cell::{Error, Result};

use crate::looks;
use crate::regex::JavaRegex;

/// What the expressions of one request may take, in bytes. A pattern of seven bytes needs some MiB (`.{9000}`), and a request may
/// have a hundred thousand filters.
pub(crate) const EXPRESSIONS_BYTES_MAX: usize = 32 << 20;

/// Compiles each expression of a request once, and adds up what they take.
#[derive(Default)]
pub(crate) struct Expressions {
    only_checks: bool,
    bytes: usize,
    known: HashMap<(String, i32), Arc<JavaRegex>>,
}

impl Expressions {
    /// Looks whether each expression can be read, and compiles another one in its stead, that takes no time.
    pub fn only_checked() -> Expressions {
        Expressions { only_checks: true, ..Expressions::default() }
    }

    /// Building the filters that they belong to takes so many looks; checking these takes none.
    pub fn spend(&self, looks: usize) -> Result<()> {
        if self.only_checks { Ok(()) } else { looks::spend(looks) }
    }

    /// Errors: as [`JavaRegex::within`]; and `Invalid` if all expressions together take more than [`EXPRESSIONS_BYTES_MAX`].
    pub fn compile(&mut self, pattern: &str, flags: i32) -> Result<Arc<JavaRegex>> {
        let (mut pattern, mut flags) = (pattern, flags);
        if self.only_checks {
            JavaRegex::check(pattern, flags)?;
            (pattern, flags) = ("", 0);
        }
        if let Some(known) = self.known.get(&(pattern.to_string(), flags)) {
            return Ok(known.clone());
        }
        let left = EXPRESSIONS_BYTES_MAX - self.bytes;
        let regex = Arc::new(JavaRegex::within(pattern, flags, left)?);
        self.bytes += regex.held_bytes();
        if self.bytes > EXPRESSIONS_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the regular expressions of a filter, or of all conditions together, take more than {EXPRESSIONS_BYTES_MAX} bytes"
            )));
        }
        self.known.insert((pattern.to_string(), flags), regex.clone());
        Ok(regex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_expressions_are_compiled_once() {
        let mut expressions = Expressions::default();
        let first = expressions.compile("a.*b", 0).unwrap();
        let bytes = expressions.bytes;
        assert!(bytes > 0);
        assert!(Arc::ptr_eq(&first, &expressions.compile("a.*b", 0).unwrap()));
        assert_eq!(expressions.bytes, bytes);
        assert!(!Arc::ptr_eq(&first, &expressions.compile("a.*b", 2).unwrap()));
        assert!(
            expressions.bytes > 2 * bytes,
            "letters of both cases take more: {} and {bytes}",
            expressions.bytes
        );
    }

    #[test]
    fn some_hundreds_fit_and_a_few_large_ones_do_not() {
        let mut expressions = Expressions::default();
        for at in 0..400 {
            expressions.compile(&format!("^user-{at:05}-[0-9a-f]{{8}}$"), 0).unwrap();
        }
        let mut expressions = Expressions::default();
        expressions.compile(".{3000}", 0).unwrap();
        let error = (0..20).find_map(|at| expressions.compile(&format!(".{{{}}}", 3_000 + at), 0).err());
        assert!(error.is_some(), "each takes some MiB: {} bytes", expressions.bytes);
    }
}
