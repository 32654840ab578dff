//! Servers that were declared dead.

use std::collections::{BTreeMap, HashMap};

use halcyon_schema::ServerName;

/// Names that are remembered. The oldest that need no recovery make room for others.
const NAMES_MAX: usize = 100_000;

struct Dead {
    /// Its WALs have to be split.
    is_recovering: bool,
    /// No administrator has cleared it.
    is_listed: bool,
}

#[derive(Default)]
pub(crate) struct DeadServers {
    names: HashMap<ServerName, Dead>,
    /// By the order of their deaths.
    by_number: BTreeMap<u64, ServerName>,
    next_number: u64,
}

impl DeadServers {
    pub(crate) fn contains(&self, server: &ServerName) -> bool {
        self.names.contains_key(server)
    }

    pub(crate) fn is_recovering(&self, server: &ServerName) -> bool {
        self.names.get(server).is_some_and(|dead| dead.is_recovering)
    }

    /// Its WALs have to be split.
    pub(crate) fn add_recovering(&mut self, server: &ServerName) {
        let dead = Dead { is_recovering: true, is_listed: true };
        if self.names.insert(server.clone(), dead).is_none() {
            self.by_number.insert(self.next_number, server.clone());
            self.next_number += 1;
        }
        if self.names.len() > NAMES_MAX {
            self.forget_oldest();
        }
        self.check();
    }

    pub(crate) fn recovered(&mut self, server: &ServerName) {
        if let Some(dead) = self.names.get_mut(server) {
            dead.is_recovering = false;
        }
    }

    /// Takes one from the list that clients are shown. Its reports are refused as before.
    pub(crate) fn clear(&mut self, server: &ServerName) {
        if let Some(dead) = self.names.get_mut(server) {
            dead.is_listed = false;
        }
    }

    /// Newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &ServerName> {
        self.by_number.values().rev()
    }

    /// Those that were not cleared, newest first.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &ServerName> {
        self.newest().filter(|server| self.names.get(*server).is_some_and(|dead| dead.is_listed))
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_number.iter().find(|(_, name)| !self.is_recovering(name));
        if let Some((number, name)) = oldest.map(|(number, name)| (*number, name.clone())) {
            let forgotten = self.names.remove(&name);
            self.by_number.remove(&number);
            assert!(
                forgotten.is_some_and(|dead| !dead.is_recovering),
                "{name} is forgotten although its WALs are not split: its regions would open without them"
            );
        }
    }

    fn check(&self) {
        assert_eq!(
            self.names.len(),
            self.by_number.len(),
            "each dead server has a place in the order of deaths"
        );
        let newest = self.by_number.last_key_value();
        assert!(newest.is_none_or(|(number, _)| *number < self.next_number), "numbers of deaths rise");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_need_recovery_are_never_forgotten() {
        let mut dead = DeadServers::default();
        let name = |number: usize| ServerName::new("h", 1, number as i64);
        for number in 0..NAMES_MAX {
            dead.add_recovering(&name(number));
        }
        dead.add_recovering(&name(NAMES_MAX));
        assert!(dead.is_recovering(&name(0)));
        dead.recovered(&name(3));
        dead.add_recovering(&name(NAMES_MAX + 1));
        assert!(dead.contains(&name(0)) && !dead.contains(&name(3)));
        assert_eq!(dead.newest().next(), Some(&name(NAMES_MAX + 1)));
    }

    #[test]
    fn what_is_cleared_stays_dead() {
        let mut dead = DeadServers::default();
        let name = |number: i64| ServerName::new("h", 1, number);
        (0..3).for_each(|number| dead.add_recovering(&name(number)));
        dead.clear(&name(1));
        assert_eq!(dead.listed().collect::<Vec<_>>(), [&name(2), &name(0)]);
        assert!(dead.contains(&name(1)) && dead.is_recovering(&name(1)));
        dead.clear(&name(7));
        assert!(!dead.contains(&name(7)));
    }
}
