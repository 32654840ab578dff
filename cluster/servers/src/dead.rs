//! Servers that were declared dead.

use std::collections::{BTreeMap, HashMap};

use halcyon_schema::ServerName;

/// Names that are remembered. The oldest that need no recovery make room for others.
const NAMES_MAX: usize = 100_000;

#[derive(Default)]
pub(crate) struct DeadServers {
    /// With whether their WALs have to be split.
    names: HashMap<ServerName, bool>,
    /// By the order of their deaths.
    by_number: BTreeMap<u64, ServerName>,
    next_number: u64,
}

impl DeadServers {
    pub(crate) fn contains(&self, server: &ServerName) -> bool {
        self.names.contains_key(server)
    }

    pub(crate) fn is_recovering(&self, server: &ServerName) -> bool {
        self.names.get(server) == Some(&true)
    }

    /// Its WALs have to be split.
    pub(crate) fn add_recovering(&mut self, server: &ServerName) {
        if self.names.insert(server.clone(), true).is_none() {
            self.by_number.insert(self.next_number, server.clone());
            self.next_number += 1;
        }
        if self.names.len() > NAMES_MAX {
            self.forget_oldest();
        }
    }

    pub(crate) fn recovered(&mut self, server: &ServerName) {
        if let Some(is_recovering) = self.names.get_mut(server) {
            *is_recovering = false;
        }
    }

    /// Newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &ServerName> {
        self.by_number.values().rev()
    }

    fn forget_oldest(&mut self) {
        let oldest = self.by_number.iter().find(|(_, name)| !self.is_recovering(name));
        if let Some((number, name)) = oldest.map(|(number, name)| (*number, name.clone())) {
            self.names.remove(&name);
            self.by_number.remove(&number);
        }
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
}
