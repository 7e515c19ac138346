//! Variable-length integers: zig-zag, then seven bits a byte, the low ones first.

/// The most bytes that a varint of 32 bits takes.
const VARINT_SIZE_MAX: usize = 5;
/// The most bytes that a varlong of 64 bits takes.
const VARLONG_SIZE_MAX: usize = 10;

/// Reads the varint at `at`; the number, and the place behind it, which lies within `bytes`. `None` where it does not end within
/// `bytes` or within five bytes.
#[inline]
pub fn read_varint(bytes: &[u8], at: usize) -> Option<(i32, usize)> {
    let first = u32::from(*bytes.get(at)?);
    if first < 0x80 {
        return Some((unzigzag_i32(first), at + 1));
    }
    let second = u32::from(*bytes.get(at + 1)?);
    if second < 0x80 {
        return Some((unzigzag_i32((first & 0x7f) | second << 7), at + 2));
    }
    let (wide, next) = read_long(bytes, at, VARINT_SIZE_MAX)?;
    Some((unzigzag_i32(wide as u32), next))
}

/// Reads the varlong at `at`; the number, and the place behind it, which lies within `bytes`. `None` where it does not end within
/// `bytes` or within ten bytes.
#[inline]
pub fn read_varlong(bytes: &[u8], at: usize) -> Option<(i64, usize)> {
    let first = u64::from(*bytes.get(at)?);
    if first < 0x80 {
        return Some((unzigzag_i64(first), at + 1));
    }
    let second = u64::from(*bytes.get(at + 1)?);
    if second < 0x80 {
        return Some((unzigzag_i64((first & 0x7f) | second << 7), at + 2));
    }
    let (wide, next) = read_long(bytes, at, VARLONG_SIZE_MAX)?;
    Some((unzigzag_i64(wide), next))
}

fn read_long(bytes: &[u8], at: usize, size_max: usize) -> Option<(u64, usize)> {
    let mut wide = 0;
    for (index, byte) in bytes.get(at..)?.iter().take(size_max).enumerate() {
        wide |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((wide, at + index + 1));
        }
    }
    None
}

#[inline]
const fn unzigzag_i32(wide: u32) -> i32 {
    (wide >> 1) as i32 ^ -((wide & 1) as i32)
}

#[inline]
const fn unzigzag_i64(wide: u64) -> i64 {
    (wide >> 1) as i64 ^ -((wide & 1) as i64)
}

/// The unsigned number whose groups of seven bits are written for `number`. (For what fits an i32, a varint has the same.)
#[inline(always)]
pub const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// How many bytes the groups of `zigzagged` take, 1 to 10.
#[inline(always)]
pub const fn zigzagged_len(zigzagged: u64) -> usize {
    // Seven bits a byte: ceil(bits / 7), and 1 for no bits.
    ((70 - (zigzagged | 1).leading_zeros()) / 7) as usize
}

/// How many bytes the varint or varlong of `number` takes, 1 to 5 or 10.
#[inline]
pub const fn varint_len(number: i64) -> usize {
    zigzagged_len(zigzag(number))
}

/// Appends the varint or varlong of `number` to `out`.
pub fn write_varint(out: &mut Vec<u8>, number: i64) {
    write_zigzagged(out, zigzag(number));
}

/// Appends the groups of `zigzagged` to `out`.
pub fn write_zigzagged(out: &mut Vec<u8>, mut zigzagged: u64) {
    while zigzagged >= 0x80 {
        out.push(zigzagged as u8 | 0x80);
        zigzagged >>= 7;
    }
    out.push(zigzagged as u8);
}

/// The bytes of a few short numbers in a row, in a register.
///
/// Appended as one block of fixed size, of which the surplus is cut off again, they cost a few moves; a byte at a time would be a
/// test and a store each, and a short slice a call of memcpy.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    /// The bytes, the first one lowest.
    bits: u64,
    /// How many they are, 1 to 8.
    size: usize,
}

impl Packed {
    /// Zigzagged numbers below this take one or two bytes.
    pub const END: u64 = 1 << 14;

    /// The bytes of a zigzagged number below [`Packed::END`].
    #[inline(always)]
    pub const fn new(zigzagged: u64) -> Packed {
        let is_long = (zigzagged >= 0x80) as u64;
        Packed { bits: (zigzagged & 0x7f) | is_long << 7 | (zigzagged & 0x3f80) << 1, size: 1 + is_long as usize }
    }

    /// How many bytes there are.
    #[inline(always)]
    pub const fn size(self) -> usize {
        self.size
    }

    /// These bytes with those of `next` behind them; together no more than 8.
    #[inline(always)]
    #[must_use]
    pub const fn then(self, next: Packed) -> Packed {
        Packed { bits: self.bits | next.bits << (8 * self.size), size: self.size + next.size }
    }

    /// Appends the bytes to `out`.
    #[inline(always)]
    #[expect(clippy::little_endian_bytes, reason = "the first byte of a varint is its lowest")]
    pub fn append(self, out: &mut Vec<u8>) {
        let end = out.len() + self.size;
        out.extend_from_slice(&self.bits.to_le_bytes());
        out.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(number: i64) -> Vec<u8> {
        let mut out = Vec::new();
        write_varint(&mut out, number);
        out
    }

    #[test]
    fn short_numbers_in_a_row() {
        for numbers in [[0, -1, 63, -64], [64, -65, 8191, -8192], [0, 8191, 1, -8192]] {
            let [first, rest @ ..] = numbers.map(|number| Packed::new(zigzag(number)));
            let packed = rest.into_iter().fold(first, Packed::then);
            let (mut out, mut expected) = (b"x".to_vec(), b"x".to_vec());
            packed.append(&mut out);
            numbers.into_iter().for_each(|number| write_varint(&mut expected, number));
            assert_eq!(out, expected);
            assert_eq!(packed.size(), expected.len() - 1);
        }
    }

    #[test]
    fn the_bytes_of_some_numbers() {
        let cases: [(i32, &[u8]); 9] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 1]),
            (8191, &[0xfe, 0x7f]),
            (i32::MAX, &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i32::MIN, &[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ];
        for (number, bytes) in cases {
            assert_eq!(long(i64::from(number)), bytes);
        }
        assert_eq!(long(i64::MIN), [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    }

    #[test]
    fn what_does_not_end_is_none() {
        assert_eq!(read_varint(&[0x80; 5], 0), None);
        assert_eq!(read_varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0], 0), None, "six bytes");
        assert_eq!(read_varlong(&[[0x80; 10].as_slice(), &[0]].concat(), 0), None, "eleven bytes");
        assert_eq!(read_varint(&[0x80, 0x80, 0x80, 0x80, 0], 0), Some((0, 5)), "long, but an end");
        for at in [0, 1, 2, usize::MAX] {
            assert_eq!(read_varint(&[0x80, 0x80], at), None);
            assert_eq!(read_varlong(&[0x80, 0x80], at), None);
        }
    }

    proptest::proptest! {
        #[test]
        fn numbers_come_back(number: i64, shift in 0u32..64) {
            let number = number >> shift;
            let bytes = long(number);
            proptest::prop_assert_eq!(bytes.len(), varint_len(number));
            proptest::prop_assert_eq!(read_varlong(&bytes, 0), Some((number, bytes.len())));
            let bytes = long(i64::from(number as i32));
            proptest::prop_assert_eq!(read_varint(&bytes, 0), Some((number as i32, bytes.len())));
        }
    }
}
