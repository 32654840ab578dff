//! The hash of old region names and of some bloom filters (HBase: `JenkinsHash`).

/// Bob Jenkins' lookup3 (`hashlittle`).
pub fn jenkins_hash(key: &[u8], seed: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(seed);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = key;
    while rest.len() > 12 {
        a = a.wrapping_add(word(&rest[..4]));
        b = b.wrapping_add(word(&rest[4..8]));
        c = c.wrapping_add(word(&rest[8..12]));
        (a, b, c) = mix(a, b, c);
        rest = &rest[12..];
    }
    if rest.is_empty() {
        return c;
    }
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    a = a.wrapping_add(word(&last[..4]));
    b = b.wrapping_add(word(&last[4..8]));
    c = c.wrapping_add(word(&last[8..]));
    finish(a, b, c)
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    for (r1, r2, r3) in [(4, 6, 8), (16, 19, 4)] {
        a = a.wrapping_sub(c) ^ c.rotate_left(r1);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(r2);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(r3);
        b = b.wrapping_add(a);
    }
    (a, b, c)
}

fn finish(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    c = (c ^ b).wrapping_sub(b.rotate_left(14));
    a = (a ^ c).wrapping_sub(c.rotate_left(11));
    b = (b ^ a).wrapping_sub(a.rotate_left(25));
    c = (c ^ b).wrapping_sub(b.rotate_left(16));
    a = (a ^ c).wrapping_sub(c.rotate_left(4));
    b = (b ^ a).wrapping_sub(a.rotate_left(14));
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}
