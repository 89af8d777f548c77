package resp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/isotone/isotone"
)

// raw is conversations: what is said on a new connection, and what comes back.
var raw = []struct{ name, say, want string }{
	{"a timestamp", "*1\r\n$2\r\nTS\r\n", stamp(0)},
	{"in small letters", "*1\r\n$2\r\nts\r\n", stamp(0)},
	{"inline", "TS\r\n", stamp(0)},
	{"inline, with line feed only", "tS\n", stamp(0)},
	{"inline, with spaces and quotes", "  \"TS\"\t'2'  \r\nTS\r\n", stamp(0) + stamp(2)},
	{"inline, quotes within a word", "EC\"HO\" a'b c'\r\n", "$4\r\nab c\r\n"},
	{"inline, escapes", `ECHO "\x41\n\"\q\\"` + "\r\n", "$5\r\nA\n\"q\\\r\n"},
	{"inline, single quotes", `ECHO '\'\n'` + "\r\n", "$3\r\n'\\n\r\n"},
	{"a count", "*2\r\n$2\r\nTS\r\n$4\r\n1000\r\nTS\r\n", stamp(0) + stamp(1000)},
	{"the largest count", "TS 4294967296\r\nTS\r\n", stamp(0) + stamp(1<<32)},
	{"too much for one request", "TS 4294967296\r\nTS 4294967296\r\nTS 1\r\n", stamp(0) + stamp(1<<32) + stamp(2<<32)},
	{"a mode", "TS 3 QUORUM\r\nTS 2 lease\r\nTS 1\r\n", stamp(0) + stamp(3) + stamp(5)},
	{"a pipeline", strings.Repeat("*1\r\n$2\r\nTS\r\n", 3) + "*2\r\n$2\r\nTS\r\n$1\r\n5\r\nPING\r\nTS 7\r\nTS 7\r\n",
		stamp(0) + stamp(1) + stamp(2) + stamp(3) + "+PONG\r\n" + stamp(8) + stamp(15)},
	{"bad counts do not disturb", "TS\r\nTS 0\r\nTS\r\nTS 4294967297\r\nTS 01\r\nTS +1\r\nTS 1 \"\"\r\nTS 1 FAST\r\nTS 1 LEASE x\r\nTS\r\n",
		stamp(0) + badCount("0") + stamp(1) + badCount("4294967297") + badCount("01") + badCount("+1") +
			"-ERR mode \"\": want QUORUM or LEASE\r\n-ERR mode \"FAST\": want QUORUM or LEASE\r\n" +
			"-ERR wrong number of arguments for 'ts' command\r\n" + stamp(2)},
	{"floors", "TS FLOOR " + floor + "\r\nTS 2 floor " + floor + "\r\nts 3 lease Floor " + strings.ToUpper(floor) + "\r\n" + string(array("TS", "4", "QUORUM", "FLOOR", floor)) + "TS\r\n",
		stamp(0) + stamp(1) + stamp(3) + stamp(6) + stamp(10)},
	{"timelines", "TS TIMELINE a\r\nTS\r\nTS 2 timeline a\r\nts 3 lease Timeline a/b FLOOR " + floor + "\r\n" + string(array("TS", "4", "FLOOR", floor, "TRACEPARENT", traceparent, "TIMELINE", "floor")) + "TS\r\n",
		stamp(0) + stamp(1) + stamp(2) + stamp(4) + stamp(7) + stamp(11)},
	{"bad timelines do not disturb", "TS TIMELINE\r\nTS TIMELINE a TIMELINE a\r\nTS TIMELINE a 2\r\nTS 2 TIMELINE a QUORUM\r\nTS TIMELINE \"\"\r\nTS TIMELINE \"a b\"\r\nTS\r\n",
		strings.Repeat(badOption, 4) + "-ERR timeline: a name of 0 bytes: want 1 to 64\r\n-ERR timeline: \"a b\": a name has letters, digits, and . _ / - only\r\n" + stamp(0)},
	{"trace contexts", "TS TRACEPARENT " + traceparent + "\r\nTS 2 traceparent " + traceparent + "\r\nTS 3 LEASE FLOOR " + floor + " TRACEPARENT " + traceparent + "\r\n" +
		string(array("TS", "4", "QUORUM", "TRACEPARENT", traceparent, "FLOOR", floor)) + "TS\r\n",
		stamp(0) + stamp(1) + stamp(3) + stamp(6) + stamp(10)},
	{"bad trace contexts do not disturb", "TS TRACEPARENT\r\nTS TRACEPARENT 1\r\nTS 1 TRACEPARENT " + strings.ToUpper(traceparent) + "\r\nTS 1 TRACEPARENT " + traceparent + " LEASE\r\n" +
		"TS TRACEPARENT " + traceparent + " TRACEPARENT " + traceparent + "\r\nTS 1 LEASE x TRACEPARENT " + traceparent + "\r\nTS\r\n",
		badOption + badTrace("1") + badTrace(strings.ToUpper(traceparent)) + badOption + badOption + "-ERR wrong number of arguments for 'ts' command\r\n" + stamp(0)},
	{"bad floors do not disturb", "TS FLOOR\r\nTS FLOOR 1\r\nTS 1 FLOOR\r\nTS 1 FLOOR " + floor + "0\r\nTS 1 FLOOR " + floor + " LEASE\r\nTS 1 QUORUM FLOOR\r\n" +
		"TS 0 FLOOR " + floor + "\r\nTS 1 FAST FLOOR " + floor + "\r\nTS 1 LEASE x FLOOR " + floor + "\r\nTS 1 FLOOR " + floor + " FLOOR " + floor + "\r\nTS 1 FLOOR \"\"\r\nTS\r\n",
		"-ERR FLOOR, TIMELINE and TRACEPARENT come last, each once and with one value\r\n" + badFloor("1") + "-ERR FLOOR, TIMELINE and TRACEPARENT come last, each once and with one value\r\n" + badFloor(floor+"0") +
			strings.Repeat("-ERR FLOOR, TIMELINE and TRACEPARENT come last, each once and with one value\r\n", 2) + badCount("0") + "-ERR mode \"FAST\": want QUORUM or LEASE\r\n" +
			"-ERR wrong number of arguments for 'ts' command\r\n-ERR FLOOR, TIMELINE and TRACEPARENT come last, each once and with one value\r\n" + badFloor("") + stamp(0)},
	{"nothing", "\r\n\n  \r\n*0\r\n*-1\r\nPING\r\n", "+PONG\r\n"},

	{"ping", "PING\r\nping hello\r\nPING a b\r\n", "+PONG\r\n$5\r\nhello\r\n-ERR wrong number of arguments for 'ping' command\r\n"},
	{"echo", "ECHO x\r\nECHO\r\n", "$1\r\nx\r\n-ERR wrong number of arguments for 'echo' command\r\n"},
	{"unknown", "GET a\r\nSNOW\r\n", "-ERR unknown command 'GET', with args beginning with: 'a' \r\n" +
		"-ERR unknown command 'SNOW', with args beginning with: \r\n"},
	{"unknown, with line ends", "*2\r\n$3\r\na\r\n\r\n$2\r\n\n\x00\r\n", "-ERR unknown command 'a  ', with args beginning with: '  ' \r\n"},
	{"auth", "AUTH x\r\nAUTH default x\r\nAUTH root x\r\n",
		strings.Repeat("-WRONGPASS the name or the secret is wrong\r\n", 3)},
	{"select", "SELECT 0\r\nSELECT 1\r\nSELECT x\r\n", "+OK\r\n-ERR DB index is out of range: there is only 0\r\n-ERR value is not an integer or out of range\r\n"},
	{"hello", "HELLO\r\n", hello("*14", 2)},
	{"hello 3", "HELLO 3 SETNAME me\r\nCLIENT GETNAME\r\n", hello("%7", 3) + "$2\r\nme\r\n"},
	{"hello 2 after 3", "HELLO 3\r\nHELLO 2\r\n", hello("%7", 3) + hello("*14", 2)},
	{"bad hellos change nothing", "HELLO 4\r\nHELLO 3 AUTH root x\r\nHELLO 3 SETNAME\r\nHELLO 3 SETNAME \"a b\"\r\nCLIENT GETNAME\r\n",
		"-NOPROTO unsupported protocol version\r\n-WRONGPASS the name or the secret is wrong\r\n" +
			"-ERR Syntax error in HELLO option 'SETNAME'\r\n" +
			"-ERR Client names cannot contain spaces, newlines or special characters.\r\n$-1\r\n"},
	{"reset", "HELLO 3 SETNAME x\r\nRESET\r\nCLIENT GETNAME\r\n", hello("%7", 3) + "+RESET\r\n$-1\r\n"},
	{"quit", "TS\r\nQUIT\r\nPING\r\n", stamp(0) + "+OK\r\n"},
	{"client", "CLIENT ID\r\nCLIENT GETNAME\r\nCLIENT SETNAME x\r\nCLIENT GETNAME\r\nCLIENT SETINFO LIB-NAME y\r\n" +
		"CLIENT INFO\r\nCLIENT NO-EVICT ON\r\nCLIENT TRACKING ON\r\nCLIENT TRACKING OFF\r\nCLIENT GETREDIR\r\nCLIENT REPLY OFF\r\nCLIENT KILL x\r\n",
		":1\r\n$-1\r\n+OK\r\n$1\r\nx\r\n+OK\r\n$58\r\nid=1 name=x age=0 idle=0 flags=N db=0 user=default resp=2\n\r\n+OK\r\n" +
			"-ERR CLIENT TRACKING is not supported: there are no keys, so there is nothing to cache\r\n+OK\r\n:-1\r\n" +
			"-ERR unknown subcommand or wrong number of arguments for 'REPLY'\r\n" +
			"-ERR unknown subcommand or wrong number of arguments for 'KILL'\r\n"},
	{"client in RESP3", "HELLO 3\r\nCLIENT GETNAME\r\nCLIENT LIST\r\nCLIENT TRACKINGINFO\r\n",
		hello("%7", 3) + "_\r\n=61\r\ntxt:id=1 name= age=0 idle=0 flags=N db=0 user=default resp=3\n\r\n" +
			"%3\r\n$5\r\nflags\r\n~1\r\n$3\r\noff\r\n$8\r\nredirect\r\n:-1\r\n$8\r\nprefixes\r\n*0\r\n"},
	{"config", "CONFIG GET save\r\nconfig get AppendOnly\r\nCONFIG GET maxmemory appendonly save save\r\nCONFIG GET *\r\nCONFIG SET a b\r\n", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n" +
		"*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n" +
		"*4\r\n$4\r\nsave\r\n$0\r\n\r\n$10\r\nappendonly\r\n$2\r\nno\r\n*0\r\n-ERR unknown subcommand or wrong number of arguments for 'SET'\r\n"},
	{"config in RESP3", "HELLO 3\r\nCONFIG GET save\r\nCONFIG GET maxmemory\r\n", hello("%7", 3) + "%1\r\n$4\r\nsave\r\n$0\r\n\r\n%0\r\n"},
	{"for cluster clients", "READONLY\r\nREADWRITE\r\nASKING\r\n", "+OK\r\n+OK\r\n+OK\r\n"},
	{"keys", "CLUSTER KEYSLOT 123456789\r\nCLUSTER KEYSLOT {user1000}.following\r\nCLUSTER KEYSLOT foo{}{bar}\r\n" +
		"CLUSTER KEYSLOT user1000\r\nCLUSTER COUNTKEYSINSLOT 0\r\nCLUSTER GETKEYSINSLOT 0 1\r\n",
		":12739\r\n:3443\r\n:8363\r\n:3443\r\n:0\r\n*0\r\n"},
	{"myid", "CLUSTER MYID\r\n", "$40\r\n" + id40(1) + "\r\n"},
	{"slots", "CLUSTER SLOTS\r\n", "*1\r\n*5\r\n:0\r\n:16383\r\n" + slotNode("a.example", 8081, 1) + slotNode("b.example", 8082, 2) + slotNode("::1", 8083, 3)},
	{"cluster, unknown", "CLUSTER FORGET x\r\nCLUSTER\r\n", "-ERR unknown subcommand or wrong number of arguments for 'FORGET'\r\n" +
		"-ERR wrong number of arguments for 'cluster' command\r\n"},
	{"nodes", "CLUSTER NODES\r\n", bulk(id40(1) + " a.example:8081@0 myself,master - 0 0 7 connected 0-16383\n" +
		id40(2) + " b.example:8082@0 slave " + id40(1) + " 0 0 7 connected\n" +
		id40(3) + " ::1:8083@0 slave " + id40(1) + " 0 0 7 connected\n")},
	{"command", "COMMAND COUNT\r\nCOMMAND INFO TS nosuch\r\nCOMMAND GETKEYS TS 5\r\nCOMMAND GETKEYS TS\r\nCOMMAND GETKEYS snowflake 3 AS STRING\r\nCOMMAND GETKEYS PING x\r\nCOMMAND GETKEYS nosuch\r\nCOMMAND DOCS nosuch\r\n",
		":31\r\n*2\r\n*10\r\n$2\r\nts\r\n:-1\r\n*1\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n*-1\r\n*1\r\n$1\r\n5\r\n-ERR The command has no key arguments\r\n" +
			"*1\r\n$1\r\n3\r\n-ERR The command has no key arguments\r\n-ERR Invalid command specified\r\n*0\r\n"},
	{"transaction", "MULTI\r\nTS\r\nTS 5\r\nPING x\r\nTS 0\r\nTS 1 LEASE\r\n" + plain + plain + "EXEC\r\nTS\r\n",
		"+OK\r\n" + strings.Repeat("+QUEUED\r\n", 7) + "*7\r\n" + stamp(0) + stamp(1) + "$1\r\nx\r\n" + badCount("0") + stamp(6) + stamp(7) + stamp(8) + stamp(9)},
	{"transactions without commands", "MULTI\r\nEXEC\r\nWATCH a b\r\nMULTI\r\n\r\nEXEC\r\nUNWATCH\r\n", "+OK\r\n*0\r\n+OK\r\n+OK\r\n*0\r\n+OK\r\n"},
	{"transactions that are none", "EXEC\r\nDISCARD\r\nMULTI x\r\nWATCH\r\nTS\r\n", "-ERR EXEC without MULTI\r\n-ERR DISCARD without MULTI\r\n" +
		"-ERR wrong number of arguments for 'multi' command\r\n-ERR wrong number of arguments for 'watch' command\r\n" + stamp(0)},
	{"within a transaction", "MULTI\r\nMULTI\r\nWATCH a\r\nUNWATCH\r\nTS\r\nEXEC\r\nMULTI\r\nTS\r\nDISCARD\r\nMULTI\r\nRESET\r\nTS\r\nMULTI\r\nTS\r\nQUIT\r\n",
		"+OK\r\n-ERR MULTI calls can not be nested\r\n-ERR WATCH inside MULTI is not allowed\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n" + stamp(0) +
			"+OK\r\n+QUEUED\r\n+OK\r\n+OK\r\n+RESET\r\n" + stamp(1) + "+OK\r\n+QUEUED\r\n+OK\r\n"},
	{"a transaction with an error", "MULTI\r\nTS\r\nGET x\r\nECHO\r\nWORKER LEASE 5f0c3a9b2d4e7181 1 1\r\nEXEC x\r\nTS\r\nEXEC\r\nTS\r\n",
		"+OK\r\n+QUEUED\r\n-ERR unknown command 'GET', with args beginning with: 'x' \r\n-ERR wrong number of arguments for 'echo' command\r\n" +
			"-ERR WORKER is not allowed between MULTI and EXEC\r\n-ERR wrong number of arguments for 'exec' command\r\n+QUEUED\r\n" +
			"-EXECABORT Transaction discarded because of previous errors.\r\n" + stamp(0)},
	{"a protocol error in a transaction", "MULTI\r\nTS\r\n*x\r\n", "+OK\r\n+QUEUED\r\n-ERR Protocol error: invalid multibulk length\r\n"},
	{"a transaction in RESP3", "HELLO 3\r\nMULTI\r\nCLIENT GETNAME\r\nEXEC\r\n", hello("%7", 3) + "+OK\r\n+QUEUED\r\n*1\r\n_\r\n"},
	{"quotes in a transaction", "MULTI\r\necho \"a\\x41\\n\"\r\nexec\r\n", "+OK\r\n+QUEUED\r\n*1\r\n$3\r\naA\n\r\n"},
	{"command in RESP3", "HELLO 3\r\nCOMMAND INFO QUIT x\r\nCOMMAND DOCS RESET\r\n",
		hello("%7", 3) + "*2\r\n*10\r\n$4\r\nquit\r\n:-1\r\n~3\r\n+loading\r\n+stale\r\n+fast\r\n:0\r\n:0\r\n:0\r\n~0\r\n*0\r\n*0\r\n*0\r\n_\r\n" +
			"%1\r\n$5\r\nreset\r\n%3\r\n" + bulk("summary") + bulk("Returns the connection to its first state.") +
			bulk("since") + bulk("1.0.0") + bulk("group") + bulk("connection")},

	{"array too long", "TS\r\n*257\r\n", stamp(0) + "-ERR Protocol error: invalid multibulk length\r\n"},
	{"array of no number", "*x\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
	{"array with zeros", "*01\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
	{"array without carriage return", "*1\n", "-ERR Protocol error: invalid multibulk length\r\n"},
	{"array without line feed", "*1\rx", "-ERR Protocol error: invalid multibulk length\r\n"},
	{"no bulk", "*1\r\n:1\r\n", "-ERR Protocol error: expected '$', got ':'\r\n"},
	{"bulk too long", "*1\r\n$32769\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
	{"bulks too long together", "*2\r\n$4\r\nECHO\r\n$32765\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
	{"bulk of endless length", "*1\r\n$00000000000000000000", "-ERR Protocol error: invalid bulk length\r\n"},
	{"bulk of less than nothing", "*1\r\n$-1\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
	{"bulk that goes on", "*1\r\n$2\r\nTSX\r\n", "-ERR Protocol error: a bulk string does not end where its length says\r\n"},
	{"line too long", strings.Repeat("x", inlineMax) + "\r\nPING\r\n", "-ERR Protocol error: too big inline request\r\n"},
	{"too many words", strings.Repeat("x ", argsMax+1) + "\r\nPING\r\n", "-ERR Protocol error: too many arguments in inline request\r\n"},
	{"open quotes", "PING\r\nPING \"x\r\nPING\r\n", "+PONG\r\n-ERR Protocol error: unbalanced quotes in request\r\n"},
	{"quotes within a word", "PING \"x\"y\r\n", "-ERR Protocol error: unbalanced quotes in request\r\n"},
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

func badCount(s string) string {
	return fmt.Sprintf("-ERR count %q: want a whole number from 1 to 4294967296\r\n", s)
}

const floor = "0123456789abcdef00000000000000ff"

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

const badOption = "-ERR FLOOR, TIMELINE and TRACEPARENT come last, each once and with one value\r\n"

func badTrace(s string) string {
	return fmt.Sprintf("-ERR traceparent %.60q: want that of W3C Trace Context, such as %s\r\n", s, traceparent)
}

func badFloor(s string) string {
	return fmt.Sprintf("-ERR floor %.40q: want a timestamp as 32 hexadecimal digits, or one of 64 bits in decimal\r\n", s)
}

func id40(id int) string { return fmt.Sprintf("%040d", id) }

func slotNode(host string, port, id int) string {
	return fmt.Sprintf("*4\r\n%s:%d\r\n%s*0\r\n", bulk(host), port, bulk(id40(id)))
}

func hello(head string, version int) string {
	return fmt.Sprintf("%s\r\n%s%s%s%s%s:%d\r\n%s:1\r\n%s%s%s%s%s*0\r\n", head, bulk("server"), bulk("redis"),
		bulk("version"), bulk("7.2.0"), bulk("proto"), version, bulk("id"), bulk("mode"), bulk("cluster"), bulk("role"), bulk("master"), bulk("modules"))
}

func TestRaw_AnswersAreTheSameHoweverTheyArrive(t *testing.T) {
	for _, tt := range raw {
		t.Run(tt.name, func(t *testing.T) {
			for _, later := range []bool{false, true} {
				for cut := 0; cut < len(tt.say); cut++ {
					play(t, tt.say, tt.want, later, cut, len(tt.say))
				}
				play(t, tt.say, tt.want, later, 0, 1)
				play(t, tt.say, tt.want, later, 0, 3)
			}
		})
	}
}

// play says a piece of cut bytes, then pieces of size bytes.
func play(t *testing.T, say, want string, later bool, cut, size int) {
	t.Helper()
	o := newOracle()
	o.later = later
	w := newTape(t, New(Config{Backend: o, Version: "v1"}))
	w.feed([]byte(say[:cut]))
	for rest := say[cut:]; rest != ""; {
		n := min(size, len(rest))
		w.feed([]byte(rest[:n]))
		rest = rest[n:]
	}
	if got := w.finish(o); got != want {
		t.Fatalf("said in pieces of %d, then %d, later %v\n got %q\nwant %q", cut, size, later, got, want)
	}
	for _, b := range o.batches {
		if len(b.Counts) != 1 || b.Counts[0] < 1 || b.Counts[0] > isotone.RangeCountMax {
			t.Fatalf("a batch for %v", b.Counts)
		}
	}
}

func TestRaw_WithoutLeader(t *testing.T) {
	const down = "-CLUSTERDOWN no leader is known\r\n"
	o := newOracle()
	o.status = statusOf(2, 0)
	w := newTape(t, New(Config{Backend: o}))
	w.feed([]byte("CLUSTER SLOTS\r\nCLUSTER SHARDS\r\nCLUSTER NODES\r\n"))
	if got := w.finish(o); got != down+down+down {
		t.Errorf("got %q", got)
	}
	w.got = nil
	w.feed([]byte("CLUSTER INFO\r\nINFO replication\r\n"))
	got := w.finish(o)
	for _, want := range []string{"cluster_state:fail\r\n", "cluster_slots_assigned:0\r\n", "role:slave\r\nmaster_link_status:down\r\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q has no %q", got, want)
		}
	}
}

func TestRaw_OfAFollower(t *testing.T) {
	o := newOracle()
	o.status = statusOf(1, 2)
	w := newTape(t, New(Config{Backend: o, Version: "v1"}))
	w.feed([]byte("HELLO 3\r\nCLUSTER SHARDS\r\nCLUSTER INFO\r\nINFO\r\nCLUSTER NODES\r\nCLUSTER SLOTS\r\n"))
	got := w.finish(o)
	for _, want := range []string{
		"$4\r\nrole\r\n$7\r\nreplica\r\n",
		"*1\r\n%2\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*3\r\n%7\r\n$2\r\nid\r\n$40\r\n" + id40(2) +
			"\r\n$4\r\nport\r\n:8082\r\n$2\r\nip\r\n$9\r\nb.example\r\n$8\r\nendpoint\r\n$9\r\nb.example\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
		"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_slots_ok:16384\r\n",
		"cluster_known_nodes:4\r\ncluster_size:1\r\ncluster_current_epoch:7\r\ncluster_my_epoch:7\r\n",
		"# Server\r\nredis_version:7.2.0\r\nredis_mode:cluster\r\nisotone_version:v1\r\n\r\n# Clients\r\nconnected_clients:1\r\n",
		"role:slave\r\nmaster_host:b.example\r\nmaster_port:8082\r\n",
		"# Isotone\r\nnode_id:1\r\nraft_role:follower\r\nterm:7\r\nleader:2\r\nleader_addr:b.example:8082\r\n",
		id40(1) + " a.example:8081@0 myself,slave " + id40(2) + " 0 0 7 connected\n",
		"*5\r\n:0\r\n:16383\r\n" + slotNode("b.example", 8082, 2) + slotNode("a.example", 8081, 1),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%q", want, got)
		}
	}
}

// TestRaw_TellsTheCluster wherever a Redis user looks for it.
func TestRaw_TellsTheCluster(t *testing.T) {
	o := newOracle()
	o.status.ClusterID = 0xabc
	const id = "0000000000000abc"
	say := func(what string) string {
		w := newTape(t, New(Config{Backend: o, Version: "v1"}))
		w.feed([]byte(what + "\r\n"))
		return w.finish(o)
	}
	for what, want := range map[string]string{
		"INFO":              "# Cluster\r\ncluster_enabled:1\r\nisotone_cluster_id:" + id + "\r\n\r\n# Isotone\r\n",
		"INFO cluster":      bulk("# Cluster\r\ncluster_enabled:1\r\nisotone_cluster_id:" + id + "\r\n"),
		"CLUSTER INFO":      "cluster_my_epoch:7\r\nisotone_cluster_id:" + id + "\r\n\r\n",
		"CLUSTER MYSHARDID": bulk(strings.Repeat("0", 24) + id),
		"HELLO":             hello("*16", 2) + bulk("isotone_cluster_id") + bulk(id),
		"HELLO 3":           hello("%8", 3) + bulk("isotone_cluster_id") + bulk(id),
	} {
		if got := say(what); !strings.Contains(got, want) {
			t.Errorf("%s: no %q in %q", what, want, got)
		}
	}
	o.status.ClusterID = 0 // not yet
	for what, want := range map[string]string{
		"INFO cluster": bulk("# Cluster\r\ncluster_enabled:1\r\nisotone_cluster_id:\r\n"),
		"CLUSTER INFO": "cluster_my_epoch:7\r\nisotone_cluster_id:\r\n\r\n",
	} {
		if got := say(what); !strings.Contains(got, want) {
			t.Errorf("not known, %s: no %q in %q", what, want, got)
		}
	}
}

func TestCommandNames(t *testing.T) {
	names := strings.Join(CommandNames(), " ")
	const want = "ASKING AUTH CLIENT CLUSTER COMMAND CONFIG DISCARD ECHO EXEC FRONTIER HELLO INFO INTERVAL LOCK MULTI ORACLE PING QUIT READONLY READWRITE RESET SELECT SESSION SNOWFLAKE TS TS64 TS64IN TSIN UNWATCH WATCH WORKER"
	if names != want {
		t.Errorf("got %s\nwant %s", names, want)
	}
	for _, name := range CommandNames() {
		if len(name) > nameMax {
			t.Errorf("%s is longer than %d bytes", name, nameMax)
		}
	}
}
