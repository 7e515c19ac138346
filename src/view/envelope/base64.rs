//! Base64 with the standard alphabet and padding, as JSON strings hold bytes that are not UTF-8.

/// The digits of base64, by their values.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends a JSON string of base64.
pub(crate) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |group: u32, shift: u32| BASE64[(group >> shift & 63) as usize];
    out.reserve((bytes.len() / 3).saturating_mul(4).saturating_add(6));
    out.push(b'"');
    let mut groups = bytes.chunks_exact(3);
    for group in &mut groups {
        let group = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        out.extend_from_slice(&[digit(group, 18), digit(group, 12), digit(group, 6), digit(group, 0)]);
    }
    match *groups.remainder() {
        [a] => {
            let group = u32::from(a) << 16;
            out.extend_from_slice(&[digit(group, 18), digit(group, 12), b'=', b'=']);
        }
        [a, b] => {
            let group = u32::from(a) << 16 | u32::from(b) << 8;
            out.extend_from_slice(&[digit(group, 18), digit(group, 12), digit(group, 6), b'=']);
        }
        _ => {}
    }
    out.push(b'"');
}

/// What [`BASE64_VALUES`] has for a byte that is no digit.
const NO_DIGIT: u8 = 0xff;

/// The value of each byte as a digit of base64.
const BASE64_VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 64 {
        values[BASE64[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// Reads base64 in its only spelling: padded, and with zeros in the bits that the padding leaves over. `None` for other text.
pub(super) fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take(2).take_while(|&&byte| byte == b'=').count();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let digits = text.get(..text.len() - padding)?;
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for &digit in group {
            let value = BASE64_VALUES[usize::from(digit)];
            if value == NO_DIGIT {
                return None;
            }
            bits = bits << 6 | u32::from(value);
        }
        let [_, a, b, c] = (bits << (6 * (4 - group.len()))).to_be_bytes();
        match group.len() {
            4 => bytes.extend_from_slice(&[a, b, c]),
            3 if c == 0 => bytes.extend_from_slice(&[a, b]),
            2 if b == 0 && c == 0 => bytes.push(a),
            _ => return None,
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648() {
        for (bytes, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE="), ("foobar", "Zm9vYmFy")]
        {
            let mut out = Vec::new();
            write_base64(&mut out, bytes.as_bytes());
            assert_eq!(out, format!("\"{text}\"").into_bytes());
            assert_eq!(decode_base64(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        let mut out = Vec::new();
        write_base64(&mut out, &[0xfb, 0xff, 0xbf]);
        assert_eq!(out, b"\"+/+/\"");
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in
            ["Z", "Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "====", "=", "Zg==Zg==", "Z===", "Zm 9", "Zm9v\n", "-_-_", "Zg=a", "Zm9v===="]
        {
            assert_eq!(decode_base64(text.as_bytes()), None, "{text:?}");
        }
    }
}
