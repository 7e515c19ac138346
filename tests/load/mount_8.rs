//! mount(8) and its table.

use super::fresh;
use super::program::program;
use std::fs;
use std::process::Command;

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
