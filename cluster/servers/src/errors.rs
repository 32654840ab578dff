//! Exceptions of region servers as errors, sorted by what the master should do.

use halcyon_cell::{Error, ErrorKind};
use halcyon_client::ClientError;
use halcyon_contract::remote_procedures::IS_CLOSING;
use halcyon_proto::pb;
use halcyon_rpc::ExceptionClass;
use halcyon_schema::{RegionInfo, ServerName};

/// The answer to a report of a dead server, which ends by it.
pub(crate) const YOU_ARE_DEAD: ExceptionClass = of_start("org.apache.hadoop.hbase.YouAreDeadException");
/// The answer to a server whose clock differs by too much, which ends by it.
pub(crate) const CLOCK_OUT_OF_SYNC: ExceptionClass =
    of_start("org.apache.hadoop.hbase.ClockOutOfSyncException");

const NOT_SERVING: &str = "NotServingRegionException";
const MOVED: &str = "RegionMovedException";

/// Text of an exception that is kept and logged.
const TEXT_BYTES_MAX: usize = 2_000;

const fn of_start(name: &'static str) -> ExceptionClass {
    ExceptionClass { name, do_not_retry: false, server_overloaded: false }
}

/// The error of a call that failed.
pub(crate) fn of_call(server: &ServerName, what: &str, error: &ClientError) -> Error {
    let kind = match error.remote() {
        Some(exception) => kind_of(exception.simple_class(), exception.do_not_retry),
        None => ErrorKind::Io,
    };
    Error::new(kind, format!("{what} at {server}: {}", shortened(&text_of(error))))
}

/// The error of one action of a batch. The class says whether to repeat it.
pub(crate) fn of_pair(server: &ServerName, what: &str, exception: &pb::NameBytesPair) -> Error {
    let class = exception.name.rsplit('.').next().unwrap_or(&exception.name);
    let text = exception.value.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let kind = kind_of(class, class == "DoNotRetryIOException");
    Error::new(kind, shortened(&format!("{what} at {server}: {class}: {line}")))
}

/// How a remote procedure failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// Of the exception that the server has answered with, with its package. `None`: the server has not answered.
    pub(crate) class: Option<String>,
}

impl Failure {
    /// Whether the server has answered with this exception.
    pub(crate) fn is(&self, class: &str) -> bool {
        self.class.as_deref() == Some(class)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, class: None }
    }
}

/// What a remote procedure ended with.
pub(crate) fn of_procedure(server: &ServerName, error: Option<&pb::ForeignExceptionMessage>) -> Failure {
    let exception = error.and_then(|error| error.generic_exception.as_ref());
    let class = exception.and_then(|exception| exception.class_name.as_deref()).unwrap_or("an exception");
    let message = exception.and_then(|exception| exception.message.as_deref()).unwrap_or_default();
    let simple = class.rsplit('.').next().unwrap_or(class);
    let kind = kind_of(simple, simple == "DoNotRetryIOException");
    let error = Error::new(kind, shortened(&format!("{server}: {class}: {message}")));
    Failure { error, class: Some(shortened(class)) }
}

/// The same error, if the same request may succeed later or elsewhere.
pub(crate) fn not_permanent(error: Error) -> Error {
    match error.kind().is_permanent() {
        true => Error::new(ErrorKind::Busy, error.message()),
        false => error,
    }
}

/// Whether a call says that this region is not open there and is not on its way to be closed. What is said of another region does
/// not count.
pub(crate) fn is_not_serving(error: &ClientError, region: &RegionInfo) -> bool {
    let Some(exception) = error.remote() else { return false };
    let message = exception.message();
    exception.simple_class() == NOT_SERVING && !message.contains(IS_CLOSING) && names(message, region)
}

/// Whether a call says that a region is open elsewhere. The text does not say which region.
pub(crate) fn has_moved(error: &ClientError) -> bool {
    error.remote().is_some_and(|exception| exception.simple_class() == MOVED)
}

/// Whether a text is of this region. Names of regions end with the encoded name, except those of hbase:meta, with which the text begins
/// (HBase: `HRegionServer.getRegionByEncodedName`).
fn names(message: &str, region: &RegionInfo) -> bool {
    let encoded = region.encoded_name();
    let first = message.split(' ').next().unwrap_or_default();
    first.as_bytes() == &region.region_name()[..]
        || first == encoded
        || message.contains(&format!(".{encoded}."))
}

/// Whether a server refused a request for what it says, so that it would refuse it again.
pub(crate) fn is_refusal(error: &ClientError) -> bool {
    error.remote().is_some_and(|exception| exception.do_not_retry && !exception.server_overloaded)
}

/// The first line of what a server or the network said.
pub(crate) fn text_of(error: &ClientError) -> String {
    match error.remote() {
        Some(exception) => format!("{}: {}", exception.simple_class(), exception.message()),
        None => error.to_string(),
    }
}

/// A text of another process, cut to a length that fits a log.
pub(crate) fn shortened(text: &str) -> String {
    if text.len() <= TEXT_BYTES_MAX {
        return text.to_string();
    }
    let end = (0..=TEXT_BYTES_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}...", &text[..end])
}

pub(crate) fn not_online(server: &ServerName) -> Error {
    Error::new(ErrorKind::Moved, format!("region server {server} is not online"))
}

fn is_moved(simple_class: &str) -> bool {
    matches!(simple_class, NOT_SERVING | MOVED)
}

fn kind_of(simple_class: &str, do_not_retry: bool) -> ErrorKind {
    match simple_class {
        class if is_moved(class) => ErrorKind::Moved,
        "WrongRegionException" => ErrorKind::RowOutOfRange,
        "RegionServerStoppedException" | "RegionServerAbortedException" => ErrorKind::Stopping,
        "RegionOpeningException"
        | "RegionTooBusyException"
        | "CallQueueTooBigException"
        | "CallDroppedException"
        | "ServerNotRunningYetException" => ErrorKind::Busy,
        "UnknownScannerException"
        | "ScannerResetException"
        | "OutOfOrderScannerNextException"
        | "LeaseException" => ErrorKind::Expired,
        "NoSuchColumnFamilyException" => ErrorKind::NoSuchFamily,
        "CorruptHFileException" => ErrorKind::Corrupt,
        _ if do_not_retry => ErrorKind::Invalid,
        _ => ErrorKind::Io,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use halcyon_client::RemoteException;
    use halcyon_schema::TableName;

    use super::*;

    fn remote(class: &str, message: &str, do_not_retry: bool) -> ClientError {
        let class = format!("org.apache.hadoop.hbase.{class}");
        let trace = format!("{class}: {message}\n\tat a.b(c)");
        ClientError::Remote(Box::new(RemoteException {
            class,
            trace,
            do_not_retry,
            server_overloaded: false,
        }))
    }

    #[test]
    fn exceptions_become_kinds() {
        let server = ServerName::new("h", 1, 2);
        for (class, do_not_retry, kind) in [
            ("NotServingRegionException", false, ErrorKind::Moved),
            ("exceptions.RegionMovedException", false, ErrorKind::Moved),
            ("exceptions.RegionOpeningException", false, ErrorKind::Busy),
            ("UnknownScannerException", true, ErrorKind::Expired),
            ("DoNotRetryIOException", true, ErrorKind::Invalid),
            ("io.hfile.CorruptHFileException", true, ErrorKind::Corrupt),
            ("SomethingNewException", false, ErrorKind::Io),
        ] {
            let error = of_call(&server, "a call", &remote(class, "why", do_not_retry));
            assert_eq!(error.kind(), kind, "{class}");
            assert!(error.message().ends_with(": why"), "{}", error.message());
        }
        assert_eq!(of_call(&server, "a call", &ClientError::Closed).kind(), ErrorKind::Io);
        assert_eq!(not_permanent(Error::invalid("x")).kind(), ErrorKind::Busy);
        assert_eq!(of_procedure(&server, None).error.kind(), ErrorKind::Io);
    }

    fn region(start: &'static str) -> RegionInfo {
        RegionInfo::new(TableName::parse(b"t").unwrap(), start.into(), Bytes::new(), 3)
    }

    #[test]
    fn a_region_that_is_closing_is_not_closed() {
        let region = region("a");
        let of = |class: &str, what: &str| remote(class, &format!("{region} {what}"), false);
        assert!(is_not_serving(&of("NotServingRegionException", "is not online on h,1,2"), &region));
        assert!(!is_not_serving(&of("NotServingRegionException", "is closing"), &region));
        assert!(!is_not_serving(&of("exceptions.RegionOpeningException", "is opening"), &region));
        assert!(!is_not_serving(&ClientError::Closed, &region));
    }

    #[test]
    fn what_is_said_of_another_region_is_not_of_this_one() {
        let (meta, replica) = (RegionInfo::meta(), RegionInfo::meta().replica(1));
        let regions = [region("a"), region("b"), region("a").replica(1), region("a b"), meta, replica];
        for said_of in &regions {
            let name = String::from_utf8(said_of.region_name().to_vec()).unwrap();
            let said = remote("NotServingRegionException", &format!("{name} is not online on h,1,2"), false);
            for region in &regions {
                assert_eq!(is_not_serving(&said, region), said_of == region, "{said_of} {region}");
            }
            let encoded = said_of.encoded_name();
            let said =
                remote("NotServingRegionException", &format!("{encoded} is not online on h,1,2"), false);
            assert!(is_not_serving(&said, said_of));
        }
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let text = "é".repeat(TEXT_BYTES_MAX);
        let cut = shortened(&format!("a{text}"));
        assert!(cut.len() <= TEXT_BYTES_MAX + 3 && cut.ends_with("é..."));
    }
}
