//! What an interrupted cleaning or deletion left: finished or rolled back as Kafka would at its start (format reference 8, steps 1 to 3).

use crate::error::{Error, Result};
use crate::io::Directory;
use crate::log::check::files::Layout;
use crate::log::listing::Listing;
use crate::log::names;
use crate::log::repair::{Plan, Step};
use crate::types::Offset;
use std::collections::BTreeSet;

/// The files of a segment that go when a cleaning replaces it.
const REPLACED: [&str; 5] = [names::LOG, names::INDEX, names::TIME_INDEX, names::TXN_INDEX, names::SNAPSHOT];
/// The files that mean nothing without the `.log`.
const INDEXES: [&str; 3] = [names::INDEX, names::TIME_INDEX, names::TXN_INDEX];

/// Plans what becomes of them.
pub(super) fn plan(dir: &dyn Directory, found: &Listing, layout: &Layout, plan: &mut Plan) -> Result<()> {
    let entries = dir.list().map_err(|e| Error::io("list", dir.path().display(), e))?;
    let names_there: BTreeSet<String> = entries.into_iter().filter_map(|e| e.name.into_string().ok()).collect();
    let parsed = || names_there.iter().filter_map(|name| names::parse(name).map(|(base, suffix)| (name, base, suffix)));
    let remove = |file: &str, why: &str| Step::Remove { file: file.to_owned(), why: why.to_owned() };

    // A replacement that was not complete goes before the mark of that goes: else it would be taken for a complete one.
    let incomplete_from = parsed().filter(|(.., suffix)| suffix.ends_with(names::CLEANED)).map(|(_, base, _)| base).min();
    let is_stale = |base: Offset, suffix: &str| suffix.ends_with(names::SWAP) && incomplete_from.is_some_and(|from| base >= from);
    let stale = parsed().filter(|(_, base, suffix)| is_stale(*base, suffix));
    plan.group(stale.map(|(name, ..)| remove(name, "it belongs to a cleaning that had not finished")).collect());
    let unfinished = parsed().filter(|(.., suffix)| suffix.ends_with(names::CLEANED));
    plan.group(unfinished.map(|(name, ..)| remove(name, "a cleaning that had not finished")).collect());
    let deleted = parsed().filter(|(.., suffix)| suffix.ends_with(names::DELETED));
    plan.group(deleted.map(|(name, ..)| remove(name, "it waited to be removed")).collect());

    let is_replaced = |base: Offset| {
        layout.range.is_some_and(|(first, next)| base >= first && base < next) || found.swaps.iter().any(|s| s.base_offset == base)
    };
    let replaced = parsed().filter(|(_, base, suffix)| REPLACED.contains(suffix) && is_replaced(*base));
    plan.group(replaced.map(|(name, ..)| remove(name, "a finished cleaning replaces it")).collect());
    // In rising order, each log first: what is left of an interrupted renaming lies behind all that was renamed, and replaces nothing of it.
    let mut swaps: Vec<(Offset, bool, &String)> = parsed()
        .filter(|(_, base, suffix)| suffix.ends_with(names::SWAP) && !is_stale(*base, suffix))
        .map(|(name, base, suffix)| (base, suffix != format!("{}{}", names::LOG, names::SWAP), name))
        .collect();
    swaps.sort();
    for (_, _, name) in swaps {
        if let Some(to) = name.strip_suffix(names::SWAP) {
            plan.group(vec![Step::Rename { file: name.clone(), to: to.to_owned() }]);
        }
    }

    let has_log = |base: Offset| layout.logs.iter().any(|l| l.base_offset == base);
    let orphans = parsed().filter(|(_, base, suffix)| INDEXES.contains(suffix) && !has_log(*base) && !is_replaced(*base));
    plan.group(orphans.map(|(name, ..)| remove(name, "an index without its .log")).collect());
    let epochs_tmp = format!("{}.tmp", names::LEADER_EPOCHS);
    let unwritten = names_there.iter().filter(|n| **n == epochs_tmp || names::parse(n).is_some_and(|(_, suffix)| suffix.ends_with(".tmp")));
    plan.group(unwritten.map(|name| remove(name, "its writer stopped before it was whole")).collect());
    Ok(())
}
