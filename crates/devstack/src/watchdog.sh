# The parent of one server. It holds the reading end of a pipe (stdin) whose writing end only the
# process that started us holds: when that process dies, of whatever, we read the end of the pipe.
#
#   $1       the plan when the pipe ends
#   $2...    the server's command
#   stdout   first line: the server's process id
#   stderr   the log: everything that the server writes
#
# A plan is a list of signals and of seconds to wait between them, e.g. `INT 5 QUIT 6 KILL`. A line on
# the pipe is a plan too: our parent wants the server to end now.
#
# We lead an own process group: Ctrl-C in a terminal reaches our parent alone, which then tells us.
# PIPE too: whoever started us may be gone before we say the process id, and the server must still be ended.
trap '' HUP INT TERM PIPE
plan=$1
shift

# Ignored signals are inherited: the server gets them back. `exec` keeps the process id.
(trap - HUP INT TERM PIPE; exec "$@") </dev/null >&2 3<&- &
server=$!
exec 3<&0
echo "$server"

(
    read -r line <&3 && plan=$line
    for step in $plan; do
        case $step in
        [0-9]*)
            while [ "$step" -gt 0 ]; do sleep 1; step=$((step - 1)); done ;;
        *)
            # Gone already: its number may be somebody else's next.
            kill -s "$step" "$server" || break
            # A stopped server does not hear anything but KILL.
            kill -s CONT "$server" ;;
        esac
    done
) >/dev/null 2>&1 &

wait "$server"
# Whatever is left of the group ends too, ourselves included: the subshell above and its sleep.
kill -s KILL 0
