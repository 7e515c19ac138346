//! Other users: what they may see, and that they may mount.

use super::fresh;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Nobody in particular.
const USER: &str = "65534";

/// Runs a script as another user; gives whether it went well, and what it said.
fn as_user(folder: &Path, script: &str) -> (bool, String) {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups", "bash", "-ec", script]).current_dir(folder);
    let output = command.output().expect("util-linux is installed");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// A copy of the program that every user can reach.
fn program(folder: &Path) -> std::path::PathBuf {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).expect("a mode");
    let path = folder.join("offsetfs");
    fs::copy(env!("CARGO_BIN_EXE_offsetfs"), &path).expect("the program can be copied");
    path
}

pub(super) fn modes_hold_for_other_users() {
    let try_all = |options: &str, mode: u32| {
        let (folder, m) = fresh("tz=UTC");
        m.sh("echo secret > append");
        drop(m);
        let source = folder.path().join("demo-0");
        fs::set_permissions(&source, fs::Permissions::from_mode(mode)).expect("a mode");
        let m = super::Mounted::new(&source, &["-o", options]);
        let outside = m.at("..");
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).expect("a mode");
        let can = |script: &str| as_user(&outside, script).0;
        [can("cat mnt/by-offset/0"), can("ls mnt"), can("echo x > mnt/append"), can("cat mnt/segments/*.log")]
    };
    assert_eq!(try_all("rw", 0o755), [false; 4], "without allow_other nobody else gets in");
    assert_eq!(try_all("allow_other", 0o755), [true, true, false, true], "with it, the bits of the source count");
    assert_eq!(try_all("allow_other", 0o700), [false; 4]);
    assert_eq!(try_all("allow_other,uid=65534", 0o700), [true; 4], "an owner that was asked for");
    assert_eq!(try_all("allow_other,umask=0", 0o700), [true; 4], "a mask that was asked for");
}

pub(super) fn a_user_who_is_not_root_mounts() {
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
END
setpriv --reuid {USER} --regid {USER} --clear-groups bash -e as_user {}"#,
        program.display()
    );
    let program_line = script.replace("bash -e as_user ", "bash -ec \"$(cat as_user)\" ");
    let output =
        Command::new("unshare").args(["-m", "bash", "-ec", &program_line]).current_dir(folder.path()).output().expect("util-linux");
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("hello again"), "{out}{said}");
}

pub(super) fn mount_8_finds_it() {
    let (folder, m) = fresh("tz=UTC");
    m.sh("echo hello > append");
    drop(m);
    let program = program(folder.path());
    fs::create_dir(folder.path().join("mnt")).expect("a new folder");
    // mount(8) looks for its helper in the usual places only: one of them gets the program, in a mount namespace of its own.
    let script = format!(
        r#"mount -t tmpfs none /usr/local/bin; ln -s {} /usr/local/bin/offsetfs
mount -t fuse.offsetfs "$PWD/demo-0" mnt -o ro,nofail,x-systemd.automount
cat mnt/by-offset/0; echo
grep " $PWD/mnt fuse.offsetfs ro," /proc/self/mounts
umount mnt
printf '%s %s fuse.offsetfs ro,noauto 0 0\n' "$PWD/demo-0" "$PWD/mnt" > fstab
mount -T fstab mnt; cat mnt/by-offset/0; echo " of fstab"; umount mnt
! mount -t fuse.offsetfs "$PWD/nothing-0" mnt"#,
        program.display()
    );
    let output = Command::new("unshare").args(["-m", "bash", "-ec", &script]).current_dir(folder.path()).output().expect("util-linux");
    let (out, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("hello of fstab"), "{out}{said}");
    assert!(said.contains("there is no such directory"), "{said}");
}
