use std::fmt;
use std::path::PathBuf;

use halcyon_cell::{Error, Result};

const ENGINE: &str = "hbase.bucketcache.ioengine";
const SIZE: &str = "hbase.bucketcache.size";
const INDEX_PATH: &str = "hbase.bucketcache.persistent.path";
const WRITERS: &str = "hbase.bucketcache.writer.threads";
const QUEUE: &str = "hbase.bucketcache.writer.queuelength";
const MIB: f64 = (1 << 20) as f64;

/// The file tier of the block cache, by the names that HBase has for its bucket cache.
#[derive(Clone, Debug, PartialEq)]
pub struct FileTierSettings {
    /// Where blocks go that leave memory (`hbase.bucketcache.ioengine`).
    pub engine: Engine,
    /// Bytes of the cache file (`hbase.bucketcache.size`, in MiB as in HBase; no default).
    pub size_bytes: u64,
    /// Where the index of the cache file is kept while the server is down; without it the tier begins empty
    /// (`hbase.bucketcache.persistent.path`).
    pub index_path: Option<PathBuf>,
    /// One thread writes; times the next it says how many blocks may wait for it
    /// (`hbase.bucketcache.writer.threads`).
    pub writers_count: usize,
    /// `hbase.bucketcache.writer.queuelength`
    pub queue_len: usize,
}

/// Values of `hbase.bucketcache.ioengine`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// No second tier.
    #[default]
    None,
    /// `offheap` or `heap`: HBase's ways to have more memory than its collector can bear. Memory is one tier here.
    Memory(&'static str),
    /// `file:PATH`, or `files:` with one path.
    File(PathBuf),
}

impl Default for FileTierSettings {
    fn default() -> FileTierSettings {
        let engine = Engine::default();
        FileTierSettings { engine, size_bytes: 0, index_path: None, writers_count: 3, queue_len: 64 }
    }
}

impl FileTierSettings {
    /// Blocks that may wait to be written.
    pub fn queue_blocks_max(&self) -> usize {
        self.writers_count.saturating_mul(self.queue_len).max(1)
    }

    /// Sets one by its property name; `Ok(false)` if no setting has that name.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        let value = value.trim();
        let count = || value.parse().ok().filter(|count| *count > 0);
        let no_count = || Error::invalid(format!("{name}: {value:?} is not a whole number above 0"));
        match name {
            ENGINE => self.engine = engine(value)?,
            SIZE => self.size_bytes = size_bytes(value)?,
            INDEX_PATH => self.index_path = (!value.is_empty()).then(|| PathBuf::from(value)),
            WRITERS => self.writers_count = count().ok_or_else(no_count)?,
            QUEUE => self.queue_len = count().ok_or_else(no_count)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether the settings make sense together.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.engine {
            Engine::File(path) if self.size_bytes == 0 => Err(Error::invalid(format!(
                "{SIZE}: how many MiB of {} may be used has to be said",
                path.display()
            ))),
            Engine::File(path) if Some(path) == self.index_path.as_ref() => {
                Err(Error::invalid(format!("{INDEX_PATH}: {} is the cache file", path.display())))
            }
            _ => Ok(()),
        }
    }
}

fn engine(value: &str) -> Result<Engine> {
    let refused = |why: &str| Error::invalid(format!("{ENGINE}: {value:?} {why}"));
    match value.split_once(':') {
        None if value.is_empty() => Ok(Engine::None),
        None if value == "offheap" => Ok(Engine::Memory("offheap")),
        None if value == "heap" => Ok(Engine::Memory("heap")),
        Some(("file" | "files", path)) => {
            if path.contains(',') {
                return Err(refused("names several files; the cache uses one, put it on a volume of them"));
            }
            if path.is_empty() {
                return Err(refused("names no file"));
            }
            Ok(Engine::File(PathBuf::from(path)))
        }
        Some(("mmap" | "pmem" | "sharedmem", _)) => {
            Err(refused("is not available: files are not mapped here; say file:PATH"))
        }
        _ => Err(refused("is not known; say file:PATH")),
    }
}

/// MiB, at least one, as HBase wants it (`MemorySizeUtil.getBucketCacheSize`); 0: not said.
fn size_bytes(value: &str) -> Result<u64> {
    let mib = value.parse::<f64>().ok().filter(|mib| mib.is_finite() && (*mib >= 1.0 || *mib == 0.0));
    let told = || Error::invalid(format!("{SIZE}: {value:?} is not a number of MiB, 1 or more"));
    mib.map(|mib| (mib * MIB) as u64).ok_or_else(told)
}

impl fmt::Display for FileTierSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.engine {
            Engine::None => writeln!(f, "{ENGINE} = ")?,
            Engine::Memory(name) => writeln!(f, "{ENGINE} = {name}")?,
            Engine::File(path) => writeln!(f, "{ENGINE} = file:{}", path.display())?,
        }
        writeln!(f, "{SIZE} = {}", self.size_bytes as f64 / MIB)?;
        let index_path = self.index_path.as_deref().unwrap_or("".as_ref());
        writeln!(f, "{INDEX_PATH} = {}", index_path.display())?;
        writeln!(f, "{WRITERS} = {}", self.writers_count)?;
        writeln!(f, "{QUEUE} = {}", self.queue_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_that_are_there_and_those_that_are_not() {
        assert_eq!(engine("file:/ssd/cache").unwrap(), Engine::File("/ssd/cache".into()));
        assert_eq!(engine("files:/ssd/cache").unwrap(), Engine::File("/ssd/cache".into()));
        assert_eq!(engine("offheap").unwrap(), Engine::Memory("offheap"));
        assert_eq!(engine("").unwrap(), Engine::None);
        for value in ["files:/a,/b", "file:", "mmap:/x", "pmem:/x", "sharedmem:/x", "tape", "/ssd/cache"] {
            let told = engine(value).unwrap_err().to_string();
            assert!(told.contains(ENGINE) && told.contains(value), "{told}");
        }
    }

    #[test]
    fn sizes_are_mebibytes() {
        assert_eq!(size_bytes("8192").unwrap(), 8 << 30);
        assert_eq!(size_bytes("1.5").unwrap(), 3 << 19);
        for value in ["0.4", "-1", "much", "NaN", "inf"] {
            assert!(size_bytes(value).unwrap_err().to_string().contains(SIZE), "{value}");
        }
    }

    #[test]
    fn a_file_needs_a_size_and_is_not_its_own_index() {
        let mut settings = FileTierSettings::default();
        settings.check().unwrap();
        settings.set(ENGINE, "file:/x").unwrap();
        assert!(settings.check().unwrap_err().to_string().contains(SIZE));
        settings.set(SIZE, "10").unwrap();
        settings.check().unwrap();
        settings.set(INDEX_PATH, "/x").unwrap();
        assert!(settings.check().unwrap_err().to_string().contains(INDEX_PATH));
        assert!(settings.set(QUEUE, "0").is_err());
    }
}
