use std::fmt;
use std::path::PathBuf;

use halcyon_cell::{Error, Result};
use halcyon_settings::Effect::Restart;
use halcyon_settings::{Description, Positive, Section, Setting, settings};

const ENGINE: &str = "hbase.bucketcache.ioengine";
const SIZE: &str = "hbase.bucketcache.size";
const INDEX_PATH: &str = "hbase.bucketcache.persistent.path";
const MIB: f64 = (1 << 20) as f64;

const TITLE: &str = "Memory and cache";

const SETTINGS: &[Section<FileTierSettings>] = &[
    Section { title: TITLE, settings: &[ENGINE_SETTING, SIZE_SETTING, INDEX_PATH_SETTING] },
    Section {
        title: TITLE,
        settings: settings!(FileTierSettings:
            Restart, "hbase.bucketcache.writer.threads", "count", Positive, writers_count,
                "Times the next: blocks that may wait to be written. One thread writes.";
            Restart, "hbase.bucketcache.writer.queuelength", "blocks", Positive, queue_len, "See above.";
        ),
    },
];

const ENGINE_SETTING: Setting<FileTierSettings> = Setting {
    name: ENGINE,
    unit: "engine",
    effect: Restart,
    text: "`file:PATH`: blocks that have no room in memory go to this file. Empty: no file.",
    set: |settings, text| {
        settings.engine = engine(text.trim())?;
        Ok(())
    },
    get: |settings| {
        Some(match &settings.engine {
            Engine::None => String::new(),
            Engine::Memory(name) => (*name).to_string(),
            Engine::File(path) => format!("file:{}", path.display()),
        })
    },
};

const SIZE_SETTING: Setting<FileTierSettings> = Setting {
    name: SIZE,
    unit: "MiB",
    effect: Restart,
    text: "Size of the cache file.",
    set: |settings, text| {
        settings.size_bytes = size_bytes(text.trim())?;
        Ok(())
    },
    get: |settings| Some((settings.size_bytes as f64 / MIB).to_string()),
};

const INDEX_PATH_SETTING: Setting<FileTierSettings> = Setting {
    name: INDEX_PATH,
    unit: "path",
    effect: Restart,
    text: "Where the index of the cache file is kept while the server is down. Empty: the file begins empty.",
    set: |settings, text| {
        settings.index_path = (!text.trim().is_empty()).then(|| PathBuf::from(text.trim()));
        Ok(())
    },
    get: |settings| Some(settings.index_path.as_deref().unwrap_or("".as_ref()).display().to_string()),
};

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
        halcyon_settings::set(SETTINGS, self, name, value)
    }

    pub(crate) fn describe() -> Vec<Description> {
        halcyon_settings::describe(SETTINGS, &FileTierSettings::default())
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

/// The error goes on after the value.
fn engine(value: &str) -> std::result::Result<Engine, String> {
    let refused = |why: &str| Err(why.to_string());
    match value.split_once(':') {
        None if value.is_empty() => Ok(Engine::None),
        None if value == "offheap" => Ok(Engine::Memory("offheap")),
        None if value == "heap" => Ok(Engine::Memory("heap")),
        Some(("file" | "files", path)) => {
            if path.contains(',') {
                return refused("names several files; the cache uses one, put it on a volume of them");
            }
            if path.is_empty() {
                return refused("names no file");
            }
            Ok(Engine::File(PathBuf::from(path)))
        }
        Some(("mmap" | "pmem" | "sharedmem", _)) => {
            refused("is not available: files are not mapped here; say file:PATH")
        }
        _ => refused("is not known; say file:PATH"),
    }
}

/// MiB, at least one, as HBase wants it (`MemorySizeUtil.getBucketCacheSize`); 0: not said.
fn size_bytes(value: &str) -> std::result::Result<u64, String> {
    let mib = value.parse::<f64>().ok().filter(|mib| mib.is_finite() && (*mib >= 1.0 || *mib == 0.0));
    let told = || "is not a number of MiB, 1 or more".to_string();
    mib.map(|mib| (mib * MIB) as u64).ok_or_else(told)
}

impl fmt::Display for FileTierSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        halcyon_settings::print(SETTINGS, self, f)
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
            let told = FileTierSettings::default().set(ENGINE, value).unwrap_err().to_string();
            assert!(told.contains(ENGINE) && told.contains(value), "{told}");
        }
    }

    #[test]
    fn sizes_are_mebibytes() {
        assert_eq!(size_bytes("8192").unwrap(), 8 << 30);
        assert_eq!(size_bytes("1.5").unwrap(), 3 << 19);
        for value in ["0.4", "-1", "much", "NaN", "inf"] {
            let told = FileTierSettings::default().set(SIZE, value).unwrap_err().to_string();
            assert!(told.contains(SIZE), "{value}");
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
        assert!(settings.set("hbase.bucketcache.writer.queuelength", "0").is_err());
    }
}
