//! The directory of a family in a region that has none of it: the family is new to the table, and the region is not.
//!
//! A family of the same name may have been deleted. Its directory is in the archive, and its edits may still be in WALs: a file
//! of a WAL stays as long as any region needs it. A replay would bring them back. So a family does not begin with an
//! empty directory. It begins with a file without cells, as a compaction leaves one that drops everything, and that file has
//! the highest sequence id that the region knows. Replay passes over all edits up to it.
//!
//! Directory and file appear with one rename: a directory without the file would be one of a family whose edits are all
//! in WALs.

use std::io;
use std::path::Path;

use halcyon_cell::{CellComparator, Result, SeqId};
use halcyon_env::Env;
use halcyon_hfile::{FileMeta, HFileWriter};
use halcyon_schema::mob::{MOB_FILE_REFS, MobFileRefs};
use halcyon_schema::{FamilyDescriptor, StoreFileTracker, TableDescriptor};

use crate::place::{OpeningDir, random_name};
use crate::store::file_list::{Listed, write_first};
use crate::store::{WrittenBy, writer_options};

/// A family whose directory is to be made.
pub(crate) struct NewFamily<'a> {
    pub env: &'a Env,
    pub table: &'a TableDescriptor,
    pub family: &'a FamilyDescriptor,
    pub tracker: StoreFileTracker,
    pub comparator: CellComparator,
    /// As in the region's settings.
    pub zstd_codec: &'a str,
}

impl NewFamily<'_> {
    /// Makes `dir`, durably. The family has nothing up to `floor`. May be called again after an error.
    pub fn make(&self, place: &OpeningDir, dir: &Path, floor: SeqId) -> Result<()> {
        let (env, is_mob) = (self.env, self.family.is_mob());
        let made = place.dir().join(format!("family-{}", random_name()));
        env.fs.create_dir(&made)?;
        let now_ms = env.clock.now_ms();
        let options = writer_options(
            self.family,
            self.table,
            WrittenBy::Flush,
            self.comparator,
            self.zstd_codec,
            &env.keys,
            now_ms,
        )?;
        let name = random_name();
        let mut writer = HFileWriter::create(env, &made.join(&name), options)?;
        if is_mob {
            writer.append_file_info(MOB_FILE_REFS.as_bytes(), &MobFileRefs::default().encode());
        }
        let written = writer.finish(FileMeta { max_seq_id: Some(floor), ..FileMeta::default() })?;
        if self.tracker.writes_list() {
            write_first(env, &made, vec![Listed { name, len: written.bytes }])?;
        }
        env.fs.sync_dir(&made)?;
        match place.publish_dir(&made, dir) {
            // Files of a bulk load have made it since the region's directory was listed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(env.fs.remove_dir_all(&made)?),
            published => Ok(published?),
        }
    }
}
