//! How a read was found, as a client gets it: one JSON object.
//!
//! ```text
//! alone    look ─► store pool ─► EngineLook ─► page_of_engine ─► ReadDocument
//! member   look, if it is an owner; then the node's read and its account (peers/explain.rs)
//! ```
//!
//! Invariants
//! 1. The object is bounded: at most `EXPLAINED_TABLES_MAX` tables, and an entry for each owner.
//!
//! Not here: the steps themselves (crate `engine`, `explain.rs`; crate `node`, `account.rs`).
//! See: docs/explain.md.

use crate::exchange::socket::{ConnectionEnd, Socket};
use crate::lanes::work::StoreWork;
use crate::measure::stages::Watch;
use crate::waiting::engine_look::{EngineLook, LookEnd};
use crate::waiting::finished::Finished;
use crate::waiting::status::AnswerTerms;
use dendra_base::{Key, Kind, Version};
use dendra_engine::{
    BlockLook, BlockSource, CellFacts, FilterVerdict, FoundIn, TableAnswer, TableLook, TablePart,
};
use dendra_wire::percent;
use dendra_wire::route::Entity;
use serde_json::{Map, Value, json};
use std::rc::Rc;

/// A read to be explained.
pub(crate) struct ExplainRequest {
    pub(crate) entity: Entity,
    pub(crate) key: Key,
    pub(crate) terms: AnswerTerms,
    pub(crate) began_ns: u64,
    pub(crate) deadline_us: u64,
}

/// The answer to such a request.
pub(crate) struct ReadDocument {
    /// Status as of a `GET`, but 200 also where there is no value.
    pub(crate) status: u16,
    /// Replicas that answered.
    pub(crate) acks: u8,
    pub(crate) page: Map<String, Value>,
}

/// Why there is no document: how the read ended; `None` = it did not end in time.
pub(crate) type NoDocument = Option<Finished>;

/// Has the store pool read the key, and tell how.
pub(crate) async fn look(
    socket: &mut Socket,
    request: &ExplainRequest,
) -> Result<Result<Box<EngineLook>, NoDocument>, ConnectionEnd> {
    let lane = Rc::clone(socket.lane());
    let work = StoreWork::Explain(request.key.clone());
    let offered = lane.offer(socket.seat(), request.deadline_us, Watch::OFF, work);
    let slot = match offered {
        Ok(slot) => slot,
        Err((refused, _)) => return Ok(Err(Some(Finished::Refused(refused)))),
    };
    // A wait that ended early leaves the place empty, which says the same.
    let _waited = socket.pooled(slot, request.deadline_us).await?;
    let finished = socket.seat().take(0);
    socket.seat().next_round();
    Ok(match finished {
        Some(Finished::Explained(look)) => Ok(look),
        ended => Err(ended),
    })
}

/// The document of a node by itself.
pub(crate) fn document_of(look: &EngineLook, key: &Key, wall_ms: u64) -> ReadDocument {
    let newest = look.explained.newest.map(|(_, cell)| cell);
    let (status, outcome) = match (look.end, newest) {
        (LookEnd::Damaged, _) => (500, "damaged"),
        (LookEnd::Failed, _) => (500, "failed"),
        (LookEnd::Read, Some(cell)) if is_live(cell.kind, cell.expiry_ms, wall_ms) => {
            (200, "found")
        }
        (LookEnd::Read, _) => (200, "missing"),
    };
    let mut page = head_of(key, outcome);
    page.insert("record".to_owned(), page_of_cell(newest, wall_ms));
    page.insert("engine".to_owned(), page_of_engine(look, wall_ms));
    ReadDocument {
        status,
        acks: 1,
        page,
    }
}

/// The first fields of each document.
pub(crate) fn head_of(key: &Key, outcome: &str) -> Map<String, Value> {
    let found = match outcome {
        "found" => Value::Bool(true),
        "missing" => Value::Bool(false),
        _ => Value::Null,
    };
    let id = percent::encode(&key.as_stored()[1..]);
    let fields = [
        ("id", Value::from(id)),
        ("found", found),
        ("outcome", Value::from(outcome)),
    ];
    let named = fields.map(|(name, value)| (name.to_owned(), value));
    named.into_iter().collect()
}

fn is_live(kind: Kind, expiry_ms: Option<u64>, wall_ms: u64) -> bool {
    kind == Kind::Value && expiry_ms.is_none_or(|end_ms| wall_ms < end_ms)
}

/// A cell without its value.
pub(crate) fn page_of(
    (version, kind): (Version, Kind),
    expiry_ms: Option<u64>,
    value_bytes: usize,
    wall_ms: u64,
) -> Value {
    let word = match kind {
        Kind::Tombstone => "tombstone",
        Kind::Value if is_live(kind, expiry_ms, wall_ms) => "value",
        Kind::Value => "ended",
    };
    json!({
        "kind": word,
        "version": version.to_string(),
        "expires_ms": expiry_ms,
        "value_bytes": value_bytes,
    })
}

fn page_of_cell(newest: Option<CellFacts>, wall_ms: u64) -> Value {
    let page = |cell: CellFacts| {
        let what = (cell.version, cell.kind);
        page_of(what, cell.expiry_ms, cell.value_bytes, wall_ms)
    };
    newest.map_or(Value::Null, page)
}

/// The number of a table, as in the name of its file.
fn name_of(id: u64) -> String {
    format!("{id:016x}")
}

/// The part of the own engine.
pub(crate) fn page_of_engine(look: &EngineLook, wall_ms: u64) -> Value {
    let explained = &look.explained;
    let found_in = explained.newest.map(|(place, _)| match place {
        FoundIn::Memtable(0) => json!({ "memtable": "active" }),
        FoundIn::Memtable(n) => json!({ "memtable": format!("sealed-{n}") }),
        FoundIn::Table { level, id } => json!({ "level": level, "table": name_of(id) }),
    });
    let memtables = explained.memtables.iter().enumerate();
    let memtables = memtables.map(|(n, cell)| {
        let name = match n {
            0 => "active".to_owned(),
            n => format!("sealed-{n}"),
        };
        json!({ "memtable": name, "record": page_of_cell(*cell, wall_ms) })
    });
    let levels = explained.levels.iter().map(
        |level| json!({ "level": level.level, "tables": level.tables, "in_range": level.in_range }),
    );
    json!({
        "end": match look.end {
            LookEnd::Read => "read",
            LookEnd::Damaged => "damaged",
            LookEnd::Failed => "failed",
        },
        "took_us": look.took_us,
        "file_bytes": explained.file_bytes(),
        "found_in": found_in,
        "memtables": memtables.collect::<Vec<_>>(),
        "levels": levels.collect::<Vec<_>>(),
        "tables": explained.tables.iter().map(page_of_table).collect::<Vec<_>>(),
        "tables_left_out": explained.tables_left_out,
    })
}

fn page_of_table(table: &TableLook) -> Value {
    let (answer, version) = match table.answer {
        TableAnswer::Absent => ("absent", None),
        TableAnswer::Older => ("older", None),
        TableAnswer::Found(version) => ("found", Some(version.to_string())),
        TableAnswer::Damaged => ("damaged", None),
        TableAnswer::Failed => ("failed", None),
    };
    json!({
        "level": table.level,
        "table": name_of(table.id),
        "bytes": table.bytes,
        "records": table.records,
        "filter": match table.filter {
            FilterVerdict::NotAsked => "not-asked",
            FilterVerdict::None => "none",
            FilterVerdict::Absent => "absent",
            FilterVerdict::Maybe => "maybe",
        },
        "blocks": table.blocks.iter().map(page_of_block).collect::<Vec<_>>(),
        "answer": answer,
        "version": version,
    })
}

fn page_of_block(block: &BlockLook) -> Value {
    json!({
        "part": match block.part {
            TablePart::Guide => "index",
            TablePart::Data => "data",
        },
        "from": match block.from {
            BlockSource::Pinned => "memory",
            BlockSource::Cache => "cache",
            BlockSource::File => "file",
        },
        "bytes": block.file_bytes,
    })
}
