//! Protobuf messages as bytes: one field is looked at, or the server names in them are replaced, and everything else stays
//! as it was sent, also fields that this program does not know.

use bytes::{BufMut, Bytes, BytesMut};
use halcyon_proto::pb;
use prost::Message;
use prost::encoding::{decode_varint, encode_varint};

/// One field of a message.
pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of a fixed size, or of a group: nobody here looks into it.
    Other,
}

/// The next field: its number, what it holds, and all its bytes. `None` at the end and at bytes that are no field.
pub(crate) fn next_field<'a>(rest: &mut &'a [u8]) -> Option<(u32, Field<'a>, &'a [u8])> {
    let whole = *rest;
    let key = decode_varint(rest).ok()?;
    let number = u32::try_from(key >> 3).ok()?;
    let field = match key & 7 {
        0 => Field::Number(decode_varint(rest).ok()?),
        1 => take(rest, 8).map(|_| Field::Other)?,
        2 => {
            let len = usize::try_from(decode_varint(rest).ok()?).ok()?;
            Field::Bytes(take(rest, len)?)
        }
        5 => take(rest, 4).map(|_| Field::Other)?,
        _ => return None,
    };
    Some((number, field, &whole[..whole.len() - rest.len()]))
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, tail) = rest.split_at_checked(len)?;
    *rest = tail;
    Some(taken)
}

/// The first field of this number that has bytes.
pub(crate) fn bytes_field(message: &[u8], wanted: u32) -> Option<&[u8]> {
    let mut rest = message;
    while let Some((number, field, _)) = next_field(&mut rest) {
        match field {
            Field::Bytes(bytes) if number == wanted => return Some(bytes),
            _ => {}
        }
    }
    None
}

/// The first field of this number that is a number.
pub(crate) fn number_field(message: &[u8], wanted: u32) -> Option<u64> {
    let mut rest = message;
    while let Some((number, field, _)) = next_field(&mut rest) {
        match field {
            Field::Number(value) if number == wanted => return Some(value),
            _ => {}
        }
    }
    None
}

/// Numbers of fields from a message down to a `ServerName`.
pub(crate) type Path = &'static [u32];

/// The message with each `ServerName` at the end of one of the paths replaced by what `change` makes of it. `None` if there
/// is nothing to change, or if the message is none.
pub(crate) fn with_server_names(
    message: &[u8],
    paths: &[Path],
    change: &mut dyn FnMut(&pb::ServerName) -> Option<pb::ServerName>,
) -> Option<Bytes> {
    let mut out = BytesMut::with_capacity(message.len() + 64);
    copy_changed(message, paths, 0, change, &mut out).then(|| out.freeze())
}

/// Whether something was changed. `depth` numbers of the paths are behind.
fn copy_changed(
    message: &[u8],
    paths: &[Path],
    depth: usize,
    change: &mut dyn FnMut(&pb::ServerName) -> Option<pb::ServerName>,
    out: &mut BytesMut,
) -> bool {
    let (mut rest, mut is_changed) = (message, false);
    while !rest.is_empty() {
        let Some((number, field, raw)) = next_field(&mut rest) else { return false };
        let through: Vec<Path> =
            paths.iter().copied().filter(|path| path.get(depth) == Some(&number)).collect();
        let Field::Bytes(inner) = field else {
            out.put_slice(raw);
            continue;
        };
        let ends_here = through.iter().any(|path| path.len() == depth + 1);
        let changed = match ends_here {
            true => pb::ServerName::decode(inner)
                .ok()
                .and_then(|name| change(&name))
                .map(|name| name.encode_to_vec()),
            false if through.is_empty() => None,
            false => {
                let mut below = BytesMut::with_capacity(inner.len() + 16);
                copy_changed(inner, &through, depth + 1, change, &mut below).then(|| below.to_vec())
            }
        };
        match changed {
            Some(changed) => {
                is_changed = true;
                encode_varint(u64::from(number) << 3 | 2, out);
                encode_varint(changed.len() as u64, out);
                out.put_slice(&changed);
            }
            None => out.put_slice(raw),
        }
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(host: &str, port: u32) -> pb::ServerName {
        pb::ServerName { host_name: host.to_string(), port: Some(port), start_code: Some(7) }
    }

    fn moved(name: &pb::ServerName) -> Option<pb::ServerName> {
        Some(pb::ServerName {
            host_name: format!("proxy-of-{}", name.host_name),
            port: Some(1),
            ..name.clone()
        })
    }

    #[test]
    fn names_are_replaced_where_paths_lead() {
        let master = |host| pb::GetMastersResponseEntry { server_name: name(host, 5), is_active: true };
        let message = pb::GetMastersResponse { master_servers: vec![master("a"), master("b")] };
        let changed = with_server_names(&message.encode_to_vec(), &[&[1, 1]], &mut moved).unwrap();
        let changed = pb::GetMastersResponse::decode(changed).unwrap();
        let hosts: Vec<_> =
            changed.master_servers.iter().map(|one| one.server_name.host_name.as_str()).collect();
        assert_eq!(hosts, ["proxy-of-a", "proxy-of-b"]);
        assert!(
            changed.master_servers.iter().all(|one| one.is_active && one.server_name.start_code == Some(7))
        );
        // a name that nobody knows stays, and so does the message
        assert!(with_server_names(&message.encode_to_vec(), &[&[1, 1]], &mut |_| None).is_none());
        assert!(with_server_names(&message.encode_to_vec(), &[&[2, 1]], &mut moved).is_none());
    }

    #[test]
    fn fields_that_nobody_knows_stay() {
        let mut bytes = pb::GetActiveMasterResponse { server_name: Some(name("a", 5)) }.encode_to_vec();
        // number 15 as fixed64, number 14 as bytes, number 13 as a number
        bytes.extend_from_slice(&[15 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8, 14 << 3 | 2, 2, 9, 9, 13 << 3, 4]);
        let tail = bytes[bytes.len() - 15..].to_vec();
        let changed = with_server_names(&bytes, &[&[1]], &mut moved).unwrap();
        assert!(changed.ends_with(&tail));
        let found = pb::GetActiveMasterResponse::decode(changed).unwrap();
        assert_eq!(found.server_name.unwrap().host_name, "proxy-of-a");
        assert_eq!(number_field(&bytes, 13), Some(4));
        assert_eq!(bytes_field(&bytes, 14), Some(&[9, 9][..]));
    }

    #[test]
    fn damage_changes_nothing() {
        let good = pb::GetActiveMasterResponse { server_name: Some(name("a", 5)) }.encode_to_vec();
        for len in 0..good.len() {
            assert!(with_server_names(&good[..len], &[&[1]], &mut moved).is_none(), "{len}");
        }
        assert!(bytes_field(&[0xff; 20], 1).is_none() && number_field(&[8], 1).is_none());
    }
}
