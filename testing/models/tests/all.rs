//! Small bounds of all models: without a flaw no rule is broken, and each flaw is found.

use halcyon_models::{Size, all};

#[test]
fn no_rule_is_broken() {
    for entry in all() {
        let outcome = entry.explore(Size::Small, None);
        assert_eq!(outcome.broken, None, "{}", entry.name);
        assert!(
            outcome.missing.is_empty(),
            "{}: {:?} in none of {} states",
            entry.name,
            outcome.missing,
            outcome.states
        );
    }
}

#[test]
fn each_flaw_is_found() {
    for entry in all() {
        for (at, flaw) in entry.flaws.iter().enumerate() {
            let outcome = entry.explore(Size::Small, Some(at));
            assert!(
                outcome.broken.is_some(),
                "{}: {flaw} is not found in {} states",
                entry.name,
                outcome.states
            );
        }
    }
}
