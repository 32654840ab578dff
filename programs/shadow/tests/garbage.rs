//! Bytes that neither a recorder nor a client nor a server would write. The seed is in the message of a failure;
//! `HALCYON_SEED` repeats it.

use std::path::PathBuf;

use halcyon_env::Env;
use halcyon_env::sim::Dice;
use halcyon_shadow::fuzz;

fn dice() -> Dice {
    let seed = std::env::var("HALCYON_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_126);
    println!("HALCYON_SEED={seed}");
    Dice::new(seed)
}

fn damage(dice: &mut Dice, bytes: &mut Vec<u8>) {
    for _ in 0..=dice.below(3) {
        if bytes.is_empty() {
            return;
        }
        let at = dice.below(bytes.len());
        match dice.below(5) {
            0 => bytes[at] ^= 1 << dice.below(8),
            1 => bytes[at] = [0, 0x7f, 0x80, 0xff][dice.below(4)],
            2 => bytes.truncate(at),
            3 => bytes.insert(at, dice.below(256) as u8),
            _ => {
                let end = (at + dice.below(16)).min(bytes.len());
                let part = bytes[at..end].to_vec();
                bytes.extend(part);
            }
        }
    }
}

/// A file in a directory that goes away.
struct File {
    env: Env,
    dir: PathBuf,
    path: PathBuf,
}

impl File {
    fn new(name: &str) -> File {
        let env = Env::real();
        let dir = std::env::temp_dir().join(format!("halcyon-shadow-{name}-{}", std::process::id()));
        env.local.create_dir_all(&dir).unwrap();
        let path = dir.join("recording");
        File { env, dir, path }
    }

    fn read(&self, bytes: &[u8]) -> Result<usize, String> {
        self.env.local.replace(&self.path, bytes).unwrap();
        fuzz::read_recording(&self.path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = self.env.local.remove_dir_all(&self.dir);
    }
}

#[test]
fn damaged_recordings_are_errors_or_shorter() {
    let (mut dice, file) = (dice(), File::new("damaged"));
    let good = fuzz::recording();
    assert_eq!(file.read(&good), Ok(3));
    // one that was cut off has the records before the cut
    for len in 0..good.len() {
        let read = file.read(&good[..len]);
        assert!(read.as_ref().map_or(true, |count| *count <= 3), "{len}: {read:?}");
        assert!(read.is_ok() || len < 60, "{len}: {read:?}");
    }
    for _ in 0..400 {
        let mut bad = good.clone();
        damage(&mut dice, &mut bad);
        let _ = file.read(&bad);
    }
    // behind a checksum that fits
    for _ in 0..400 {
        let mut payload = fuzz::payload();
        damage(&mut dice, &mut payload);
        let read = file.read(&fuzz::with_checksum(&payload));
        assert!(read.as_ref().map_or(true, |count| *count == 4), "{read:?}");
    }
}

#[test]
fn one_changed_byte_of_a_record_is_noticed() {
    let file = File::new("byte");
    let good = fuzz::recording();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        // a longer length makes the record end behind the file: that is a file that was cut off
        assert!(file.read(&bad).is_err() || file.read(&bad).is_ok_and(|count| count < 3), "{at}");
    }
}

#[tokio::test]
async fn damaged_frames_pass_as_they_are_or_end_the_connection() {
    let mut dice = dice();
    for _ in 0..2_000 {
        let mut stream = Vec::new();
        for _ in 0..=dice.below(3) {
            let len = dice.below(200);
            let mut frame = vec![dice.below(20) as u8];
            frame.extend(dice.bytes(len));
            stream.extend_from_slice(&(frame.len() as u32).to_be_bytes());
            stream.extend_from_slice(&frame);
        }
        damage(&mut dice, &mut stream);
        let passed = fuzz::frames(&stream, 1 << 20).await;
        assert!(stream.starts_with(&passed));
    }
}
