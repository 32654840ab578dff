//! One request of an open session and its reply.

use bytes::{BufMut, BytesMut};

use crate::jute::{Malformed, Reader, Writer};
use crate::tree::is_path;
use crate::{Stat, ZnodeTree};

/// What to do after the reply was written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Continue,
    Close,
}

/// Error codes of `KeeperException.Code`.
mod code {
    pub const OK: i32 = 0;
    pub const UNIMPLEMENTED: i32 = -6;
    pub const BAD_ARGUMENTS: i32 = -8;
    pub const NO_NODE: i32 = -101;
    pub const NODE_EXISTS: i32 = -110;
    pub const NOT_READ_ONLY: i32 = -119;
}

/// Request types of `ZooDefs.OpCode`.
mod op {
    pub const CREATE: i32 = 1;
    pub const DELETE: i32 = 2;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_ACL: i32 = 6;
    pub const SET_ACL: i32 = 7;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const PING: i32 = 11;
    pub const GET_CHILDREN2: i32 = 12;
    pub const CHECK: i32 = 13;
    pub const MULTI: i32 = 14;
    pub const CREATE2: i32 = 15;
    pub const RECONFIG: i32 = 16;
    pub const CHECK_WATCHES: i32 = 17;
    pub const REMOVE_WATCHES: i32 = 18;
    pub const CREATE_CONTAINER: i32 = 19;
    pub const DELETE_CONTAINER: i32 = 20;
    pub const CREATE_TTL: i32 = 21;
    pub const AUTH: i32 = 100;
    pub const SET_WATCHES: i32 = 101;
    pub const SET_WATCHES2: i32 = 105;
    pub const CLOSE_SESSION: i32 = -11;
}

/// Everybody may read.
const PERMISSION_READ: i32 = 1;

/// Appends the reply to one request frame. The error: these are not even a header, close.
pub(crate) fn answer(frame: &[u8], tree: &ZnodeTree, out: &mut BytesMut) -> Result<Next, Malformed> {
    let mut body = Reader::new(frame);
    let (xid, op) = (body.int()?, body.int()?);

    let start = out.len();
    out.put_i32(0); // the length, known at the end
    out.put_i32(xid);
    out.put_i64(tree.zxid());
    let error_at = out.len();
    out.put_i32(code::OK);
    let body_at = out.len();
    let error = match answer_body(op, &mut body, tree, out) {
        Ok(()) => code::OK,
        Err(error) => {
            out.truncate(body_at);
            error
        }
    };
    out[error_at..body_at].copy_from_slice(&error.to_be_bytes());
    let len = u32::try_from(out.len() - start - 4).expect("a reply is shorter than 4 GiB");
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    Ok(if op == op::CLOSE_SESSION { Next::Close } else { Next::Continue })
}

/// Appends what follows the reply header, or says which error the header is to carry.
fn answer_body(op: i32, body: &mut Reader<'_>, tree: &ZnodeTree, out: &mut BytesMut) -> Result<(), i32> {
    match op {
        op::PING | op::CLOSE_SESSION | op::AUTH | op::SET_WATCHES | op::SET_WATCHES2 => Ok(()),
        // Nothing here ever fires a watch: what a client finds stays true for as long as it can ask.
        op::CHECK_WATCHES | op::REMOVE_WATCHES => Ok(()),
        op::EXISTS => {
            let stat = found(tree.stat(path(body)?))?;
            out.put_stat(&stat);
            Ok(())
        }
        op::GET_DATA => {
            let (data, stat) = found(tree.get(path(body)?))?;
            out.put_buffer(&data);
            out.put_stat(&stat);
            Ok(())
        }
        op::GET_ACL => {
            let stat = found(tree.stat(path(body)?))?;
            put_access_list(out, &stat);
            Ok(())
        }
        op::GET_CHILDREN => {
            let (names, _) = found(tree.children(path(body)?))?;
            out.put_strings(&names);
            Ok(())
        }
        op::GET_CHILDREN2 => {
            let (names, stat) = found(tree.children(path(body)?))?;
            out.put_strings(&names);
            out.put_stat(&stat);
            Ok(())
        }
        op::SYNC => {
            let path = path(body)?;
            out.put_buffer(path.as_bytes());
            Ok(())
        }
        // Tools that make sure of a znode are content when it is there.
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => match tree.stat(path(body)?) {
            Some(_) => Err(code::NODE_EXISTS),
            None => Err(code::NOT_READ_ONLY),
        },
        op::DELETE
        | op::SET_DATA
        | op::SET_ACL
        | op::CHECK
        | op::MULTI
        | op::RECONFIG
        | op::DELETE_CONTAINER => Err(code::NOT_READ_ONLY),
        _ => Err(code::UNIMPLEMENTED),
    }
}

fn path<'a>(body: &mut Reader<'a>) -> Result<&'a str, i32> {
    let path = body.string().map_err(|Malformed| code::BAD_ARGUMENTS)?;
    if is_path(path) { Ok(path) } else { Err(code::BAD_ARGUMENTS) }
}

fn found<T>(znode: Option<T>) -> Result<T, i32> {
    znode.ok_or(code::NO_NODE)
}

fn put_access_list(out: &mut BytesMut, stat: &Stat) {
    out.put_i32(1);
    out.put_i32(PERMISSION_READ);
    out.put_buffer(b"world");
    out.put_buffer(b"anyone");
    out.put_stat(stat);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use halcyon_env::SystemClock;

    use super::*;

    /// Whatever comes is answered by one whole frame, or is no request.
    #[test]
    fn damaged_requests_are_answered_or_refused() {
        let tree = ZnodeTree::new(Arc::new(SystemClock::new()));
        tree.set("/hbase/master", Bytes::from_static(b"data"));
        let mut state = 88_172_645_463_325_252u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for op in (-12..25).chain(98..110) {
            let mut good = BytesMut::new();
            good.put_i32(1);
            good.put_i32(op);
            good.put_buffer(b"/hbase/master");
            good.put_u8(1);
            for _ in 0..2_000 {
                let mut bad = good.to_vec();
                for _ in 0..random() % 3 {
                    let at = (random() % bad.len() as u64) as usize;
                    bad[at] = random() as u8;
                }
                bad.truncate((random() % (2 * bad.len() as u64)) as usize);
                let mut out = BytesMut::new();
                match answer(&bad, &tree, &mut out) {
                    Ok(_) => {
                        let len = u32::from_be_bytes(out[..4].try_into().unwrap()) as usize;
                        assert_eq!(out.len(), 4 + len);
                        assert_eq!(out[4..8], bad[..4], "the reply has the xid of the request");
                    }
                    Err(Malformed) => assert!(bad.len() < 8, "{bad:?}"),
                }
            }
        }
    }
}
