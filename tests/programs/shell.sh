# What shell scripts live on. Prints the same wherever bash runs.
set -u

echo "== pipelines"
seq 1 20000 | grep 7 | sort -rn | head -3
seq 1 1000 | while read -r n; do echo $((n * n)); done | awk '{ s += $1 } END { print s }'
set -o pipefail
false | true; echo "pipefail ${PIPESTATUS[*]}"
yes | head -n 2; echo "broken pipe ${PIPESTATUS[*]}"

echo "== sub-shells"
x=outer; (x=inner; echo "$x"; exit 3); echo "$x $?"
deep() { [ "$1" -eq 0 ] && { echo bottom; return; }; (deep $(($1 - 1))); }
deep 8
echo "$(echo "$(echo "$(echo nested)")")"
diff <(seq 5) <(seq 2 6) || echo "process substitution $?"

echo "== here-documents"
cat <<-EOF
	$(echo expanded) $x
	EOF
cat <<'EOF'
$(not) $expanded
EOF
tr a-z A-Z <<<"here-string"
big=$(seq 1 30000); wc -l <<<"$big"

echo "== jobs"
for i in 1 2 3 4 5 6; do (sleep 0.0$i; exit $i) & pids[i]=$!; done
for i in 6 5 4 3 2 1; do wait "${pids[i]}"; echo "job $i: $?"; done
sleep 60 & kill -TERM $!; wait $! 2>/dev/null; echo "killed: $?"
coproc up { tr a-z A-Z; }; fd=${up[0]}
echo to the co-process >&"${up[1]}"; eval "exec ${up[1]}>&-"; cat <&"$fd"; wait

echo "== descriptors"
exec 9> >(sort); echo pear >&9; echo apple >&9; exec 9>&-; wait $!
{ echo out; echo err >&2; } 2>&1 >/dev/null

echo "== signals"
trap 'echo "caught USR1"' USR1; kill -USR1 $$
trap 'echo "caught CHLD" >/dev/null' CHLD; /bin/true; trap - CHLD
(trap 'echo leaving' EXIT; kill -INT $BASHPID) ; echo "status $?"
bash -c 'kill -SEGV $$' 2>/dev/null; echo "status $?"
ulimit -n 64; bash -c 'ulimit -n'

echo "== the end"
trap 'echo bye' EXIT
exec env true
