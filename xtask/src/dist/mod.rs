//! `make dist`: the release as files that run on any Linux of the machine's kind.
//!
//! ```text
//! target/dist/dendra-0.1.0-x86_64-linux.tar.gz     dendra, README, LICENSE, CHANGELOG, SBOM, man page, completions
//! target/dist/dendra-0.1.0-x86_64-linux.debug      its debug symbols; a debugger finds them by name and checksum
//! target/dist/SHA256SUMS                           of both
//! ```
//!
//! The program is linked statically against the C library of the building machine (glibc). So the
//! machine needs no further target, and the program runs where there is no C library at all.
//! `DIST_TARGET=x86_64-unknown-linux-musl` builds with another one, if its C compiler is there.
//! Names of functions stay in the program: profiles of a running node need them.
//!
//! Invariants
//! 1. The packed program was started with no file beside it (`bare.rs`), unless the machine allows
//!    no empty root; then the last line says so.
//! 2. No file of it holds a path of the machine that built it.
//! 3. The same commit on the same machine gives the same archive: times are the commit's.
//!
//! Not here: tags and signatures (docs/releasing.md).
//! See: docs/releasing.md.

mod bare;
mod command;
mod sbom;

use command::{failed, output, text};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags of every build (`.cargo/config.toml`), which the environment's would replace.
const RUSTFLAGS: [&str; 2] = ["-Cforce-frame-pointers=yes", "-Ctarget-feature=+crt-static"];

/// Builds, packs and checks; true when all of it held.
pub(crate) fn run(root: &Path) -> bool {
    match dist(root) {
        Ok(()) => true,
        Err(sentence) => {
            eprintln!("dist: {sentence}");
            false
        }
    }
}

fn host_target() -> Result<String, String> {
    let said = text(Command::new("rustc").arg("-vV"))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc names no host".to_owned())
}

fn dist(root: &Path) -> Result<(), String> {
    let target = match std::env::var("DIST_TARGET") {
        Ok(named) if !named.is_empty() => named,
        _ => host_target()?,
    };
    let version = env!("CARGO_PKG_VERSION");
    let machine = target.split('-').next().unwrap_or("unknown");
    let name = format!("dendra-{version}-{machine}-linux");
    println!("building {name} for {target}");
    let built = build(root, &target)?;
    let place = root.join("target/dist");
    match fs::remove_dir_all(&place) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(&place)(e)),
        _ => {}
    }
    let folder = place.join(&name);
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    let program = folder.join("dendra");
    let symbols = place.join(format!("{name}.debug"));
    split(&built, &program, &symbols)?;
    check_static(&program)?;
    let paths = BuildPaths::of(root)?;
    paths.check(&program)?;
    paths.check(&symbols)?;
    for file in ["README.md", "LICENSE", "CHANGELOG.md"] {
        let from = root.join(file);
        fs::copy(&from, folder.join(file)).map_err(failed(&from))?;
    }
    let bill = folder.join("dendra.cdx.json");
    let components = sbom::write(root, &target, &bill)?;
    for (arguments, file) in [
        (&["man"][..], "dendra.1"),
        (&["completions", "bash"], "dendra.bash"),
        (&["completions", "zsh"], "_dendra"),
        (&["completions", "fish"], "dendra.fish"),
    ] {
        let made = output(Command::new(&program).args(arguments))?;
        let to = folder.join(file);
        fs::write(&to, made).map_err(failed(&to))?;
    }
    let archive = pack(root, &place, &name)?;
    let sums = [&archive, &symbols];
    let mut sum = Command::new("sha256sum");
    sum.current_dir(&place);
    for file in sums {
        sum.arg(file.file_name().unwrap_or_default());
    }
    let sums = place.join("SHA256SUMS");
    fs::write(&sums, output(&mut sum)?).map_err(failed(&sums))?;
    let size = |path: &Path| fs::metadata(path).map_or(0, |it| it.len()) >> 10;
    println!("{}: {} KiB", archive.display(), size(&archive));
    println!("  the program has {} KiB", size(&program));
    println!("  its SBOM names {components} packages");
    println!("{}: {} KiB", symbols.display(), size(&symbols));
    println!("{}", sums.display());
    match bare::runs(&program, &place.join("bare"))? {
        bare::Bare::Ran => println!("it serves in an empty root: no library, no shell, no /proc"),
        bare::Bare::NotTried(why) => println!("not tried in an empty root: {why}"),
    }
    Ok(())
}

fn build(root: &Path, target: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let paths = BuildPaths::of(root)?;
    let flags = RUSTFLAGS.map(str::to_owned).into_iter();
    let flags: Vec<String> = flags.chain(paths.flags("--remap-path-prefix=")).collect();
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "--package", "dendra"])
        .args(["--target", target])
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CFLAGS", paths.flags("-ffile-prefix-map=").join(" "))
        .current_dir(root)
        .status()
        .map_err(|e| format!("cargo does not start: {e}"))?;
    if !status.success() {
        return Err(format!(
            "the build for {target} failed. It needs the target (rustup target add {target}), and a C \
             compiler with a static C library for it (libc.a: libc6-dev; musl-gcc: musl-tools)"
        ));
    }
    Ok(root.join("target").join(target).join("release/dendra"))
}

/// Folders of the building machine, and the names that a program has in their place.
struct BuildPaths([(String, &'static str); 2]);

impl BuildPaths {
    fn of(root: &Path) -> Result<BuildPaths, String> {
        let home = std::env::var("CARGO_HOME").or_else(|_| {
            let home = std::env::var("HOME").map_err(|_| "HOME is not set".to_owned())?;
            Ok::<String, String>(format!("{home}/.cargo"))
        })?;
        let root = root.to_str().ok_or("the path of the tree is no text")?;
        Ok(BuildPaths([(root.to_owned(), "dendra"), (home, "cargo")]))
    }

    /// The flags that have a compiler write the other words.
    fn flags(&self, flag: &str) -> Vec<String> {
        let BuildPaths(paths) = self;
        let flags = paths.iter().map(|(from, to)| format!("{flag}{from}={to}"));
        flags.collect()
    }

    /// None of them is in the file.
    fn check(&self, file: &Path) -> Result<(), String> {
        let bytes = fs::read(file).map_err(failed(file))?;
        let BuildPaths(paths) = self;
        for (from, _) in paths {
            // A longer name that begins so is another folder.
            let held = [from.as_bytes(), b"/"].concat();
            if bytes.windows(held.len()).any(|part| part == held) {
                return Err(format!("{} holds the path {from}", file.display()));
            }
        }
        Ok(())
    }
}

/// Debug symbols go into a file of their own, which the program names.
fn split(built: &Path, program: &Path, symbols: &Path) -> Result<(), String> {
    let objcopy = |arguments: &[&str], files: &[&Path]| {
        let mut command = Command::new("objcopy");
        output(command.args(arguments).args(files)).map(|_| ())
    };
    objcopy(&["--only-keep-debug"], &[built, symbols])?;
    objcopy(&["--strip-debug"], &[built, program])?;
    let link = format!("--add-gnu-debuglink={}", symbols.display());
    objcopy(&[&link], &[program])
}

/// No loader and no library is asked for.
fn check_static(program: &Path) -> Result<(), String> {
    let said = text(
        Command::new("readelf")
            .args(["-l", "-d", "-W"])
            .arg(program),
    )?;
    match said
        .lines()
        .find(|line| line.contains("INTERP") || line.contains("(NEEDED)"))
    {
        None => Ok(()),
        Some(line) => Err(format!("the program is not static: {}", line.trim())),
    }
}

fn pack(root: &Path, place: &Path, name: &str) -> Result<PathBuf, String> {
    let time = text(
        Command::new("git")
            .args(["log", "-1", "--format=%ct"])
            .current_dir(root),
    );
    // Without git, as from an archive of the source: a fixed time.
    let time = time.unwrap_or_else(|_| "0".to_owned());
    let archive = place.join(format!("{name}.tar.gz"));
    output(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .arg(format!("--mtime=@{time}"))
            .args(["--use-compress-program", "gzip -9n", "-cf"])
            .arg(&archive)
            .arg(name)
            .current_dir(place),
    )?;
    Ok(archive)
}
