//! Records: a line for each server, region, table, namespace or user.

use std::collections::{BTreeMap, BTreeSet};

use halcyon_client::{ClusterMetrics, RegionMetrics, ServerMetrics};
use halcyon_schema::parse_region_name;

use crate::args::Mode;
use crate::fields::{Field, Value};
use crate::rates::{Counters, Key, Rates};

/// Values in the order of [`Field::of`] the mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub mode: Mode,
    pub values: Vec<Value>,
}

impl Record {
    pub fn value(&self, field: Field) -> Option<&Value> {
        let at = Field::of(self.mode).iter().position(|one| *one == field)?;
        self.values.get(at)
    }
}

/// Sums of what belongs to one record.
#[derive(Clone, Debug, Default)]
struct Sums {
    rates: Option<Counters<f64>>,
    file_size_mb: u64,
    uncompressed_size_mb: u64,
    files_count: u64,
    memstore_mb: u64,
    regions_count: u64,
    compacting_count: u64,
    compacted_count: u64,
    locality: f64,
    used_heap_mb: u64,
    max_heap_mb: u64,
    clients: BTreeSet<String>,
    names: Names,
}

/// What the record is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Names {
    namespace: String,
    table: String,
    region: String,
    server: String,
    user: String,
    start_key: String,
}

/// All records of a mode, in the order of their names.
pub fn records(metrics: &ClusterMetrics, rates: &Rates, mode: Mode) -> Vec<Record> {
    let mut all: BTreeMap<Names, Sums> = BTreeMap::new();
    for server in &metrics.servers {
        if mode == Mode::Users {
            add_users(&mut all, server, rates);
            continue;
        }
        if mode == Mode::Servers {
            let names = Names { server: short(server), ..Names::default() };
            let sums = all.entry(names).or_default();
            sums.used_heap_mb += u64::from(server.used_heap_mb);
            sums.max_heap_mb += u64::from(server.max_heap_mb);
        }
        let name = server.name.to_string();
        for region in &server.regions {
            let names = names_of(region, server, mode);
            let key = Key::Region { server: name.clone(), region: region.region_name.clone() };
            all.entry(names).or_default().add_region(region, rates.of(&key));
        }
    }
    all.into_iter().map(|(names, sums)| Sums { names, ..sums }.record(mode)).collect()
}

/// Host and port; the start of a server is of no interest here.
fn short(server: &ServerMetrics) -> String {
    format!("{}:{}", server.name.host, server.name.port)
}

/// Which record a region counts for.
fn names_of(region: &RegionMetrics, server: &ServerMetrics, mode: Mode) -> Names {
    let (mut names, name) = (Names::default(), &region.region_name);
    if matches!(mode, Mode::Servers | Mode::Regions) {
        names.server = short(server);
    }
    let Ok(parts) = parse_region_name(name) else {
        if mode == Mode::Regions {
            names.region = name.escape_ascii().to_string();
        }
        return names;
    };
    let table = parts.table.to_string();
    let (namespace, qualifier) = table.split_once(':').unwrap_or(("default", &table));
    if mode != Mode::Servers {
        names.namespace = namespace.to_string();
    }
    if matches!(mode, Mode::Tables | Mode::Regions) {
        names.table = qualifier.to_string();
    }
    if mode == Mode::Regions {
        names.region = parts.encoded_name.unwrap_or_else(|| name.escape_ascii().to_string());
        names.start_key = parts.start_key.escape_ascii().to_string();
    }
    names
}

fn add_users(all: &mut BTreeMap<Names, Sums>, server: &ServerMetrics, rates: &Rates) {
    for user in &server.users {
        let sums = all.entry(Names { user: user.name.clone(), ..Names::default() }).or_default();
        for client in &user.clients {
            let (server, user, host) = (server.name.to_string(), user.name.clone(), client.host.clone());
            sums.clients.insert(host.clone());
            sums.add_rates(rates.of(&Key::Client { server, user, host }));
        }
    }
}

impl Sums {
    fn add_rates(&mut self, rates: Option<Counters<f64>>) {
        let Some(rates) = rates else { return };
        let sum = self.rates.get_or_insert_default();
        sum.reads += rates.reads;
        sum.writes += rates.writes;
        sum.filtered += rates.filtered;
    }

    fn add_region(&mut self, region: &RegionMetrics, rates: Option<Counters<f64>>) {
        self.add_rates(rates);
        self.file_size_mb += u64::from(region.store_file_size_mb);
        self.uncompressed_size_mb += u64::from(region.uncompressed_size_mb);
        self.files_count += u64::from(region.store_files_count);
        self.memstore_mb += u64::from(region.memstore_size_mb);
        self.regions_count += 1;
        self.compacting_count += region.compacting_cells_count;
        self.compacted_count += region.compacted_cells_count;
        self.locality = f64::from(region.data_locality); // shown for single regions only
    }

    fn record(self, mode: Mode) -> Record {
        let values = Field::of(mode).iter().map(|field| self.value(*field)).collect();
        Record { mode, values }
    }

    fn value(&self, field: Field) -> Value {
        let text = |text: &String| Value::Text(text.clone());
        let rate = |of: fn(&Counters<f64>) -> f64| Value::Rate(self.rates.as_ref().map(of));
        match field {
            Field::Namespace => text(&self.names.namespace),
            Field::Table => text(&self.names.table),
            Field::Region => text(&self.names.region),
            Field::Server => text(&self.names.server),
            Field::User => text(&self.names.user),
            Field::StartKey => text(&self.names.start_key),
            Field::Requests => rate(|rates| rates.reads + rates.writes),
            Field::Reads => rate(|rates| rates.reads),
            Field::FilteredReads => rate(|rates| rates.filtered),
            Field::Writes => rate(|rates| rates.writes),
            Field::FileSize => Value::Mb(self.file_size_mb),
            Field::UncompressedSize => Value::Mb(self.uncompressed_size_mb),
            Field::Files => Value::Count(self.files_count),
            Field::Memstore => Value::Mb(self.memstore_mb),
            Field::Locality => Value::Part(self.locality),
            Field::Compacting => Value::Count(self.compacting_count),
            Field::Compacted => Value::Count(self.compacted_count),
            Field::Regions => Value::Count(self.regions_count),
            Field::UsedHeap => Value::Mb(self.used_heap_mb),
            Field::MaxHeap => Value::Mb(self.max_heap_mb),
            Field::Clients => Value::Count(self.clients.len() as u64),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use halcyon_client::{ClientMetrics, ServerName, UserMetrics};

    use super::*;

    /// A server to add regions and users to.
    pub(crate) struct TestServer(ServerMetrics);

    pub(crate) fn server(host: &str, start_code: i64) -> TestServer {
        TestServer(ServerMetrics {
            name: ServerName::new(host, 16020, start_code),
            requests_per_second: 0,
            requests_count: 0,
            write_requests_count: 0,
            used_heap_mb: 100,
            max_heap_mb: 1000,
            regions: Vec::new(),
            coprocessors: Vec::new(),
            report_start_ms: 0,
            report_end_ms: 1000,
            info_port: None,
            tasks: Vec::new(),
            users: Vec::new(),
            replication_sources: Vec::new(),
        })
    }

    impl TestServer {
        pub(crate) fn region(mut self, name: &str, reads: u64, writes: u64) -> TestServer {
            self.0.regions.push(RegionMetrics {
                region_name: name.as_bytes().to_vec(),
                store_files_count: 3,
                store_file_size_mb: 50,
                memstore_size_mb: 4,
                read_requests_count: reads,
                write_requests_count: writes,
                ..RegionMetrics::default()
            });
            self
        }

        pub(crate) fn user(mut self, name: &str, host: &str, reads: u64) -> TestServer {
            let client =
                ClientMetrics { host: host.into(), read_requests_count: reads, ..ClientMetrics::default() };
            self.0.users.push(UserMetrics { name: name.into(), clients: vec![client] });
            self
        }

        pub(crate) fn reported(mut self, at_ms: u64) -> TestServer {
            self.0.report_end_ms = at_ms;
            self
        }
    }

    pub(crate) fn cluster(servers: Vec<TestServer>) -> ClusterMetrics {
        let servers = servers.into_iter().map(|server| server.0).collect();
        ClusterMetrics { servers, ..ClusterMetrics::default() }
    }

    /// Two servers, three regions of two tables, two users, as reported at this time.
    pub(crate) fn example(at_ms: u64) -> (ClusterMetrics, Rates) {
        let at = |at_ms: u64| {
            let seconds = at_ms / 1000;
            cluster(vec![
                server("a", 1)
                    .region("orders,,1.0123456789abcdef0123456789abcdef.", 100 * seconds, 10 * seconds)
                    .region("ns:log,,1.1123456789abcdef0123456789abcdef.", 0, 50 * seconds)
                    .user("ada", "h1", 70 * seconds)
                    .user("bob", "h1", 30 * seconds)
                    .reported(at_ms),
                server("b", 2)
                    .region("orders,m\u{1},1.2123456789abcdef0123456789abcdef.", 300 * seconds, 0)
                    .user("ada", "h2", 300 * seconds)
                    .reported(at_ms),
            ])
        };
        let mut rates = Rates::default();
        rates.update(&at(1000));
        rates.update(&at(at_ms));
        (at(at_ms), rates)
    }

    fn shown(mode: Mode, fields: &[Field]) -> Vec<String> {
        let (metrics, rates) = example(3000);
        let line = |record: &Record| {
            let values = fields.iter().map(|field| record.value(*field).unwrap().to_string());
            values.collect::<Vec<_>>().join(" ")
        };
        records(&metrics, &rates, mode).iter().map(line).collect()
    }

    #[test]
    fn regions_are_summed_up_by_mode() {
        use Field::*;
        let numbers = [Requests, Reads, Writes, Files, FileSize, Memstore, Regions];
        let with = |name| [&[name][..], &numbers].concat();
        assert_eq!(
            shown(Mode::Servers, &with(Server)),
            ["a:16020 160 100 60 6 100MB 8MB 2", "b:16020 300 300 0 3 50MB 4MB 1"]
        );
        assert_eq!(
            shown(Mode::Tables, &with(Table)),
            ["orders 410 400 10 6 100MB 8MB 2", "log 50 0 50 3 50MB 4MB 1"]
        );
        assert_eq!(
            shown(Mode::Namespaces, &with(Namespace)),
            ["default 410 400 10 6 100MB 8MB 2", "ns 50 0 50 3 50MB 4MB 1"]
        );
        assert_eq!(shown(Mode::Users, &[User, Requests, Clients]), ["ada 370 2", "bob 30 1"]);
        assert_eq!(
            shown(Mode::Regions, &[Namespace, Table, Region, Server, Reads, StartKey]),
            [
                "default orders 0123456789abcdef0123456789abcdef a:16020 100 ",
                "default orders 2123456789abcdef0123456789abcdef b:16020 300 m\\x01",
                "ns log 1123456789abcdef0123456789abcdef a:16020 0 ",
            ]
        );
    }

    #[test]
    fn a_name_that_is_none_is_shown_as_it_is_and_unknown_rates_are_no_zeros() {
        let metrics = cluster(vec![server("a", 1).region("no region\u{1b}", 5, 5)]);
        let records = records(&metrics, &Rates::default(), Mode::Regions);
        assert_eq!(records[0].value(Field::Region), Some(&Value::Text("no region\\x1b".into())));
        assert_eq!(records[0].value(Field::Requests).map(Value::to_string).as_deref(), Some("-"));
    }
}
