//! The manifest of a backup: everything that it consists of, each file with its checksum.
//!
//! ```text
//! { "format": 1, "id": …, "began_ms": …, "cut_ms": …, "hlc": …, "cluster": …, "nodes": [ … ] }
//! checksum <xxh3-128 of all bytes in front of this line, 32 hexadecimal digits>
//! ```
//!
//! encrypted: "DNDRSEAL", format u32 = 1, the key's id u64, 32 bytes of salt, all of the above as a
//! sealed chunk
//!
//! Invariants
//! 1. A manifest without its last line, or with another checksum, is refused as a whole.
//! 2. Unknown fields are passed over; a later format is refused.
//!
//! Not here: where it is kept (crate `dendra`), objects (`object.rs`).
//! See: docs/format/backup.md.

use crate::seal::{self, BackupKey, SALT_BYTES, SealedPart};
use serde_json::{Value, json};
use std::io;
use xxhash_rust::xxh3::xxh3_128;

const FORMAT: u64 = 1;
const SEALED_MAGIC: [u8; 8] = *b"DNDRSEAL";
const SEALED_FORMAT: u32 = 1;
/// Magic, format, the key's id, the salt.
const SEALED_HEAD_BYTES: usize = 8 + 4 + 8 + SALT_BYTES;

/// The purpose for which the key of a manifest is derived.
fn purpose(id: &str) -> Vec<u8> {
    [b"manifest.", id.as_bytes()].concat()
}

/// One file of a node's checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupFile {
    /// Name of the file in the checkpoint.
    pub name: String,
    /// Length of the file.
    pub bytes: u64,
    /// The object that holds it.
    pub object: u128,
    /// XXH3-128 of its bytes.
    pub checksum: u128,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupNode {
    /// URL of the member in the cluster; of a node by itself that of its admin port.
    pub url: String,
    /// Id of the node.
    pub node: u128,
    /// No version of it had a larger clock value when its checkpoint was made.
    pub hlc: u64,
    /// Files of the checkpoint; of an incremental backup those of the last full one.
    pub files: Vec<BackupFile>,
    /// Tables that its flushes wrote since that checkpoint, in order.
    pub kept: Vec<BackupFile>,
    /// The mark of its last checkpoint: the next backup asks for the tables written since. `None`
    /// if it gave none.
    pub mark: Option<u128>,
}

impl BackupNode {
    /// All files that a restore reads.
    pub fn all_files(&self) -> impl Iterator<Item = &BackupFile> {
        self.files.iter().chain(&self.kept)
    }
}

/// The cluster that a backup is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupCluster {
    /// Name of the cluster.
    pub name: String,
    /// Epoch of the cluster when the backup was made.
    pub epoch: u64,
    /// Copies of a record.
    pub replication_factor: u64,
    /// URLs of its members.
    pub members: Vec<String>,
    /// The least successor number of its conditional writes; 0 in a cluster that no backup was
    /// restored into.
    pub least_successor: u32,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupManifest {
    /// Begins with the time, so that names are in order.
    pub id: String,
    /// Writes that were acknowledged before this are in it; wall milliseconds of the machine of the
    /// backup.
    pub began_ms: u64,
    /// Writes that began after this are not in it.
    pub cut_ms: u64,
    /// No version in it has a larger clock value.
    pub hlc: u64,
    /// `None` for a node by itself.
    pub cluster: Option<BackupCluster>,
    /// Nodes in the backup.
    pub nodes: Vec<BackupNode>,
    /// Bytes that were read from nodes for it, and not taken from earlier backups.
    pub moved_bytes: u64,
    /// Size of these bytes in the repository.
    pub moved_stored_bytes: u64,
}

impl BackupManifest {
    /// Bytes of all its files; the most there is, if a hostile manifest names more.
    pub fn bytes(&self) -> u64 {
        let sizes = self.files().map(|(_, file)| file.bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// All files, with their nodes.
    pub fn files(&self) -> impl Iterator<Item = (&BackupNode, &BackupFile)> {
        let of = |node| std::iter::repeat(node);
        self.nodes
            .iter()
            .flat_map(move |node| of(node).zip(node.all_files()))
    }

    /// Is any node's list one of a former checkpoint and of tables since?
    pub fn is_incremental(&self) -> bool {
        self.nodes.iter().any(|node| !node.kept.is_empty())
    }

    /// The members of which it has no part.
    pub fn missing(&self) -> Vec<&str> {
        let members = self.cluster.iter().flat_map(|cluster| &cluster.members);
        let is_here = |url: &String| self.nodes.iter().any(|node| node.url == *url);
        members
            .filter(|url| !is_here(url))
            .map(String::as_str)
            .collect()
    }

    /// The file.
    pub fn encode(&self) -> Vec<u8> {
        let nodes: Vec<Value> = self.nodes.iter().map(node_to_json).collect();
        let cluster = self.cluster.as_ref().map(|cluster| {
            json!({
                "name": cluster.name,
                "epoch": cluster.epoch,
                "replication_factor": cluster.replication_factor,
                "members": cluster.members,
                "least_successor": cluster.least_successor,
            })
        });
        let page = json!({
            "format": FORMAT,
            "dendra": env!("CARGO_PKG_VERSION"),
            "id": self.id,
            "began_ms": self.began_ms,
            "cut_ms": self.cut_ms,
            "hlc": format!("{:x}", self.hlc),
            "cluster": cluster,
            "nodes": nodes,
            "moved_bytes": self.moved_bytes,
            "moved_stored_bytes": self.moved_stored_bytes,
        });
        let mut text = format!("{page:#}\n");
        let checksum = xxh3_128(text.as_bytes());
        text.push_str(&format!("checksum {checksum:032x}\n"));
        text.into_bytes()
    }

    /// The file in an encrypted repository.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn seal(&self, key: &BackupKey) -> io::Result<Vec<u8>> {
        let salt: [u8; SALT_BYTES] = seal::random()?;
        let mut head = SEALED_MAGIC.to_vec();
        head.extend_from_slice(&SEALED_FORMAT.to_le_bytes());
        head.extend_from_slice(&key.id().to_le_bytes());
        head.extend_from_slice(&salt);
        let mut chunk = self.encode();
        let chunks = key.chunks(&salt, &purpose(&self.id));
        chunks.seal(SealedPart::End(0), &head, &mut chunk);
        head.extend_from_slice(&chunk);
        Ok(head)
    }

    /// Reads a manifest that [`BackupManifest::seal`] wrote for the backup `id`.
    ///
    /// # Errors
    /// As those of `decode`; or it does not open with this key and name.
    pub fn open(bytes: &[u8], key: &BackupKey, id: &str) -> Result<BackupManifest, String> {
        let split = bytes.split_at_checked(SEALED_HEAD_BYTES);
        let (head, chunk) = split.ok_or("it is cut, or no encrypted manifest of a backup")?;
        if head[..8] != SEALED_MAGIC {
            return Err("it is no encrypted manifest of a backup".to_owned());
        }
        let format = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
        if format != SEALED_FORMAT {
            return Err(format!(
                "it has format {format}, and this program reads {SEALED_FORMAT}: use a newer one"
            ));
        }
        let salt = head[20..].try_into().expect("the head ends with the salt");
        let chunks = key.chunks(&salt, &purpose(id));
        match chunks.open(SealedPart::End(0), head, &mut chunk.to_vec()) {
            Some(text) => BackupManifest::decode(text),
            None => Err(
                "it does not open with the key: it was changed, or is another backup's".to_owned(),
            ),
        }
    }

    /// Reads the file.
    ///
    /// # Errors
    /// It is cut, damaged, or of a later format: the end of a sentence that begins with its name.
    pub fn decode(bytes: &[u8]) -> Result<BackupManifest, String> {
        let cut = "it is cut, or no manifest of a backup: its last line is no checksum";
        let text = std::str::from_utf8(bytes).map_err(|_| "it is damaged: no text".to_owned())?;
        let (page, last) = text
            .strip_suffix('\n')
            .and_then(|text| text.rsplit_once('\n'))
            .ok_or(cut)?;
        let checksum = last.strip_prefix("checksum ").ok_or(cut)?;
        if format!("{:032x}", xxh3_128(&bytes[..page.len() + 1])) != checksum {
            return Err("it is damaged: its checksum does not hold".to_owned());
        }
        let page: Value = serde_json::from_str(page).map_err(|e| e.to_string())?;
        match page["format"].as_u64() {
            Some(FORMAT) => {}
            other => {
                return Err(format!(
                    "it has format {}, and this program reads {FORMAT}: use a newer one",
                    other.map_or("none".to_owned(), |format| format.to_string())
                ));
            }
        }
        read(&page).ok_or_else(|| "a field is missing, or is not what it should be".to_owned())
    }
}

fn node_to_json(node: &BackupNode) -> Value {
    let listed = |files: &[BackupFile]| -> Vec<Value> {
        let listed = files.iter().map(|file| {
            json!({
                "name": file.name,
                "bytes": file.bytes,
                "object": format!("{:032x}", file.object),
                "checksum": format!("{:032x}", file.checksum),
            })
        });
        listed.collect()
    };
    json!({
        "url": node.url,
        "node": format!("{:032x}", node.node),
        "hlc": format!("{:x}", node.hlc),
        "files": listed(&node.files),
        "kept": listed(&node.kept),
        "mark": node.mark.map(|mark| format!("{mark:032x}")),
    })
}

/// A name. It is shown to people: text that steers a terminal is no name.
fn text(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let is_plain = !text.chars().any(char::is_control);
    is_plain.then(|| text.to_owned())
}

/// A number in hexadecimal digits only.
pub fn digits(value: &Value) -> Option<u128> {
    let text = value.as_str()?;
    let is_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digits.then(|| u128::from_str_radix(text, 16).ok())?
}

fn clock(value: &Value) -> Option<u64> {
    u64::try_from(digits(value)?).ok()
}

/// The cluster in an answer of a node, or in a manifest; `None` when it is unreadable.
pub fn cluster(value: &Value) -> Option<Option<BackupCluster>> {
    if value.is_null() {
        return Some(None);
    }
    let members = value["members"].as_array()?;
    Some(Some(BackupCluster {
        name: text(&value["name"])?,
        epoch: value["epoch"].as_u64()?,
        replication_factor: value["replication_factor"].as_u64()?,
        members: members.iter().map(text).collect::<Option<_>>()?,
        least_successor: u32::try_from(value["least_successor"].as_u64()?).ok()?,
    }))
}

fn read(page: &Value) -> Option<BackupManifest> {
    let file = |file: &Value| {
        Some(BackupFile {
            name: text(&file["name"])?,
            bytes: file["bytes"].as_u64()?,
            object: digits(&file["object"])?,
            checksum: digits(&file["checksum"])?,
        })
    };
    let node = |node: &Value| {
        let listed = |files: &Value| files.as_array()?.iter().map(file).collect::<Option<_>>();
        let mark = match &node["mark"] {
            Value::Null => None,
            mark => Some(digits(mark)?),
        };
        Some(BackupNode {
            url: text(&node["url"])?,
            node: digits(&node["node"])?,
            hlc: clock(&node["hlc"])?,
            files: listed(&node["files"])?,
            kept: listed(&node["kept"])?,
            mark,
        })
    };
    let nodes = page["nodes"].as_array()?;
    Some(BackupManifest {
        id: text(&page["id"])?,
        began_ms: page["began_ms"].as_u64()?,
        cut_ms: page["cut_ms"].as_u64()?,
        hlc: clock(&page["hlc"])?,
        cluster: cluster(&page["cluster"])?,
        nodes: nodes.iter().map(node).collect::<Option<_>>()?,
        moved_bytes: page["moved_bytes"].as_u64()?,
        moved_stored_bytes: page["moved_stored_bytes"].as_u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::legal;
    use proptest::prelude::*;

    fn manifest() -> BackupManifest {
        BackupManifest {
            id: "20260102T030405Z-00c0ffee".to_owned(),
            began_ms: 1,
            cut_ms: 2,
            hlc: u64::MAX,
            cluster: Some(BackupCluster {
                name: "dendra".to_owned(),
                epoch: 1,
                replication_factor: 3,
                members: vec!["http://h1:1".to_owned(), "http://h2:1".to_owned()],
                least_successor: 70_000,
            }),
            nodes: vec![BackupNode {
                url: "http://h1:1".to_owned(),
                node: u128::MAX,
                hlc: 7,
                files: vec![BackupFile {
                    name: "CURRENT".to_owned(),
                    bytes: 34,
                    object: 5,
                    checksum: 6,
                }],
                kept: Vec::new(),
                mark: None,
            }],
            moved_bytes: 34,
            moved_stored_bytes: 99,
        }
    }

    fn any_files() -> impl Strategy<Value = Vec<BackupFile>> {
        let file = ("\\PC{0,20}", any::<(u64, u128, u128)>());
        let file = file.prop_map(|(name, (bytes, object, checksum))| BackupFile {
            name,
            bytes,
            object,
            checksum,
        });
        prop::collection::vec(file, 0..4)
    }

    fn any_node() -> impl Strategy<Value = BackupNode> {
        let numbers = any::<(u128, u64, Option<u128>)>();
        ("\\PC{0,30}", numbers, any_files(), any_files()).prop_map(
            |(url, (node, hlc, mark), files, kept)| BackupNode {
                url,
                node,
                hlc,
                files,
                kept,
                mark,
            },
        )
    }

    fn any_cluster() -> impl Strategy<Value = BackupCluster> {
        let members = prop::collection::vec("\\PC{0,30}", 0..5);
        ("\\PC{0,64}", any::<(u64, u64, u32)>(), members).prop_map(
            |(name, (epoch, replication_factor, least_successor), members)| BackupCluster {
                name,
                epoch,
                replication_factor,
                members,
                least_successor,
            },
        )
    }

    proptest! {
        #![proptest_config(legal::cases(96))]

        #[test]
        fn any_legal_manifest_is_read_as_it_was_written(
            id in "\\PC{0,40}",
            numbers: [u64; 5],
            cluster in prop::option::of(any_cluster()),
            nodes in prop::collection::vec(any_node(), 0..4),
        ) {
            let [began_ms, cut_ms, hlc, moved_bytes, moved_stored_bytes] = numbers;
            let manifest = BackupManifest {
                id,
                began_ms,
                cut_ms,
                hlc,
                cluster,
                nodes,
                moved_bytes,
                moved_stored_bytes,
            };
            prop_assert_eq!(BackupManifest::decode(&manifest.encode()), Ok(manifest.clone()));
            let key = BackupKey::new([7; 32]);
            let sealed = manifest.seal(&key)?;
            prop_assert_eq!(BackupManifest::open(&sealed, &key, &manifest.id), Ok(manifest));
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_and_knows_what_it_lacks() {
        let manifest = manifest();
        let read = BackupManifest::decode(&manifest.encode());
        assert_eq!(read.as_ref(), Ok(&manifest));
        assert_eq!(manifest.missing(), ["http://h2:1"]);
        assert_eq!(manifest.bytes(), 34);
    }

    #[test]
    fn tables_since_a_checkpoint_count() {
        let mut manifest = manifest();
        manifest.nodes[0].kept.push(BackupFile {
            name: "0000000000000009.tbl".to_owned(),
            bytes: 10,
            object: 8,
            checksum: 9,
        });
        assert_eq!(manifest.bytes(), 44);
        assert!(manifest.is_incremental());
    }

    fn with_checksum(page: &Value) -> Vec<u8> {
        let mut text = format!("{page:#}\n");
        text.push_str(&format!("checksum {:032x}\n", xxh3_128(text.as_bytes())));
        text.into_bytes()
    }

    #[test]
    fn a_manifest_of_a_later_format_or_of_none_is_refused_although_all_fields_are_there() {
        let text = String::from_utf8(manifest().encode()).expect("text");
        let (page, _) = text.rsplit_once("checksum ").expect("its last line");
        let mut page: Value = serde_json::from_str(page).expect("an object");
        for format in [serde_json::json!(FORMAT + 1), Value::Null] {
            page["format"] = format;
            let read = BackupManifest::decode(&with_checksum(&page));
            let why = read.expect_err("it may have what this program passes over");
            assert!(why.ends_with("use a newer one"), "{why}");
        }
        page["format"] = serde_json::json!(FORMAT);
        assert_eq!(
            BackupManifest::decode(&with_checksum(&page)),
            Ok(manifest())
        );
    }

    #[test]
    fn an_encrypted_manifest_opens_under_its_own_name_and_key_alone() {
        let (key, other) = (BackupKey::new([1; 32]), BackupKey::new([2; 32]));
        let manifest = manifest();
        let sealed = manifest.seal(&key).expect("randomness");
        let open = |bytes: &[u8], key| BackupManifest::open(bytes, key, &manifest.id);
        assert_eq!(open(&sealed, &key).as_ref(), Ok(&manifest));
        assert!(open(&sealed, &other).is_err());
        assert!(BackupManifest::open(&sealed, &key, "20260102T030405Z-00000000").is_err());
        assert!(
            open(&manifest.encode(), &key).is_err(),
            "it is not encrypted"
        );
        let told = String::from_utf8_lossy(&sealed);
        assert!(!told.contains("dendra") && !told.contains("CURRENT"));
        for at in 0..sealed.len() {
            let mut flipped = sealed.clone();
            flipped[at] ^= 1;
            assert!(open(&flipped, &key).is_err(), "byte {at}");
            assert!(open(&sealed[..at], &key).is_err(), "cut to {at}");
        }
    }

    #[test]
    fn each_flipped_byte_and_each_cut_is_noticed() {
        let whole = manifest().encode();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert!(BackupManifest::decode(&flipped).is_err(), "byte {at}");
            assert!(BackupManifest::decode(&whole[..at]).is_err(), "cut to {at}");
        }
    }
}
