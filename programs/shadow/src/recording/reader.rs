//! Reads recordings, file after file, without more than a record in memory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use halcyon_env::{Env, ReadableFile};
use prost::Message;

use crate::recording::format::{
    Header, MAGIC, PREFIX_LEN, Record, Recorded, VERSION, damaged, decode, parse_prefix,
};

/// The records of one file in their order.
pub(crate) struct FileReader {
    file: Arc<dyn ReadableFile>,
    len: u64,
    at: u64,
    header: Header,
}

impl FileReader {
    /// Reads the head. The error names the file.
    pub(crate) fn open(env: &Env, path: &Path) -> io::Result<FileReader> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let file = env.local.open(path).map_err(named)?;
        let len = file.len().map_err(named)?;
        let mut reader = FileReader { file, len, at: 0, header: Header::default() };
        reader.read_head().map_err(named)?;
        Ok(reader)
    }

    fn read_head(&mut self) -> io::Result<()> {
        let mut magic = [0; MAGIC.len()];
        if self.len < magic.len() as u64 {
            return Err(damaged("no recording: it is too short".to_string()));
        }
        self.file.read_exact_at(&mut magic, 0)?;
        if magic != *MAGIC {
            return Err(damaged("no recording of halcyon shadow".to_string()));
        }
        self.at = magic.len() as u64;
        self.header =
            self.next_message()?.ok_or_else(|| damaged("a recording without a head".to_string()))?;
        if self.header.version != VERSION {
            let found = self.header.version;
            return Err(damaged(format!("format {found}; this program knows {VERSION}")));
        }
        Ok(())
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// The next read; `None` at the end, also of a file whose last record was cut off when its writer died. The error names file
    /// and offset.
    pub(crate) fn next(&mut self) -> io::Result<Option<Recorded>> {
        let at = self.at;
        let read =
            self.next_message::<Record>().and_then(|record| record.map(Record::into_recorded).transpose());
        read.map_err(|error| {
            io::Error::new(error.kind(), format!("{} at {at}: {error}", self.file.path().display()))
        })
    }

    fn next_message<M: Message + Default>(&mut self) -> io::Result<Option<M>> {
        let left = self.len - self.at;
        if left < PREFIX_LEN as u64 {
            return Ok(None);
        }
        let mut prefix = [0; PREFIX_LEN];
        self.file.read_exact_at(&mut prefix, self.at)?;
        let (len, checksum) = parse_prefix(&prefix)?;
        if (len as u64) > left - PREFIX_LEN as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, self.at + PREFIX_LEN as u64)?;
        let message = decode(Bytes::from(bytes), checksum)?;
        self.at += (PREFIX_LEN + len) as u64;
        Ok(Some(message))
    }
}

/// The files that a path means: itself, or all that a recording of this name has, in their order.
pub(crate) fn files_of(env: &Env, path: &Path) -> io::Result<Vec<PathBuf>> {
    if env.local.exists(path)? {
        return Ok(vec![path.to_path_buf()]);
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut found: Vec<PathBuf> = env
        .local
        .list(parent)?
        .into_iter()
        .filter(|entry| {
            let number = entry.name.strip_prefix(&name).and_then(|rest| rest.strip_prefix('.'));
            number
                .is_some_and(|number| number.len() >= 6 && number.bytes().all(|digit| digit.is_ascii_digit()))
        })
        .map(|entry| parent.join(entry.name))
        .collect();
    found.sort();
    match found.is_empty() {
        true => {
            Err(io::Error::new(io::ErrorKind::NotFound, format!("{}: no such recording", path.display())))
        }
        false => Ok(found),
    }
}
