//! Quotas: what users, tables, namespaces and region servers may do, and how large tables may grow.
//!
//! The master changes them. They are read from the table `hbase:quota` (HBase: `QuotaTableUtil`):
//!
//! ```text
//! row            q:s       q:s.TABLE, q:s.NAMESPACE:    u:p                   u:ssSNAPSHOT
//! n.NAMESPACE    Quotas    -                            -                     -
//! t.TABLE        Quotas    -                            SpaceQuotaSnapshot    SpaceQuotaSnapshot
//! u.USER         Quotas    Quotas                       -                     -
//! r.all          Quotas    -                            -                     -
//! ```
//!
//! `Quotas` has the mark `PBUF` before it; the messages of family `u` have none.

use halcyon_proto::{PB_MAGIC, pb};
use halcyon_schema::{ServerName, TableName};
use pb::{QuotaScope, SpaceViolationPolicy, ThrottleType, TimeUnit};
use prost::Message;

use super::Admin;
use crate::{ClientError, Comparator, CompareOp, Filter, Scan};

const SETTINGS_FAMILY: &[u8] = b"q";
const USAGE_FAMILY: &[u8] = b"u";
const SETTINGS: &[u8] = b"s";
/// Before the table, or the namespace and a colon, that a user's quotas are for.
const SETTINGS_OF: &[u8] = b"s.";
const SPACE_USE: &[u8] = b"p";
/// Before the name of a snapshot.
const SNAPSHOT_SIZE: &[u8] = b"ss";
const TABLE_ROWS: &[u8] = b"t.";

/// Whom quotas are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuotaSubject {
    /// A user.
    User(String),
    /// A user's calls to a table.
    UserOnTable(String, TableName),
    /// A user's calls to the tables of a namespace.
    UserOnNamespace(String, String),
    /// A table.
    Table(TableName),
    /// A namespace.
    Namespace(String),
    /// Region servers. HBase knows only the name `all`: each of them.
    RegionServer(String),
}

/// A limit of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// What is counted.
    pub kind: ThrottleType,
    /// How many calls, bytes, capacity units or milliseconds are let through in each unit of time.
    pub limit: u64,
    /// The unit of time.
    pub unit: TimeUnit,
    /// Whether each server lets so much through, or all of them together.
    pub scope: QuotaScope,
}

/// A quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// A limit of calls.
    Throttle(Throttle),
    /// Whether the limits of tables, namespaces and servers leave a user alone.
    GlobalBypass(bool),
    /// A limit of the store files of a table or namespace.
    Space {
        /// Their bytes.
        limit_bytes: u64,
        /// What is refused beyond that.
        policy: SpaceViolationPolicy,
    },
}

/// Which quotas are wanted. The names are patterns of Java's for whole names; empty ones count as none.
///
/// Without a user, `table` and `namespace` mean the quotas of such tables and of such namespaces. With a user
/// they mean his quotas on them, and without both all of his.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QuotaFilter {
    /// Users.
    pub user: Option<String>,
    /// Tables.
    pub table: Option<String>,
    /// Namespaces.
    pub namespace: Option<String>,
}

/// What a table with a space quota uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUse {
    /// Bytes of its store files and snapshots.
    pub used_bytes: u64,
    /// Bytes that it may use.
    pub limit_bytes: u64,
    /// What is refused now because it uses more; `None`: it does not.
    pub violated: Option<SpaceViolationPolicy>,
}

impl QuotaSubject {
    /// The user.
    pub fn user(&self) -> Option<&str> {
        match self {
            QuotaSubject::User(user)
            | QuotaSubject::UserOnTable(user, _)
            | QuotaSubject::UserOnNamespace(user, _) => Some(user),
            _ => None,
        }
    }

    /// The table.
    pub fn table(&self) -> Option<&TableName> {
        match self {
            QuotaSubject::Table(table) | QuotaSubject::UserOnTable(_, table) => Some(table),
            _ => None,
        }
    }

    /// The namespace.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            QuotaSubject::Namespace(namespace) | QuotaSubject::UserOnNamespace(_, namespace) => {
                Some(namespace)
            }
            _ => None,
        }
    }

    /// The region server.
    pub fn region_server(&self) -> Option<&str> {
        match self {
            QuotaSubject::RegionServer(server) => Some(server),
            _ => None,
        }
    }

    /// A request that says nothing yet of what is to change.
    fn to_request(&self) -> pb::SetQuotaRequest {
        pb::SetQuotaRequest {
            user_name: self.user().map(str::to_string),
            namespace: self.namespace().map(str::to_string),
            table_name: self.table().map(TableName::to_pb),
            region_server: self.region_server().map(str::to_string),
            ..Default::default()
        }
    }

    /// Whom a cell of the settings is for; `None`: it is no setting.
    fn of_cell(row: &[u8], qualifier: &[u8]) -> Result<Option<QuotaSubject>, ClientError> {
        let Some((kind, name)) = text(row)?.split_once('.') else { return Ok(None) };
        let name = name.to_string();
        let of = qualifier.strip_prefix(SETTINGS_OF);
        if qualifier != SETTINGS && of.is_none() {
            return Ok(None);
        }
        Ok(match (kind, of) {
            ("n", None) => Some(QuotaSubject::Namespace(name)),
            ("t", None) => Some(QuotaSubject::Table(table_name(name.as_bytes())?)),
            ("r", None) => Some(QuotaSubject::RegionServer(name)),
            ("u", None) => Some(QuotaSubject::User(name)),
            ("u", Some(of)) => Some(match of.strip_suffix(b":") {
                Some(namespace) => QuotaSubject::UserOnNamespace(name, text(namespace)?.to_string()),
                None => QuotaSubject::UserOnTable(name, table_name(of)?),
            }),
            _ => None,
        })
    }
}

impl Throttle {
    fn of_pb(kind: ThrottleType, timed: &pb::TimedQuota) -> Result<Throttle, ClientError> {
        let limit = timed.soft_limit.ok_or_else(|| ClientError::malformed("a throttle has no limit"))?;
        let scope = timed.scope.unwrap_or(QuotaScope::Machine as i32);
        Ok(Throttle {
            kind,
            limit,
            unit: TimeUnit::try_from(timed.time_unit).map_err(ClientError::malformed)?,
            scope: QuotaScope::try_from(scope).map_err(ClientError::malformed)?,
        })
    }

    fn to_pb(self) -> pb::ThrottleRequest {
        let timed_quota = pb::TimedQuota {
            time_unit: self.unit as i32,
            soft_limit: Some(self.limit),
            share: None,
            scope: Some(self.scope as i32),
        };
        pb::ThrottleRequest { r#type: Some(self.kind as i32), timed_quota: Some(timed_quota) }
    }
}

impl Quota {
    /// Sets this quota.
    fn put(self, request: &mut pb::SetQuotaRequest) {
        match self {
            Quota::Throttle(throttle) => request.throttle = Some(throttle.to_pb()),
            Quota::GlobalBypass(bypass) => request.bypass_globals = Some(bypass),
            Quota::Space { limit_bytes, policy } => {
                let quota = pb::SpaceQuota {
                    soft_limit: Some(limit_bytes),
                    violation_policy: Some(policy as i32),
                    remove: None,
                };
                request.space_limit = Some(pb::SpaceLimitRequest { quota: Some(quota) });
            }
        }
    }

    /// The quotas in a cell of the settings, in the order in which HBase lists them.
    fn of_value(value: &[u8]) -> Result<Vec<Quota>, ClientError> {
        let message = value.strip_prefix(&PB_MAGIC[..]);
        let message = message.ok_or_else(|| ClientError::malformed("a quota lacks PBUF"))?;
        let quotas = pb::Quotas::decode(message).map_err(ClientError::malformed)?;
        let mut found = Vec::new();
        for (kind, timed) in limits(&quotas.throttle.unwrap_or_default()) {
            if let Some(timed) = timed {
                found.push(Quota::Throttle(Throttle::of_pb(kind, &timed)?));
            }
        }
        if quotas.bypass_globals() {
            found.push(Quota::GlobalBypass(true));
        }
        if let Some(space) = quotas.space.filter(|space| !space.remove()) {
            let limit = space.soft_limit;
            let limit_bytes = limit.ok_or_else(|| ClientError::malformed("a space quota has no limit"))?;
            found.push(Quota::Space { limit_bytes, policy: policy(space.violation_policy)? });
        }
        Ok(found)
    }
}

/// All kinds of limits in HBase's order, and those that are set.
fn limits(throttle: &pb::Throttle) -> [(ThrottleType, Option<pb::TimedQuota>); 13] {
    [
        (ThrottleType::RequestNumber, throttle.req_num),
        (ThrottleType::RequestSize, throttle.req_size),
        (ThrottleType::WriteNumber, throttle.write_num),
        (ThrottleType::WriteSize, throttle.write_size),
        (ThrottleType::ReadNumber, throttle.read_num),
        (ThrottleType::ReadSize, throttle.read_size),
        (ThrottleType::RequestCapacityUnit, throttle.req_capacity_unit),
        (ThrottleType::ReadCapacityUnit, throttle.read_capacity_unit),
        (ThrottleType::WriteCapacityUnit, throttle.write_capacity_unit),
        (ThrottleType::AtomicReadSize, throttle.atomic_read_size),
        (ThrottleType::AtomicWriteSize, throttle.atomic_write_size),
        (ThrottleType::AtomicRequestNumber, throttle.atomic_req_num),
        (ThrottleType::RequestHandlerUsageMs, throttle.req_handler_usage_ms),
    ]
}

impl QuotaFilter {
    /// `None`: all are wanted.
    fn to_filter(&self) -> Option<Filter> {
        let user = given(&self.user).map(|user| Filter::row(CompareOp::Equal, whole("u", user, "")));
        let Some(user) = user else {
            let row = |kind, name| Filter::row(CompareOp::Equal, whole(kind, name, ""));
            let tables = given(&self.table).map(|table| row("t", table));
            let namespaces = given(&self.namespace).map(|namespace| row("n", namespace));
            let wanted: Vec<Filter> = tables.into_iter().chain(namespaces).collect();
            return (!wanted.is_empty()).then(|| Filter::any(wanted));
        };
        let column = |name, end| Filter::qualifier(CompareOp::Equal, whole("s", name, end));
        // a namespace ends with a colon, and no table does
        let tables = given(&self.table).map(|table| column(table, "(?<!:)"));
        let namespaces = given(&self.namespace).map(|namespace| column(namespace, ":"));
        let columns: Vec<Filter> = tables.into_iter().chain(namespaces).collect();
        Some(match columns.is_empty() {
            true => user,
            false => Filter::all([user, Filter::any(columns)]),
        })
    }
}

fn given(pattern: &Option<String>) -> Option<&str> {
    pattern.as_deref().filter(|pattern| !pattern.is_empty())
}

/// Names of a kind that match a pattern as a whole.
fn whole(kind: &str, pattern: &str, end: &str) -> Comparator {
    Comparator::regex(&format!("^{kind}\\.(?:{pattern}){end}$"))
}

impl SpaceUse {
    fn of_pb(snapshot: &pb::SpaceQuotaSnapshot) -> Result<SpaceUse, ClientError> {
        let status = snapshot.quota_status.unwrap_or_default();
        let violated = match status.in_violation() {
            true => Some(policy(status.violation_policy)?),
            false => None,
        };
        Ok(SpaceUse { used_bytes: snapshot.quota_usage(), limit_bytes: snapshot.quota_limit(), violated })
    }
}

fn policy(number: Option<i32>) -> Result<SpaceViolationPolicy, ClientError> {
    let number = number.ok_or_else(|| ClientError::malformed("a space quota has no policy"))?;
    SpaceViolationPolicy::try_from(number).map_err(ClientError::malformed)
}

fn text(bytes: &[u8]) -> Result<&str, ClientError> {
    std::str::from_utf8(bytes).map_err(ClientError::malformed)
}

fn table_name(bytes: &[u8]) -> Result<TableName, ClientError> {
    TableName::parse(bytes).map_err(ClientError::malformed)
}

fn table_of_pb(name: Option<&pb::TableName>) -> Result<TableName, ClientError> {
    let name = name.ok_or_else(|| ClientError::malformed("a size has no table"))?;
    TableName::from_pb(name).map_err(ClientError::malformed)
}

impl Admin {
    /// Sets a quota. It takes the place of the one of its kind that the subject has; the others stay.
    pub async fn set_quota(&self, subject: &QuotaSubject, quota: Quota) -> Result<(), ClientError> {
        let mut request = subject.to_request();
        quota.put(&mut request);
        self.change_quota(&request).await
    }

    /// Removes the limit of one kind, or all limits of calls.
    pub async fn remove_throttles(
        &self,
        subject: &QuotaSubject,
        kind: Option<ThrottleType>,
    ) -> Result<(), ClientError> {
        let throttle = pb::ThrottleRequest { r#type: kind.map(|kind| kind as i32), timed_quota: None };
        self.change_quota(&pb::SetQuotaRequest { throttle: Some(throttle), ..subject.to_request() }).await
    }

    /// Removes the space quota of a table or namespace.
    pub async fn remove_space_quota(&self, subject: &QuotaSubject) -> Result<(), ClientError> {
        let quota = pb::SpaceQuota { remove: Some(true), ..Default::default() };
        let space_limit = Some(pb::SpaceLimitRequest { quota: Some(quota) });
        self.change_quota(&pb::SetQuotaRequest { space_limit, ..subject.to_request() }).await
    }

    async fn change_quota(&self, request: &pb::SetQuotaRequest) -> Result<(), ClientError> {
        let _: pb::SetQuotaResponse = self.call("SetQuota", request).await?;
        Ok(())
    }

    /// Lets calls exceed the limits of users, tables and namespaces while their region server has room left,
    /// or no more. Returns the setting from before.
    pub async fn set_exceed_throttle_quota(&self, on: bool) -> Result<bool, ClientError> {
        let request = pb::SwitchExceedThrottleQuotaRequest { exceed_throttle_quota_enabled: on };
        let answer: pb::SwitchExceedThrottleQuotaResponse =
            self.call("SwitchExceedThrottleQuota", &request).await?;
        Ok(answer.previous_exceed_throttle_quota_enabled)
    }

    /// The quotas that a filter wants, sorted by their rows in `hbase:quota`. Where quotas are off there is
    /// no such table, which is an error.
    pub async fn quotas(&self, filter: &QuotaFilter) -> Result<Vec<(QuotaSubject, Quota)>, ClientError> {
        let scan = Scan::new().family(SETTINGS_FAMILY);
        let scan = match filter.to_filter() {
            Some(filter) => scan.filter(filter),
            None => scan,
        };
        let mut rows = self.cluster.table(quota_table(), 0).scan(scan);
        let mut found = Vec::new();
        while let Some(row) = rows.next().await? {
            for cell in &row {
                let Some(subject) = QuotaSubject::of_cell(cell.row(), cell.qualifier())? else { continue };
                for quota in Quota::of_value(cell.value())? {
                    found.push((subject.clone(), quota));
                }
            }
        }
        Ok(found)
    }

    /// What tables use by the master's count, in bytes of store files, sorted by name.
    pub async fn quota_table_sizes(&self) -> Result<Vec<(TableName, u64)>, ClientError> {
        let request = pb::GetSpaceQuotaRegionSizesRequest {};
        let answer: pb::GetSpaceQuotaRegionSizesResponse =
            self.call("GetSpaceQuotaRegionSizes", &request).await?;
        let size = |one: &pb::get_space_quota_region_sizes_response::RegionSizes| {
            Ok((table_of_pb(one.table_name.as_ref())?, one.size()))
        };
        let mut sizes = answer.sizes.iter().map(size).collect::<Result<Vec<_>, ClientError>>()?;
        sizes.sort();
        Ok(sizes)
    }

    /// What tables with space quotas use, as the master has last written it to `hbase:quota`, sorted by name.
    pub async fn space_uses(&self) -> Result<Vec<(TableName, SpaceUse)>, ClientError> {
        let scan = Scan::prefix(TABLE_ROWS).column(USAGE_FAMILY, SPACE_USE);
        let mut rows = self.cluster.table(quota_table(), 0).scan(scan);
        let mut found = Vec::new();
        while let Some(row) = rows.next().await? {
            for cell in &row {
                let name = cell.row().strip_prefix(TABLE_ROWS).unwrap_or_default();
                let snapshot =
                    pb::SpaceQuotaSnapshot::decode(cell.value()).map_err(ClientError::malformed)?;
                found.push((table_name(name)?, SpaceUse::of_pb(&snapshot)?));
            }
        }
        Ok(found)
    }

    /// What a region server knows of tables with space quotas, sorted by name.
    pub async fn space_uses_of_server(
        &self,
        server: &ServerName,
    ) -> Result<Vec<(TableName, SpaceUse)>, ClientError> {
        let request = pb::GetSpaceQuotaSnapshotsRequest {};
        let answer: pb::GetSpaceQuotaSnapshotsResponse =
            self.call_server(server, "GetSpaceQuotaSnapshots", &request).await?;
        let mut found = Vec::new();
        for one in &answer.snapshots {
            let table = table_of_pb(one.table_name.as_ref())?;
            found.push((table, SpaceUse::of_pb(&one.snapshot.unwrap_or_default())?));
        }
        found.sort_by(|(left, _), (right, _)| left.cmp(right));
        Ok(found)
    }

    /// Bytes that snapshots hold and their tables do not any more, by snapshot. Only those of tables with
    /// space quotas are there.
    pub async fn snapshot_sizes(&self) -> Result<Vec<(String, u64)>, ClientError> {
        let scan = Scan::prefix(TABLE_ROWS).family(USAGE_FAMILY);
        let scan = scan.filter(Filter::column_prefix(SNAPSHOT_SIZE));
        let mut rows = self.cluster.table(quota_table(), 0).scan(scan);
        let mut found = Vec::new();
        while let Some(row) = rows.next().await? {
            for cell in &row {
                let Some(name) = cell.qualifier().strip_prefix(SNAPSHOT_SIZE) else { continue };
                let size = pb::SpaceQuotaSnapshot::decode(cell.value()).map_err(ClientError::malformed)?;
                found.push((text(name)?.to_string(), size.quota_usage()));
            }
        }
        Ok(found)
    }
}

fn quota_table() -> TableName {
    TableName::parse(b"hbase:quota").expect("the name is legal")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> TableName {
        TableName::parse(name.as_bytes()).unwrap()
    }

    fn value(quotas: &pb::Quotas) -> Vec<u8> {
        [&PB_MAGIC[..], &quotas.encode_to_vec()].concat()
    }

    #[test]
    fn a_subject_is_read_from_its_row_and_column() {
        let of = |row: &str, qualifier: &str| QuotaSubject::of_cell(row.as_bytes(), qualifier.as_bytes());
        let user = || "u.x".to_string();
        let expected = [
            ("n.ns", "s", QuotaSubject::Namespace("ns".to_string())),
            ("t.ns:t.x", "s", QuotaSubject::Table(table("ns:t.x"))),
            ("r.all", "s", QuotaSubject::RegionServer("all".to_string())),
            ("u.u.x", "s", QuotaSubject::User(user())),
            ("u.u.x", "s.t", QuotaSubject::UserOnTable(user(), table("t"))),
            ("u.u.x", "s.ns:t", QuotaSubject::UserOnTable(user(), table("ns:t"))),
            ("u.u.x", "s.ns:", QuotaSubject::UserOnNamespace(user(), "ns".to_string())),
        ];
        for (row, qualifier, subject) in expected {
            assert_eq!(of(row, qualifier).unwrap(), Some(subject), "{row} {qualifier}");
        }
        for (row, qualifier) in [("exceedThrottleQuota", "s"), ("x.y", "s"), ("t.t", "s.t"), ("u.x", "p")] {
            assert_eq!(of(row, qualifier).unwrap(), None, "{row} {qualifier}");
        }
        for (row, qualifier) in [("t.", "s"), ("u.x", "s.bad name"), ("u.x", "s.")] {
            assert!(of(row, qualifier).is_err(), "{row} {qualifier}");
        }
        assert!(QuotaSubject::of_cell(b"u.\xff", b"s").is_err());
    }

    #[test]
    fn a_request_names_its_subject() {
        let request = QuotaSubject::UserOnTable("u".to_string(), table("ns:t")).to_request();
        assert_eq!(request.user_name.as_deref(), Some("u"));
        assert_eq!(request.table_name, Some(table("ns:t").to_pb()));
        assert!(request.namespace.is_none() && request.region_server.is_none());
        let request = QuotaSubject::UserOnNamespace("u".to_string(), "ns".to_string()).to_request();
        assert_eq!((request.user_name.as_deref(), request.namespace.as_deref()), (Some("u"), Some("ns")));
        let request = QuotaSubject::RegionServer("all".to_string()).to_request();
        assert_eq!((request.region_server.as_deref(), request.user_name), (Some("all"), None));
    }

    #[test]
    fn what_was_set_is_read_again() {
        let throttle = |kind, scope| Throttle { kind, limit: 7, unit: TimeUnit::Hours, scope };
        let reads = throttle(ThrottleType::ReadSize, QuotaScope::Cluster);
        let all = throttle(ThrottleType::RequestNumber, QuotaScope::Machine);
        let space = Quota::Space { limit_bytes: 9, policy: SpaceViolationPolicy::NoWrites };
        let mut request = pb::SetQuotaRequest::default();
        space.put(&mut request);
        Quota::GlobalBypass(true).put(&mut request);
        let quotas = pb::Quotas {
            bypass_globals: request.bypass_globals,
            throttle: Some(pb::Throttle {
                read_size: reads.to_pb().timed_quota,
                req_num: all.to_pb().timed_quota,
                ..Default::default()
            }),
            space: request.space_limit.unwrap().quota,
        };
        let read = Quota::of_value(&value(&quotas)).unwrap();
        let expected = [Quota::Throttle(all), Quota::Throttle(reads), Quota::GlobalBypass(true), space];
        assert_eq!(read, expected);
        assert_eq!(reads.to_pb().r#type, Some(ThrottleType::ReadSize as i32));
        assert!(Quota::of_value(&value(&pb::Quotas::default())).unwrap().is_empty());
    }

    #[test]
    fn each_kind_of_limit_is_read_once() {
        let mut kinds: Vec<i32> =
            limits(&pb::Throttle::default()).iter().map(|(kind, _)| *kind as i32).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, (1..=13).collect::<Vec<_>>());
    }

    #[test]
    fn a_damaged_quota_is_an_error() {
        assert!(Quota::of_value(b"").is_err() && Quota::of_value(b"PBUF\xff\xff").is_err());
        let with = |timed: pb::TimedQuota| {
            let throttle = Some(pb::Throttle { req_num: Some(timed), ..Default::default() });
            Quota::of_value(&value(&pb::Quotas { throttle, ..Default::default() }))
        };
        let good = pb::TimedQuota { time_unit: 4, soft_limit: Some(1), ..Default::default() };
        assert_eq!(with(good).unwrap().len(), 1);
        for bad in [
            pb::TimedQuota { soft_limit: None, ..good },
            pb::TimedQuota { time_unit: 8, ..good },
            pb::TimedQuota { scope: Some(3), ..good },
        ] {
            assert!(matches!(with(bad), Err(ClientError::Malformed(_))), "{bad:?}");
        }
        let space = pb::SpaceQuota { soft_limit: Some(1), ..Default::default() };
        let quotas = pb::Quotas { space: Some(space), ..Default::default() };
        assert!(Quota::of_value(&value(&quotas)).is_err());
        let removed = pb::SpaceQuota { remove: Some(true), ..Default::default() };
        let quotas = pb::Quotas { space: Some(removed), ..Default::default() };
        assert!(Quota::of_value(&value(&quotas)).unwrap().is_empty());
    }

    #[test]
    fn a_violated_quota_has_a_policy() {
        let status = |in_violation, violation_policy| pb::SpaceQuotaSnapshot {
            quota_status: Some(pb::SpaceQuotaStatus { violation_policy, in_violation: Some(in_violation) }),
            quota_usage: Some(5),
            quota_limit: Some(3),
        };
        let read = SpaceUse::of_pb(&status(true, Some(4))).unwrap();
        let violated = Some(SpaceViolationPolicy::NoInserts);
        assert_eq!(read, SpaceUse { used_bytes: 5, limit_bytes: 3, violated });
        assert_eq!(SpaceUse::of_pb(&status(false, None)).unwrap().violated, None);
        assert!(SpaceUse::of_pb(&status(true, None)).is_err());
        assert!(SpaceUse::of_pb(&status(true, Some(5))).is_err());
    }

    #[test]
    fn only_what_is_asked_for_is_filtered() {
        let class = |filter: QuotaFilter| filter.to_filter().map(|filter| filter.class().to_string());
        let some = |name: &str| Some(name.to_string());
        assert_eq!(class(QuotaFilter::default()), None);
        assert_eq!(class(QuotaFilter { table: some(""), ..Default::default() }), None);
        let user = QuotaFilter { user: some("u.*"), ..Default::default() };
        assert!(class(user.clone()).unwrap().ends_with(".RowFilter"));
        assert!(class(QuotaFilter { table: some("t"), ..user }).unwrap().ends_with(".FilterList"));
        let namespace = QuotaFilter { namespace: some("n"), ..Default::default() };
        assert!(class(namespace).unwrap().ends_with(".FilterList"));
    }
}
