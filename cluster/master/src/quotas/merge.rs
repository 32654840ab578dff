//! A request to set a quota, and the quota that was there (HBase: `GlobalQuotaSettingsImpl.merge`, `QuotaSettings.buildFromProto`).

use halcyon_contract::{ALL_REGION_SERVERS, QuotaSubject, QuotaTable};
use halcyon_proto::pb;
use halcyon_rpc::RpcError;
use halcyon_schema::TableName;
use pb::ThrottleType;

use super::Answer;
use crate::errors::invalid;

/// HBase throws such exceptions as the cause of another one, whose text then begins with their class.
fn unsupported<T>(text: &str) -> Answer<T> {
    Err(RpcError::do_not_retry(format!("java.lang.UnsupportedOperationException: {text}")))
}

fn illegal<T>(text: &str) -> Answer<T> {
    Err(RpcError::do_not_retry(text))
}

/// Whom a request is about.
pub(super) fn subject(request: &pb::SetQuotaRequest) -> Answer<QuotaSubject> {
    let table = request.table_name.as_ref().map(TableName::from_pb).transpose().map_err(invalid)?;
    let namespace = request.namespace.clone();
    Ok(match (request.user_name.clone(), table, namespace, request.region_server.clone()) {
        (Some(user), Some(table), _, _) => QuotaSubject::UserOnTable(user, table),
        (Some(user), None, Some(namespace), _) => QuotaSubject::UserOnNamespace(user, namespace),
        (Some(user), None, None, _) => QuotaSubject::User(user),
        (None, Some(table), _, _) => QuotaSubject::Table(table),
        (None, None, Some(namespace), _) => QuotaSubject::Namespace(namespace),
        (None, None, None, Some(server)) => QuotaSubject::RegionServer(server),
        (None, None, None, None) => {
            return unsupported("a user, a table, a namespace or region server must be specified");
        }
    })
}

/// The quotas of a subject after a request; `None`: it has none left.
pub(super) fn merge(
    old: Option<&pb::Quotas>,
    request: &pb::SetQuotaRequest,
    subject: &QuotaSubject,
) -> Answer<Option<pb::Quotas>> {
    let mut quotas = old.cloned().unwrap_or_default();
    let limits = (&request.bypass_globals, &request.space_limit, &request.throttle);
    match limits {
        (Some(bypass), None, None) => quotas.bypass_globals = Some(*bypass),
        (None, Some(space), None) => merge_space(&mut quotas, space, subject)?,
        (None, None, Some(throttle)) => merge_throttle(&mut quotas, throttle)?,
        (None, None, None) => return illegal("Unhandled SetRequestQuota state"),
        _ => return illegal("SetQuotaRequest has multiple limits"),
    }
    Ok((quotas != pb::Quotas::default()).then_some(quotas))
}

/// Without a kind all throttles are removed, without a limit that of the kind.
fn merge_throttle(quotas: &mut pb::Quotas, request: &pb::ThrottleRequest) -> Answer<()> {
    if request.r#type.is_none() {
        quotas.throttle = None;
        return Ok(());
    }
    if let Some(limit) = &request.timed_quota {
        if limit.soft_limit() < 1 {
            return unsupported(&format!(
                "The throttle limit must be greater then 0, got {}",
                limit.soft_limit()
            ));
        }
        *limit_of(quotas.throttle.get_or_insert_with(Default::default), request.r#type()) = Some(*limit);
        return Ok(());
    }
    if let Some(throttle) = &mut quotas.throttle {
        *limit_of(throttle, request.r#type()) = None;
    }
    quotas.throttle = quotas.throttle.take().filter(|throttle| *throttle != pb::Throttle::default());
    Ok(())
}

fn limit_of(throttle: &mut pb::Throttle, kind: ThrottleType) -> &mut Option<pb::TimedQuota> {
    match kind {
        ThrottleType::RequestNumber => &mut throttle.req_num,
        ThrottleType::RequestSize => &mut throttle.req_size,
        ThrottleType::WriteNumber => &mut throttle.write_num,
        ThrottleType::WriteSize => &mut throttle.write_size,
        ThrottleType::ReadNumber => &mut throttle.read_num,
        ThrottleType::ReadSize => &mut throttle.read_size,
        ThrottleType::RequestCapacityUnit => &mut throttle.req_capacity_unit,
        ThrottleType::WriteCapacityUnit => &mut throttle.write_capacity_unit,
        ThrottleType::ReadCapacityUnit => &mut throttle.read_capacity_unit,
        ThrottleType::AtomicReadSize => &mut throttle.atomic_read_size,
        ThrottleType::AtomicRequestNumber => &mut throttle.atomic_req_num,
        ThrottleType::AtomicWriteSize => &mut throttle.atomic_write_size,
        ThrottleType::RequestHandlerUsageMs => &mut throttle.req_handler_usage_ms,
    }
}

fn merge_space(
    quotas: &mut pb::Quotas,
    request: &pb::SpaceLimitRequest,
    subject: &QuotaSubject,
) -> Answer<()> {
    if !matches!(subject, QuotaSubject::Table(_) | QuotaSubject::Namespace(_)) {
        return illegal("Can only construct SpaceLimitSettings for a table or namespace.");
    }
    let Some(limit) = &request.quota else {
        return illegal("SpaceLimitRequest is missing the expected SpaceQuota.");
    };
    if limit.remove() {
        quotas.space = None;
        return Ok(());
    }
    if limit.soft_limit.is_none() {
        return illegal("Cannot handle SpaceQuota without a soft limit");
    }
    if limit.violation_policy.is_none() {
        return illegal("Cannot handle SpaceQuota without a violation policy");
    }
    if limit.soft_limit() > i64::MAX as u64 {
        return illegal("Size limit must be a non-negative value.");
    }
    quotas.space = Some(pb::SpaceQuota {
        soft_limit: limit.soft_limit,
        violation_policy: limit.violation_policy,
        remove: None,
    });
    Ok(())
}

/// Users may exceed their throttles only where region servers have some of their own, of reads and of writes, and by the
/// second: what is used beyond that would take too long to come back (`QuotaUtil.checkRSQuotaToEnableExceedThrottle`).
pub(super) fn check_exceeding(table: &QuotaTable) -> Answer<()> {
    let server = QuotaSubject::RegionServer(ALL_REGION_SERVERS.to_string());
    let Some(throttle) = table.quotas.get(&server).and_then(|quotas| quotas.throttle.as_ref()) else {
        return illegal("Please set region server quota before enable exceed throttle quota");
    };
    let either = [&throttle.req_num, &throttle.req_size, &throttle.req_capacity_unit];
    let reads = [&throttle.read_num, &throttle.read_size, &throttle.read_capacity_unit];
    let writes = [&throttle.write_num, &throttle.write_size, &throttle.write_capacity_unit];
    let has = |limits: [&Option<pb::TimedQuota>; 3]| limits.iter().any(|limit| limit.is_some());
    for (kind, limits) in [("read", reads), ("write", writes)] {
        if !has(either) && !has(limits) {
            return illegal(&format!(
                "Please set at least one {kind} region server quota before enable exceed throttle quota"
            ));
        }
    }
    let mut limits = either.into_iter().chain(reads).chain(writes).flatten();
    if limits.any(|limit| limit.time_unit() != pb::TimeUnit::Seconds) {
        return illegal(
            "All region server quota must be in seconds time unit if enable exceed throttle quota",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(limit: u64, unit: pb::TimeUnit) -> pb::TimedQuota {
        pb::TimedQuota { time_unit: unit as i32, soft_limit: Some(limit), ..Default::default() }
    }

    fn throttle(kind: Option<ThrottleType>, limit: Option<u64>) -> pb::SetQuotaRequest {
        let timed_quota = limit.map(|limit| timed(limit, pb::TimeUnit::Seconds));
        let throttle = pb::ThrottleRequest { r#type: kind.map(|kind| kind as i32), timed_quota };
        pb::SetQuotaRequest { throttle: Some(throttle), ..Default::default() }
    }

    fn space(quota: pb::SpaceQuota) -> pb::SetQuotaRequest {
        let space_limit = Some(pb::SpaceLimitRequest { quota: Some(quota) });
        pb::SetQuotaRequest { space_limit, ..Default::default() }
    }

    fn table() -> QuotaSubject {
        QuotaSubject::Table(TableName::parse(b"t").unwrap())
    }

    #[test]
    fn limits_come_one_by_one_and_go_one_by_one() {
        let (reads, writes) = (Some(ThrottleType::ReadNumber), Some(ThrottleType::WriteSize));
        let first = merge(None, &throttle(reads, Some(5)), &table()).unwrap();
        let second = merge(first.as_ref(), &throttle(writes, Some(6)), &table()).unwrap();
        let both = second.as_ref().unwrap().throttle.unwrap();
        assert_eq!((both.read_num.unwrap().soft_limit(), both.write_size.unwrap().soft_limit()), (5, 6));
        let policy = Some(pb::SpaceViolationPolicy::NoInserts as i32);
        let quota = pb::SpaceQuota { soft_limit: Some(7), violation_policy: policy, remove: None };
        let third = merge(second.as_ref(), &space(quota), &table()).unwrap();
        let without = merge(third.as_ref(), &throttle(None, None), &table()).unwrap();
        assert_eq!(without.as_ref().unwrap().space.unwrap().soft_limit(), 7);
        let remove = pb::SpaceQuota { remove: Some(true), ..Default::default() };
        assert_eq!(merge(without.as_ref(), &space(remove), &table()).unwrap(), None);
        let one = merge(second.as_ref(), &throttle(reads, None), &table()).unwrap();
        assert!(one.as_ref().unwrap().throttle.as_ref().unwrap().read_num.is_none());
        assert_eq!(merge(one.as_ref(), &throttle(writes, None), &table()).unwrap(), None);
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        let text = |request: &pb::SetQuotaRequest, subject: &QuotaSubject| {
            merge(None, request, subject).unwrap_err().message
        };
        let kind = Some(ThrottleType::ReadNumber);
        assert!(text(&throttle(kind, Some(0)), &table()).ends_with("greater then 0, got 0"));
        assert!(text(&pb::SetQuotaRequest::default(), &table()).contains("Unhandled"));
        let both = pb::SetQuotaRequest { bypass_globals: Some(true), ..throttle(kind, Some(1)) };
        assert!(text(&both, &table()).contains("multiple limits"));
        assert!(text(&space(pb::SpaceQuota::default()), &table()).contains("soft limit"));
        let no_policy = pb::SpaceQuota { soft_limit: Some(1), ..Default::default() };
        assert!(text(&space(no_policy), &table()).contains("violation policy"));
        assert!(text(&space(no_policy), &QuotaSubject::User("u".to_string())).contains("table or namespace"));
        assert!(subject(&pb::SetQuotaRequest::default()).unwrap_err().message.contains("must be specified"));
    }

    #[test]
    fn limits_may_be_exceeded_only_where_servers_have_some_by_the_second() {
        let with = |throttle: Option<pb::Throttle>| {
            let quotas = pb::Quotas { throttle, ..Default::default() };
            let server = QuotaSubject::RegionServer(ALL_REGION_SERVERS.to_string());
            QuotaTable { quotas: [(server, quotas)].into(), ..QuotaTable::default() }
        };
        let second = || Some(timed(1, pb::TimeUnit::Seconds));
        let refused = |throttle| check_exceeding(&with(throttle)).unwrap_err().message;
        assert!(refused(None).starts_with("Please set region server quota"));
        let reads = pb::Throttle { read_num: second(), ..Default::default() };
        assert!(refused(Some(reads)).contains("one write region server quota"));
        let both = pb::Throttle { write_size: second(), ..reads };
        check_exceeding(&with(Some(both))).unwrap();
        let by_day = pb::Throttle { read_size: Some(timed(1, pb::TimeUnit::Days)), ..both };
        assert!(refused(Some(by_day)).contains("in seconds"));
    }
}
