//! What a store file says of itself: trailer, file info, bloom filters, index.

use halcyon_cell::{Error, KeyRef};
use halcyon_hfile::{BloomFacts, HFile, IndexEntry, ReadMode, Trailer};
use halcyon_proto::pb::FileTrailerProto;
use serde_json::{Map, Value, json};

use super::Inspected;
use crate::output::{Done, Output};
use crate::text;

/// Prints what `-m` asks for: all of it, or the trailer alone if the rest is damaged.
pub(super) fn print(file: &Inspected<'_>, out: &mut Output<'_>) -> Done {
    let trailer = file.walk.trailer();
    if let Some(hfile) = &file.hfile {
        print_file(hfile, out)?;
    }
    if let Ok(trailer) = trailer {
        let fields = trailer_fields(trailer);
        out.say("trailer", || fields.clone().into(), || section("Trailer:", &fields, "="))?;
    }
    let Some(hfile) = &file.hfile else { return Ok(()) };
    let (fields, errors) = info_fields(hfile);
    out.say("fileInfo", || fields.clone().into(), || section("Fileinfo:", &fields, " = "))?;
    for error in errors {
        out.damaged(file.path, None, &error.context(file.path.display()))?;
    }
    match hfile.mid_key(ReadMode::AnyDisk) {
        Ok(key) => {
            let shown = key.as_ref().map(|key| text::key(key.get()));
            let object = || json!({"midKey": shown});
            out.say("midKey", object, || format!("Mid-key: {}", shown.as_deref().unwrap_or("none")))?;
        }
        Err(error) => out.damaged(file.path, None, &error)?,
    }
    let [general, delete] = hfile.bloom_facts();
    print_bloom("bloom", "Bloom filter:", general, out)?;
    print_bloom("deleteFamilyBloom", "Delete Family Bloom filter:", delete, out)
}

fn print_file(hfile: &HFile, out: &mut Output<'_>) -> Done {
    let info = hfile.info();
    let shown = |key: Option<KeyRef<'_>>| key.map(text::key);
    let fields = object([
        ("compression", hfile.trailer().compression().name().to_lowercase().into()),
        ("firstKey", shown(info.first_key()).into()),
        ("lastKey", shown(info.last_key()).into()),
        ("entries", info.entry_count().into()),
        ("length", hfile.len().into()),
    ]);
    out.say(
        "reader",
        || fields.clone().into(),
        || section(&format!("reader={}", hfile.path().display()), &fields, "="),
    )
}

fn trailer_fields(trailer: &Trailer) -> Map<String, Value> {
    let message: &FileTrailerProto = trailer.message();
    let (major, minor) = trailer.version();
    object([
        ("fileinfoOffset", message.file_info_offset().into()),
        ("loadOnOpenDataOffset", message.load_on_open_data_offset().into()),
        ("dataIndexCount", message.data_index_count().into()),
        ("metaIndexCount", message.meta_index_count().into()),
        ("totalUncomressedBytes", message.total_uncompressed_bytes().into()),
        ("entryCount", message.entry_count().into()),
        ("compressionCodec", trailer.compression().name().into()),
        ("uncompressedDataIndexSize", message.uncompressed_data_index_size().into()),
        ("numDataIndexLevels", message.num_data_index_levels().into()),
        ("firstDataBlockOffset", (message.first_data_block_offset() as i64).into()),
        ("lastDataBlockOffset", (message.last_data_block_offset() as i64).into()),
        ("comparatorClassName", message.comparator_class_name().into()),
        ("encryptionKey", if trailer.wrapped_key().is_some() { "PRESENT" } else { "NONE" }.into()),
        ("majorVersion", major.into()),
        ("minorVersion", minor.into()),
    ])
}

/// File info in the forms of HBase's tool, and the errors of values that make no sense.
fn info_fields(hfile: &HFile) -> (Map<String, Value>, Vec<Error>) {
    let (mut fields, mut errors) = (Map::new(), Vec::new());
    for (name, value) in hfile.info().iter() {
        let shown = match &name[..] {
            b"hfile.LASTKEY" => {
                hfile.info().last_key().map(|key| format!("{}/vlen=0/mvcc=0", text::key(key)).into())
            }
            b"TIMERANGE" => match hfile.info().time_range() {
                Some((min, max)) => Some(format!("{min}....{max}").into()),
                // The range of no cell ends before it begins.
                None => Some(format!("{}....-1", i64::MAX).into()),
            },
            b"COMPACTION_EVENT_KEY" => match hfile.info().compacted_from() {
                Ok(names) => Some(names.into()),
                Err(error) => {
                    errors.push(error);
                    None
                }
            },
            b"MAX_SEQ_ID_KEY"
            | b"MAX_MEMSTORE_TS_KEY"
            | b"EARLIEST_PUT_TS"
            | b"DELETE_FAMILY_COUNT"
            | b"hfile.CREATE_TIME_TS"
            | b"BULKLOAD_TIMESTAMP" => {
                value.as_ref().try_into().ok().map(|bytes| i64::from_be_bytes(bytes).into())
            }
            b"KEY_VALUE_VERSION" | b"hfile.MAX_TAGS_LEN" | b"hfile.AVG_KEY_LEN" | b"hfile.AVG_VALUE_LEN" => {
                value.as_ref().try_into().ok().map(|bytes| i32::from_be_bytes(bytes).into())
            }
            b"MAJOR_COMPACTION_KEY"
            | b"EXCLUDE_FROM_MINOR_COMPACTION"
            | b"HISTORICAL"
            | b"hfile.TAGS_COMPRESSED"
            | b"SKIP_RESET_SEQ_ID" => Some(value.iter().any(|&byte| byte != 0).into()),
            _ => None,
        };
        fields.insert(text::binary(name), shown.unwrap_or_else(|| text::binary(value).into()));
    }
    (fields, errors)
}

fn print_bloom(kind: &str, title: &str, facts: Option<BloomFacts>, out: &mut Output<'_>) -> Done {
    let Some(facts) = facts else {
        return out.say(kind, || json!({"present": false}), || format!("{title}\n    Not present"));
    };
    let filled = (facts.keys_max > 0)
        .then(|| (facts.keys_count as f64 * 100.0 / facts.keys_max as f64).round() as i64);
    let comparator = if facts.has_columns { "CellComparator" } else { "ByteArrayComparator" };
    let fields = object([
        ("BloomSize", facts.size_bytes.into()),
        ("No of Keys in bloom", facts.keys_count.into()),
        ("Max Keys for bloom", facts.keys_max.into()),
        ("Percentage filled", filled.map(|percent| format!("{percent}%")).into()),
        ("Number of chunks", facts.chunks_count.into()),
        ("Comparator", comparator.into()),
    ]);
    out.say(kind, || fields.clone().into(), || section(title, &fields, ": "))
}

/// Prints what `-b` asks for.
pub(super) fn print_index(file: &Inspected<'_>, out: &mut Output<'_>) -> Done {
    let Some(hfile) = &file.hfile else { return Ok(()) };
    let count = hfile.root_entries().count();
    let levels = hfile.index_levels();
    let object = || json!({"entries": count, "levels": levels});
    out.say("index", object, || format!("Block Index:\nsize={count}"))?;
    for entry in hfile.root_entries() {
        print_entry("rootEntry", &entry, out)?;
    }
    if !file.args.verbose || levels == 1 {
        return Ok(());
    }
    out.say("dataIndex", || json!({}), || "Data blocks by way of the index:".to_string())?;
    let mut printed = Ok(());
    let visited = hfile.visit_index(|entry| {
        if printed.is_ok() {
            printed = print_entry("indexEntry", &entry, out);
        }
    });
    printed?;
    visited.or_else(|error| out.damaged(file.path, None, &error))
}

fn print_entry(kind: &str, entry: &IndexEntry<'_>, out: &mut Output<'_>) -> Done {
    let key = text::key(entry.key);
    out.say(
        kind,
        || json!({"key": key, "offset": entry.offset, "dataSize": entry.on_disk_bytes}),
        || format!("key={key}\n  offset={}, dataSize={}", entry.offset, entry.on_disk_bytes),
    )
}

fn object<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

/// A title and one line for each field.
fn section(title: &str, fields: &Map<String, Value>, between: &str) -> String {
    let shown = fields.iter().map(|(name, value)| match value {
        Value::String(text) => format!("\n    {name}{between}{text}"),
        Value::Array(items) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            format!("\n    {name}{between}{}", items.join(" "))
        }
        value => format!("\n    {name}{between}{value}"),
    });
    shown.fold(title.to_string(), |text, line| text + &line)
}
