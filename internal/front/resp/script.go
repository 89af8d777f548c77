package resp

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/isotone/isotone"
	"github.com/isotone/isotone/internal/core/redislock"
)

// This file has the scripts of libraries for locks. There is no Lua: a script that is known is a name for an operation. It is known by the hash of its text without white space, as
// versions of a library differ in that.

// script is a known script.
type script struct {
	op redislock.Op
	// args are its arguments after its only key.
	args   []scriptArg
	answer func(*reply, *redislock.Request)
}

// scriptArg is what an argument of a script means.
type scriptArg uint8

const (
	// argValue is the value of the lock.
	argValue scriptArg = iota
	// argTTL is a number of milliseconds.
	argTTL
	// argPrefix is how many bytes of the value tell the holder.
	argPrefix
	// argReplace is 0 if the time is to be added to what is left, else 1.
	argReplace
)

// scripts are the known ones, by the SHA-256 of their text without white space.
var scripts = map[string]*script{
	// redislock 0.9.4: Refresh, Release, TTL, Obtain.
	"4e4469cffb907e2c1e69315e25a41e0f1ec0c426e990e2e8edd0e212050ef3c7": {redislock.Refresh, []scriptArg{argValue, argTTL}, (*reply).done},
	"47b9c643d483d139c942dbfc2541aa15d23a98697d6b77692947d72f1a1847dc": {redislock.Delete, []scriptArg{argValue}, (*reply).done},
	"0dc885ee4b53438f7f267e9aa84cbfc31ece3cebc31db66e0daa05b9283dd41e": {redislock.Read, []scriptArg{argValue}, (*reply).leftOfHolder},
	"caa99ede86a656b2202ffd4e3c9f49ab98e20c383d5616a0af9178f208e117e5": {redislock.ObtainAgain, []scriptArg{argValue, argPrefix, argTTL}, (*reply).obtained},
	// redsync 4.18.1: Unlock, Extend, Extend with SetNXOnExtend.
	"36bc8b732743427c3e24274e0b9aafa3f6aa17736824e0af0a902841616c1c71": {redislock.Delete, []scriptArg{argValue}, (*reply).doneOrGone},
	"434244625056867700525037942afc10e9c5d2eaeb7f05b395884c1f151d357a": {redislock.Refresh, []scriptArg{argValue, argTTL}, (*reply).done},
	"082683a8916a19afe4e1abe1378ac7cfa276ca71245fafb6fad888cbf8aecdb3": {redislock.ObtainOrRefresh, []scriptArg{argValue, argTTL}, (*reply).done},
	// redis-py 5.2.1, also its asyncio: release, extend, reacquire.
	"5edb30ccdf90ad625479d79c02507dd2b15240df3f89eb3bcd6667010ec8aa78": {redislock.Delete, []scriptArg{argValue}, (*reply).done},
	"c7cda63a884459b43a4ec97b771bc8197c988ffa43d3db2ef77fce5fb6c1f8a3": {redislock.Extend, []scriptArg{argValue, argTTL, argReplace}, (*reply).done},
	"2dd6ae375a6620d8787afaa6159944782f338d51ecb7fe77a2ba15557c8c6810": {redislock.Refresh, []scriptArg{argValue, argTTL}, (*reply).done},
}

// scriptOf returns the script with that text, or nil.
func scriptOf(text string) *script {
	sum := sha256.Sum256([]byte(strings.Join(strings.FieldsFunc(text, unicode.IsSpace), "")))
	return scripts[hex.EncodeToString(sum[:])]
}

// loadedMax bounds the texts of scripts that a node knows by their SHA-1. There are as many as there are ways to indent the known ones.
const loadedMax = 256

// Scripts are those that clients of a node have loaded. It is safe for concurrent use.
type Scripts struct {
	// Unknown, if not nil, is called for each script that is not known.
	Unknown func()

	mu     sync.Mutex
	bySHA1 map[string]*script
}

var (
	errScript = isotone.Errorf(isotone.CodeInvalidArgument, "this script is not known, and there is no Lua; LOCK ACQUIRE does this with a token (docs/resp.md has the libraries whose scripts are known)")
	errLoaded = isotone.Errorf(isotone.CodeOverloaded, "%d scripts are loaded, which is the most; send EVAL instead", loadedMax)
)

// load returns the script with that text and its SHA-1, which is remembered while there is room.
func (s *Scripts) load(text []byte) (found *script, name string, err error) {
	sum := sha1.Sum(text)
	name = hex.EncodeToString(sum[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	if found = s.bySHA1[name]; found != nil {
		return found, name, nil
	}
	switch found = scriptOf(string(text)); {
	case found == nil:
		if s.Unknown != nil {
			s.Unknown()
		}
		return nil, "", errScript
	case len(s.bySHA1) == loadedMax:
		return found, name, errLoaded
	case s.bySHA1 == nil:
		s.bySHA1 = map[string]*script{}
	}
	s.bySHA1[name] = found
	return found, name, nil
}

// loaded returns the script with that SHA-1, or nil.
func (s *Scripts) loaded(name []byte) *script {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bySHA1[strings.ToLower(string(name))]
}

// runEval is EVAL and EVALSHA.
func (c *conn) runEval(args [][]byte, r *reply) error {
	var found *script
	var err error
	if is(args[0], "EVALSHA") {
		if found = c.front.cfg.Scripts.loaded(args[1]); found == nil {
			r.fault("NOSCRIPT", "No matching script. Please use EVAL.")
			return nil
		}
	} else if found, _, err = c.front.cfg.Scripts.load(args[1]); found != nil {
		err = nil // without room, too
	}
	var q redislock.Request
	if err == nil {
		q, err = c.parseScript(found, args[2:])
	}
	if err != nil {
		r.b = appendFault(r.b, faultOf(err))
		return nil
	}
	c.askRedisLock(q, found.answer, nil, r)
	return nil
}

// parseScript reads the number of keys, which is 1, the key and the arguments.
func (c *conn) parseScript(s *script, args [][]byte) (q redislock.Request, err error) {
	if string(args[0]) != "1" || len(args) != 2+len(s.args) {
		return q, isotone.Errorf(isotone.CodeInvalidArgument, "this script is known with 1 key and %d arguments", len(s.args))
	}
	q.Op, q.Name = s.op, c.lockName(args[1])
	for i, arg := range args[2:] {
		switch s.args[i] {
		case argValue:
			q.Value = string(arg)
		case argTTL:
			q.TTL, err = parseTTL(arg, time.Millisecond)
		case argPrefix:
			if q.Prefix, err = strconv.Atoi(string(arg)); err != nil {
				err = isotone.Errorf(isotone.CodeInvalidArgument, "%.40q: want the number of bytes of the value that tell the holder", arg)
			}
		case argReplace:
			if string(arg) != "0" {
				q.Op = redislock.Refresh
			}
		}
		if err != nil {
			return q, err
		}
	}
	if s.takes() && q.TTL <= 0 {
		return q, errNoTime
	}
	return q, nil
}

// takes reports whether a script may take a lock, for which it needs a time.
func (s *script) takes() bool {
	return s.op == redislock.ObtainAgain || s.op == redislock.ObtainOrRefresh
}

// runScript is SCRIPT LOAD and SCRIPT EXISTS.
func (c *conn) runScript(args [][]byte, r *reply) error {
	switch sub := subcommand(args); {
	case sub == "LOAD" && len(args) == 3:
		_, name, err := c.front.cfg.Scripts.load(args[2])
		if err != nil {
			r.b = appendFault(r.b, faultOf(err))
			return nil
		}
		r.bulk(name)
	case sub == "EXISTS":
		r.array(len(args) - 2)
		for _, name := range args[2:] {
			r.integer(int64(bit(c.front.cfg.Scripts.loaded(name) != nil)))
		}
	default:
		r.unknownSubcommand(args)
	}
	return nil
}

// leftOfHolder appends what is left of the time of a lock, -3 if it has another value.
func (r *reply) leftOfHolder(q *redislock.Request) {
	if !q.Done {
		r.integer(-3)
		return
	}
	r.leftMS(q)
}

// doneOrGone appends 1, or -1 if nobody held the lock, or 0 if somebody else did.
func (r *reply) doneOrGone(q *redislock.Request) {
	if !q.Held {
		r.integer(-1)
		return
	}
	r.done(q)
}
