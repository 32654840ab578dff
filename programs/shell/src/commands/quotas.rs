//! Quotas: throttles, space, and what tables use.

use halcyon_client::{
    Quota, QuotaFilter, QuotaScope, QuotaSubject, SpaceUse, SpaceViolationPolicy, Switch, TableName,
    Throttle, ThrottleType, TimeUnit,
};
use serde_json::json;

use super::Context;
use super::servers::server_name;
use crate::arguments::{Arguments, table_name};
use crate::error::ShellError;
use crate::value::Map;

/// The only name that HBase knows for region servers.
const ALL_SERVERS: &str = "all";
/// As a limit: there shall be none.
const NONE: &str = "NONE";
/// What is counted if nothing else is said.
const REQUEST: &str = "REQUEST";
/// Ends of the names of throttles that HBase's help gives by their beginning alone: `READ`.
const MEASURES: [&str; 3] = ["NUMBER", "SIZE", "CAPACITY_UNIT"];

pub(super) async fn run(
    context: &mut Context,
    name: &str,
    arguments: &mut Arguments,
) -> Result<bool, ShellError> {
    match name {
        "set_quota" => set(context, arguments).await?,
        "list_quotas" => list(context, arguments).await?,
        "list_quota_table_sizes" => {
            arguments.finish()?;
            let sizes = context.admin().await?.quota_table_sizes().await?;
            let rows: Vec<_> =
                sizes.iter().map(|(table, size)| vec![table.to_string(), size.to_string()]).collect();
            context.printer.table(&["TABLE", "SIZE"], &rows)?;
        }
        "list_quota_snapshots" => list_snapshots(context, arguments).await?,
        "list_snapshot_sizes" => {
            arguments.finish()?;
            let sizes = context.admin().await?.snapshot_sizes().await?;
            let rows: Vec<_> = sizes.into_iter().map(|(name, size)| vec![name, size.to_string()]).collect();
            context.printer.table(&["SNAPSHOT", "SIZE"], &rows)?;
        }
        "enable_rpc_throttle" => switch_throttle(context, arguments, true).await?,
        "disable_rpc_throttle" => switch_throttle(context, arguments, false).await?,
        "enable_exceed_throttle_quota" => switch_exceeding(context, arguments, true).await?,
        "disable_exceed_throttle_quota" => switch_exceeding(context, arguments, false).await?,
        _ => return Ok(false),
    }
    Ok(true)
}

async fn switch_throttle(
    context: &mut Context,
    arguments: &mut Arguments,
    on: bool,
) -> Result<(), ShellError> {
    arguments.finish()?;
    let before = context.admin().await?.set_switch(Switch::RpcThrottle, on).await?;
    context.printer.note(format_args!("Previous rpc throttle state : {before}"))?;
    Ok(context.printer.object(&json!({ "previous": before }))?)
}

async fn switch_exceeding(
    context: &mut Context,
    arguments: &mut Arguments,
    on: bool,
) -> Result<(), ShellError> {
    arguments.finish()?;
    let before = context.admin().await?.set_exceed_throttle_quota(on).await?;
    context.printer.note(format_args!("Previous exceed throttle quota enabled : {before}"))?;
    Ok(context.printer.object(&json!({ "previous": before }))?)
}

/// What `set_quota` is to change.
#[derive(Debug, PartialEq)]
enum Change {
    Set(Quota),
    /// Limits of these kinds go.
    RemoveThrottles(Vec<ThrottleType>),
    RemoveAllThrottles,
    RemoveSpace,
}

async fn set(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let (subject, change) = asked(arguments)?;
    let admin = context.admin().await?;
    match change {
        Change::Set(quota) => admin.set_quota(&subject, quota).await?,
        Change::RemoveThrottles(kinds) => {
            for kind in kinds {
                admin.remove_throttles(&subject, Some(kind)).await?;
            }
        }
        Change::RemoveAllThrottles => admin.remove_throttles(&subject, None).await?,
        Change::RemoveSpace => admin.remove_space_quota(&subject).await?,
    }
    Ok(())
}

fn asked(arguments: &mut Arguments) -> Result<(QuotaSubject, Change), ShellError> {
    let mut options = arguments.options()?;
    arguments.finish()?;
    let kind = constant(&mut options, "TYPE")?;
    let change = match kind.as_deref() {
        Some("THROTTLE") => throttle(arguments, &mut options)?,
        Some("SPACE") => space(arguments, &mut options)?,
        Some(other) => {
            return Err(arguments.error(format_args!("TYPE '{other}' is neither THROTTLE nor SPACE")));
        }
        None => {
            let bypass = options.take("GLOBAL_BYPASS").ok_or_else(|| arguments.error("TYPE is missing"))?;
            Change::Set(Quota::GlobalBypass(bypass.flag()?))
        }
    };
    let subject = subject(arguments, &mut options)?;
    options.finish("set_quota")?;
    check(arguments, &subject, &change)?;
    Ok((subject, change))
}

/// Refuses what HBase has no such quotas for.
fn check(arguments: &Arguments, subject: &QuotaSubject, change: &Change) -> Result<(), ShellError> {
    let wrong = match (change, subject) {
        (Change::Set(Quota::GlobalBypass(_)), QuotaSubject::User(_)) => return Ok(()),
        (Change::Set(Quota::GlobalBypass(_)), _) => "GLOBAL_BYPASS is for a USER alone",
        (
            Change::Set(Quota::Space { .. }) | Change::RemoveSpace,
            QuotaSubject::Table(_) | QuotaSubject::Namespace(_),
        ) => return Ok(()),
        (Change::Set(Quota::Space { .. }) | Change::RemoveSpace, _) => {
            "a quota of TYPE SPACE is for a TABLE or a NAMESPACE"
        }
        (Change::Set(Quota::Throttle(throttle)), QuotaSubject::RegionServer(_))
            if throttle.scope == QuotaScope::Cluster =>
        {
            "the SCOPE of a REGIONSERVER is MACHINE"
        }
        _ => return Ok(()),
    };
    Err(arguments.error(wrong))
}

fn subject(arguments: &Arguments, options: &mut Map) -> Result<QuotaSubject, ShellError> {
    let user = text(options, "USER")?;
    let table = options.take("TABLE").map(|table| table_name(&table)).transpose()?;
    let namespace = text(options, "NAMESPACE")?;
    let server = text(options, "REGIONSERVER")?;
    Ok(match (user, table, namespace, server) {
        (Some(user), None, None, None) => QuotaSubject::User(user),
        (Some(user), Some(table), None, None) => QuotaSubject::UserOnTable(user, table),
        (Some(user), None, Some(namespace), None) => QuotaSubject::UserOnNamespace(user, namespace),
        (None, Some(table), None, None) => QuotaSubject::Table(table),
        (None, None, Some(namespace), None) => QuotaSubject::Namespace(namespace),
        (None, None, None, Some(server)) if server == ALL_SERVERS => QuotaSubject::RegionServer(server),
        (None, None, None, Some(_)) => return Err(arguments.error("REGIONSERVER can only be 'all'")),
        (None, None, None, None) => {
            return Err(arguments.error("one of USER, TABLE, NAMESPACE and REGIONSERVER is needed"));
        }
        _ => return Err(arguments.error("only USER goes together with TABLE or with NAMESPACE")),
    })
}

fn text(options: &mut Map, key: &str) -> Result<Option<String>, ShellError> {
    options.take(key).map(|value| value.text()).transpose()
}

/// A word that has no case.
fn constant(options: &mut Map, key: &str) -> Result<Option<String>, ShellError> {
    Ok(text(options, key)?.map(|word| word.to_ascii_uppercase()))
}

fn limit(arguments: &Arguments, options: &mut Map) -> Result<String, ShellError> {
    text(options, "LIMIT")?.ok_or_else(|| arguments.error("LIMIT is missing"))
}

fn throttle(arguments: &Arguments, options: &mut Map) -> Result<Change, ShellError> {
    let kind = constant(options, "THROTTLE_TYPE")?;
    let limit = limit(arguments, options)?;
    if limit.eq_ignore_ascii_case(NONE) {
        let Some(kind) = kind else { return Ok(Change::RemoveAllThrottles) };
        let kinds = throttle_types(&kind);
        return match kinds.is_empty() {
            true => Err(arguments.error(format_args!("there is no THROTTLE_TYPE '{kind}'"))),
            false => Ok(Change::RemoveThrottles(kinds)),
        };
    }
    let scope = match constant(options, "SCOPE")?.as_deref() {
        None | Some("MACHINE") => QuotaScope::Machine,
        Some("CLUSTER") => QuotaScope::Cluster,
        Some(other) => {
            return Err(arguments.error(format_args!("SCOPE '{other}' is neither CLUSTER nor MACHINE")));
        }
    };
    let throttle = parse_throttle(&limit, kind.as_deref().unwrap_or(REQUEST), scope);
    Ok(Change::Set(Quota::Throttle(throttle.map_err(|wrong| arguments.error(wrong))?)))
}

fn space(arguments: &Arguments, options: &mut Map) -> Result<Change, ShellError> {
    let limit = limit(arguments, options)?;
    if limit.eq_ignore_ascii_case(NONE) {
        return Ok(Change::RemoveSpace);
    }
    let policy = constant(options, "POLICY")?.ok_or_else(|| arguments.error("POLICY is missing"))?;
    let policy = SpaceViolationPolicy::from_str_name(&policy)
        .ok_or_else(|| arguments.error(format_args!("there is no POLICY '{policy}'")))?;
    let limit_bytes = parse_size(&limit).map_err(|wrong| arguments.error(wrong))?;
    Ok(Change::Set(Quota::Space { limit_bytes, policy }))
}

/// `10req/sec`, `5M/min`, `2CU/hour`, `100ms/day`; `kind` is `READ` or `READ_SIZE`.
fn parse_throttle(limit: &str, kind: &str, scope: QuotaScope) -> Result<Throttle, String> {
    let syntax = || format!("'{limit}' is no LIMIT like 10req/sec, 5M/min, 2CU/hour or NONE");
    let lower = limit.to_ascii_lowercase();
    let (amount, unit) = lower.split_once('/').ok_or_else(syntax)?;
    let unit = match unit {
        "sec" => TimeUnit::Seconds,
        "min" => TimeUnit::Minutes,
        "hour" => TimeUnit::Hours,
        "day" => TimeUnit::Days,
        _ => return Err(syntax()),
    };
    let (number, counted) = number_and_rest(amount).ok_or_else(syntax)?;
    let (measure, factor) = match counted {
        "req" => ("NUMBER", 1),
        "cu" => ("CAPACITY_UNIT", 1),
        "ms" => ("HANDLER_USAGE_MS", 1),
        "" => return Err(syntax()),
        size => ("SIZE", size_unit(size).ok_or_else(syntax)?),
    };
    let limit = times(number, factor)?;
    let kind = throttle_type(kind, measure)
        .ok_or_else(|| format!("there is no THROTTLE_TYPE '{kind}' with a limit in {counted}"))?;
    Ok(Throttle { kind, limit, unit, scope })
}

/// `1024`, `1K`, `10G`.
fn parse_size(limit: &str) -> Result<u64, String> {
    let syntax = || format!("'{limit}' is no LIMIT like 1024, 10G or NONE");
    let lower = limit.to_ascii_lowercase();
    let (number, unit) = number_and_rest(&lower).ok_or_else(syntax)?;
    times(number, size_unit(unit).ok_or_else(syntax)?)
}

/// Digits and what follows them.
fn number_and_rest(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((digits.parse().ok()?, rest))
}

fn size_unit(letter: &str) -> Option<u64> {
    Some(match letter {
        "" | "b" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        "p" => 1 << 50,
        _ => return None,
    })
}

/// A limit that Java's `long` holds.
fn times(number: u64, factor: u64) -> Result<u64, String> {
    match number.checked_mul(factor).filter(|limit| i64::try_from(*limit).is_ok()) {
        Some(0) => Err("a LIMIT must be greater than 0".to_string()),
        Some(limit) => Ok(limit),
        None => Err("the LIMIT is too large".to_string()),
    }
}

/// `READ` or `READ_SIZE`, for a limit that is measured so.
fn throttle_type(name: &str, measure: &str) -> Option<ThrottleType> {
    let whole = ThrottleType::from_str_name(&format!("{name}_{measure}"));
    whole.or_else(|| ThrottleType::from_str_name(name).filter(|_| name.ends_with(measure)))
}

/// The throttle of a name, or all that begin with it.
fn throttle_types(name: &str) -> Vec<ThrottleType> {
    match ThrottleType::from_str_name(name) {
        Some(kind) => vec![kind],
        None => MEASURES.iter().filter_map(|measure| throttle_type(name, measure)).collect(),
    }
}

async fn list(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let mut options = arguments.options()?;
    let wanted = match constant(&mut options, "TYPE")? {
        None => None,
        Some(kind) if ["THROTTLE", "SPACE", "GLOBAL_BYPASS"].contains(&kind.as_str()) => Some(kind),
        Some(other) => return Err(arguments.error(format_args!("there is no TYPE '{other}'"))),
    };
    let limit = options.take("LIMIT").map(|limit| limit.integer()).transpose()?;
    let filter = QuotaFilter {
        user: text(&mut options, "USER")?,
        table: text(&mut options, "TABLE")?,
        namespace: text(&mut options, "NAMESPACE")?,
    };
    options.finish("list_quotas")?;
    arguments.finish()?;
    let mut quotas = context.admin().await?.quotas(&filter).await?;
    quotas.retain(|(_, quota)| wanted.as_deref().is_none_or(|wanted| type_of(quota) == wanted));
    // as in HBase's shell, a limit of 0 is none
    if let Some(limit) = limit.filter(|limit| *limit > 0) {
        quotas.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    }
    let row =
        |(subject, quota): &(QuotaSubject, Quota)| vec![owner_text(subject), quota_text(subject, quota)];
    let rows: Vec<_> = quotas.iter().map(row).collect();
    Ok(context.printer.table(&["OWNER", "QUOTAS"], &rows)?)
}

fn type_of(quota: &Quota) -> &'static str {
    match quota {
        Quota::Throttle(_) => "THROTTLE",
        Quota::GlobalBypass(_) => "GLOBAL_BYPASS",
        Quota::Space { .. } => "SPACE",
    }
}

/// `USER => bob, TABLE => t`
fn owner_text(subject: &QuotaSubject) -> String {
    let parts = [
        ("USER", subject.user()),
        ("TABLE", subject.table().map(TableName::as_str)),
        ("NAMESPACE", subject.namespace()),
        ("REGIONSERVER", subject.region_server()),
    ];
    let parts: Vec<String> =
        parts.into_iter().filter_map(|(key, name)| Some(format!("{key} => {}", name?))).collect();
    parts.join(", ")
}

/// As HBase's client prints it.
fn quota_text(subject: &QuotaSubject, quota: &Quota) -> String {
    match quota {
        Quota::Throttle(throttle) => format!(
            "TYPE => THROTTLE, THROTTLE_TYPE => {}, LIMIT => {}/{}, SCOPE => {}",
            throttle.kind.as_str_name(),
            amount_text(throttle),
            unit_text(throttle.unit),
            throttle.scope.as_str_name()
        ),
        Quota::GlobalBypass(bypass) => format!("GLOBAL_BYPASS => {bypass}"),
        Quota::Space { limit_bytes, policy } => format!(
            "TYPE => SPACE, {}, LIMIT => {}, VIOLATION_POLICY => {}",
            owner_text(subject),
            size_text(*limit_bytes),
            policy.as_str_name()
        ),
    }
}

fn amount_text(throttle: &Throttle) -> String {
    let limit = throttle.limit;
    match throttle.kind {
        ThrottleType::RequestNumber
        | ThrottleType::WriteNumber
        | ThrottleType::ReadNumber
        | ThrottleType::AtomicRequestNumber => format!("{limit}req"),
        ThrottleType::RequestSize
        | ThrottleType::WriteSize
        | ThrottleType::ReadSize
        | ThrottleType::AtomicReadSize
        | ThrottleType::AtomicWriteSize => size_text(limit),
        ThrottleType::RequestCapacityUnit
        | ThrottleType::ReadCapacityUnit
        | ThrottleType::WriteCapacityUnit => format!("{limit}CU"),
        ThrottleType::RequestHandlerUsageMs => format!("{limit}ms"),
    }
}

/// `1.50K`: two digits, rounded as Java rounds.
fn size_text(bytes: u64) -> String {
    let units = [(50_u32, 'P'), (40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    let (shift, letter) = units.into_iter().find(|(shift, _)| bytes >> *shift > 0).unwrap_or((0, 'B'));
    let unit = 1_u128 << shift;
    let hundredths = (u128::from(bytes) * 100 + unit / 2) / unit;
    format!("{}.{:02}{letter}", hundredths / 100, hundredths % 100)
}

fn unit_text(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Nanoseconds => "nsec",
        TimeUnit::Microseconds => "usec",
        TimeUnit::Milliseconds => "msec",
        TimeUnit::Seconds => "sec",
        TimeUnit::Minutes => "min",
        TimeUnit::Hours => "hour",
        TimeUnit::Days => "day",
    }
}

async fn list_snapshots(context: &mut Context, arguments: &mut Arguments) -> Result<(), ShellError> {
    let mut options = arguments.options()?;
    let table = text(&mut options, "TABLE")?;
    let namespace = text(&mut options, "NAMESPACE")?;
    let server = options.take("REGIONSERVER").map(|server| server_name(&server)).transpose()?;
    options.finish("list_quota_snapshots")?;
    arguments.finish()?;
    let admin = context.admin().await?;
    let uses = match server {
        Some(server) => admin.space_uses_of_server(&server).await?,
        None => admin.space_uses().await?,
    };
    // HBase's shell compares TABLE with the name without the namespace
    let is_wanted = |name: &TableName| {
        table.as_deref().is_none_or(|table| table == name.as_str() || table == name.qualifier())
            && namespace.as_deref().is_none_or(|namespace| namespace == name.namespace())
    };
    let row = |(name, space): &(TableName, SpaceUse)| {
        vec![
            name.to_string(),
            space.used_bytes.to_string(),
            space.limit_bytes.to_string(),
            space.violated.is_some().to_string(),
            space.violated.map_or("None", |policy| policy.as_str_name()).to_string(),
        ]
    };
    let rows: Vec<_> = uses.iter().filter(|(name, _)| is_wanted(name)).map(row).collect();
    Ok(context.printer.table(&["TABLE", "USAGE", "LIMIT", "IN_VIOLATION", "POLICY"], &rows)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn asked_by(options: &str) -> Result<(QuotaSubject, Change), ShellError> {
        let command = parse(&format!("set_quota {options}")).unwrap().remove(0);
        asked(&mut Arguments::new(command))
    }

    fn table() -> QuotaSubject {
        QuotaSubject::Table(TableName::parse(b"t").unwrap())
    }

    fn throttle(kind: ThrottleType, limit: u64, unit: TimeUnit, scope: QuotaScope) -> Throttle {
        Throttle { kind, limit, unit, scope }
    }

    #[test]
    fn throttles_are_understood() {
        let user = || "u".to_string();
        let machine = |kind, limit, unit| {
            Change::Set(Quota::Throttle(throttle(kind, limit, unit, QuotaScope::Machine)))
        };
        let of = |options: &str| asked_by(&format!("TYPE => THROTTLE, {options}")).unwrap();
        assert_eq!(
            of("USER => 'u', LIMIT => '10req/sec'"),
            (QuotaSubject::User(user()), machine(ThrottleType::RequestNumber, 10, TimeUnit::Seconds))
        );
        assert_eq!(
            of("USER => 'u', TABLE => 't', LIMIT => '5M/min', THROTTLE_TYPE => WRITE"),
            (
                QuotaSubject::UserOnTable(user(), TableName::parse(b"t").unwrap()),
                machine(ThrottleType::WriteSize, 5 << 20, TimeUnit::Minutes)
            )
        );
        let clustered = throttle(ThrottleType::ReadCapacityUnit, 2, TimeUnit::Hours, QuotaScope::Cluster);
        assert_eq!(
            of("USER => u, NAMESPACE => n, LIMIT => '2CU/hour', THROTTLE_TYPE => read, SCOPE => CLUSTER"),
            (QuotaSubject::UserOnNamespace(user(), "n".into()), Change::Set(Quota::Throttle(clustered)))
        );
        let atomic = machine(ThrottleType::AtomicWriteSize, 1, TimeUnit::Days);
        let namespace = QuotaSubject::Namespace("ns".to_string());
        assert_eq!(
            of("NAMESPACE => 'ns', LIMIT => '1B/day', THROTTLE_TYPE => ATOMIC_WRITE_SIZE"),
            (namespace, atomic)
        );
        let handlers = machine(ThrottleType::RequestHandlerUsageMs, 100, TimeUnit::Seconds);
        assert_eq!(of("TABLE => 't', LIMIT => '100ms/sec'"), (table(), handlers));
        assert_eq!(
            of("REGIONSERVER => 'all', LIMIT => '3req/sec'").0,
            QuotaSubject::RegionServer("all".to_string())
        );
    }

    #[test]
    fn throttles_are_removed_all_or_some() {
        let of = |options: &str| asked_by(&format!("TYPE => THROTTLE, TABLE => 't', {options}")).unwrap().1;
        assert_eq!(of("LIMIT => NONE"), Change::RemoveAllThrottles);
        let reads = vec![ThrottleType::ReadNumber, ThrottleType::ReadSize, ThrottleType::ReadCapacityUnit];
        assert_eq!(of("LIMIT => 'NONE', THROTTLE_TYPE => READ"), Change::RemoveThrottles(reads));
        let one = vec![ThrottleType::WriteSize];
        assert_eq!(of("LIMIT => NONE, THROTTLE_TYPE => WRITE_SIZE"), Change::RemoveThrottles(one));
    }

    #[test]
    fn space_and_bypasses_are_understood() {
        let set = |limit_bytes, policy| Change::Set(Quota::Space { limit_bytes, policy });
        assert_eq!(
            asked_by("TYPE => SPACE, TABLE => 't', LIMIT => '1G', POLICY => NO_INSERTS").unwrap(),
            (table(), set(1 << 30, SpaceViolationPolicy::NoInserts))
        );
        let (subject, change) =
            asked_by("TYPE => SPACE, NAMESPACE => 'ns', LIMIT => 1024, POLICY => 'DISABLE'").unwrap();
        assert_eq!(subject, QuotaSubject::Namespace("ns".to_string()));
        assert_eq!(change, set(1024, SpaceViolationPolicy::Disable));
        let (_, change) = asked_by("TYPE => SPACE, TABLE => 't', LIMIT => NONE").unwrap();
        assert_eq!(change, Change::RemoveSpace);
        let (subject, change) = asked_by("USER => 'u', GLOBAL_BYPASS => true").unwrap();
        assert_eq!(subject, QuotaSubject::User("u".to_string()));
        assert_eq!(change, Change::Set(Quota::GlobalBypass(true)));
    }

    #[test]
    fn nonsense_is_refused() {
        for options in [
            "USER => 'u'",
            "TYPE => NONSENSE, USER => 'u', LIMIT => '1req/sec'",
            "TYPE => THROTTLE, USER => 'u'",
            "TYPE => THROTTLE, LIMIT => '1req/sec'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => 'req/sec'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '1/sec'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '1req/month'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '1X/sec'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '0req/sec'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '-1req/sec'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '8192P/sec'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '99999999999999999999req/sec'",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '1req/sec', THROTTLE_TYPE => ATOMIC_READ",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '1req/sec', THROTTLE_TYPE => READ_SIZE",
            "TYPE => THROTTLE, USER => 'u', LIMIT => NONE, THROTTLE_TYPE => NONSENSE",
            "TYPE => THROTTLE, USER => 'u', LIMIT => NONE, SCOPE => CLUSTER",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '1req/sec', SCOPE => NONSENSE",
            "TYPE => THROTTLE, USER => 'u', LIMIT => '1req/sec', POLICY => NO_WRITES",
            "TYPE => THROTTLE, TABLE => 't', NAMESPACE => 'n', LIMIT => '1req/sec'",
            "TYPE => THROTTLE, REGIONSERVER => 'host,1,1', LIMIT => '1req/sec'",
            "TYPE => THROTTLE, REGIONSERVER => 'all', LIMIT => '1req/sec', SCOPE => CLUSTER",
            "TYPE => SPACE, TABLE => 't', LIMIT => '1G'",
            "TYPE => SPACE, TABLE => 't', POLICY => NO_WRITES",
            "TYPE => SPACE, TABLE => 't', LIMIT => '1G', POLICY => NONSENSE",
            "TYPE => SPACE, TABLE => 't', LIMIT => 0, POLICY => NO_WRITES",
            "TYPE => SPACE, TABLE => 't', LIMIT => '10%', POLICY => NO_WRITES",
            "TYPE => SPACE, USER => 'u', LIMIT => '1G', POLICY => NO_WRITES",
            "TYPE => SPACE, USER => 'u', TABLE => 't', LIMIT => NONE",
            "TABLE => 't', GLOBAL_BYPASS => true",
            "USER => 'u', GLOBAL_BYPASS => 'perhaps'",
            "'u', TYPE => THROTTLE, LIMIT => '1req/sec'",
        ] {
            assert!(matches!(asked_by(options), Err(ShellError::Usage(_))), "{options}");
        }
    }

    #[test]
    fn quotas_are_printed_as_hbase_prints_them() {
        let user = QuotaSubject::UserOnTable("bob".to_string(), TableName::parse(b"ns:t").unwrap());
        assert_eq!(owner_text(&user), "USER => bob, TABLE => ns:t");
        assert_eq!(owner_text(&QuotaSubject::RegionServer("all".to_string())), "REGIONSERVER => all");
        let of = |kind, limit, unit| {
            quota_text(&user, &Quota::Throttle(throttle(kind, limit, unit, QuotaScope::Machine)))
        };
        assert_eq!(
            of(ThrottleType::RequestNumber, 10, TimeUnit::Seconds),
            "TYPE => THROTTLE, THROTTLE_TYPE => REQUEST_NUMBER, LIMIT => 10req/sec, SCOPE => MACHINE"
        );
        assert_eq!(
            of(ThrottleType::AtomicWriteSize, 9, TimeUnit::Hours),
            "TYPE => THROTTLE, THROTTLE_TYPE => ATOMIC_WRITE_SIZE, LIMIT => 9.00B/hour, SCOPE => MACHINE"
        );
        assert!(of(ThrottleType::ReadCapacityUnit, 8, TimeUnit::Days).contains("LIMIT => 8CU/day"));
        let namespace = QuotaSubject::Namespace("ns".to_string());
        let space = Quota::Space { limit_bytes: 1 << 30, policy: SpaceViolationPolicy::NoInserts };
        assert_eq!(
            quota_text(&namespace, &space),
            "TYPE => SPACE, NAMESPACE => ns, LIMIT => 1.00G, VIOLATION_POLICY => NO_INSERTS"
        );
        assert_eq!(quota_text(&user, &Quota::GlobalBypass(true)), "GLOBAL_BYPASS => true");
    }

    #[test]
    fn sizes_have_two_digits() {
        let expected = [
            (0, "0.00B"),
            (1023, "1023.00B"),
            (1024, "1.00K"),
            (1152, "1.13K"),
            (1536, "1.50K"),
            (10 << 20, "10.00M"),
            (1 << 40, "1.00T"),
            (i64::MAX as u64, "8192.00P"),
        ];
        for (bytes, text) in expected {
            assert_eq!(size_text(bytes), text);
        }
        assert_eq!(parse_size("3t").unwrap(), 3 << 40);
    }
}
