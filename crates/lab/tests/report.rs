//! The page of a run, checked as a reader's browser would. Every drawing is well-formed, no text of
//! a hostile run becomes markup, and a run that lacks parts still gives a page.
//!
//! Not here: how the page looks (`make report-look`).

mod sample;

use dendra_lab::report::{Side, render_compare, render_run, render_sides, say_sides};
use dendra_lab::run::{Counts, Mode, OpResult, PhaseKind, Run, Second, Validity};
use sample::{Taste, latency, run};

/// Checks that `xml` is one well-formed element: tags nest, attributes are quoted, entities are
/// known.
fn check(xml: &str) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        check_text(&rest[..at])?;
        rest = &rest[at + 1..];
        let end = end_of_tag(rest).ok_or_else(|| format!("a tag never ends: {rest:.60}"))?;
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            let expected = open.pop();
            if expected.as_deref() != Some(name.trim()) {
                return Err(format!("</{name}> closes {expected:?}"));
            }
        } else {
            let body = tag.strip_suffix('/').unwrap_or(tag);
            let name = body.split([' ', '\n']).next().unwrap_or_default();
            check_attributes(&body[name.len()..])?;
            if body.len() == tag.len() {
                open.push(name.to_owned());
            }
        }
    }
    check_text(rest)?;
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("never closed: {open:?}"))
    }
}

/// The `>` that ends a tag, quoted ones passed over.
fn end_of_tag(tag: &str) -> Option<usize> {
    let mut is_quoted = false;
    tag.char_indices().find_map(|(at, c)| {
        is_quoted ^= c == '"';
        (c == '>' && !is_quoted).then_some(at)
    })
}

fn check_attributes(mut text: &str) -> Result<(), String> {
    let mut names = Vec::new();
    loop {
        text = text.trim_start();
        if text.is_empty() {
            return Ok(());
        }
        let (name, after) = text
            .split_once("=\"")
            .ok_or_else(|| format!("no value: {text:.60}"))?;
        if !name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == ':')
            || names.contains(&name)
        {
            return Err(format!("a strange or repeated attribute: {name:.60}"));
        }
        names.push(name);
        let (value, after) = after.split_once('"').ok_or("an open quote")?;
        if value.contains('<') {
            return Err(format!("a bracket in an attribute: {value:.60}"));
        }
        check_text(value)?;
        text = after;
    }
}

fn check_text(text: &str) -> Result<(), String> {
    for (at, _) in text.match_indices('&') {
        let entity = text[at + 1..].split(';').next().unwrap_or_default();
        if !["amp", "lt", "gt", "quot", "#39"].contains(&entity) {
            return Err(format!("a bare ampersand: {:.40}", &text[at..]));
        }
    }
    match text
        .chars()
        .find(|c| c.is_control() && !"\n\t".contains(*c))
    {
        Some(c) => Err(format!("control character {c:?}")),
        None => Ok(()),
    }
}

/// Checks every drawing of a page and returns how many there are.
fn check_drawings(page: &str) -> usize {
    let mut count = 0;
    for part in page.split("<svg").skip(1) {
        let (svg, _) = part.split_once("</svg>").expect("every drawing ends");
        let svg = format!("<svg{svg}</svg>");
        if let Err(reason) = check(&svg) {
            panic!("{reason}\nin {svg:.600}");
        }
        assert!(
            !svg.contains("NaN") && !svg.contains("inf\""),
            "a coordinate is no number: {svg:.600}"
        );
        count += 1;
    }
    count
}

#[test]
fn the_checker_can_tell() {
    assert_eq!(check("<a b=\"c &amp; d\"><e/>text</a>"), Ok(()));
    for bad in [
        "<a>",
        "<a></b>",
        "<a b=c/>",
        "<a b=\"<\"/>",
        "<a>&x</a>",
        "<a b=\"1\" b=\"2\"/>",
        "<a>\u{1}</a>",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_full_run_shows_every_part_in_wellformed_drawings() {
    let page = render_run(&run(Taste::default()));
    assert!(check_drawings(&page) >= 12, "{}", check_drawings(&page));
    for id in [
        "latency",
        "time",
        "search",
        "overload",
        "stages",
        "profiles",
        "generator",
        "facts",
    ] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    assert!(page.contains("refused"), "refusals stand on the page");
}

#[test]
fn the_page_asks_nobody_for_anything() {
    let page = render_run(&run(Taste::default()));
    for wish in [
        "src=",
        "href=",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(!page.contains(wish), "{wish}");
    }
}

#[test]
fn a_hostile_run_writes_no_markup() {
    let evil = "</script></style></pre><script>alert(1)</script><img onerror=x>\"'&\u{1}";
    let mut run = run(Taste::default());
    run.command = vec![evil.to_owned()];
    run.notes = vec![evil.to_owned()];
    run.targets[0].url = evil.to_owned();
    run.targets[0].template = evil.to_owned();
    run.workload.name = evil.to_owned();
    run.verdict = Validity::Invalid {
        reason: evil.to_owned(),
    };
    run.machine.cpu_model = evil.to_owned();
    for phase in &mut run.phases {
        phase.name = evil.to_owned();
        for op in &mut phase.ops {
            op.op = evil.to_owned();
        }
    }
    for profile in &mut run.profiles {
        profile.kind = evil.to_owned();
        profile.folded = format!("{evil};{evil} 100\n");
    }
    let sample = run.servers[0]
        .buckets
        .keys()
        .next()
        .cloned()
        .expect("it has buckets");
    run.servers[0]
        .buckets
        .insert(sample.replace("put", evil), [0.0, 9.0]);
    if let Some(search) = &mut run.search {
        search.slo = evil.to_owned();
        search.sentence = evil.to_owned();
        search.steps[0].reason = evil.to_owned();
    }
    for page in [
        render_run(&run),
        render_compare(&[run.clone(), run.clone()]),
    ] {
        check_drawings(&page);
        assert!(!page.contains("<img"), "an element of the run's making");
        assert_eq!(
            page.matches("<script").count(),
            1,
            "only the page's own script"
        );
        assert!(!page.contains('\u{1}'));
    }
}

#[test]
fn a_run_of_one_request_gives_a_page() {
    let mut run = run(Taste::default());
    run.phases.truncate(1);
    run.phases[0].kind = PhaseKind::Measure;
    let counts = Counts {
        planned: 1,
        sent: 1,
        answered: 1,
        ok: 1,
        statuses: [(200, 1)].into(),
        ..Counts::default()
    };
    run.phases[0].ops = vec![OpResult {
        op: "get".to_owned(),
        counts: counts.clone(),
        seconds: vec![Second {
            planned: 1,
            sent: 1,
            ok: 1,
            ..Second::default()
        }],
        response: latency(&[250.0], vec![vec![0, 0, 0, 1]]),
        given_up: latency(&[], Vec::new()),
        service: latency(&[250.0], Vec::new()),
        refused: latency(&[], Vec::new()),
        failed: latency(&[], Vec::new()),
    }];
    run.phases[0].counts = counts;
    let page = render_run(&run);
    assert!(check_drawings(&page) > 0);
    assert!(
        !page.contains("p99.9 response</dt>"),
        "one request carries no 99.9th percentile"
    );
}

#[test]
fn a_run_without_any_series_gives_a_page() {
    let mut run = run(Taste::default());
    for phase in &mut run.phases {
        phase.counts = Counts::default();
        phase.length_s = 0.0;
        for op in &mut phase.ops {
            *op = OpResult {
                op: op.op.clone(),
                counts: Counts::default(),
                seconds: Vec::new(),
                response: latency(&[], Vec::new()),
                given_up: latency(&[], Vec::new()),
                service: latency(&[], Vec::new()),
                refused: latency(&[], Vec::new()),
                failed: latency(&[], Vec::new()),
            };
        }
    }
    run.servers[0].series.clear();
    run.servers[0].buckets.clear();
    run.profiles[0].folded.clear();
    check_drawings(&render_run(&run));
    run.phases.clear();
    assert!(render_run(&run).contains("NOTHING WAS MEASURED"));
}

#[test]
fn an_invalid_or_cut_or_closed_run_says_so_before_its_first_figure() {
    let mut run = run(Taste::default());
    run.verdict = Validity::Invalid {
        reason: "the generator was the bottleneck".to_owned(),
    };
    run.is_cut = true;
    run.settings.mode = Mode::Closed;
    let page = render_run(&run);
    let first_figure = page.find("class=\"tiles\"").expect("it has figures");
    for word in ["INVALID RUN.", "CUT SHORT.", "CLOSED LOOP."] {
        assert!(
            page.find(word).is_some_and(|at| at < first_figure),
            "{word}"
        );
    }
    assert!(!page.contains("<strong>Valid.</strong>"));
}

#[test]
fn refused_requests_take_their_share_of_the_axis() {
    let page = render_run(&run(Taste {
        refused: 0.2,
        ..Taste::default()
    }));
    assert!(page.contains("class=\"band lost\""));
    let mut clean = run(Taste {
        refused: 0.0,
        frozen: None,
        ..Taste::default()
    });
    // Without its overload.
    clean.phases.truncate(2);
    let clean = render_run(&clean);
    assert!(!clean.contains("class=\"band lost\""));
    assert!(clean.contains("No request was refused"));
}

#[test]
fn an_overload_is_shown_over_time_with_how_the_target_stood() {
    let whole = run(Taste::default());
    let page = render_run(&whole);
    let beyond = page.split("id=\"overload\"").nth(1).expect("there is one");
    for words in [
        "Behind 2× the first second was as good",
        "Behind 5× it took 2 s",
        "never sent, no connection was free",
        "99th percentile from the send",
        "Connections opened again, a second",
        "wait for the processor of the server",
        "Requests that stand in line",
    ] {
        assert!(beyond.contains(words), "{words}");
    }
    let mut unasked = whole;
    unasked.servers.clear();
    let page = render_run(&unasked);
    assert!(check_drawings(&page) > 0);
    assert!(!page.contains("Requests that stand in line"));
}

fn repeats(median_us: f64, seed: u64) -> Vec<Run> {
    let taste = |n| Taste {
        seed: seed + n,
        median_us: median_us + n as f64,
        frozen: None,
        refused: 0.0,
    };
    (0..3).map(|n| run(taste(n))).collect()
}

#[test]
fn three_slower_repeats_are_called_slower_and_two_are_not_judged() {
    let side = |name: &str, runs| Side {
        name: name.to_owned(),
        runs,
    };
    let page = render_sides(&[
        side("old", repeats(400.0, 1)),
        side("new", repeats(900.0, 10)),
    ]);
    check_drawings(&page);
    assert!(page.contains("yes: slower"));
    assert!(
        page.contains("id=\"flame-0-cpu\""),
        "the differential flame graph is there"
    );
    let page = render_sides(&[
        side("old", repeats(400.0, 1)[..2].to_vec()),
        side("new", repeats(900.0, 10)),
    ]);
    assert!(!page.contains("yes: slower") && page.contains("unknown: fewer than three valid runs"));
    let page = render_sides(&[
        side("old", repeats(400.0, 1)),
        side("same", repeats(400.0, 20)),
    ]);
    assert!(
        !page.contains("yes: slower") && !page.contains("yes: faster"),
        "noise is called noise"
    );
}

#[test]
fn the_verdict_as_text_names_what_moved_and_passes_no_control_character_on() {
    let side = |name: &str, runs| Side {
        name: name.to_owned(),
        runs,
    };
    let mut slow = repeats(900.0, 10);
    slow[0].command.push("\u{1b}[2J".to_owned());
    let text = say_sides(&[side("old", repeats(400.0, 1)), side("new", slow)]);
    let verdict = text.lines().find(|line| line.starts_with("verdict: "));
    let verdict = verdict.expect("each comparison has one");
    assert!(
        verdict.contains("new differs from old") && verdict.contains("p99, response +"),
        "{verdict}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    let same = say_sides(&[
        side("old", repeats(400.0, 1)),
        side("same", repeats(400.0, 20)),
    ]);
    assert!(
        !same.contains("(slower)") && !same.contains("(faster)"),
        "{same}"
    );
}

#[test]
fn invalid_runs_take_no_part_in_a_judgement() {
    let mut new = repeats(900.0, 10);
    for run in &mut new {
        run.verdict = Validity::Invalid {
            reason: "the generator was the bottleneck".to_owned(),
        };
    }
    let side = |name: &str, runs| Side {
        name: name.to_owned(),
        runs,
    };
    let page = render_sides(&[side("old", repeats(400.0, 1)), side("new", new)]);
    assert!(page.contains("INVALID RUN") && !page.contains("yes: slower"));
}

#[test]
fn comparing_nothing_or_one_run_gives_a_page() {
    assert!(render_compare(&[]).contains("Nothing to compare"));
    check_drawings(&render_compare(&[run(Taste::default())]));
}
