//! `make report-look`: the pages of the lab in a real browser, looked at by a program and left as
//! pictures.
//!
//! ```text
//! page.html ─► + probe ─► chromium --dump-dom ─► what went wrong: errors, empty or clipped drawings, texts over texts
//!          ╲─► --screenshot, as wide as a laptop, as long as the page ─► page.png
//!           ╲► --print-to-pdf ─► page.pdf ─► pdftoppm, if it is there ─► page-1.png …
//! net log of the browser ─► nothing was asked for over the network
//! ```
//!
//! Invariants
//! 1. The browser has a fresh profile and no background traffic of its own.
//! 2. Without a browser no page is judged: one sentence says how to get one, and the task succeeds.
//!
//! Not here: drawing (`crates/lab`), well-formedness (`crates/lab/tests/report.rs`).
//! See: docs/lab/README.md.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Width of a laptop's window.
const WIDTH: u32 = 1366;

/// Longest picture.
const HEIGHT_MAX: u64 = 16_000;

const FLAGS: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
];

/// Runs before the scripts of the page.
const BEFORE: &str = "<script>window.wrong=[];addEventListener('error',e=>wrong.push('error: '+e.message));\
for(const level of ['error','warn']){const was=console[level];console[level]=(...words)=>{wrong.push('console.'+level+': '+words.join(' '));was(...words)}}</script>";

/// Runs after them, and leaves its findings in the document.
const AFTER: &str = include_str!("probe.js");

/// Looks at pages; true when they have no fault.
pub(crate) fn run(root: &Path, arguments: &[String]) -> bool {
    let Some(browser) = browser() else {
        println!(
            "There is no chromium here, so nothing was looked at. Debian: apt-get install chromium (and poppler-utils for pictures of the print)."
        );
        return true;
    };
    let folder = root.join("target/report-look");
    let mut pages: Vec<PathBuf> = arguments.iter().map(PathBuf::from).collect();
    if pages.is_empty() {
        pages = ["run", "invalid", "compare"]
            .map(|name| folder.join(name).with_extension("html"))
            .to_vec();
    }
    let mut is_fine = true;
    for page in &pages {
        match look(&browser, &folder, page) {
            Ok(findings) => {
                is_fine &= findings.is_empty();
                for finding in findings {
                    println!("{}: {finding}", page.display());
                }
            }
            Err(sentence) => {
                is_fine = false;
                println!("{}: {sentence}", page.display());
            }
        }
    }
    println!(
        "{}",
        if is_fine {
            "Nothing is wrong with these pages."
        } else {
            "These pages are not in order."
        }
    );
    is_fine
}

fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &str| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| file.is_file())
    };
    let names = ["chromium", "chromium-browser", "google-chrome"];
    named
        .filter(|file| file.is_file())
        .or_else(|| names.into_iter().find_map(on_path))
}

/// Everything that is wrong with one page.
fn look(browser: &Path, folder: &Path, page: &Path) -> Result<Vec<String>, String> {
    fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let page = fs::canonicalize(page).map_err(|e| format!("{}: {e}", page.display()))?;
    let text = fs::read_to_string(&page).map_err(|e| e.to_string())?;
    let stem = page
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    // Pages of runs have one name; their folder tells them apart.
    let parent = page
        .parent()
        .filter(|parent| *parent != fs::canonicalize(folder).unwrap_or_default());
    let parent = parent
        .and_then(Path::file_name)
        .map(|name| format!("{}-", name.to_string_lossy()));
    let stem = format!("{}{stem}", parent.unwrap_or_default());
    let probed = folder.join(format!("{stem}.probed"));
    fs::create_dir_all(&probed).map_err(|e| format!("{}: {e}", probed.display()))?;
    let probe = probed.join("page.html");
    let head = text.replacen("<head>", &format!("<head>{BEFORE}"), 1);
    let body = head.replacen("</body>", &format!("<script>{AFTER}</script></body>"), 1);
    fs::write(&probe, body).map_err(|e| format!("{}: {e}", probe.display()))?;
    let net_log = probed.join("net.json");
    let window = format!("--window-size={WIDTH},768");
    let log = format!("--log-net-log={}", net_log.display());
    let dom = chromium(
        browser,
        &probed,
        &[&window, &log, "--virtual-time-budget=3000", "--dump-dom"],
        &probe,
    )?;
    let found = found(&dom).ok_or("the probe left nothing: the scripts of the page did not run")?;
    let mut findings: Vec<String> = strings(&found["wrong"]);
    let drawings = found["drawings"].as_u64().unwrap_or(0);
    println!(
        "{}: {drawings} drawings, {} texts in them, {} px long",
        page.display(),
        found["texts"],
        found["height"]
    );
    findings.extend(asked(&fs::read_to_string(&net_log).unwrap_or_default()));
    let height = found["height"]
        .as_u64()
        .unwrap_or(900)
        .clamp(768, HEIGHT_MAX);
    let whole = format!("--window-size={WIDTH},{height}");
    let shot = folder.join(format!("{stem}.png"));
    chromium(
        browser,
        &probed,
        &[&whole, &format!("--screenshot={}", shot.display())],
        &page,
    )?;
    let print = folder.join(format!("{stem}.pdf"));
    chromium(
        browser,
        &probed,
        &[
            "--no-pdf-header-footer",
            &format!("--print-to-pdf={}", print.display()),
        ],
        &page,
    )?;
    for file in [&shot, &print] {
        if !fs::metadata(file).is_ok_and(|data| data.len() > 10_000) {
            findings.push(format!("{} is missing or empty", file.display()));
        }
    }
    let pictures = Command::new("pdftoppm")
        .args(["-r", "70", "-png"])
        .arg(&print)
        .arg(folder.join(format!("{stem}-print")))
        .status();
    let how = if pictures.is_ok_and(|status| status.success()) {
        ", printed pages as PNG"
    } else {
        ""
    };
    println!("  {} and .pdf{how}", shot.display());
    fs::remove_dir_all(&probed).map_err(|e| format!("{}: {e}", probed.display()))?;
    Ok(findings)
}

fn chromium(browser: &Path, place: &Path, more: &[&str], page: &Path) -> Result<String, String> {
    let profile = place.join("profile");
    let output = Command::new(browser)
        .args(FLAGS)
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("{} does not start ({e})", browser.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!(
            "{} ended with {}: {}",
            browser.display(),
            output.status,
            said.trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The text that the probe left in the document.
fn found(dom: &str) -> Option<Value> {
    let (_, rest) = dom.split_once("<pre id=\"probe\">")?;
    let (text, _) = rest.split_once("</pre>")?;
    let plain = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&nbsp;", " ")
        .replace("&amp;", "&");
    serde_json::from_str(&plain).ok()
}

fn strings(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|text| text.as_str().map(str::to_owned))
        .collect()
}

/// Requests over the network that the page made, by the browser's own log.
fn asked(net_log: &str) -> Vec<String> {
    let log: Value = match serde_json::from_str(net_log) {
        Ok(log) => log,
        Err(e) => {
            return vec![format!(
                "the browser's log of the network cannot be read ({e})"
            )];
        }
    };
    let events = log["events"].as_array().into_iter().flatten();
    let url_of = |event: &Value| {
        let parameters = &event["params"];
        // A request that the browser makes by itself has no origin.
        let is_own = parameters["initiator"]
            .as_str()
            .is_none_or(|from| from == "not an origin");
        let url = parameters["url"]
            .as_str()
            .filter(|url| url.starts_with("http") || url.starts_with("ws"))?;
        (!is_own).then(|| format!("it asked the network for {url}"))
    };
    events.filter_map(url_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_is_read_from_the_document_and_requests_from_the_log() {
        let dom = "<html><pre id=\"probe\">{\"wrong\":[\"a &lt;b&gt; &amp; c\"]}</pre></html>";
        assert_eq!(
            strings(&found(dom).expect("it is there")["wrong"]),
            ["a <b> & c"]
        );
        assert_eq!(found("<html></html>"), None);
        let log = r#"{"events":[{"params":{"url":"http://own/","initiator":"not an origin"}},{"params":{"url":"http://x/","initiator":"null"}},
            {"params":{"url":"file:///a","initiator":"null"}},{}]}"#;
        assert_eq!(asked(log), ["it asked the network for http://x/"]);
        assert_eq!(asked("").len(), 1);
    }
}
