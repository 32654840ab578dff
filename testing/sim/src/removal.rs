//! How the client of HDFS removes a directory (`wire/hdfs/src/names.rs`), request by request.
//!
//! Each request may have been made twice: its first attempt hung, the second one was answered, and the first is carried out when its
//! caller has long gone on. A removal of the name itself would then take the next directory of the name away.

use std::io;
use std::path::{Path, PathBuf};

use halcyon_env::FileSystem;

/// A directory on its way out. Every request may be carried out again at any time.
#[derive(Clone)]
pub(crate) struct Removal {
    path: PathBuf,
    /// A directory that nobody else has the name of.
    own: PathBuf,
}

impl Removal {
    /// `number` is of this removal alone.
    pub(crate) fn of(path: &Path, number: u64) -> Removal {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Removal { path: path.to_path_buf(), own: path.with_file_name(format!(".{name}.{number}.removed")) }
    }

    /// Its attempts have different names, so of one name there is one.
    pub(crate) fn make_own_dir(&self, fs: &dyn FileSystem) -> io::Result<()> {
        fs.create_dir(&self.own)
    }

    pub(crate) fn take_away(&self, fs: &dyn FileSystem) -> io::Result<()> {
        fs.rename(&self.path, &self.own.join(self.path.file_name().unwrap_or_default()))
    }

    pub(crate) fn remove(&self, fs: &dyn FileSystem) -> io::Result<()> {
        fs.remove_dir_all(&self.own)
    }
}

#[cfg(test)]
mod tests {
    use halcyon_env::sim::SimFileSystem;

    use super::*;

    const TABLE: &str = "/hbase/data/default/t";

    fn make_table(fs: &SimFileSystem) {
        fs.create_dir_all(&Path::new(TABLE).join("region")).unwrap();
        fs.put_new(&Path::new(TABLE).join("region/rows"), b"of today").unwrap();
    }

    /// A table is dropped and created again, and then the first attempts of its removal are carried out.
    #[test]
    fn late_attempts_leave_the_next_directory_of_the_name_alone() {
        let fs = SimFileSystem::hdfs(7);
        make_table(&fs);
        let removal = Removal::of(Path::new(TABLE), 1);
        removal
            .make_own_dir(&fs)
            .and_then(|()| removal.take_away(&fs))
            .and_then(|()| removal.remove(&fs))
            .unwrap();
        assert!(!fs.exists(TABLE.as_ref()).unwrap());
        make_table(&fs);
        removal.take_away(&fs).unwrap_err();
        removal.remove(&fs).unwrap_err();
        removal.take_away(&fs).unwrap_err();
        assert_eq!(fs.read(&Path::new(TABLE).join("region/rows")).unwrap(), b"of today");
        assert_eq!(fs.list("/hbase/data/default".as_ref()).unwrap().len(), 1, "and nothing is left behind");
        // That is why it is not the name itself that is removed.
        fs.remove_dir_all(TABLE.as_ref()).unwrap();
        assert!(!fs.exists(TABLE.as_ref()).unwrap(), "a late attempt would have done so");
    }
}
