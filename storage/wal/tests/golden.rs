//! The bytes of a log with one entry, as drawn in `FORMAT.md`. What depends on its salt is looked at apart.

use halcyon_cell::{Cell, SeqId};
use halcyon_env::FileSystem;
use halcyon_env::sim::SimFileSystem;
use halcyon_wal::{Durability, Wal, WalConfig, WalEntry};

const GOLDEN: &str = "
    50 57 41 4c 63
    08 00 18 00
    22 11 50 72 6f 74 6f 62 75 66 4c 6f 67 57 72 69 74 65 72
    2a 35 6f 72 67 2e 61 70 61 63 68 65 2e 68 61 64 6f 6f 70 2e 68 62 61 73 65 2e 72 65 67 69 6f 6e
          73 65 72 76 65 72 2e 77 61 6c 2e 57 41 4c 43 65 6c 6c 43 6f 64 65 63
    30 00
    ca 3e 10 .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. ..

    2a
    0a 04 61 62 63 64
    12 01 74
    18 07
    20 e8 07
    38 01
    50 05
    62 16 0a 06 63 72 63 33 32 63 12 0c .. .. .. .. .. .. .. .. .. .. .. ..
    00 00 00 19
    00 00 00 0f 00 00 00 02 00 01 72 01 66 71 00 00 00 00 00 00 00 09 04 76 31
    ca 3e 10 .. .. .. .. .. .. .. .. .. .. .. .. .. .. .. ..
    00 00 00 13 4c 41 57 50
";

#[test]
fn a_log_of_one_entry() {
    let fs = SimFileSystem::new();
    let wal = Wal::open(fs.env(), WalConfig::new("/WALs/h", "/oldWALs", "h")).unwrap();
    let cell = Cell::put(b"r", b"f", b"q", 9, b"v1");
    let cells = [cell.get()];
    let (region, table) = (&b"abcd"[..], &b"t"[..]);
    let entry = WalEntry {
        region,
        table,
        seq: SeqId::new(7),
        write_time_ms: 1000,
        nonce_group: 0,
        nonce: 5,
        cluster_ids: &[],
        replicated: &[],
        cells: &cells,
    };
    wal.append(&entry, Durability::SyncWal, Box::new(|_| ())).unwrap();
    let path = wal.current_file();
    wal.close().unwrap();
    let bytes = fs.read(&path).unwrap();
    let golden: Vec<&str> = GOLDEN.split_whitespace().collect();
    let is_open = |at: usize| golden[at] == "..";
    let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let known: Vec<&str> =
        hex.iter().enumerate().map(|(at, hex)| if is_open(at) { ".." } else { hex.as_str() }).collect();
    assert_eq!(known.join(" "), golden.join(" "));
    let open: Vec<u8> = (0..bytes.len()).filter(|at| is_open(*at)).map(|at| bytes[at]).collect();
    let (salt, check, trailer) = (&open[..16], &open[16..28], &open[28..]);
    assert_eq!(salt, trailer);
    let header_len = 5 + 0x63;
    let synced: Vec<u8> = (header_len as u64).to_be_bytes().iter().zip(salt).map(|(a, b)| a ^ b).collect();
    assert_eq!(check[4..], synced);
    let (key, attribute, cells) = (header_len + 1, header_len + 1 + 18, header_len + 1 + 42);
    let end = bytes.len() - 27;
    let parts = [&bytes[key..attribute], &bytes[cells..end], &synced, &salt[8..]];
    let crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
    assert_eq!(check[..4], crc.to_be_bytes());
}
