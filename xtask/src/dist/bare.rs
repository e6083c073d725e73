//! Does the program serve where there is no file but itself?
//!
//! ```text
//! target/dist/bare/   dendra, etc/hosts, data/         the root of a process in namespaces of its own
//! serve ─► PUT and GET by the same program, which finds the node by a name of etc/hosts ─► SIGTERM
//! ```
//!
//! Invariants
//! 1. No file of the machine can be seen in the root: a library that is missing is missed here.
//!
//! Not here: the work of a node (the tests of the crates).

use super::command::{failed, output};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How the trial ended.
pub(super) enum Bare {
    /// It served.
    Ran,
    /// The machine allows no such root.
    NotTried(String),
}

struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        // Fails only when it is gone already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A command in the empty root.
fn inside(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user"])
        .arg(format!("--root={}", root.display()))
        .arg("/dendra")
        .args(arguments)
        .env_clear()
        // Where `unshare` itself is found.
        .env("PATH", "/usr/bin:/bin");
    command
}

/// Tries it.
pub(super) fn runs(program: &Path, root: &Path) -> Result<Bare, String> {
    for folder in ["etc", "data"] {
        let folder = root.join(folder);
        fs::create_dir_all(&folder).map_err(failed(&folder))?;
    }
    fs::copy(program, root.join("dendra")).map_err(failed(root))?;
    let hosts = root.join("etc/hosts");
    fs::write(&hosts, "127.0.0.1 the-node\n").map_err(failed(&hosts))?;
    let is_allowed = Command::new("unshare")
        .args(["--user", "--map-root-user", "true"])
        .output();
    match is_allowed {
        Ok(ran) if ran.status.success() => {}
        Ok(ran) => {
            let why = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
            return Ok(Bare::NotTried(why));
        }
        Err(e) => return Ok(Bare::NotTried(format!("unshare: {e}"))),
    }
    let version = output(&mut inside(root, &["--version"]))?;
    if !String::from_utf8_lossy(&version).contains(env!("CARGO_PKG_VERSION")) {
        return Err("the program says another version than the release".to_owned());
    }
    let serve = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--admin",
        "off",
        "--allowed-hosts",
        "the-node",
        "--data",
        "/data/one",
    ];
    let child = inside(root, &serve)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let mut node = Node(child.map_err(|e| format!("unshare: {e}"))?);
    let mut stderr = BufReader::new(node.0.stderr.take().ok_or("stderr is piped")?);
    let mut said = String::new();
    let port = loop {
        let mut line = String::new();
        if stderr.read_line(&mut line).map_err(|e| e.to_string())? == 0 {
            return Err(format!("it does not serve in an empty root: {said}"));
        }
        if let Some(rest) = line.strip_prefix("listening on http://127.0.0.1:") {
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            break port;
        }
        said.push_str(&line);
    };
    std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
    let url = format!("http://the-node:{port}");
    output(&mut inside(root, &["put", "a", "bare", "--url", &url]))?;
    let value = output(&mut inside(root, &["get", "a", "--url", &url]))?;
    if value != b"bare" {
        return Err(format!("it answers {:?}", String::from_utf8_lossy(&value)));
    }
    let id = node.0.id().to_string();
    output(Command::new("kill").args(["-TERM", &id]))?;
    let ended = node.0.wait().map_err(|e| e.to_string())?;
    if ended.success() {
        Ok(Bare::Ran)
    } else {
        Err(format!("it ended with {ended} in an empty root"))
    }
}
