//! Other users: what they may see, and that they may mount.

use crate::demo;
use crate::mounted::Mounted;
use crate::program::program;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Nobody in particular.
const USER: &str = "65534";

/// Whether a script goes well as another user.
fn can(folder: &Path, script: &str) -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "bash", "-ec", script]).current_dir(folder);
    command.output().expect("util-linux is installed").status.success()
}

/// Whether another user can read a record, list the root, append, and read a segment, where the source has a mode.
fn can_do(options: &str, mode: u32) -> [bool; 4] {
    let source = demo();
    fs::set_permissions(source.path(), fs::Permissions::from_mode(mode)).expect("a mode");
    let m = Mounted::new(source.path(), &["-o", options]);
    let outside = m.at("..");
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).expect("a mode");
    ["cat mnt/by-offset/0", "ls mnt", "echo x > mnt/append", "cat mnt/segments/*.log"].map(|script| can(&outside, script))
}

/// The line of a mount in `/proc/self/mountinfo`.
fn mount_line(m: &Mounted) -> String {
    let point = m.at("");
    let point = point.to_str().expect("a plain path").trim_end_matches('/').to_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a list of mounts");
    mounts.lines().find(|line| line.split(' ').nth(4) == Some(&point)).expect("the mount").to_owned()
}

pub(crate) fn other_users_without_allow_other() {
    assert_eq!(can_do("rw", 0o755), [false; 4]);
    assert_eq!(can_do("rw,umask=0", 0o777), [false; 4], "whatever the bits say");
}

pub(crate) fn other_users_with_allow_other() {
    assert_eq!(can_do("allow_other", 0o755), [true, true, false, true], "the bits of the source count");
    assert_eq!(can_do("allow_other", 0o700), [false; 4]);
    assert_eq!(can_do("allow_other", 0o777), [true, true, false, true], "the umask takes the write bits");
    assert_eq!(can_do("allow_other,umask=0", 0o777), [true; 4]);
    assert_eq!(can_do("allow_other,uid=65534", 0o700), [true; 4], "an owner that was asked for");
    assert_eq!(can_do("allow_other,umask=0", 0o700), [true; 4], "a mask that was asked for");
    // A `.log` that only its owner may read stays so in a directory that all may.
    let source = demo();
    let log = source.path().join("00000000000000000000.log");
    fs::set_permissions(log, fs::Permissions::from_mode(0o600)).expect("a mode");
    let m = Mounted::new(source.path(), &["-o", "allow_other"]);
    fs::set_permissions(m.at(".."), fs::Permissions::from_mode(0o755)).expect("a mode");
    for script in
        ["cat mnt/by-offset/0", "cat mnt/segments/*.log", "cat mnt/decoded/*.txt", "cat mnt/by-offset/0..3", "cat mnt/by-offset/0.json"]
    {
        assert!(!can(&m.at(".."), script), "{script}");
    }
    // The kernel checks the bits itself, always.
    assert!(mount_line(&m).contains("default_permissions"), "{}", mount_line(&m));
    assert!(mount_line(&m).contains("allow_other"), "{}", mount_line(&m));
}

pub(crate) fn no_suid_no_devices_no_programs() {
    let source = demo();
    for options in ["rw", "ro", "suid,dev,exec,allow_other"] {
        let m = Mounted::new(source.path(), &["-o", options]);
        let line = mount_line(&m);
        for word in ["nosuid", "nodev", "noexec", "default_permissions"] {
            assert!(line.contains(word), "-o {options}: {line}");
        }
        assert!(m.sh("find . -perm /7000 | wc -l").starts_with("0\n"), "no set-id bits");
    }
}

pub(crate) fn a_user_who_is_not_root_mounts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = program(folder.path());
    let home = folder.path().join("home");
    fs::create_dir_all(home.join("mnt")).expect("a new folder");
    // In a mount namespace of its own, with a device that all may open, as udev makes it on ordinary machines.
    let script = format!(
        r#"mknod device c 10 229; chmod 666 device; mount --bind device /dev/fuse; chown -R {USER}:{USER} home
cat > as_user <<'END'
cd home
"$0" mount --create demo-0 mnt
echo hello > mnt/append
test "$(cat mnt/by-offset/0)" = hello
stat -c %U:%a mnt/by-offset/0
grep " $PWD/mnt " /proc/self/mountinfo
"$0" umount mnt
until "$0" append demo-0 < /dev/null; do sleep 0.1; done
"$0" mount demo-0 mnt
holder=$("$0" append demo-0 2>&1 < /dev/null | grep -o 'process [0-9]*' | cut -d' ' -f2)
kill -KILL "$holder"
until ! ls mnt 2> /dev/null; do sleep 0.1; done
"$0" mount demo-0 mnt
cat mnt/by-offset/0
echo " again"
"$0" umount mnt
mkdir a,b
"$0" mount demo-0 a,b
cat a,b/by-offset/0
echo " with a comma"
"$0" umount a,b
END
setpriv --reuid {USER} --regid {USER} --clear-groups bash -e as_user {}"#,
        program.display()
    );
    let program_line = script.replace("bash -e as_user ", "bash -ec \"$(cat as_user)\" ");
    let output =
        Command::new("unshare").args(["-m", "bash", "-ec", &program_line]).current_dir(folder.path()).output().expect("util-linux");
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("hello again") && out.contains("hello with a comma"), "{out}{said}");
    assert!(out.contains("nosuid,nodev") && out.contains("default_permissions"), "{out}");
}
