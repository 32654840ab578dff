//! What stands before the first call: six bytes, then the connection header.

use bytes::Bytes;
use halcyon_proto::pb;
use prost::Message;

use crate::{Codec, Compressor, RpcError, exceptions};

/// The attribute of a connection header in which a master of Halcyon tells its epoch, as decimal text. HBase's servers
/// ignore attributes that they do not know.
pub const MASTER_EPOCH: &str = "halcyon.master.epoch";

pub(crate) const PREAMBLE_LEN: usize = 6;
/// A connection header longer than this is not believed.
pub(crate) const CONNECTION_HEADER_BYTES_MAX: usize = 64 << 10;
/// SASL status 0 and the length -88: go on without SASL.
pub(crate) const SWITCH_TO_SIMPLE: [u8; 8] = [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xa8];

const MAGIC: &[u8; 4] = b"HBas";
const VERSION: u8 = 0;
const AUTH_SIMPLE: u8 = 0x50;
const AUTH_KERBEROS: u8 = 0x51;
const AUTH_DIGEST: u8 = 0x52;

/// What the first six bytes ask for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Preamble {
    /// Go on with the connection header.
    Simple,
    /// A secured client: offer it to go on without.
    Sasl,
    /// "Regist": tell the cluster id and close.
    ClusterId,
    /// "Securi": say that there is no principal; another preamble follows.
    Principal,
    /// Answer this and close.
    Refused(RpcError),
}

impl Preamble {
    pub fn of(bytes: [u8; PREAMBLE_LEN]) -> Preamble {
        match &bytes {
            b"Regist" => return Preamble::ClusterId,
            b"Securi" => return Preamble::Principal,
            _ => {}
        }
        if bytes[..4] != MAGIC[..] {
            // Newer clients take exactly this class and beginning for "the server is older than me".
            let text = format!("Expected HEADER=HBas but received HEADER={}", printable(&bytes[..4]));
            return Preamble::Refused(RpcError::new(&exceptions::FATAL_CONNECTION, text));
        }
        if bytes[4] != VERSION {
            let text =
                format!("serverVersion={VERSION}, clientVersion={}, authMethod={}", bytes[4], bytes[5]);
            return Preamble::Refused(RpcError::new(&exceptions::WRONG_VERSION, text));
        }
        match bytes[5] {
            AUTH_SIMPLE => Preamble::Simple,
            AUTH_KERBEROS | AUTH_DIGEST => Preamble::Sasl,
            auth => {
                let text = format!("serverVersion={VERSION}, clientVersion={VERSION}, authMethod={auth}");
                Preamble::Refused(RpcError::new(&exceptions::BAD_AUTH, text))
            }
        }
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| byte.escape_ascii().to_string()).collect()
}

/// A connection header that was understood.
#[derive(Debug)]
pub(crate) struct Header {
    pub service: String,
    pub user: Option<String>,
    pub client_version: Option<(u32, u32)>,
    pub master_epoch: Option<u64>,
    pub codec: Option<Codec>,
    pub compressor: Option<Compressor>,
    pub attributes: Vec<pb::NameBytesPair>,
}

impl Header {
    /// Reads a connection header; the error is a reason to close without an answer, as HBase does.
    pub fn parse(bytes: Bytes) -> Result<Header, String> {
        let header = pb::ConnectionHeader::decode(bytes).map_err(|e| e.to_string())?;
        let codec = match header.cell_block_codec_class.as_deref() {
            None | Some("") => None,
            Some(class) => Some(Codec::of_class(class).ok_or_else(|| format!("unknown codec {class:?}"))?),
        };
        let compressor = match header.cell_block_compressor_class.as_deref() {
            None | Some("") => None,
            Some(class) => {
                Some(Compressor::of_class(class).ok_or_else(|| format!("unknown compressor {class:?}"))?)
            }
        };
        let master_epoch = master_epoch(&header)?;
        Ok(Header {
            service: header.service_name.unwrap_or_default(),
            user: header.user_info.map(|user| user.effective_user),
            client_version: header.version_info.as_ref().map(client_version),
            master_epoch,
            codec,
            compressor,
            attributes: detached(&header.attribute),
        })
    }

    /// What a connection keeps of it, in bytes.
    pub fn kept_bytes(&self) -> usize {
        let of_attribute = |pair: &pb::NameBytesPair| {
            size_of::<pb::NameBytesPair>() + pair.name.len() + pair.value.as_ref().map_or(0, Bytes::len)
        };
        let of_attributes: usize = self.attributes.iter().map(of_attribute).sum();
        of_attributes + self.user.as_ref().map_or(0, String::len)
    }
}

/// The attributes without the buffer that they came in, which is kept for as long as they are.
fn detached(attributes: &[pb::NameBytesPair]) -> Vec<pb::NameBytesPair> {
    let own = |pair: &pb::NameBytesPair| pb::NameBytesPair {
        name: pair.name.clone(),
        value: pair.value.as_deref().map(Bytes::copy_from_slice),
    };
    attributes.iter().map(own).collect()
}

fn master_epoch(header: &pb::ConnectionHeader) -> Result<Option<u64>, String> {
    let Some(attribute) = header.attribute.iter().find(|attribute| attribute.name == MASTER_EPOCH) else {
        return Ok(None);
    };
    let value = attribute.value.as_deref().unwrap_or_default();
    let epoch = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    epoch
        .map(Some)
        .ok_or_else(|| format!("{MASTER_EPOCH} is {:?}, not a number", value.escape_ascii().to_string()))
}

/// Major and minor version: the numbers if they were sent (clients from 1.x on), else read from the text.
fn client_version(info: &pb::VersionInfo) -> (u32, u32) {
    if let Some(major) = info.version_major {
        return (major, info.version_minor.unwrap_or(0));
    }
    let mut numbers = info.version.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preambles() {
        assert_eq!(Preamble::of(*b"HBas\x00\x50"), Preamble::Simple);
        assert_eq!(Preamble::of(*b"HBas\x00\x51"), Preamble::Sasl);
        assert_eq!(Preamble::of(*b"HBas\x00\x52"), Preamble::Sasl);
        assert_eq!(Preamble::of(*b"Regist"), Preamble::ClusterId);
        assert_eq!(Preamble::of(*b"Securi"), Preamble::Principal);
        for (bytes, class, start) in [
            (*b"HBas\x01\x50", exceptions::WRONG_VERSION, "serverVersion=0, clientVersion=1"),
            (*b"HBas\x00\x00", exceptions::BAD_AUTH, "serverVersion=0"),
            (*b"GET / ", exceptions::FATAL_CONNECTION, "Expected HEADER="),
        ] {
            let Preamble::Refused(error) = Preamble::of(bytes) else { panic!("{bytes:?} was taken") };
            assert_eq!(error.class, class.name);
            assert!(error.message.starts_with(start), "{}", error.message);
        }
    }

    #[test]
    fn a_master_tells_its_epoch() {
        let parsed = |name: &str, value: Option<&'static [u8]>| {
            let attribute =
                pb::NameBytesPair { name: name.to_string(), value: value.map(Bytes::from_static) };
            let header = pb::ConnectionHeader { attribute: vec![attribute], ..Default::default() };
            Header::parse(header.encode_to_vec().into()).map(|header| header.master_epoch)
        };
        assert_eq!(parsed(MASTER_EPOCH, Some(b"12")), Ok(Some(12)));
        assert_eq!(parsed("of a client", Some(b"12")), Ok(None));
        for garbage in [None, Some(&b""[..]), Some(b"-1"), Some(b"\xff"), Some(b"99999999999999999999")] {
            assert!(parsed(MASTER_EPOCH, garbage).is_err(), "{garbage:?}");
        }
    }

    /// Ten thousand connections with two megabytes of empty attributes each were in no account.
    #[test]
    fn what_a_connection_keeps_of_its_header() {
        let kept = |header: &pb::ConnectionHeader| {
            Header::parse(header.encode_to_vec().into()).map(|header| header.kept_bytes())
        };
        let attribute =
            |len: usize| pb::NameBytesPair { name: "n".repeat(len), value: Some(vec![b'v'; len].into()) };
        let of_each = size_of::<pb::NameBytesPair>();
        let header = pb::ConnectionHeader { attribute: vec![attribute(0); 1_000], ..Default::default() };
        assert_eq!(kept(&header), Ok(1_000 * of_each));
        let header = pb::ConnectionHeader { attribute: vec![attribute(5)], ..Default::default() };
        assert_eq!(kept(&header), Ok(10 + of_each));
        assert_eq!(kept(&pb::ConnectionHeader::default()), Ok(0));
    }

    #[test]
    fn a_version_is_taken_from_numbers_or_text() {
        let mut info = pb::VersionInfo { version: "2.6.4".to_string(), ..Default::default() };
        assert_eq!(client_version(&info), (2, 6));
        (info.version_major, info.version_minor) = (Some(3), Some(0));
        assert_eq!(client_version(&info), (3, 0));
        info = pb::VersionInfo { version: "x".to_string(), ..Default::default() };
        assert_eq!(client_version(&info), (0, 0));
    }
}
