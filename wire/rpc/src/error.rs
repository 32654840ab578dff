use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use halcyon_proto::pb;

use crate::Dropped;
use crate::exceptions::{self, ExceptionClass};

/// A call that failed, as the client is to see it: one of HBase's exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// Full Java class name.
    pub class: Cow<'static, str>,
    /// The exception's message. Some clients parse it (`RegionMovedException`, `RpcThrottlingException`).
    pub message: String,
    pub do_not_retry: bool,
    pub server_overloaded: bool,
    /// Where the region went (`RegionMovedException` only).
    pub host_port: Option<(String, u16)>,
    /// The call was not carried out and is not answered.
    pub dropped: Option<Dropped>,
}

impl RpcError {
    /// An exception of a known class with the retry flags of that class.
    pub fn new(class: &ExceptionClass, message: impl Into<String>) -> RpcError {
        RpcError {
            class: Cow::Borrowed(class.name),
            message: message.into(),
            do_not_retry: class.do_not_retry,
            server_overloaded: class.server_overloaded,
            host_port: None,
            dropped: None,
        }
    }

    /// No answer: the call was dropped before it was carried out.
    pub fn dropped(why: Dropped) -> RpcError {
        let text = match why {
            Dropped::Expired => "the client's time was over before the call's turn came",
            Dropped::Abandoned => "the client had gone before the call's turn came",
        };
        RpcError { dropped: Some(why), ..RpcError::new(&exceptions::CALL_TIMEOUT, text) }
    }

    /// As 2.6.4 answers a method that its service does not have; clients test for exactly this text.
    pub fn unknown_method(method: &str) -> RpcError {
        RpcError::do_not_retry(format!("java.lang.UnsupportedOperationException: {method}"))
    }

    /// `RegionMovedException` with the text that clients take the new location from.
    pub fn region_moved(host: &str, port: u16, start_code: u64, open_seq_num: u64) -> RpcError {
        let message = format!(
            "Region moved to: hostname={host} port={port} startCode={start_code}. \
             As of locationSeqNum={open_seq_num}."
        );
        let mut error = RpcError::new(&exceptions::REGION_MOVED, message);
        error.host_port = Some((host.to_string(), port));
        error
    }

    /// The text that Java clients hand to the exception's constructor and gohbase prints: never empty.
    pub fn stack_trace(&self) -> String {
        format!("{}: {}\n\tat halcyon.Server(server)\n", self.class, self.message)
    }

    /// The form a response header carries.
    pub fn to_exception_response(&self) -> pb::ExceptionResponse {
        let (hostname, port) = match &self.host_port {
            Some((host, port)) => (Some(host.clone()), Some(i32::from(*port))),
            None => (None, None),
        };
        pb::ExceptionResponse {
            exception_class_name: Some(self.class.clone().into_owned()),
            stack_trace: Some(self.stack_trace()),
            hostname,
            port,
            do_not_retry: Some(self.do_not_retry),
            server_overloaded: Some(self.server_overloaded),
        }
    }

    /// The form one action of a Multi carries.
    pub fn to_name_bytes_pair(&self) -> pb::NameBytesPair {
        pb::NameBytesPair {
            name: self.class.clone().into_owned(),
            value: Some(Bytes::from(self.stack_trace().into_bytes())),
        }
    }
}

macro_rules! constructors {
    ($($name:ident => $class:ident;)*) => {
        impl RpcError {
            $(
                #[doc = concat!("An exception of class [`exceptions::", stringify!($class), "`].")]
                pub fn $name(message: impl Into<String>) -> RpcError {
                    RpcError::new(&exceptions::$class, message)
                }
            )*
        }
    };
}

constructors! {
    not_serving_region => NOT_SERVING_REGION;
    region_opening => REGION_OPENING;
    wrong_region => WRONG_REGION;
    region_too_busy => REGION_TOO_BUSY;
    call_queue_too_big => CALL_QUEUE_TOO_BIG;
    call_dropped => CALL_DROPPED;
    retry_immediately => RETRY_IMMEDIATELY;
    multi_action_result_too_large => MULTI_ACTION_RESULT_TOO_LARGE;
    region_server_stopped => REGION_SERVER_STOPPED;
    region_server_aborted => REGION_SERVER_ABORTED;
    server_not_running_yet => SERVER_NOT_RUNNING_YET;
    please_hold => PLEASE_HOLD;
    master_not_running => MASTER_NOT_RUNNING;
    timeout_io => TIMEOUT_IO;
    io => IO;
    unknown_scanner => UNKNOWN_SCANNER;
    scanner_reset => SCANNER_RESET;
    out_of_order_scanner_next => OUT_OF_ORDER_SCANNER_NEXT;
    lease => LEASE;
    do_not_retry => DO_NOT_RETRY_IO;
    no_such_column_family => NO_SUCH_COLUMN_FAMILY;
    rpc_throttling => RPC_THROTTLING;
    quota_exceeded => QUOTA_EXCEEDED;
    space_limiting => SPACE_LIMITING;
    failed_sanity_check => FAILED_SANITY_CHECK;
    unknown_protocol => UNKNOWN_PROTOCOL;
    request_too_big => REQUEST_TOO_BIG;
    access_denied => ACCESS_DENIED;
    table_not_found => TABLE_NOT_FOUND;
    table_exists => TABLE_EXISTS;
    table_not_disabled => TABLE_NOT_DISABLED;
    table_not_enabled => TABLE_NOT_ENABLED;
    namespace_exist => NAMESPACE_EXIST;
    namespace_not_found => NAMESPACE_NOT_FOUND;
    invalid_family_operation => INVALID_FAMILY_OPERATION;
    unknown_region => UNKNOWN_REGION;
    merge_region => MERGE_REGION;
    snapshot_creation => SNAPSHOT_CREATION;
    snapshot_exists => SNAPSHOT_EXISTS;
    snapshot_does_not_exist => SNAPSHOT_DOES_NOT_EXIST;
    restore_snapshot => RESTORE_SNAPSHOT;
    corrupted_snapshot => CORRUPTED_SNAPSHOT;
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for RpcError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_named_once_and_only_overload_asks_for_the_long_pause() {
        let mut names: Vec<_> = exceptions::ALL.iter().map(|class| class.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), exceptions::ALL.len());
        for class in exceptions::ALL {
            assert!(
                class.name.starts_with("org.apache.hadoop.hbase.") || class.name == "java.io.IOException"
            );
            assert!(!(class.do_not_retry && class.server_overloaded), "{}", class.name);
        }
    }

    /// `RegionMovedException` finds its parts by the words before them and the blanks and dots behind.
    #[test]
    fn region_moved_can_be_parsed_from_every_form() {
        let error = RpcError::region_moved("h1", 16020, 77, 9);
        let response = error.to_exception_response();
        assert_eq!((response.hostname.as_deref(), response.port), (Some("h1"), Some(16020)));
        let pair = error.to_name_bytes_pair();
        let text = String::from_utf8(pair.value.unwrap().to_vec()).unwrap();
        assert!(text.contains("hostname=h1 port=16020 startCode=77. As of locationSeqNum=9."), "{text}");
        assert_eq!(response.stack_trace.unwrap(), text);
        assert!(text.starts_with("org.apache.hadoop.hbase.exceptions.RegionMovedException: "));
    }

    #[test]
    fn unknown_method_has_the_text_clients_test_for() {
        let error = RpcError::unknown_method("FlushTable");
        assert!(error.do_not_retry);
        assert_eq!(error.message, "java.lang.UnsupportedOperationException: FlushTable");
    }
}
