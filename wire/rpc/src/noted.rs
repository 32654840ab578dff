//! Calls that a service wants to hear of one by one: slow ones, those with large answers, and traced ones.
//!
//! Every answered call is kept until the socket has taken its answer, and then compared with two numbers
//! ([`Notable`]). Only a call over one of them, or a traced one, is decoded again and told
//! ([`Service::noted`](crate::Service::noted)).
//!
//! ```text
//! received --- thread --- put aside --- wait --- answered --- network --- taken by the socket
//! ```

use bytes::Bytes;
use halcyon_proto::pb;
use prost::Message;

use crate::frame::delimited;
use crate::trace::{CallParts, CallSpan};
use crate::{CallClass, Connection};

/// What is kept of a request that waits or whose answer waits: its head and its message up to this size. More would keep
/// the buffer of the connection from being used again.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Answered calls of one connection that are kept until the socket has taken their answers. Of more, the time until then
/// is not measured.
pub(crate) const UNSENT_MAX: usize = 64;

/// Limits from which on a service is told of single calls. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notable {
    /// Calls that take as long or longer.
    pub time_ns: u64,
    /// Calls whose answers are larger.
    pub response_bytes: u64,
}

impl Notable {
    /// No call is notable.
    pub const NONE: Notable = Notable { time_ns: u64::MAX, response_bytes: u64::MAX };
}

/// A call over a limit of [`Notable`], or a traced one, when the socket has taken its answer.
#[derive(Clone, Copy, Debug)]
pub struct NotedCall<'a> {
    pub connection: &'a Connection,
    pub class: CallClass,
    pub call_id: u32,
    pub method: &'a str,
    /// Encoded parameter message; of a very long one only the beginning.
    pub param: &'a Bytes,
    pub failed: bool,
    /// The whole frame of the answer.
    pub response_bytes: u64,
    /// From the moment when the request was here until the network thread had answered it or put it aside.
    pub thread_ns: u64,
    /// Until it was answered: for the disk, the WAL or memory.
    pub waited_ns: u64,
    /// Until the socket had taken the answer.
    pub network_ns: u64,
    /// The service's answer becomes spans.
    pub is_traced: bool,
    /// Of a traced call that was put aside: how long [`Service::batch_done`](crate::Service::batch_done) took after it.
    /// A part of `thread_ns`.
    pub batch_ns: u64,
}

impl NotedCall<'_> {
    pub fn took_ns(&self) -> u64 {
        self.thread_ns + self.waited_ns + self.network_ns
    }
}

/// A call whose answer was given to the output.
pub(crate) struct GivenCall {
    /// Header and message of the request; it may be cut off.
    pub head: Bytes,
    pub class: CallClass,
    pub failed: bool,
    pub received_ns: u64,
    /// 0: it was answered at once.
    pub aside_ns: u64,
    /// 0: not known yet.
    pub answered_ns: u64,
    pub response_bytes: u64,
    /// Where its answer ends in all bytes of the output.
    pub end: u64,
    /// Of a traced call.
    pub span: Option<Box<CallSpan>>,
}

/// A copy of a request's head, to be kept for longer than a turn.
pub(crate) fn detached(head: &Bytes) -> Bytes {
    Bytes::copy_from_slice(&head[..head.len().min(HEAD_BYTES_MAX)])
}

impl GivenCall {
    pub fn is_over(&self, notable: &Notable, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.received_ns) >= notable.time_ns
            || self.response_bytes > notable.response_bytes
    }

    /// Decodes the request again and passes it on. Ends its span, if it has one, with what it is told of the call.
    pub fn tell(
        &mut self,
        connection: &Connection,
        service_name: &str,
        now_ns: u64,
        told: impl FnOnce(&NotedCall<'_>) -> CallParts,
    ) {
        let Some((header, param)) = parts(&self.head) else { return };
        let aside_ns = if self.aside_ns == 0 { self.answered_ns } else { self.aside_ns };
        let thread_ns = aside_ns.saturating_sub(self.received_ns);
        let call = NotedCall {
            connection,
            class: self.class,
            call_id: header.call_id.unwrap_or_default(),
            method: header.method_name.as_deref().unwrap_or_default(),
            param: &param,
            failed: self.failed,
            response_bytes: self.response_bytes,
            thread_ns,
            waited_ns: self.answered_ns.saturating_sub(aside_ns),
            network_ns: now_ns.saturating_sub(self.answered_ns),
            is_traced: self.span.is_some(),
            batch_ns: self.span.as_ref().map_or(0, |span| span.batch_ns.min(thread_ns)),
        };
        let parts = told(&call);
        if let Some(span) = self.span.take() {
            span.end(&call, service_name, parts);
        }
    }
}

/// Header and message of a head that may be cut off. `None` if not even the header is whole.
fn parts(head: &Bytes) -> Option<(pb::RequestHeader, Bytes)> {
    let range = delimited(head, 0).ok()?;
    let header = pb::RequestHeader::decode(&head[range.clone()]).ok()?;
    let mut rest = head.slice(range.end..);
    if !header.request_param.unwrap_or(false) {
        return Some((header, Bytes::new()));
    }
    let len = prost::encoding::decode_varint(&mut rest).ok()?;
    let len = usize::try_from(len).map_or(rest.len(), |len| len.min(rest.len()));
    Some((header, rest.slice(..len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(method: &str, param: &[u8]) -> Bytes {
        let header = pb::RequestHeader {
            call_id: Some(7),
            method_name: Some(method.to_string()),
            request_param: Some(true),
            ..Default::default()
        };
        let mut head = header.encode_length_delimited_to_vec();
        prost::encoding::encode_varint(param.len() as u64, &mut head);
        head.extend_from_slice(param);
        head.into()
    }

    fn given(head: Bytes) -> GivenCall {
        GivenCall {
            head,
            class: CallClass::Read,
            failed: false,
            received_ns: 100,
            aside_ns: 130,
            answered_ns: 200,
            response_bytes: 50,
            end: 50,
            span: None,
        }
    }

    #[test]
    fn the_parts_of_the_time_are_the_whole() {
        let connection = Connection::new(1, "a:1");
        let mut seen = Vec::new();
        let mut tell = |mut call: GivenCall| {
            call.tell(&connection, "ClientService", 260, |noted| {
                seen.push((noted.thread_ns, noted.waited_ns, noted.network_ns));
                assert_eq!((noted.took_ns(), noted.call_id, noted.method), (160, 7, "Get"));
                assert_eq!(noted.param, &b"message"[..]);
                CallParts::default()
            });
        };
        tell(given(head("Get", b"message")));
        tell(GivenCall { aside_ns: 0, ..given(head("Get", b"message")) });
        assert_eq!(seen, [(30, 70, 60), (100, 0, 60)]);
        let over =
            |time_ns, response_bytes| given(Bytes::new()).is_over(&Notable { time_ns, response_bytes }, 260);
        assert!(over(160, u64::MAX) && !over(161, u64::MAX));
        assert!(over(u64::MAX, 49) && !over(u64::MAX, 50));
    }

    #[test]
    fn a_head_may_be_cut_off_anywhere() {
        let whole = head("Multi", &vec![b'x'; 2 * HEAD_BYTES_MAX]);
        let kept = detached(&whole);
        assert_eq!(kept.len(), HEAD_BYTES_MAX);
        let (header, param) = parts(&kept).expect("the header is whole");
        assert_eq!(header.method_name(), "Multi");
        assert!(param.len() > HEAD_BYTES_MAX - 100 && param.iter().all(|byte| *byte == b'x'));
        for end in 0..40 {
            let _ = parts(&whole.slice(..end));
        }
    }
}
