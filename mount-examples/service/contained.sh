# What happens in the container of run.sh: the service is started, used, and stopped as systemd stops it.
$start &
service=$!
until [ -e srv/orders-0/status ]; do sleep 0.05; done
echo 'a line' > srv/orders-0/append
exec 3>> srv/orders-0/append
printf 'half a line' >&3
kill -TERM $service
wait $service
echo "stopped with $?"
grep " $PWD/srv/" /proc/self/mounts || echo 'nothing is left mounted'
