//! Pieces of a page: text that means itself, tables, figures.
//!
//! Invariants
//! 1. Words that come from a run or from a server are escaped before they are part of a page.
//!
//! Not here: the text of the page (`page.rs`), how it looks (`style.css`).

use dendra_flame::escape;
use std::fmt::Display;
use std::fmt::Write;

/// `text`, safe in HTML.
pub(crate) fn safe(text: impl Display) -> String {
    let mut out = String::new();
    escape(&text.to_string(), &mut out);
    out
}

/// A table of words; the first column is a heading of its row.
#[derive(Debug)]
pub(crate) struct HtmlTable {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
    /// By row: the class of its last cell; empty for none.
    marks: Vec<&'static str>,
}

impl HtmlTable {
    /// A table with these columns.
    pub(crate) fn new(heads: &[&str]) -> HtmlTable {
        HtmlTable {
            heads: heads.iter().map(|head| (*head).to_owned()).collect(),
            rows: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.marked("", cells);
    }

    /// Adds a row whose last cell has this class.
    pub(crate) fn marked(&mut self, mark: &'static str, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
        self.marks.push(mark);
    }

    /// The table as HTML; empty when it has no rows.
    pub(crate) fn html(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut out = String::from("<div class=\"scroll\"><table><thead><tr>");
        for head in &self.heads {
            write!(out, "<th scope=\"col\">{}</th>", safe(head)).expect("a string takes all text");
        }
        out.push_str("</tr></thead><tbody>");
        for (row, mark) in self.rows.iter().zip(&self.marks) {
            out.push_str("<tr>");
            for (at, cell) in row.iter().map(safe).enumerate() {
                out += &match at {
                    0 => format!("<th scope=\"row\">{cell}</th>"),
                    _ if at + 1 == row.len() && !mark.is_empty() => {
                        format!("<td class=\"{mark}\">{cell}</td>")
                    }
                    _ => format!("<td>{cell}</td>"),
                };
            }
            out.push_str("</tr>");
        }
        out.push_str("</tbody></table></div>");
        out
    }
}

/// A drawing with a caption above and, when there is more to say, a sentence below.
pub(crate) fn figure(caption: &str, drawing: &str, sentence: &str) -> String {
    let mut out = String::from("<figure>");
    if !caption.is_empty() {
        write!(out, "<figcaption>{}</figcaption>", safe(caption)).expect("a string takes all text");
    }
    out.push_str(drawing);
    if !sentence.is_empty() {
        out.push_str(&below(sentence));
    }
    out.push_str("</figure>\n");
    out
}

/// A sentence below a drawing or a table.
pub(crate) fn below(sentence: impl Display) -> String {
    format!("<p class=\"below\">{}</p>", safe(sentence))
}

/// A coloured box: `good`, `warn`, `bad` or `note`.
pub(crate) fn banner(class: &str, head: &str, text: impl Display) -> String {
    let (head, text) = (safe(head), safe(text));
    format!("<div class=\"banner {class}\"><strong>{head}</strong> {text}</div>\n")
}

/// A section with a heading; empty when it has no body.
pub(crate) fn section(id: &str, heading: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!(
        "<section id=\"{id}\"><h2>{}</h2>\n{body}</section>\n",
        safe(heading)
    )
}
