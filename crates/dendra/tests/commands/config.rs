//! `dendra config print`, completions and the manual page, through the real binary.

use crate::support::{dendra, run};

#[test]
fn an_unknown_key_ends_with_2_and_its_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("d.toml");
    std::fs::write(&file, "queue = 5\nmemmory = \"1GiB\"\n").expect("a file");
    for verb in [&["config", "print"][..], &["serve"]] {
        let got = run(dendra(verb).arg("--config").arg(&file));
        assert_eq!(got.code, Some(2));
        assert!(
            got.stderr.contains("d.toml:2: unknown key \"memmory\""),
            "{}",
            got.stderr
        );
        let got = run(dendra(verb).env("DENDRA_CONFIG", &file));
        assert_eq!(got.code, Some(2), "the variable names the file too");
        let got = run(dendra(verb).env("DENDRA_MEMMORY", "1GiB"));
        assert_eq!(got.code, Some(2));
        assert!(
            got.stderr.contains("did you mean DENDRA_MEMORY?"),
            "{}",
            got.stderr
        );
        let got = run(dendra(verb).arg("--config=/does/not/exist"));
        assert_eq!(got.code, Some(2));
        assert!(got.stderr.contains("/does/not/exist"), "{}", got.stderr);
    }
}

#[test]
fn config_print_refuses_what_serve_refuses_in_the_same_words() {
    for flags in [
        &["--memory", "8MiB"][..],
        &["--memory", "64MiB", "--value-bytes-max", "8MiB"],
        &["--memory", "64MiB", "--memtable", "32MiB"],
    ] {
        let said = [&["config", "print"][..], &["serve"]].map(|verb| {
            let got = run(&mut dendra(verb.iter().chain(flags)));
            assert_eq!(got.code, Some(2), "{verb:?} {flags:?}: {}", got.stderr);
            assert!(got.stdout.is_empty());
            got.stderr
        });
        assert_eq!(said[0], said[1]);
        assert!(said[0].contains("(flag)") || said[0].contains(": flag)"));
    }
}

#[test]
fn each_value_is_printed_with_its_source() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("d.toml");
    std::fs::write(&file, "queue = 5\nworkers = 5\n").expect("a file");
    let mut command = dendra(["config", "print", "--memory", "64MiB", "--config"]);
    let got = run(command.arg(&file).env("DENDRA_QUEUE", "6"));
    assert_eq!(got.code, Some(0), "{}", got.stderr);
    let text = String::from_utf8(got.stdout).expect("it is text");
    let line = |key: &str| {
        text.lines()
            .find(|line| line.starts_with(key))
            .expect("a line")
    };
    assert!(line("memory").starts_with("memory = \"64MiB\"") && line("memory").ends_with("# flag"));
    assert!(
        line("queue").starts_with("queue = 6")
            && line("queue").ends_with("# environment DENDRA_QUEUE")
    );
    assert!(line("workers").ends_with("d.toml:2"), "{text}");
    assert!(line("durability").ends_with("# default"));
    let mut command = dendra(["config", "print", "--json", "--queue", "7"]);
    let object: serde_json::Value =
        serde_json::from_slice(&run(&mut command).stdout).expect("one object");
    assert_eq!(object["queue"]["value"], 7);
}

#[test]
fn completions_and_the_manual_page_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let got = run(&mut dendra(["completions", shell]));
        assert_eq!(got.code, Some(0));
        assert!(
            String::from_utf8_lossy(&got.stdout).contains("value-bytes-max"),
            "{shell}"
        );
    }
    let got = run(&mut dendra(["man"]));
    let page = String::from_utf8_lossy(&got.stdout).into_owned();
    assert!(
        page.contains(".TH dendra") && page.contains("retry\\-for"),
        "{page}"
    );
}
