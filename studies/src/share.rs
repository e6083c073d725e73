//! A share of a core: a cgroup that holds the measured program to so much processor time.
//!
//! ```text
//! v1   <root>/cpu/<name>/cpu.cfs_period_us, cpu.cfs_quota_us, cpu.shares      10000, 2500, 262144
//! v2   <root>/<name>/cpu.max, cpu.weight                                      "2500 10000", 10000
//!
//! Share::make ─► folder, limit, guard ─► wrap(command): a shell joins the group, then becomes the program
//!                                   ╲─► the guard's input ends (dropped, failed, killed): group emptied and removed
//! ```
//!
//! Invariants
//! 1. A process is in the group before its first instruction: it inherits the group from the shell
//!    whose place and id it takes.
//! 2. The group goes when this process does, however that ends. The guard is a process of its own,
//!    which Ctrl-C does not end, and reads a pipe that only this process holds.
//!
//! Not here: which cores (`place.rs`).
//! See: cgroups(7); the kernel's `sched-bwc` and `cgroup-v2`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Where cgroups are mounted.
const ROOT: &str = "/sys/fs/cgroup";

/// The quota is given anew each time that so much time has passed, microseconds.
pub(super) const PERIOD_US: u64 = 10_000;

/// The largest weights: beside other programs of the machine a group gets all that its quota lets
/// it have.
const WEIGHT_V1: &str = "262144";
const WEIGHT_V2: &str = "10000";

/// The kernel takes no quota below this, microseconds.
const QUOTA_US_MIN: u64 = 1_000;

/// Joins the group of the first word, then becomes the rest.
const JOIN: &str = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;

/// Waits for the end of its input, then ends the processes of the group and removes it. A process
/// that was ended needs a moment to leave the group; ten seconds are more than that.
const GUARD: &str = r#"trap '' INT TERM HUP
cat > /dev/null
for try in $(seq 100); do
  while read -r id; do kill -KILL "$id" 2> /dev/null; done < "$0/cgroup.procs"
  rmdir "$0" 2> /dev/null && exit 0
  sleep 0.1
done
exit 1"#;

/// How cgroups are laid out below a root.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Layout {
    /// The folder of the controller for processors.
    V1(PathBuf),
    /// The folder of all controllers.
    V2(PathBuf),
}

/// A group that holds its processes to a share of one core. It is gone when this is dropped.
pub(super) struct Share {
    layout: Layout,
    folder: PathBuf,
    guard: Child,
    /// Cores.
    pub(super) cores: f64,
}

impl Share {
    /// A group called `name` whose processes get so much of a core, together.
    pub(super) fn make(name: &str, cores: f64) -> Result<Share, String> {
        let layout = Layout::of(Path::new(ROOT))?;
        let folder = layout.prepared(name)?;
        let guard = Command::new("sh")
            .args(["-c", GUARD])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let guard = match guard {
            Ok(guard) => guard,
            Err(e) => {
                let left = fs::remove_dir(&folder).err().map_or(String::new(), |why| {
                    format!("; {} is left ({why})", folder.display())
                });
                return Err(format!("sh does not start ({e}){left}"));
            }
        };
        let share = Share {
            layout,
            folder,
            guard,
            cores,
        };
        share.limit(Some(cores))?;
        Ok(share)
    }

    /// Limits the process to its share; all there is without one.
    pub(super) fn limit(&self, cores: Option<f64>) -> Result<(), String> {
        for (file, text) in self.layout.limits(cores) {
            let path = self.folder.join(file);
            fs::write(&path, &text)
                .map_err(|e| format!("{} does not take {text:?} ({e})", path.display()))?;
        }
        Ok(())
    }

    /// The process of `command`, as a member of this group.
    pub(super) fn wrap(&self, command: &Command) -> Command {
        let mut wrapped = Command::new("sh");
        wrapped.args([OsStr::new("-c"), OsStr::new(JOIN), self.folder.as_os_str()]);
        wrapped.arg(command.get_program()).args(command.get_args());
        if let Some(folder) = command.get_current_dir() {
            wrapped.current_dir(folder);
        }
        wrapped
    }

    /// Which kind it is, for the report.
    pub(super) fn words(&self) -> String {
        let version = match self.layout {
            Layout::V1(_) => "v1",
            Layout::V2(_) => "v2",
        };
        format!(
            "{} of a core in a cgroup ({version}), given anew every {} ms",
            self.cores,
            PERIOD_US / 1000
        )
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let ended = self.guard.wait();
        if !ended.is_ok_and(|status| status.success()) {
            println!(
                "{} is left: something in it does not end",
                self.folder.display()
            );
        }
    }
}

impl Layout {
    /// Finds the controller for processors below `root`; the error names the way out.
    fn of(root: &Path) -> Result<Layout, String> {
        for name in ["cpu", "cpu,cpuacct"] {
            let folder = root.join(name);
            if folder.join("cpu.cfs_quota_us").is_file() || folder.join("cgroup.procs").is_file() {
                return Ok(Layout::V1(folder));
            }
        }
        let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        if controllers
            .split_ascii_whitespace()
            .any(|name| name == "cpu")
        {
            return Ok(Layout::V2(root.to_owned()));
        }
        Err(format!(
            "{} has no cgroup controller for processors, neither `cpu/cgroup.procs` (v1) nor \
             `cpu` in `cgroup.controllers` (v2): mount one, or measure without a share: \
             --share off",
            root.display()
        ))
    }

    /// Makes the group's folder, with its controller on.
    fn prepared(&self, name: &str) -> Result<PathBuf, String> {
        let (Layout::V1(base) | Layout::V2(base)) = self;
        let folder = base.join(name);
        let refused = |what: &Path, e: std::io::Error| {
            format!(
                "{} cannot be written ({e}): groups are made by root, so run it as root, or measure \
                 without a share: --share off",
                what.display()
            )
        };
        if let Layout::V2(root) = self {
            let control = root.join("cgroup.subtree_control");
            let on = fs::read_to_string(&control).unwrap_or_default();
            if !on.split_ascii_whitespace().any(|it| it == "cpu") {
                fs::write(&control, "+cpu").map_err(|e| refused(&control, e))?;
            }
        }
        fs::create_dir(&folder).map_err(|e| refused(&folder, e))?;
        Ok(folder)
    }

    /// Files of a group and the texts that are written into them, in this order.
    fn limits(&self, cores: Option<f64>) -> Vec<(&'static str, String)> {
        let quota_us =
            cores.map(|cores| ((cores * PERIOD_US as f64).round() as u64).max(QUOTA_US_MIN));
        match self {
            Layout::V1(_) => vec![
                ("cpu.shares", WEIGHT_V1.to_owned()),
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                (
                    "cpu.cfs_quota_us",
                    quota_us.map_or("-1".to_owned(), |us| us.to_string()),
                ),
            ],
            Layout::V2(_) => {
                let quota = quota_us.map_or("max".to_owned(), |us| us.to_string());
                vec![
                    ("cpu.weight", WEIGHT_V2.to_owned()),
                    ("cpu.max", format!("{quota} {PERIOD_US}")),
                ]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is gone when it is dropped.
    struct Root(PathBuf);

    impl Root {
        fn with(name: &str, files: &[(&str, &str)]) -> Root {
            let id = std::process::id();
            let root = Root(std::env::temp_dir().join(format!("dendra-share-{id}-{name}")));
            fs::create_dir_all(&root.0).expect("the folder for temporary files can be written");
            for (file, text) in files {
                let path = root.0.join(file);
                let parent = path.parent().expect("it lies below the root");
                fs::create_dir_all(parent).expect("so do its folders");
                fs::write(path, text).expect("and files");
            }
            root
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("it was made here");
        }
    }

    #[test]
    fn each_layout_is_told_by_its_files() {
        let one = Root::with("v1", &[("cpu/cgroup.procs", ""), ("cpu/tasks", "")]);
        assert_eq!(Layout::of(&one.0), Ok(Layout::V1(one.0.join("cpu"))));
        let joined = Root::with("joined", &[("cpu,cpuacct/cgroup.procs", "")]);
        let folder = joined.0.join("cpu,cpuacct");
        assert_eq!(Layout::of(&joined.0), Ok(Layout::V1(folder)));
        let two = Root::with("v2", &[("cgroup.controllers", "cpuset cpu io memory\n")]);
        assert_eq!(Layout::of(&two.0), Ok(Layout::V2(two.0.clone())));
        // Both at once: the controller is where its files are.
        let both = Root::with(
            "both",
            &[
                ("cpu/cgroup.procs", ""),
                ("unified/cgroup.controllers", "hugetlb\n"),
            ],
        );
        assert_eq!(Layout::of(&both.0), Ok(Layout::V1(both.0.join("cpu"))));
    }

    #[test]
    fn a_machine_without_the_controller_is_told_the_way_out() {
        for (name, files) in [
            ("none", &[][..]),
            ("other", &[("cgroup.controllers", "cpuset memory\n")][..]),
        ] {
            let root = Root::with(name, files);
            let refusal = Layout::of(&root.0).expect_err("there is no such controller");
            assert!(refusal.contains("--share off"), "{refusal}");
        }
    }

    #[test]
    fn a_group_that_cannot_be_made_names_root() {
        // A file stands where the folder would be: root may write everywhere.
        let one = Root::with("taken", &[("cpu/cgroup.procs", ""), ("cpu/lab", "")]);
        let layout = Layout::of(&one.0).expect("it is v1");
        let refusal = layout.prepared("lab").expect_err("a file is in the way");
        assert!(refusal.contains("run it as root"), "{refusal}");
    }

    #[test]
    fn the_second_layout_turns_its_controller_on_once() {
        let two = Root::with(
            "on",
            &[
                ("cgroup.controllers", "cpu\n"),
                ("cgroup.subtree_control", "memory\n"),
            ],
        );
        let layout = Layout::of(&two.0).expect("it is v2");
        let folder = layout.prepared("lab").expect("all of it can be written");
        assert!(folder.is_dir());
        let control = two.0.join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(&control).ok().as_deref(), Some("+cpu"));
        fs::write(&control, "cpu memory").expect("it is there");
        layout.prepared("another").expect("it is on already");
        assert_eq!(
            fs::read_to_string(&control).ok().as_deref(),
            Some("cpu memory")
        );
    }

    #[test]
    fn limits_are_written_as_each_layout_reads_them() {
        let one = Layout::V1(PathBuf::new());
        let texts = |layout: &Layout, cores| -> Vec<String> {
            let limits = layout.limits(cores).into_iter();
            limits
                .map(|(file, text)| format!("{file}={text}"))
                .collect()
        };
        assert_eq!(
            texts(&one, Some(0.25)),
            [
                "cpu.shares=262144",
                "cpu.cfs_period_us=10000",
                "cpu.cfs_quota_us=2500"
            ]
        );
        assert_eq!(texts(&one, None)[2], "cpu.cfs_quota_us=-1");
        assert_eq!(texts(&one, Some(0.001))[2], "cpu.cfs_quota_us=1000");
        let two = Layout::V2(PathBuf::new());
        assert_eq!(
            texts(&two, Some(0.25)),
            ["cpu.weight=10000", "cpu.max=2500 10000"]
        );
        assert_eq!(texts(&two, None)[1], "cpu.max=max 10000");
    }

    #[test]
    fn a_program_becomes_a_member_and_keeps_the_id_that_its_parent_knows() {
        // A folder stands for a group: joining it is a write to a file.
        let root = Root::with("join", &[("cgroup.procs", "")]);
        let mut program = Command::new("sh");
        program.args(["-c", "echo $$ \"$1\"", "sh", "a  b"]);
        let guard = Command::new("sh").args(["-c", "exit 0"]).spawn();
        let share = Share {
            layout: Layout::V1(root.0.clone()),
            folder: root.0.clone(),
            guard: guard.expect("there is a shell"),
            cores: 0.25,
        };
        let child = share.wrap(&program).stdout(Stdio::piped()).spawn();
        let child = child.expect("there is a shell");
        let id = child.id().to_string();
        let said = child.wait_with_output().expect("it ends");
        assert_eq!(
            String::from_utf8_lossy(&said.stdout),
            format!("{id} a  b\n")
        );
        let members = fs::read_to_string(root.0.join("cgroup.procs"));
        assert_eq!(members.ok(), Some(format!("{id}\n")));
    }
}
