#!/usr/bin/env bash
# A mount as a service, and in a container.
#
# Why: `mount -f` stays in the foreground, logs to standard error and ends well on TERM, which is what systemd and a container's first
# process want. In a container it needs the device and the right to mount:
#
#   docker run --rm --device /dev/fuse --cap-add SYS_ADMIN --security-opt apparmor=unconfined \
#       -v /var/lib/kafka:/data:ro IMAGE offsetfs mount -f -o ro /data /mnt
#
# The mount is seen inside the container only, unless /mnt is a volume with bind-propagation=rshared. This script does what the unit
# does, with folders of its own, in a pid and mount namespace as a container has.
. "$(dirname "$0")/../common.sh"
need unshare

mkdir var srv
start=$(sed -n 's/^ExecStart=//p' "$here/service/offsetfs@.service")
start=${start//\/usr\/bin\/offsetfs/$OFFSETFS}
start=${start//\/var\/lib\/offsetfs/$work/var}
start=${start//\/srv\/log/$work/srv}
export start=${start//%i/orders-0}
mkdir srv/orders-0

show 'unshare --mount --pid --fork --mount-proc bash -e "$here/service/contained.sh"'
show 'offsetfs cat var/orders-0 by-offset/earliest..latest'
