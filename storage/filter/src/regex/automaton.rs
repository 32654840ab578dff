//! What a pattern becomes that needs no steps back: a finite automaton.
//!
//! It is made of the translated pattern (`translate.rs`), and walked as a deterministic one whose states are found on the way and kept in a
//! cache. A text that leads through ever new states fills the cache again and again, and each of these states takes a walk over the whole
//! automaton: with 4,000 of them, megabytes of text took hours. A search ends when that has happened for too long.

use halcyon_env::Mutex;
use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchErrorKind};
use regex_syntax::hir::Hir;

use super::class::Refusal;

/// Size of the cache, in bytes: as many states as it takes for most patterns to have all of theirs. More for large automatons, which
/// have large states.
const CACHE_BYTES_MIN: usize = 32 << 10;
const CACHE_BYTES_MAX: usize = 512 << 10;
/// The cache for each byte of the automaton.
const CACHE_FACTOR: usize = 8;
/// Bytes of states that a search may make before it has to be efficient. Some seconds.
const MADE_BYTES_MAX: usize = 256 << 20;
/// A search that goes on after that passes through a state so often, at least.
const BYTES_PER_STATE_MIN: usize = 64;

/// Why no automaton was built.
pub(super) enum Failed {
    TooLarge,
    Refused(Refusal),
}

/// Reads a translated pattern that has no steps back, or none any more (`outline.rs`).
pub(super) fn parse(translated: &str) -> Result<Hir, Refusal> {
    syntax::parse(translated).map_err(|error| error.to_string())
}

/// The automaton of a pattern, of at most so many bytes.
pub(super) fn build(pattern: &Hir, bytes_max: usize) -> Result<NFA, Failed> {
    let config = thompson::Config::new().nfa_size_limit(Some(bytes_max)).which_captures(WhichCaptures::None);
    let built = thompson::Compiler::new().configure(config).build_from_hir(pattern);
    built.map_err(|error| match error.size_limit() {
        Some(_) => Failed::TooLarge,
        None => Failed::Refused(error.to_string()),
    })
}

/// The search took too long.
pub(super) struct GaveUp;

/// *Thread safety*: a lock around the cache. Its filter belongs to one scanner, so nobody waits for it.
pub(super) struct Automaton {
    dfa: DFA,
    cache: Mutex<Cache>,
    cache_bytes: usize,
    /// So often a cache is filled by [`MADE_BYTES_MAX`].
    clears_max: usize,
}

impl Automaton {
    pub fn new(nfa: NFA) -> Result<Automaton, Refusal> {
        let wanted = (nfa.memory_usage() * CACHE_FACTOR).clamp(CACHE_BYTES_MIN, CACHE_BYTES_MAX);
        let config = DFA::config();
        let least = config.get_minimum_cache_capacity(&nfa).map_err(|error| error.to_string())?;
        let cache_bytes = wanted.max(least);
        let clears_max = (MADE_BYTES_MAX / cache_bytes).max(1);
        let config = config
            .cache_capacity(cache_bytes)
            .minimum_cache_clear_count(Some(2 * clears_max))
            .minimum_bytes_per_state(Some(BYTES_PER_STATE_MIN));
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).map_err(|error| error.to_string())?;
        let cache = Mutex::new(dfa.create_cache());
        Ok(Automaton { dfa, cache, cache_bytes, clears_max })
    }

    /// With its cache, which is counted as if it were full.
    pub fn held_bytes(&self) -> usize {
        size_of::<Automaton>()
            + self.dfa.memory_usage()
            + self.dfa.get_nfa().memory_usage()
            + self.cache_bytes
    }

    /// Whether the pattern matches some part of the text.
    pub fn is_found_in(&self, text: &str) -> Result<bool, GaveUp> {
        let mut cache = self.cache.lock();
        if cache.clear_count() > self.clears_max {
            self.dfa.reset_cache(&mut cache); // each search has a number of its own
        }
        match self.dfa.try_search_fwd(&mut cache, &Input::new(text).earliest(true)) {
            Ok(found) => Ok(found.is_some()),
            Err(error) => {
                assert!(
                    matches!(error.kind(), MatchErrorKind::GaveUp { .. }),
                    "a pattern that no automaton can search has none: {error}"
                );
                Err(GaveUp)
            }
        }
    }
}
