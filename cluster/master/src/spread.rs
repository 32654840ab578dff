//! How regions are spread over servers, for people.

use std::collections::BTreeMap;

use halcyon_schema::{ServerName, TableName};

use crate::Master;
use crate::state::RegionState;

/// All tables with the servers that have their regions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// Every server that has a region, or has had one that is open nowhere now. Sorted.
    pub servers: Vec<ServerName>,
    /// `hbase:meta` first, then by name.
    pub tables: Vec<TableSpread>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TableSpread {
    pub table: TableName,
    /// HBase's word.
    pub state: &'static str,
    /// Without the parents of splits.
    pub regions_count: usize,
    pub open_count: usize,
    /// Open regions by server: its place in [`Spread::servers`], and their number.
    pub by_server: Vec<(usize, usize)>,
}

impl Master {
    /// Looks at every region.
    pub fn spread(&self) -> Spread {
        let mut names: BTreeMap<ServerName, usize> = BTreeMap::new();
        let mut counted: Vec<(TableSpread, BTreeMap<ServerName, usize>)> = Vec::new();
        let meta = self.core.meta_place.read().clone();
        let by_server = if meta.is_open() { BTreeMap::from([(meta.server, 1)]) } else { BTreeMap::new() };
        let new = |table: TableName, state, regions_count| TableSpread {
            table,
            state,
            regions_count,
            open_count: 0,
            by_server: Vec::new(),
        };
        counted.push((new(TableName::META, "ENABLED", 1), by_server));
        let tables = self.core.tables.read();
        for (name, entry) in &tables.by_name {
            let mut by_server: BTreeMap<ServerName, usize> = BTreeMap::new();
            let live = entry.regions.iter().filter(|(region, _)| !region.is_split() && !region.is_offline());
            let mut regions_count = 0;
            for (_, known) in live {
                regions_count += 1;
                if let Some(server) = known.server.as_ref().filter(|_| known.state == RegionState::Open) {
                    match by_server.get_mut(server) {
                        Some(count) => *count += 1,
                        None => drop(by_server.insert(server.clone(), 1)),
                    }
                }
            }
            counted.push((new(name.clone(), entry.state.as_str_name(), regions_count), by_server));
        }
        drop(tables);
        counted.iter().flat_map(|(_, by_server)| by_server.keys()).for_each(|server| {
            if !names.contains_key(server) {
                names.insert(server.clone(), 0);
            }
        });
        names.values_mut().enumerate().for_each(|(at, place)| *place = at);
        let tables = counted.into_iter().map(|(mut table, by_server)| {
            table.by_server = by_server.iter().map(|(server, count)| (names[server], *count)).collect();
            table.open_count = by_server.values().sum();
            table
        });
        Spread { tables: tables.collect(), servers: names.into_keys().collect() }
    }
}
