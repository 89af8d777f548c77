package resp

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/auth/access"
)

// This file has the commands that set up a connection.

// redisVersion is the version of Redis that is imitated. Clients decide by it what they may
// send.
const redisVersion = "7.2.0"

// clientNameMax bounds the name set by CLIENT SETNAME, in bytes.
const clientNameMax = 128

// defaultUser is whom AUTH with one argument is for, and what CLIENT LIST calls a client without
// credentials.
const defaultUser = "default"

// proof is a command whose credentials are checked.
type proof struct {
	credentials access.Credentials
	// answer appends the answer once they were right.
	answer func(*reply)
}

// runAuth is AUTH [user] secret.
func (c *conn) runAuth(args [][]byte, r *reply) error {
	credentials, ok := parseAuth(args)
	if !ok {
		r.wrongArity("auth")
		return nil
	}
	c.proving = &proof{credentials, (*reply).ok}
	return nil
}

// parseAuth returns the credentials in AUTH [user] secret.
func parseAuth(args [][]byte) (access.Credentials, bool) {
	switch len(args) {
	case 2:
		return credentialsOf([]byte(defaultUser), args[1]), true
	case 3:
		return credentialsOf(args[1], args[2]), true
	}
	return access.Credentials{}, false
}

// credentialsOf copies a name and a secret. Those that are too long to be anybody's are cut to a
// length at which they still are.
func credentialsOf(name, secret []byte) access.Credentials {
	return access.Credentials{Name: string(name[:min(len(name), access.SecretMax+1)]), Secret: string(secret[:min(len(secret), access.SecretMax+1)])}
}

// prove has the credentials checked. The connection waits for the result.
func (c *conn) prove() {
	p := c.proving
	c.waiting = true
	now, err := c.session.Authenticate(p.credentials, func(err error) {
		c.front.cfg.Post(func() {
			if err == nil && !c.closed {
				err = c.session.Become(p.credentials)
			}
			c.proven(p, err)
		})
	})
	if now {
		c.proven(p, err)
	}
}

// proven answers a command with credentials.
func (c *conn) proven(p *proof, err error) {
	c.proving, c.waiting = nil, false
	if c.closed {
		return
	}
	r := reply{b: c.wire.Buffered(), v3: c.resp3}
	switch e := faultOf(err); {
	case err == nil:
		p.answer(&r)
	case e.Code == isotone.CodeUnauthorized:
		r.fault("WRONGPASS", e.Message)
	default:
		r.b = appendFault(r.b, e)
	}
	c.wire.SetBuffered(r.b)
	c.goOn()
}

// goOn continues with what the client has sent beyond the command that was waited for.
func (c *conn) goOn() {
	switch {
	case c.front.stopped:
		c.wire.Close(ErrStopped)
	case !c.working: // otherwise work continues
		c.wire.Resume()
	}
}

// greeting is what HELLO asks for.
type greeting struct {
	v3          bool
	name        string
	credentials *access.Credentials // nil: none
}

// runHello is HELLO [2|3 [AUTH user password] [SETNAME name]].
func (c *conn) runHello(args [][]byte, r *reply) error {
	g := greeting{v3: c.resp3, name: c.name}
	if !g.parse(args, r) {
		return nil
	}
	answer := func(r *reply) {
		c.resp3, c.name, r.v3 = g.v3, g.name, g.v3
		c.hello(r)
	}
	switch {
	case g.credentials != nil:
		c.proving = &proof{*g.credentials, answer}
	case !c.session.MayAnything():
		r.fault("NOAUTH", "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	default:
		answer(r)
	}
	return nil
}

// parse reads the arguments of HELLO. It returns false after an error, which it answers; then g
// counts for nothing.
func (g *greeting) parse(args [][]byte, r *reply) bool {
	if len(args) > 1 {
		switch string(args[1]) {
		case "2":
			g.v3 = false
		case "3":
			g.v3 = true
		default:
			r.fault("NOPROTO", "unsupported protocol version")
			return false
		}
	}
	for rest := args[min(2, len(args)):]; len(rest) > 0; {
		switch option := strings.ToUpper(string(rest[0][:min(len(rest[0]), nameMax)])); {
		case option == "AUTH" && len(rest) >= 3:
			credentials := credentialsOf(rest[1], rest[2])
			g.credentials, rest = &credentials, rest[3:]
		case option == "SETNAME" && len(rest) >= 2:
			if !r.checkName(rest[1]) {
				return false
			}
			g.name, rest = string(rest[1]), rest[2:]
		default:
			r.fault("ERR", fmt.Sprintf("Syntax error in HELLO option '%.40s'", rest[0]))
			return false
		}
	}
	return true
}

// hello answers HELLO.
func (c *conn) hello(r *reply) {
	status := c.front.cfg.Backend.Status()
	fields := 7
	if status.ClusterID != 0 {
		fields++
	}
	r.dict(fields)
	r.bulk("server")
	r.bulk("redis")
	r.bulk("version")
	r.bulk(redisVersion)
	r.bulk("proto")
	if c.resp3 {
		r.integer(3)
	} else {
		r.integer(2)
	}
	r.bulk("id")
	r.integer(int64(c.id))
	r.bulk("mode")
	r.bulk("cluster")
	r.bulk("role")
	r.bulk(c.front.roleOf(status))
	r.bulk("modules")
	r.array(0)
	if status.ClusterID != 0 {
		r.bulk(fieldClusterID)
		r.bulk(isotone.ClusterID(status.ClusterID).String())
	}
}

// checkName reports whether name is valid, and answers with an error if not.
func (r *reply) checkName(name []byte) bool {
	if len(name) > clientNameMax {
		r.fault("ERR", fmt.Sprintf("Client names cannot be longer than %d bytes.", clientNameMax))
		return false
	}
	for _, c := range name {
		if c < '!' || c > '~' {
			r.fault("ERR", "Client names cannot contain spaces, newlines or special characters.")
			return false
		}
	}
	return true
}

// runClient is CLIENT and its subcommands. Each connection knows only itself.
func (c *conn) runClient(args [][]byte, r *reply) error {
	switch sub, n := subcommand(args), len(args); {
	case sub == "ID" && n == 2:
		r.integer(int64(c.id))
	case sub == "GETNAME" && n == 2:
		if c.name == "" {
			r.null()
		} else {
			r.bulk(c.name)
		}
	case sub == "SETNAME" && n == 3:
		if r.checkName(args[2]) {
			c.name = string(args[2])
			r.ok()
		}
	case sub == "SETINFO" && n == 4: // LIB-NAME or LIB-VER
		if strings.EqualFold(string(args[2]), "LIB-NAME") {
			c.textIDs = rounds(args[3])
		}
		r.ok()
	case (sub == "INFO" && n == 2) || sub == "LIST":
		r.text(c.describe())
	case (sub == "NO-EVICT" || sub == "NO-TOUCH") && n == 3:
		r.ok()
	case sub == "TRACKING" && n == 3 && strings.EqualFold(string(args[2]), "OFF"):
		r.ok()
	case sub == "TRACKING" && n == 4 && is(args[2], "ON") && is(args[3], "OPTIN") && c.front.hasRedisLocks():
		r.ok() // rueidis asks for it; nothing is tracked before CLIENT CACHING YES, which is refused
	case sub == "TRACKING":
		r.fault("ERR", "CLIENT TRACKING is not supported: there are no keys, so there is nothing to cache")
	case sub == "TRACKINGINFO" && n == 2:
		r.dict(3)
		r.bulk("flags")
		r.set(1)
		r.bulk("off")
		r.bulk("redirect")
		r.integer(-1)
		r.bulk("prefixes")
		r.array(0)
	case sub == "GETREDIR" && n == 2:
		r.integer(-1)
	case sub == "FORWARD" && n == 3 && strings.EqualFold(string(args[2]), "OFF"):
		c.local = true // the client is a forwarding node: forwarding again could loop
		r.ok()
	case sub == "REPLY" && n == 3 && strings.EqualFold(string(args[2]), "ON"):
		r.ok()
	default:
		r.unknownSubcommand(args)
	}
	return nil
}

// describe is a line of CLIENT LIST.
func (c *conn) describe() string {
	version := 2
	if c.resp3 {
		version = 3
	}
	user := cmp.Or(c.session.Name(), defaultUser)
	age := int64((c.wire.Now() - c.opened) / time.Second)
	return fmt.Sprintf("id=%d name=%s age=%d idle=0 flags=N db=0 user=%s resp=%d\n", c.id, c.name, age, user, version)
}
