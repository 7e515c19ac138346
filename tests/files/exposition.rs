//! The text format of Prometheus (version 0.0.4), read strictly: what a scraper refuses is refused here, too.

use std::collections::{BTreeMap, BTreeSet};

/// The series of a text and their values.
pub(crate) type Series = BTreeMap<String, f64>;

/// Reads a text.
///
/// # Errors
/// The first line that is against the grammar, or against what a family promises.
pub(crate) fn parse(text: &str) -> Result<Series, String> {
    if !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut series = Series::new();
    let mut kinds: BTreeMap<String, String> = BTreeMap::new();
    let mut over = BTreeSet::new();
    let mut family = String::new();
    let mut helped = String::new();
    for line in text.lines() {
        let wrong = |what: &str| Err(format!("{what}: {line}"));
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (word, name, rest) = (words.next(), words.next().unwrap_or_default(), words.next().unwrap_or_default());
            match word {
                Some("HELP") if is_name(name, true) && helped != name && !rest.is_empty() => helped = name.to_owned(),
                Some("TYPE") if helped == name && ["counter", "gauge", "histogram"].contains(&rest) => {
                    if (rest == "counter") != name.ends_with("_total") {
                        return wrong("a counter, and nothing else, ends with _total");
                    }
                    if kinds.insert(name.to_owned(), rest.to_owned()).is_some() {
                        return wrong("a second type");
                    }
                    over.insert(std::mem::replace(&mut family, name.to_owned()));
                }
                _ => return wrong("no HELP and TYPE of one family"),
            }
            continue;
        }
        let (name, labels, value) = sample(line).ok_or_else(|| format!("no sample: {line}"))?;
        let histogram = kinds.get(&family).is_some_and(|kind| kind == "histogram");
        let suffixes: &[&str] = if histogram { &["_bucket", "_sum", "_count"] } else { &[""] };
        if !suffixes.iter().any(|suffix| name == format!("{family}{suffix}")) || over.contains(&family) {
            return wrong("a sample outside of its family");
        }
        if name.ends_with("_bucket") != labels.iter().any(|(label, _)| label == "le") {
            return wrong("buckets have a bound");
        }
        let key = line.rsplit_once(' ').map(|(key, _)| key.to_owned()).unwrap_or_default();
        if series.insert(key, value).is_some() {
            return wrong("a second value of one series");
        }
        if value.is_nan() || (value < 0.0 && kinds.get(&family).is_some_and(|kind| kind != "gauge")) {
            return wrong("no value of its kind");
        }
    }
    histograms(&series)?;
    Ok(series)
}

/// Buckets rise with their bounds, and the last one counts all.
fn histograms(series: &Series) -> Result<(), String> {
    let mut buckets: BTreeMap<(String, String), Vec<(f64, f64)>> = BTreeMap::new();
    for (key, value) in series {
        let Some((name, labels)) = key.split_once("_bucket{") else { continue };
        let (others, bound) = labels.trim_end_matches('}').rsplit_once("le=\"").ok_or(format!("no bound: {key}"))?;
        let bound = bound.trim_end_matches('"').parse::<f64>().map_err(|_| format!("no bound: {key}"))?;
        buckets.entry((name.to_owned(), others.trim_end_matches(',').to_owned())).or_default().push((bound, *value));
    }
    for ((name, labels), mut of) in buckets {
        of.sort_by(|a, b| a.0.total_cmp(&b.0));
        if !of.iter().map(|(_, count)| count).is_sorted() {
            return Err(format!("{name} {labels}: buckets that fall"));
        }
        let count = series.get(&format!("{name}_count{{{labels}}}"));
        if of.last().map(|(bound, count)| (*bound, Some(count))) != Some((f64::INFINITY, count)) {
            return Err(format!("{name} {labels}: the last bucket does not count all"));
        }
        if !series.contains_key(&format!("{name}_sum{{{labels}}}")) {
            return Err(format!("{name} {labels}: no sum"));
        }
    }
    Ok(())
}

type Sample = (String, Vec<(String, String)>, f64);

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let Some((name, mut labels)) = series.split_once('{') else {
        return is_name(series, true).then(|| (series.to_owned(), Vec::new(), value));
    };
    let mut pairs: Vec<(String, String)> = Vec::new();
    loop {
        let (label, rest) = labels.split_once("=\"")?;
        let mut text = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => match characters.next()?.1 {
                    'n' => text.push('\n'),
                    escaped @ ('\\' | '"') => text.push(escaped),
                    _ => return None,
                },
                (_, character) => text.push(character),
            }
        };
        if !is_name(label, false) || pairs.iter().any(|(known, _)| known == label) {
            return None;
        }
        pairs.push((label.to_owned(), text));
        match &rest[end..] {
            "}" => return is_name(name, true).then(|| (name.to_owned(), pairs, value)),
            more => labels = more.strip_prefix(',')?,
        }
    }
}

/// Whether a text names a metric or, without colons, a label.
fn is_name(text: &str, colons: bool) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || (colons && byte == b':');
    text.bytes().next().is_some_and(letter) && text.bytes().all(|byte| letter(byte) || byte.is_ascii_digit())
}

#[test]
fn the_reader_refuses_what_a_scraper_refuses() {
    let good = "# HELP a_total Help.\n# TYPE a_total counter\na_total{x=\"1\\\"\\n\",y=\"\"} 1\na_total 2\n";
    assert_eq!(parse(good).expect("a good text").len(), 2);
    let histogram = "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum{} 3\nh_count{} 2\n";
    assert!(parse(histogram).is_err(), "empty braces");
    let histogram = histogram.replace("h_sum{}", "h_sum{a=\"\"}").replace("h_count{}", "h_count{a=\"\"}").replace("{le", "{a=\"\",le");
    assert_eq!(parse(&histogram).expect("a good histogram").len(), 4);
    for (from, to) in [
        ("a_total 2\n", "a_total 2"),
        ("a_total 2\n", "a_total two\n"),
        ("a_total 2\n", "b_total 2\n"),
        ("a_total 2\n", "a_total{x=\"1\\\"\\n\",y=\"\"} 3\n"),
        ("x=\"1", "x=1"),
        ("x=\"1", "1x=\"1"),
        ("\\n", "\\t"),
        ("counter", "counters"),
        ("# TYPE a_total counter\n", ""),
        ("# HELP a_total Help.\n", ""),
        ("_total", "_sum"),
        ("} 1", "} -1"),
    ] {
        assert!(parse(&good.replace(from, to)).is_err(), "{from} -> {to}");
    }
    for (from, to) in [("\"1\"} 1", "\"1\"} 3"), ("+Inf", "2"), ("h_count{a=\"\"} 2", "h_count{a=\"\"} 3"), ("h_sum{a=\"\"} 3\n", "")] {
        assert!(parse(&histogram.replace(from, to)).is_err(), "{from} -> {to}");
    }
}
