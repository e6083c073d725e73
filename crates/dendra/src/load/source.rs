//! Where the records of `dendra load` come from: a folder, NDJSON or TSV, one at a time.
//!
//! ```text
//! folder   a/b.txt                      key "a/b.txt", value = content; sorted, no symlinks
//! NDJSON   {"key": "a", "value": "1"}   or key_base64, value_base64; content_type, meta
//! TSV      a TAB 1                      both fields in --hex or --base64 when given
//! ```
//!
//! Invariants
//! 1. A record that cannot be read is an `Item::Bad` with its place; the rest go on.
//! 2. Memory is one record, and never more than `LINE_BYTES_MAX` or the largest value a node can
//!    store. A huge file is refused by its size, not read.
//! 3. The order is the same in every run.
//!
//! Not here: sending (`sender.rs`).
//! See: docs/cli.md.

use crate::cli::RecordFormat;
use crate::encoding::{self, Encoding};
use dendra_base::limits::VALUE_BYTES_MAX_LIMIT;
use dendra_wire::meta::{self, MetaBuf};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One line of text: the largest value with every byte as a six-byte JSON escape, and its key.
const LINE_BYTES_MAX: u64 = 6 * VALUE_BYTES_MAX_LIMIT as u64 + (64 << 10);

/// The items of a source.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A record to store.
    Record {
        /// The key.
        key: Vec<u8>,
        /// The value as it is stored, with its metadata.
        value: Vec<u8>,
    },
    /// Something that should have been a record.
    Bad {
        /// The file, or the line of the input.
        place: String,
        /// Why it is none.
        reason: String,
    },
    /// Something that is no record and need not be: a symlink, a socket.
    Skipped,
}

/// A source, chosen by `--format` or by the kind of the path.
pub(super) type Items = Box<dyn Iterator<Item = Item> + Send>;

/// Opens `path`. The error is a sentence.
pub(super) fn open(
    path: &Path,
    format: Option<RecordFormat>,
    encoding: Encoding,
) -> Result<Items, String> {
    let name = path.display();
    let is_stdin = path.as_os_str() == "-";
    if !is_stdin {
        path.metadata()
            .map_err(|e| format!("{name}: cannot be read ({e})"))?;
    }
    let is_folder = !is_stdin && path.is_dir();
    let by_extension = || match path.extension()?.to_str()? {
        "ndjson" | "jsonl" => Some(RecordFormat::Ndjson),
        "tsv" => Some(RecordFormat::Tsv),
        _ => None,
    };
    let guessed = if is_folder {
        Some(RecordFormat::Folder)
    } else {
        by_extension()
    };
    let format = format.or(guessed).ok_or_else(|| {
        format!("{name}: it is unclear how records are written there; add --format ndjson or --format tsv")
    })?;
    if format == RecordFormat::Folder {
        return if is_folder {
            Ok(Box::new(FileTree::open(path).map_err(|e| {
                format!("{name}: the folder cannot be read ({e})")
            })?))
        } else {
            Err(format!(
                "{name}: is not a folder; name one, or another --format"
            ))
        };
    }
    let input: Box<dyn Read + Send> = if is_stdin {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(|e| format!("{name}: cannot be read ({e})"))?)
    };
    Ok(Box::new(Lines {
        input: BufReader::with_capacity(256 << 10, input),
        name: if is_stdin {
            "stdin".to_owned()
        } else {
            name.to_string()
        },
        number: 0,
        format,
        encoding,
        is_done: false,
    }))
}

/// A tree of files, depth first, each folder sorted by name.
struct FileTree {
    root: PathBuf,
    /// Paths still to visit, the next one last.
    waiting: Vec<PathBuf>,
}

impl FileTree {
    fn open(root: &Path) -> io::Result<FileTree> {
        let mut folder = FileTree {
            root: root.to_owned(),
            waiting: Vec::new(),
        };
        folder.enter(root)?;
        Ok(folder)
    }

    fn enter(&mut self, path: &Path) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            names.push(entry?.path());
        }
        names.sort_unstable_by(|a, b| b.cmp(a));
        self.waiting.append(&mut names);
        Ok(())
    }

    /// `None` when `path` was a folder: its files wait now.
    fn visit(&mut self, path: &Path) -> io::Result<Option<Item>> {
        // Not `metadata`: a link out of the tree, or in a circle, is not followed.
        let found = fs::symlink_metadata(path)?;
        if found.is_dir() {
            self.enter(path)?;
            return Ok(None);
        }
        if !found.is_file() {
            return Ok(Some(Item::Skipped));
        }
        let most = VALUE_BYTES_MAX_LIMIT as u64;
        let mut value = Vec::with_capacity(found.len().min(most) as usize);
        if found.len() <= most {
            File::open(path)?.take(most + 1).read_to_end(&mut value)?;
        }
        if found.len() > most || value.len() as u64 > most {
            return Err(io::Error::other(format!(
                "{} bytes are more than any node stores in one value ({most})",
                found.len().max(value.len() as u64)
            )));
        }
        let key = path.strip_prefix(&self.root).unwrap_or(path);
        Ok(Some(Item::Record {
            key: key.as_os_str().as_bytes().to_vec(),
            value: stored(&MetaBuf::default(), value),
        }))
    }
}

impl Iterator for FileTree {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            let path = self.waiting.pop()?;
            match self.visit(&path) {
                Ok(None) => {}
                Ok(Some(item)) => return Some(item),
                Err(e) => {
                    return Some(Item::Bad {
                        place: path.display().to_string(),
                        reason: e.to_string(),
                    });
                }
            }
        }
    }
}

/// NDJSON or TSV, a line at a time.
struct Lines<R> {
    input: BufReader<R>,
    name: String,
    number: u64,
    format: RecordFormat,
    encoding: Encoding,
    is_done: bool,
}

impl<R: Read> Lines<R> {
    /// The next line without its end, or `None` at the end of the input.
    fn line(&mut self) -> Result<Option<Vec<u8>>, String> {
        let mut line = Vec::new();
        let mut limited = (&mut self.input).take(LINE_BYTES_MAX);
        let failed = |e: io::Error| format!("cannot be read ({e})");
        let read = limited.read_until(b'\n', &mut line).map_err(failed)?;
        if read == 0 {
            self.is_done = true;
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
        } else if read as u64 == LINE_BYTES_MAX {
            self.input.skip_until(b'\n').map_err(failed)?;
            return Err(format!("has more than {LINE_BYTES_MAX} bytes"));
        }
        Ok(Some(line))
    }

    /// Is there nothing in it? A tab parts the fields of a record, and spaces may be a raw key.
    fn is_blank(&self, line: &[u8]) -> bool {
        let has_fields = self.format == RecordFormat::Tsv && line.contains(&b'\t');
        !has_fields && line.trim_ascii().is_empty()
    }

    fn record(&self, line: &[u8]) -> Result<Item, String> {
        let (key, value, meta) = if self.format == RecordFormat::Tsv {
            let tab = line.iter().position(|byte| *byte == b'\t');
            let tab = tab.ok_or("has no tab between key and value")?;
            let field = |name: &str, text: &[u8]| {
                let decoded = self.encoding.decode(text);
                decoded.map_err(|rest| format!("its {name} {rest}"))
            };
            (
                field("key", &line[..tab])?,
                field("value", &line[tab + 1..])?,
                MetaBuf::default(),
            )
        } else {
            let mut object: Map<String, Value> =
                serde_json::from_slice(line).map_err(|e| format!("is not a JSON object ({e})"))?;
            let key = encoding::take_json(&mut object, "key")?;
            let value = encoding::take_json(&mut object, "value")?;
            let meta = encoding::take_meta(&mut object)?;
            if let Some(name) = object.keys().next() {
                return Err(format!("has an unknown member {name:?}"));
            }
            (key, value, meta)
        };
        if key.is_empty() {
            return Err("has an empty key".to_owned());
        }
        Ok(Item::Record {
            key,
            value: stored(&meta, value),
        })
    }
}

fn stored(meta: &MetaBuf, value: Vec<u8>) -> Vec<u8> {
    meta::wrap(meta, &value).unwrap_or(value)
}

impl<R: Read> Iterator for Lines<R> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if self.is_done {
                return None;
            }
            let before = self.number;
            let read = match self.line() {
                Ok(None) => return None,
                Ok(Some(line)) if self.is_blank(&line) => continue,
                Ok(Some(line)) => self.record(&line),
                Err(reason) => {
                    // A line was counted, so the reader stands after it; else reading itself
                    // failed.
                    self.is_done = self.number == before;
                    Err(reason)
                }
            };
            return Some(read.unwrap_or_else(|reason| Item::Bad {
                place: format!("{}:{}", self.name, self.number.max(1)),
                reason,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use crate::scan::Printer;
    use proptest::prelude::*;

    /// Can raw text carry this record? A tab ends the key, and a line feed ends the line.
    fn is_plain(key: &[u8], value: &[u8]) -> bool {
        let has = |bytes: &[u8], end: u8| bytes.contains(&end);
        !has(key, b'\t') && !has(key, b'\n') && !has(value, b'\n')
    }

    proptest! {
        #![proptest_config(legal::cases(64))]

        #[test]
        fn any_legal_record_is_loaded_as_it_was_printed(records in legal::records(0..=4)) {
            for (format, encoding) in [
                (RecordFormat::Ndjson, Encoding::Raw),
                (RecordFormat::Tsv, Encoding::Raw),
                (RecordFormat::Tsv, Encoding::Hex),
                (RecordFormat::Tsv, Encoding::Base64),
            ] {
                let mut printer = Printer {
                    out: Vec::new(),
                    encoding,
                    is_json: format == RecordFormat::Ndjson,
                    is_keys_only: false,
                    is_wrapped: true,
                };
                let mut wanted = Vec::new();
                for (key, cell) in &records {
                    let is_raw = format == RecordFormat::Tsv && encoding == Encoding::Raw;
                    if !is_raw || is_plain(key, &cell.value) {
                        let has_meta = format == RecordFormat::Ndjson && key.len() % 2 == 0;
                        let meta = if has_meta { described() } else { MetaBuf::default() };
                        let value = stored(&meta, cell.value.to_vec());
                        printer.print(key, &value)?;
                        wanted.push(record(key, &value));
                    }
                }
                let loaded = lines(&printer.out, format, encoding);
                prop_assert!(loaded == wanted, "{:?} {:?}", format, encoding);
            }
        }
    }

    #[test]
    fn a_key_of_spaces_is_a_key() {
        let items = lines(b" \t \n\n", RecordFormat::Tsv, Encoding::Raw);
        assert_eq!(items, [record(b" ", b" ")]);
    }

    fn described() -> MetaBuf {
        let named = [("owner", "Zo\u{eb} \"&\" co"), ("empty", "")];
        MetaBuf::new(Some(b"text/css; charset=utf-8"), &named).expect("it is legal")
    }

    #[test]
    fn metadata_of_a_line_that_is_none_is_refused() {
        for (fields, part) in [
            ("\"content_type\":1", "not a string"),
            ("\"meta\":\"x\"", "not an object"),
            ("\"meta\":{\"a\":1}", "something else than strings"),
            ("\"meta\":{\"a b\":\"1\"}", "`a b` is no name"),
        ] {
            let text = format!("{{\"key\":\"k\",\"value\":\"v\",{fields}}}\n");
            let items = lines(text.as_bytes(), RecordFormat::Ndjson, Encoding::Raw);
            let [Item::Bad { reason, .. }] = &items[..] else {
                panic!("{fields}: {items:?}");
            };
            assert!(reason.contains(part), "{fields}: {reason}");
        }
    }

    fn lines(text: &[u8], format: RecordFormat, encoding: Encoding) -> Vec<Item> {
        let reader: Lines<&[u8]> = Lines {
            input: BufReader::new(text),
            name: "input".to_owned(),
            number: 0,
            format,
            encoding,
            is_done: false,
        };
        reader.collect()
    }

    fn record(key: &[u8], value: &[u8]) -> Item {
        Item::Record {
            key: key.to_vec(),
            value: value.to_vec(),
        }
    }

    fn place(item: &Item) -> &str {
        match item {
            Item::Bad { place, .. } => place,
            _ => panic!("{item:?} should be bad"),
        }
    }

    #[test]
    fn a_bad_line_is_named_and_the_rest_go_on() {
        let text = b"{\"key\":\"a\",\"value\":\"1\"}\n\nnonsense\n{\"key\":\"b\"}\n{\"key_base64\":\"/w==\",\"value_base64\":\"AA==\"}";
        let items = lines(text, RecordFormat::Ndjson, Encoding::Raw);
        assert_eq!(items.len(), 4);
        assert_eq!(items[0], record(b"a", b"1"));
        assert_eq!(place(&items[1]), "input:3");
        assert_eq!(place(&items[2]), "input:4");
        assert_eq!(items[3], record(b"\xff", b"\0"));
    }

    #[test]
    fn tab_separated_fields_may_be_encoded() {
        let items = lines(b"a\tb\tc\nno tab\n", RecordFormat::Tsv, Encoding::Raw);
        assert_eq!(items[0], record(b"a", b"b\tc"));
        assert_eq!(place(&items[1]), "input:2");
        let items = lines(b"\tvalue\n", RecordFormat::Tsv, Encoding::Raw);
        assert_eq!(place(&items[0]), "input:1");
        let items = lines(b"00\tff\n0\tff\n", RecordFormat::Tsv, Encoding::Hex);
        assert_eq!(items[0], record(b"\0", b"\xff"));
        assert_eq!(place(&items[1]), "input:2");
    }

    #[test]
    fn a_folder_is_walked_sorted_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        fs::create_dir_all(root.join("b/c")).expect("a folder");
        fs::write(root.join("b/c/deep"), b"1").expect("a file");
        fs::write(root.join("b.txt"), b"").expect("a file");
        fs::write(root.join("a"), b"\xff\0").expect("a file");
        std::os::unix::fs::symlink(root, root.join("circle")).expect("a link");
        let items: Vec<Item> = open(root, None, Encoding::Raw)
            .expect("it is a folder")
            .collect();
        assert_eq!(
            items,
            [
                record(b"a", b"\xff\0"),
                record(b"b/c/deep", b"1"),
                record(b"b.txt", b""),
                Item::Skipped,
            ]
        );
    }

    #[test]
    fn a_file_that_no_node_can_store_is_reported_by_its_size() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = File::create(folder.path().join("huge")).expect("a file");
        file.set_len(VALUE_BYTES_MAX_LIMIT as u64 + 1)
            .expect("a hole");
        fs::write(folder.path().join("small"), b"1").expect("a file");
        let items: Vec<Item> = open(folder.path(), None, Encoding::Raw)
            .expect("it is a folder")
            .collect();
        assert!(place(&items[0]).ends_with("huge"));
        assert_eq!(items[1], record(b"small", b"1"));
    }

    #[test]
    fn an_unclear_source_is_refused_with_the_way_out() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("records");
        fs::write(&path, b"a\t1\n").expect("a file");
        let error = open(&path, None, Encoding::Raw)
            .err()
            .expect("it is unclear");
        assert!(error.contains("--format tsv"), "{error}");
        let missing = open(&folder.path().join("none"), None, Encoding::Raw).err();
        assert!(missing.is_some_and(|error| error.contains("cannot be read")));
        assert!(open(&path, Some(RecordFormat::Folder), Encoding::Raw).is_err());
        assert_eq!(
            open(&path, Some(RecordFormat::Tsv), Encoding::Raw).map(Iterator::count),
            Ok(1)
        );
    }
}
