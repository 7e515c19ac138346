//! Reads one Rust source as tokens, without comments and literals, and answers what the layering rules ask of it.

use std::collections::{BTreeMap, BTreeSet};

/// What is left of a source once comments and literals are gone.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A word: identifier, keyword or number.
    Word(String),
    /// `::`.
    Separator,
    /// Any other character.
    Mark(char),
}

/// A path in a source, as seen from the crate's root.
#[derive(Debug)]
pub(crate) struct Reference {
    /// The line it begins in, from 1.
    pub(crate) line: usize,
    /// Its parts without `crate`; the last ones may name items instead of modules.
    pub(crate) path: Vec<String>,
    /// Whether it stands in an item under `#[cfg(test)]`.
    pub(crate) in_test: bool,
}

/// One file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Its path from the top of the project.
    pub(crate) path: String,
    /// Its module from the crate's root; empty for `lib.rs` and `main.rs`.
    pub(crate) module: Vec<String>,
    /// Its number of lines.
    pub(crate) lines: usize,
    tokens: Vec<(Token, usize)>,
    comments: BTreeMap<usize, String>,
}

/// A path as it is written, with the name it gets.
struct Written {
    parts: Vec<String>,
    alias: Option<String>,
}

/// Where in the nest of modules and tests a token stands.
struct Place {
    index: usize,
    module: Vec<String>,
    in_test: bool,
}

impl Source {
    /// A source from its path and text.
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
        let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| last == "mod") || inner == "lib" || inner == "main" {
            module.pop();
        }
        let (tokens, comments) = tokens(text);
        Source { path: path.to_owned(), module, lines: text.lines().count(), tokens, comments }
    }

    /// The lines in which identifiers have one of these words as a part (`RawErrno` and `raw_errno` have `errno`).
    pub(crate) fn words(&self, words: &[&str]) -> Vec<(usize, String)> {
        let mut found = Vec::new();
        for (token, line) in &self.tokens {
            let Token::Word(name) = token else { continue };
            found.extend(parts(name).into_iter().filter(|part| words.contains(&part.as_str())).map(|part| (*line, part)));
        }
        found
    }

    /// Every `unsafe` that stands where it may not, or without its reason.
    pub(crate) fn places_of_unsafe(&self) -> Vec<(usize, String)> {
        let (in_io, in_fuse) = (self.path.starts_with("src/io/"), self.path.starts_with("src/fuse"));
        let mut found = Vec::new();
        for (index, (token, line)) in self.tokens.iter().enumerate() {
            if *token != Token::Word("unsafe".to_owned()) {
                continue;
            }
            let what = if !in_io && !in_fuse {
                "unsafe outside src/io"
            } else if !self.has_reason(*line) {
                "unsafe without a `SAFETY:` line above it"
            } else if in_fuse && !self.is_one_libc_call(index + 1) {
                "unsafe in fuse that is not a single libc call; it belongs into src/io"
            } else {
                continue;
            };
            found.push((*line, what.to_owned()));
        }
        found
    }

    /// Whether a comment in the line, or right above the statement that the line belongs to, says why it is safe.
    fn has_reason(&self, line: usize) -> bool {
        let says = |line: &usize| self.comments.get(line).is_some_and(|text| text.contains("SAFETY:") || text.contains("# Safety"));
        let ends_before = |line: &usize| {
            let last = self.tokens.iter().rev().find(|(_, at)| at == line).map(|(token, _)| token);
            matches!(last, Some(Token::Mark(';' | '{' | '}')))
        };
        let above = (1..line).rev().take_while(|line| !ends_before(line)).skip_while(|line| !self.comments.contains_key(line));
        says(&line) || above.take_while(|line| self.comments.contains_key(line)).any(|line| says(&line))
    }

    /// Whether the tokens from `index` on are `{ libc::name(...) }`.
    fn is_one_libc_call(&self, index: usize) -> bool {
        let token = |n: usize| self.tokens.get(index + n).map(|(token, _)| token);
        let starts = token(0) == Some(&Token::Mark('{'))
            && token(1) == Some(&Token::Word("libc".to_owned()))
            && token(2) == Some(&Token::Separator)
            && matches!(token(3), Some(Token::Word(_)))
            && token(4) == Some(&Token::Mark('('));
        let mut depth = 0_usize;
        for n in 4.. {
            match token(n) {
                Some(Token::Mark('(')) => depth += 1,
                Some(Token::Mark(')')) if depth > 1 => depth -= 1,
                Some(Token::Mark(')')) => return starts && token(n + 1) == Some(&Token::Mark('}')),
                Some(Token::Word(word)) if starts && word == "libc" && matches!(token(n + 3), Some(Token::Mark('('))) => return false,
                Some(_) if starts => {}
                _ => return false,
            }
        }
        false
    }

    /// The modules that this file declares for tests only: `#[cfg(test)] mod name;`.
    pub(crate) fn test_modules(&self) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        self.walk(|place| {
            if let [(Token::Word(word), _), (Token::Word(name), _), (Token::Mark(';'), _), ..] = &self.tokens[place.index..]
                && word == "mod"
                && place.in_test
            {
                found.push(place.module.iter().chain([name]).cloned().collect());
            }
            place.index + 1
        });
        found
    }

    /// Every path that leads into this crate, resolved from its root; `modules` are the modules that have a file.
    pub(crate) fn references(&self, modules: &BTreeSet<Vec<String>>) -> Vec<Reference> {
        let mut written: Vec<(usize, Vec<String>, bool, Written)> = Vec::new();
        self.walk(|place| {
            let (token, line) = &self.tokens[place.index];
            let Token::Word(word) = token else { return place.index + 1 };
            let mut paths = Vec::new();
            let next = if word == "use" {
                self.tree(place.index + 1, &[], &mut paths)
            } else if self.tokens.get(place.index + 1).is_some_and(|(token, _)| *token == Token::Separator) {
                self.tree(place.index, &[], &mut paths)
            } else {
                return place.index + 1;
            };
            written.extend(paths.into_iter().map(|path| (*line, place.module.clone(), place.in_test, path)));
            next
        });
        let mut aliases: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, module, _, path) in &written {
            if let Some(target) = resolve(&path.parts, module, modules, &BTreeMap::new())
                && (target.is_empty() || modules.contains(&target))
                && let Some(name) = path.alias.as_ref().or(target.last())
            {
                aliases.insert(name.clone(), target);
            }
        }
        let mut found = Vec::new();
        for (line, module, in_test, path) in written {
            if let Some(target) = resolve(&path.parts, &module, modules, &aliases)
                && !target.is_empty()
            {
                found.push(Reference { line, path: target, in_test });
            }
        }
        found
    }

    /// Calls `visit` at each token with its place; `visit` says which token comes next.
    fn walk(&self, mut visit: impl FnMut(&Place) -> usize) {
        let word = |index: usize| match self.tokens.get(index) {
            Some((Token::Word(word), _)) => word.as_str(),
            _ => "",
        };
        let mark = |index: usize, mark: char| self.tokens.get(index).is_some_and(|(token, _)| *token == Token::Mark(mark));
        let mut place = Place { index: 0, module: self.module.clone(), in_test: false };
        let mut depth = 0_usize;
        let mut open_modules: Vec<usize> = Vec::new();
        let mut test_until: Option<usize> = None;
        let mut test_item = false;
        while place.index < self.tokens.len() {
            let index = place.index;
            if mark(index, '#') && word(index + 2) == "cfg" && word(index + 4) == "test" && mark(index + 5, ')') {
                test_item = true;
                place.index += 7;
                continue;
            }
            if word(index) == "mod" && mark(index + 2, '{') {
                place.module.push(word(index + 1).to_owned());
                open_modules.push(depth);
                place.index += 2;
                continue;
            }
            if mark(index, '{') {
                if test_item && test_until.is_none() {
                    test_until = Some(depth);
                    test_item = false;
                }
                depth += 1;
            } else if mark(index, '}') {
                depth = depth.saturating_sub(1);
                if open_modules.last() == Some(&depth) {
                    open_modules.pop();
                    place.module.pop();
                }
                if test_until == Some(depth) {
                    test_until = None;
                }
            } else if mark(index, ';') {
                test_item = false;
            }
            place.in_test = test_item || test_until.is_some();
            place.index = visit(&place);
        }
    }

    /// Reads a path, or a tree of paths in braces, from `index` on; returns the index behind it.
    fn tree(&self, mut index: usize, before: &[String], paths: &mut Vec<Written>) -> usize {
        let mut parts = before.to_vec();
        let at = |index: usize| self.tokens.get(index).map(|(token, _)| token);
        loop {
            match at(index) {
                Some(Token::Separator) => index += 1,
                Some(Token::Word(word)) if word != "as" => {
                    parts.push(word.clone());
                    index += 1;
                    if at(index) != Some(&Token::Separator) {
                        break;
                    }
                }
                Some(Token::Mark('*')) => {
                    parts.push("*".to_owned());
                    index += 1;
                    break;
                }
                Some(Token::Mark('{')) => {
                    index += 1;
                    while index < self.tokens.len() && at(index) != Some(&Token::Mark('}')) {
                        let next = if at(index) == Some(&Token::Mark(',')) { index } else { self.tree(index, &parts, paths) };
                        index = next.max(index + usize::from(next == index));
                    }
                    return index + 1;
                }
                _ => break,
            }
        }
        let alias = match (at(index), at(index + 1)) {
            (Some(Token::Word(word)), Some(Token::Word(name))) if word == "as" => Some(name.clone()),
            _ => None,
        };
        index += if alias.is_some() { 2 } else { 0 };
        if parts.len() > 1 && parts.last().is_some_and(|last| last == "self") {
            parts.pop();
        }
        paths.push(Written { parts, alias });
        index
    }
}

/// A written path from the crate's root, or `None` where it leads out of the crate or to something local.
fn resolve(
    parts: &[String],
    module: &[String],
    modules: &BTreeSet<Vec<String>>,
    aliases: &BTreeMap<String, Vec<String>>,
) -> Option<Vec<String>> {
    let (first, rest) = parts.split_first()?;
    let child: Vec<String> = module.iter().chain([first]).cloned().collect();
    let mut base: Vec<String> = match first.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module.split_last()?.1.to_vec(),
        _ if modules.contains(&child) => child,
        name => aliases.get(name)?.clone(),
    };
    for part in rest {
        if part == "super" {
            base.pop();
        } else {
            base.push(part.clone());
        }
    }
    // `super::*` in an inline module is the file itself.
    if base.last().is_some_and(|last| last == "*") && base.len() > 1 {
        base.pop();
    }
    Some(base)
}

/// The words of an identifier in lower case: `RawErrno` and `raw_errno` are `raw`, `errno`.
fn parts(name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for piece in name.split('_') {
        let mut word = String::new();
        let mut after_lower = false;
        for c in piece.chars() {
            if c.is_uppercase() && after_lower {
                found.push(std::mem::take(&mut word));
            }
            after_lower = c.is_lowercase();
            word.extend(c.to_lowercase());
        }
        found.push(word);
    }
    found
}

/// Takes a text apart into its tokens and, by line, its comments.
fn tokens(text: &str) -> (Vec<(Token, usize)>, BTreeMap<usize, String>) {
    let chars: Vec<char> = text.chars().collect();
    let at = |index: usize| chars.get(index).copied().unwrap_or('\0');
    let (mut found, mut comments) = (Vec::new(), BTreeMap::<usize, String>::new());
    let (mut index, mut line) = (0, 1);
    while index < chars.len() {
        let start = index;
        let start_line = line;
        match chars[index] {
            '/' if at(index + 1) == '/' => {
                while index < chars.len() && chars[index] != '\n' {
                    index += 1;
                }
                comments.entry(line).or_default().extend(&chars[start..index]);
            }
            '/' if at(index + 1) == '*' => {
                let mut depth = 0;
                while index < chars.len() {
                    if chars[index] == '/' && at(index + 1) == '*' {
                        depth += 1;
                        index += 1;
                    } else if chars[index] == '*' && at(index + 1) == '/' {
                        depth -= 1;
                        index += 1;
                    }
                    index += 1;
                    if depth == 0 {
                        break;
                    }
                }
                comments.entry(line).or_default().extend(&chars[start..index]);
            }
            '"' => index = behind_string(&chars, index),
            '\'' if at(index + 1) == '\\' => {
                index += 3;
                while index < chars.len() && chars[index] != '\'' {
                    index += 1;
                }
                index += 1;
            }
            '\'' if at(index + 2) == '\'' => index += 3,
            ':' if at(index + 1) == ':' => {
                found.push((Token::Separator, line));
                index += 2;
            }
            c if c == '_' || c.is_alphanumeric() => {
                while at(index) == '_' || at(index).is_alphanumeric() {
                    index += 1;
                }
                let word: String = chars[start..index].iter().collect();
                let hashes = chars[index..].iter().take_while(|c| **c == '#').count();
                if matches!(word.as_str(), "r" | "br" | "cr") && at(index + hashes) == '"' {
                    index = behind_raw_string(&chars, index + hashes + 1, hashes);
                } else if word == "r" && hashes == 1 {
                    index += 1;
                } else {
                    found.push((Token::Word(word), line));
                }
            }
            c => {
                if !c.is_whitespace() {
                    found.push((Token::Mark(c), line));
                }
                index += 1;
            }
        }
        line = start_line + chars[start..index.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    (found, comments)
}

/// The index behind the string literal that begins at `index`.
fn behind_string(chars: &[char], mut index: usize) -> usize {
    index += 1;
    while index < chars.len() && chars[index] != '"' {
        index += if chars[index] == '\\' { 2 } else { 1 };
    }
    index + 1
}

/// The index behind a raw string literal whose text begins at `index`.
fn behind_raw_string(chars: &[char], mut index: usize, hashes: usize) -> usize {
    while index < chars.len() {
        if chars[index] == '"' && chars[index + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes {
            return index + 1 + hashes;
        }
        index += 1;
    }
    index
}
