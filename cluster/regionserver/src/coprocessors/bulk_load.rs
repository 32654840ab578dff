//! The hooks of bulk loads (`SecureBulkLoadManager.secureBulkLoadHFiles`).

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use halcyon_proto::coprocessor::{Frame, Method, Property};
use halcyon_proto::pb::bulk_load_h_file_request::FamilyPath;
use halcyon_rpc::RpcError;

use super::frames;
use super::hooks::Hooks;
use super::operation::Operation;
use crate::RegionServer;
use crate::regions::region_table::OnlineRegion;

/// Runs `preBulkLoadHFile`, and returns the files that are to be loaded then. *Blocking*.
pub(crate) fn before_bulk_load(
    server: &RegionServer,
    online: &Arc<OnlineRegion>,
    files: &[FamilyPath],
) -> Result<Vec<FamilyPath>, RpcError> {
    let Some(answer) = call(server, online, files, None)? else { return Ok(files.to_vec()) };
    let file = |property: Property| FamilyPath { family: family_of(&property.name), path: property.value };
    Ok(answer.property.into_iter().map(file).collect())
}

/// Runs `postBulkLoadHFile`. `loaded`: family and path of each file of the store. *Blocking*.
pub(crate) fn after_bulk_load(
    server: &RegionServer,
    online: &Arc<OnlineRegion>,
    files: &[FamilyPath],
    loaded: &[(String, PathBuf)],
) -> Result<(), RpcError> {
    call(server, online, files, Some(loaded)).map(drop)
}

/// `None`: no class overrides these hooks.
fn call(
    server: &RegionServer,
    online: &Arc<OnlineRegion>,
    files: &[FamilyPath],
    loaded: Option<&[(String, PathBuf)]>,
) -> Result<Option<Frame>, RpcError> {
    let (true, Some(coprocessors)) = (online.is_hosted(), &online.coprocessors) else { return Ok(None) };
    let server = server.coprocessors.jvm.server();
    let server = server.ok_or_else(|| RpcError::io("the server of the coprocessors is going down"))?;
    let mut operation = Operation::begin(&server, online, None)?;
    if !operation.hooks(coprocessors)?.any(Hooks::BULK_LOAD) {
        return Ok(None);
    }
    let asked = files.iter().map(|file| Property { name: text_of(&file.family), value: file.path.clone() });
    let of_store = loaded.into_iter().flatten().map(|(family, path)| Property {
        name: text_of(family.as_bytes()),
        value: path.to_string_lossy().into_owned(),
    });
    let frame = Frame {
        flag: Some(loaded.is_some()),
        count: Some(files.len() as u64),
        property: asked.chain(of_store).collect(),
        ..frames::call(Method::BulkLoad, coprocessors.number)
    };
    operation.call(frame).map(Some)
}

/// A family's name may be any bytes: a character for each.
fn text_of(family: &[u8]) -> String {
    family.iter().map(|&byte| char::from(byte)).collect()
}

fn family_of(text: &str) -> Bytes {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_of_a_family_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(family_of(&text_of(&all)), all);
    }
}
