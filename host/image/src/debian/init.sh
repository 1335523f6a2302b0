#!/bin/busybox sh
# The first process of weir's Linux guest. The kernel command line selects what it does:
#   weir.run=A,B,..   scenarios, in this order: cyclictest devices disk memory-stressor memtest sgi shell steal
#                     net netload outside serve fetch send* receive* ping* pong* give* take* chains reload suspend poweroff reboot
#                     chains counts the buffers of each packet that is sent from then on, and the next one prints how many packets had how many
#   weir.NAME=A,B,..  arguments of weir-vsock-tool for the scenario NAME, which begins with send, receive, ping or pong
#   weir.NAME=ADDR    address of socat for the scenario NAME, which begins with give or take: where 100000 lines go, or come from
#   weir.address=IP   of the network device, which net turns on; weir.peer=IP the peer: fetch gets from it what serve gives, netload gets echoes
#   weir.file=NAME    what outside fetches by TFTP from 10.0.2.2, after 20 echoes
#   weir.echo=WORD    prints WORD
#   weir.cyclictest=O an option of cyclictest, such as --nsecs
#   weir.loops=N      cycles of cyclictest, round trips of sgi, blocks of memory-stressor (default 1000)
#   weir.cpu=N        where memory-stressor runs (default: the last one)
#   weir.memory=MIB   how much memory memtest fills (default: three quarters of what is free)
# Every line starts with "linux: ". The last one is "linux: done", or "linux: failed: .." with
# the names of the scenarios that failed; poweroff and reboot come after it.
export PATH=/bin HOME=/ LD_LIBRARY_PATH=/lib
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs -o size=100% tmp /tmp
mount -t tmpfs shm /dev/shm

say() { echo "linux: $*"; }

# Prints the value of the word $1= of the kernel command line, or else $2.
word() {
    read -r line </proc/cmdline
    for pair in $line; do
        case $pair in "$1="*) echo "${pair#*=}" && return ;; esac
    done
    echo "$2"
}

# Rescheduling interrupts so far, all CPUs together: the SGIs that a wake-up on another CPU costs.
reschedules() {
    awk '$1 == "IPI0:" { for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i; print n }' /proc/interrupts
}

run_cyclictest() {
    # shellcheck disable=SC2046 # No word, or an option.
    cyclictest --quiet --mlockall --smp --priority=80 --interval=1000 --distance=0 \
        --loops="$loops" $(word weir.cyclictest) >/tmp/cyclictest 2>&1
    status=$?
    while read -r line; do say "cyclictest $line"; done </tmp/cyclictest
    [ $status = 0 ] && [ "$(grep -c '^T:' /tmp/cyclictest)" = "$(nproc)" ]
}

run_devices() {
    for node in $(find /proc/device-tree/ -name compatible | sort); do
        path=${node#/proc/device-tree}
        say "device ${path%/compatible} $(tr '\0' ' ' <"$node")"
    done
    awk 'NR > 1' /proc/interrupts | while read -r line; do say "interrupts $line"; done
}

# Reads the first line of a virtio disk, then writes 4 MiB on it: the word weir.disk= and numbers. What is
# read back comes from the disk, since nothing of it is left in memory.
run_disk() {
    load_modules || return 1
    [ -b /dev/vda ] || { say "disk is not there"; return 1; }
    say "disk of $(cat /sys/block/vda/size) sectors begins with $(head -n 1 /dev/vda)"
    { word weir.disk word; seq 1000000 1600000; } | head -c 4194304 >/tmp/written
    dd if=/tmp/written of=/dev/vda bs=65536 conv=fsync 2>/dev/null || return 1
    sync
    echo 3 >/proc/sys/vm/drop_caches
    back=$(head -c 4194304 /dev/vda | md5sum)
    awk '/virtio/ { print }' /proc/interrupts | while read -r line; do say "interrupts $line"; done
    [ "$back" = "$(md5sum </tmp/written)" ] && say "disk holds what was written"
}

# Sends or receives by a virtio socket: the scenario's name, which begins with the verb.
run_talk() {
    load_modules || return 1
    case $1 in send*) verb=send ;; receive*) verb=receive ;; ping*) verb=ping ;; *) verb=pong ;; esac
    case $(word "weir.$1") in *fragment=1*)
        # Locked pages stay where they are, and Linux keeps no more memory free than it did.
        echo 0 >/proc/sys/vm/compact_unevictable_allowed
        echo 0 >/proc/sys/vm/watermark_boost_factor ;;
    esac
    # shellcheck disable=SC2046 # A list of words.
    weir-vsock-tool $verb $(word "weir.$1" | tr , ' ')
}

# Counts the calls by which Linux puts a packet into a ring, by the number of buffers that the device reads. Prints these counts
# when they are counted already, and begins anew.
run_chains() {
    events=/sys/kernel/tracing/events/kprobes/chains
    if [ ! -d $events ]; then
        mount -t tracefs trace /sys/kernel/tracing
        # The third argument.
        echo 'p:chains virtqueue_add_sgs buffers=%x2:u32' >/sys/kernel/tracing/kprobe_events &&
            echo 'hist:keys=buffers:sort=buffers' >$events/trigger && echo 1 >$events/enable
        return
    fi
    say "chains $(awk -F '[ ,:}]+' '/^[{] buffers/ && $3 > 0 { print $5 " of " $3 }' $events/hist | tr '\n' ' ')"
    echo 'hist:keys=buffers:sort=buffers:clear' >>$events/trigger
}

# The same by Debian's socat: both ends print the sum of what they gave or took.
run_socat() {
    load_modules || return 1
    address=$(word "weir.$1")
    case $1 in
        give*)
            seq 1000000 1099999 >/tmp/given
            # Until the peer listens; and then, unlike with -u, until the other end has seen all and ended.
            until socat -t 60 'OPEN:/tmp/given!!CREATE:/tmp/nothing' "$address" 2>/tmp/socat; do
                sleep 0.05
            done
            say "socat gave $(stat -c %s /tmp/given) bytes, $(md5sum </tmp/given)" ;;
        *)
            socat -u "$address" CREATE:/tmp/taken || return 1
            say "socat took $(stat -c %s /tmp/taken) bytes, $(md5sum </tmp/taken)" ;;
    esac
}

# Enables the network device.
run_net() {
    load_modules || return 1
    ifconfig lo 127.0.0.1
    ifconfig eth0 "$(word weir.address)" netmask 255.255.255.0 up
    say "net $(cat /sys/class/net/eth0/address) is $(word weir.address)"
}

# Sends $1 echo requests to $2, each when the one before is answered, and prints how many answers came. Requests at fixed times would
# overflow the receiver's queue while the emulator has no processor of the host.
echoes() {
    sent=0 answered=0
    while [ $sent -lt "$1" ]; do
        ping -c 1 -W 60 -s 1000 "$2" >/dev/null 2>&1 && answered=$((answered + 1))
        sent=$((sent + 1))
    done
    echo "$sent packets transmitted, $answered packets received"
}

# Echoes from outside, and a file.
run_outside() {
    say "outside $(echoes 20 10.0.2.2)"
    file=$(word weir.file)
    [ -z "$file" ] || { cd /tmp && tftp -g -r "$file" 10.0.2.2 &&
        say "outside gave $(stat -c %s "$file") bytes, $(md5sum <"$file")"; }
}

# Gives 100000 lines to a peer that asks, or asks for them.
run_serve() {
    seq 1000000 1099999 >/tmp/served
    nc -l -p 5000 </tmp/served >/tmp/nothing && say "served $(stat -c %s /tmp/served) bytes, $(md5sum </tmp/served)"
}

run_fetch() {
    # Until the peer listens; what nc reads never ends, or it would end itself.
    mkfifo /tmp/silence
    tries=0
    until nc "$(word weir.peer)" 5000 <>/tmp/silence >/tmp/fetched 2>/tmp/nc && [ -s /tmp/fetched ]; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || return 1
        sleep 0.1
    done
    say "fetched $(stat -c %s /tmp/fetched) bytes, $(md5sum </tmp/fetched)"
}

# Runs cyclictest next to 100 echoes from the peer, which asks for as many.
run_netload() {
    echoes 100 "$(word weir.peer)" >/tmp/echoes &
    echoing=$!
    before=$(virtio_interrupts)
    run_cyclictest || return 1
    during=$(($(virtio_interrupts) - before))
    wait $echoing
    say "netload $(cat /tmp/echoes)"
    say "netload $during interrupts"
    [ $during -gt 0 ]
}

# The names of the modules that are here, each behind those that it needs.
modules() { cat /lib/modules/*/modules.order 2>/dev/null; }

# Loads the modules that are not loaded yet.
load_modules() {
    for name in $(modules); do
        [ -d "/sys/module/$name" ] || modprobe "$name" || return 1
    done
}

# Takes every module out, the last one first.
run_reload() {
    for name in $(modules | awk '{ name[NR] = $1 } END { for (n = NR; n > 0; n--) print name[n] }'); do
        rmmod "$name" || return 1
    done
    [ ! -e /dev/vsock ] && say "all modules are out" && load_modules && say "all modules are back"
}

# Interrupts of virtio devices so far, on CPU 0.
virtio_interrupts() { awk '/virtio/ { n += $2 } END { print n + 0 }' /proc/interrupts; }

# Suspends in the midst of the next scenario, when its device has interrupted 10 times. The RTC wakes it up 1 to 2 s later.
run_suspend() {
    load_modules || return 1
    say "suspends to $(cat /sys/power/mem_sleep)"
    from=$(virtio_interrupts)
    {
        until [ $(($(virtio_interrupts) - from)) -ge 10 ]; do sleep 0.005; done
        echo +2 >/sys/class/rtc/rtc0/wakealarm && echo freeze >/sys/power/state
        say "suspends: $(cat /sys/power/suspend_stats/success), failed: $(cat /sys/power/suspend_stats/fail)"
    } &
}

# Writes blocks of 4 MiB, more than a cache holds, on one CPU.
run_memory_stressor() {
    cpu=$(word weir.cpu $(($(nproc) - 1)))
    taskset "$(printf %x $((1 << cpu)))" dd if=/dev/zero of=/dev/null bs=4194304 count="$loops" \
        2>/dev/null || return 1
    say "memory-stressor wrote $loops blocks of 4 MiB on cpu $cpu"
}

# Fills memory with copies of one block with pages that all differ. 257 pages are no divisor of any
# block that page tables map, so memory that is mapped twice shows as well as memory that forgets.
run_memtest() {
    bytes=$((257 * 4096))
    free=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
    size=$(word weir.memory $((free * 3 / 4)))
    count=$((size * 1048576 / bytes))
    seq 1000000 1131584 | head -c $bytes >/tmp/block
    sum=$(cksum </tmp/block)
    written=0
    while [ $written -lt $count ] && cat /tmp/block; do
        written=$((written + 1))
    done >/tmp/filled
    good=0
    while [ $good -lt $written ] &&
        [ "$(dd if=/tmp/filled bs=$bytes skip=$good count=1 2>/dev/null | cksum)" = "$sum" ]; do
        good=$((good + 1))
    done
    rm /tmp/block /tmp/filled
    say "memtest $good of $count blocks of 257 pages hold their pattern"
    [ $good = $count ]
}

run_sgi() {
    cpus=$(nproc)
    [ "$cpus" -gt 1 ] || { say "sgi needs two cpus"; return 1; }
    taskset -p 1 $$ >/dev/null
    cpu=1
    while [ $cpu -lt "$cpus" ]; do
        rm -f /tmp/there /tmp/back
        mkfifo /tmp/there /tmp/back
        taskset "$(printf %x $((1 << cpu)))" cat </tmp/there >/tmp/back &
        exec 3>/tmp/there 4</tmp/back
        before=$(reschedules)
        trip=0
        while [ $trip -lt "$loops" ] && echo $trip >&3 && read -r answer <&4 && [ "$answer" = $trip ]; do
            trip=$((trip + 1))
        done
        after=$(reschedules)
        exec 3>&- 4<&-
        wait
        say "sgi $trip round trips between cpu 0 and cpu $cpu, $((after - before)) reschedule interrupts"
        # A cpu that has not gone to sleep yet is woken without one.
        [ $trip = "$loops" ] && [ $((after - before)) -ge $((loops * 9 / 10)) ] || return 1
        cpu=$((cpu + 1))
    done
    taskset -p "$(printf %x $(((1 << cpus) - 1)))" $$ >/dev/null
}

# Jiffies that others took from all CPUs while this one was busy.
run_steal() {
    before=$(awk '$1 == "cpu" { print $9 }' /proc/stat)
    seq 1 "${loops}000" | tail -n 1 >/dev/null
    after=$(awk '$1 == "cpu" { print $9 }' /proc/stat)
    say "steal $before jiffies before, $after after"
    [ "$after" -gt "$before" ]
}

# Ends the VM by $1, poweroff or reboot.
end() {
    # Setting the terminal's mode waits until the UART has sent everything.
    stty opost </dev/console
    "$1" -f
}

# The commands poweroff, halt and reboot of busybox send these signals to the first process. It has to wait for the shell in the
# background, since a trap is taken only between two commands.
run_shell() {
    busybox --install -s /bin
    load_modules
    trap 'end poweroff' USR1 USR2
    trap 'end reboot' TERM
    say "shell on $(cat /sys/class/tty/console/active), exit ends it"
    setsid cttyhack sh -i </dev/console &
    wait $!
}

say "user space on $(nproc) cpus, $(awk '/^MemTotal:/ { print $2 }' /proc/meminfo) kB"
sed -n 's/^\([0-9a-f]*\)-\([0-9a-f]*\) : System RAM$/linux: ram 0x\1-0x\2/p' /proc/iomem
echoed=$(word weir.echo)
[ -z "$echoed" ] || say "echo $echoed"

loops=$(word weir.loops 1000)
failed=
ending=
for scenario in $(word weir.run | tr , ' '); do
    case $scenario in
        net | netload | outside | serve | fetch | chains | cyclictest | devices | disk | memtest | reload | sgi | shell | steal | suspend)
            "run_$scenario" || failed="$failed $scenario" ;;
        memory-stressor) run_memory_stressor || failed="$failed $scenario" ;;
        give* | take*) run_socat "$scenario" || failed="$failed $scenario" ;;
        send* | receive* | ping* | pong*) run_talk "$scenario" || failed="$failed $scenario" ;;
        poweroff | reboot) ending=$scenario ;;
        *) failed="$failed $scenario(unknown)" ;;
    esac
done
if [ -z "$failed" ]; then say "done"; else say "failed:$failed"; fi

stty opost </dev/console
[ -z "$ending" ] || end "$ending"
while :; do sleep 86400; done
