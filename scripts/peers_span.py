# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The programs that `scripts/peers span` runs alone and under `nagaya span`."""

# Its server refuses to run as root. CAP_SYS_PTRACE is for userfaultfd(2).
POSTGRESQL = r"""
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)
if [ $(id -u) = 0 ]; then
    chown nobody .
    as="setpriv --reuid=nobody --regid=nogroup --clear-groups
        --inh-caps=+sys_ptrace --ambient-caps=+sys_ptrace"
fi
export PGHOST=$PWD PGUSER=peers PGDATABASE=postgres HOME=$PWD
$as $RUN $bin/initdb -D data -A trust -U peers -N >initdb.log || { tail -n 5 initdb.log; exit 1; }
$as $RUN $bin/postgres -D data -k $PWD -c listen_addresses= >server.log 2>&1 & server=$!
for try in $(seq 300); do $bin/pg_isready -q && break; sleep 0.2; done
$as $RUN $bin/pgbench -i -q 2>/dev/null || { echo 'pgbench -i fails'; cat server.log; exit 1; }
printf '%s\n' '\set aid random(1, 100000)' 'begin;' \
    'update pgbench_accounts set abalance = abalance + 1 where aid = :aid;' \
    'insert into pgbench_history values (1, 1, :aid, 1, now());' 'end;' >script
$as $RUN $bin/pgbench -n -c 4 -j 2 -t 25 -f script 2>&1 | grep -E 'processed|failed' >bench
$as $RUN $bin/psql -At -c 'select count(*), sum(abalance) from pgbench_accounts;
    select count(*), sum(delta) from pgbench_history;' >sums
$as $bin/pg_ctl stop -s -D data -m fast
wait $server
ended=$?
cat bench sums server.log
echo server ended $ended $(cat bench sums | md5sum)
"""

# Threads read files past the page cache, as several clients want them.
NGINX = r"""
seq 300000 >large; head -c 4096 large >page; head -c 777 large >small
cat >n.conf <<END
daemon off; master_process off; pid n.pid; error_log stderr;
thread_pool default threads=4; events {}
http {
    access_log off; client_body_temp_path body; proxy_temp_path proxy;
    fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server {
        listen unix:$PWD/socket; root $PWD;
        location / { aio threads; directio 512; output_buffers 2 64k; }
    }
}
END
$RUN nginx -p $PWD/ -c n.conf & server=$!
for try in $(seq 300); do [ -S socket ] && break; sleep 0.2; done
for client in 1 2 3 4; do
    for file in large page small; do curl -sS --unix-socket socket http://host/$file; done |
        md5sum >got$client & clients="$clients $!"
done
wait $clients
kill -QUIT $(cat n.pid)
wait $server
echo nginx ended $?, $(cat got* | md5sum)
"""

# Another process writes the database between two looks.
SQLITE = r"""
cat >sql <<END
pragma mmap_size=10000000;
create table t(a, b);
insert into t select value, hex(zeroblob(300)) from generate_series(1, 2000);
select sum(a) from t;
.shell sqlite3 db "update t set a = a + 7"
select sum(a), sum(length(b)) from t;
pragma integrity_check;
END
$RUN sqlite3 db <sql | tr '\n' ' '
"""

GO = "HOME=$PWD GO111MODULE=off go build -buildmode={} -o m $SPAN/goroutines.go; $RUN ./m | md5sum"
# Leaks are looked for by ptrace(2), which no program under span may call.
SANITIZED = "gcc -g -O1 -pthread -I$SOURCE/include -fsanitize={} $SPAN/sanitized.c -o m; " \
            "LSAN_OPTIONS=detect_leaks=0 $RUN ./m"

# A program, the tools that it needs, and a script, whose $RUN stands before the program.
SPAN_PROGRAMS = [
    ("xz", ["xz"], "seq 400000 >in; $RUN xz -T2 -k -c in | md5sum"),
    ("zstd", ["zstd"], "seq 2000000 >in; $RUN zstd -q -T2 -c in | zstd -dc | md5sum"),
    ("pigz", ["pigz"], "seq 400000 >in; $RUN pigz -p2 -n -c in | md5sum"),
    ("pbzip2", ["pbzip2"], "seq 400000 >in; $RUN pbzip2 -p2 -k -c in | md5sum"),
    ("sqlite3", ["sqlite3"], SQLITE),
    ("lmdb", ["gcc"], "gcc -O1 -pthread -I$SOURCE/include $SPAN/lmdb.c -llmdb -o m; mkdir db; "
     "$RUN ./m $PWD/db"),
    ("nginx", ["nginx", "curl"], NGINX),
    ("postgresql", ["setpriv", "psql"], POSTGRESQL),
    ("go-static", ["go"], "CGO_ENABLED=0 " + GO.format("exe")),
    ("go-pie", ["go"], "CGO_ENABLED=0 " + GO.format("pie")),
    ("go-cgo", ["go"], "CGO_ENABLED=1 " + GO.format("exe")),
    ("java-zgc", ["java", "javac"], "javac -d . $SPAN/Collects.java; "
     "$RUN java -XX:+UseZGC -Xmx256m -cp . Collects"),
    ("asan", ["gcc"], SANITIZED.format("address")),
    ("tsan", ["gcc"], SANITIZED.format("thread")),
]
