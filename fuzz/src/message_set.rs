//! Message sets of magic 0 and 1: as they are walked in a file, and entries inside a wrapper whose checksums are made right.

use crate::fixtures;
use crate::input::Input;
use offsetfs::log::batch::{Attributes, BatchHeader, Step, verify_crc};
use offsetfs::log::legacy::{Frame, InnerEntry, PREFIX_SIZE, base_of_inner};
use offsetfs::log::record::{self, Records, find_in_batch, find_in_decoded};
use offsetfs::types::{Offset, TimestampMs};

/// What a wrapper may decode to, in bytes.
const LIMIT: u64 = 256 << 10;

/// One input: choices, and a file, or the entries inside one wrapper.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let choice = input.byte();
    let mends = choice & 2 != 0;
    if choice & 1 == 0 {
        return file(input.rest(), mends);
    }
    let magic = choice >> 2 & 1;
    let offset = input.number();
    let Some(offset) = Offset::new(offset) else { return };
    let time = TimestampMs::new(input.number());
    let header = BatchHeader {
        magic,
        base_offset: offset,
        last_offset: offset,
        size: 0,
        partition_leader_epoch: -1,
        crc: 0,
        attributes: Attributes::from_raw(1 | i16::from(choice & 8)),
        base_timestamp: time,
        max_timestamp: time,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        records_count: 1,
    };
    wrapper(&header, input.rest().to_vec(), mends);
}

fn file(log: &[u8], mends: bool) {
    let mut at = 0;
    while let Ok(Step::Batch(header)) = BatchHeader::read(log, at) {
        let end = at + header.size as usize;
        let batch = &log[at..end];
        let _ = verify_crc(&header, batch);
        if header.is_wrapper() {
            if let Ok(body) = record::decode(&header, batch, LIMIT) {
                wrapper(&header, body, mends);
            }
        } else if header.magic < 2 {
            for record in Records::in_batch(&header, batch) {
                let Ok(record) = record else { continue };
                assert_eq!(record.offset, header.base_offset, "a plain entry has one offset");
                assert_eq!(find_in_batch(&header, batch, record.offset).as_ref(), Ok(&Some(record.clone())));
            }
        }
        at = end;
    }
}

fn wrapper(header: &BatchHeader, mut body: Vec<u8>, mends: bool) {
    if mends {
        mend(&mut body);
    }
    let base = base_of_inner(&body, header.magic, header.last_offset.get());
    let mut last = None;
    let mut at = 0;
    for record in Records::in_decoded(header, &body) {
        let Ok(record) = record else { break };
        let base = base.as_ref().expect("entries of which one is shown have a base");
        let entry = InnerEntry::read(&body, at, header.magic).expect("a record that is shown is a sound entry");
        at = entry.end;
        assert_eq!(record.offset.get(), base + entry.entry.offset, "an offset is the base and what is stored");
        assert!(last.is_none_or(|last| last < record.offset), "offsets rise");
        let unbounded = header.magic == 1 && header.last_offset == Offset::ZERO;
        assert!(unbounded || record.offset <= header.last_offset, "no entry lies behind its wrapper's offset");
        let parts = (record.key.clone(), record.value.clone());
        assert_eq!(parts, (entry.key, entry.value));
        assert!([parts.0, parts.1].into_iter().flatten().all(|part| body.get(part.start as usize..part.end as usize).is_some()));
        assert_eq!(
            find_in_decoded(header, &body, record.offset).as_ref(),
            Ok(&Some(record.clone())),
            "a look-up finds what the walk shows"
        );
        last = Some(record.offset);
    }
}

/// Gives every entry the checksum of its bytes, so that what lies behind that check is reached.
fn mend(body: &mut [u8]) {
    let mut at = 0;
    while let Some(frame) = Frame::probe(body, at) {
        let end = usize::try_from(frame.message_size).ok().and_then(|size| at.checked_add(PREFIX_SIZE)?.checked_add(size));
        let Some(entry) = end.and_then(|end| body.get_mut(at..end)) else { return };
        if entry.len() <= PREFIX_SIZE + 4 {
            return;
        }
        let crc = crc32fast::hash(&entry[PREFIX_SIZE + 4..]);
        entry[PREFIX_SIZE..PREFIX_SIZE + 4].copy_from_slice(&crc.to_be_bytes());
        at += entry.len();
    }
}

/// Inputs to begin with.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for batch in fixtures::batches() {
        let Ok(Step::Batch(header)) = BatchHeader::read(&batch, 0) else { continue };
        if header.magic == 2 {
            continue;
        }
        seeds.push([&[2], batch.as_slice()].concat());
        if header.is_wrapper()
            && let Ok(body) = record::decode(&header, &batch, LIMIT)
        {
            let numbers = [header.last_offset.get().to_be_bytes(), header.max_timestamp.get().to_be_bytes()].concat();
            seeds.push([&[3 | header.magic << 2], numbers.as_slice(), &body].concat());
        }
    }
    fixtures::some(seeds, 80)
}
