package thriftrpc_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/isotone/isotone/internal/front/thriftrpc"
)

func TestDetect(t *testing.T) {
	for _, tt := range []struct {
		bytes  string
		want   string
		framed bool
	}{
		{"", "", false},
		{"\x80", "binary", false},
		{"\x82", "compact", false},
		{"[", "json", false},
		{"{", "json", false},
		{"\x00", "", false},
		{"\x00\x00\x00", "", false},
		{"\x00\x00\x00\x06", "", false},
		{"\x00\x00\x00\x06g", "binary", false},
		{"\x00\x00\x00\x06_", "binary", false},
		{"\x00\x00\x00\x06\x00", "binary", true},
		{"\x00\x00\x00\x06\x80", "binary", true},
		{"\x00\x00\x00\x06\x82", "compact", true},
		{"\x00\x00\x00\x06[", "json", true},
		{"\x00\x00\x00\x06{", "json", true},
		{"\x00\x00\x40\x00\x82", "compact", true},
		{"\x00\x00\x00\x06\x0f\xff", "none", true}, // THeader
		{"\x00\x00\x00\x00", "none", false},
		{"\x00\x00\x40\x01", "none", false},
		{"\x00\xff\xff\xff", "none", false},
		{"GET / HTTP/1.1\r\n", "none", false},
		{"POST", "none", false},
		{"\x16\x03\x01", "none", false},
		{"\x01", "none", false},
		{" [", "none", false},
		{"\xff", "none", false},
	} {
		if got, framed := thriftrpc.Detect([]byte(tt.bytes), thriftrpc.Limits{}); got != tt.want || framed != tt.framed {
			t.Errorf("%q: %q, framed %v, want %q, %v", tt.bytes, got, framed, tt.want, tt.framed)
		}
	}
}

func TestDetect_WhatTheLibraryWrites(t *testing.T) {
	for name, protocol := range all() {
		for _, framed := range []bool{false, true} {
			want := map[string]string{"unversioned": "binary", "simplejson": "json"}[name]
			if want == "" {
				want = name
			}
			b := message(t, protocol, framed, "get_id", thrift.CALL, 1, withAgent("me"))
			if got, gotFramed := thriftrpc.Detect(b, thriftrpc.Limits{}); got != want || gotFramed != framed {
				t.Errorf("%s, framed %v: %q, %v", name, framed, got, gotFramed)
			}
		}
	}
}

// nested returns a call whose field 2 nests lists.
func nested(head, list, end string, depth int) string {
	return head + strings.Repeat(list, depth) + end
}

func TestSession_WhatIsNoMessageEndsIt(t *testing.T) {
	const (
		strict  = "\x80\x01\x00\x01\x00\x00\x00\x06get_id\x00\x00\x00\x07"
		compact = "\x82\x21\x07\x06get_id"
		text    = `[1,"get_id",1,7,`
		simple  = `["get_id",1,7,`
	)
	for _, tt := range []struct {
		what, in string
		answered bool // the answer is a fault; else there is none
	}{
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", false},
		{"binary: another version", "\x80\x02\x00\x01", false},
		{"binary: a long name", "\x80\x01\x00\x01\x00\x00\x10\x01", false},
		{"binary: a negative name", "\x80\x01\x00\x01\xff\xff\xff\xff", false},
		{"binary: no name", "\x80\x01\x00\x01\x00\x00\x00\x00", false},
		{"binary: a long string", strict + "\x0b\x00\x01\x00\x00\x10\x01", true},
		{"binary: a negative string", strict + "\x0b\x00\x01\xff\xff\xff\xff", true},
		{"binary: an unknown type", strict + "\x01\x00\x01", true},
		{"binary: a type of 255", strict + "\xff\x00\x01", true},
		{"binary: a large list", strict + "\x0f\x00\x02\x08\x7f\xff\xff\xff", true},
		{"binary: a negative list", strict + "\x0f\x00\x02\x08\xff\xff\xff\xff", true},
		{"binary: a large map", strict + "\x0d\x00\x02\x02\x02\x00\x00\x40\x01", true},
		{"binary: a list of nothing", strict + "\x0f\x00\x02\x01\x00\x00\x00\x01", true},
		{"binary: deep lists", nested(strict+"\x0f\x00\x02", "\x0f\x00\x00\x00\x01", "", 17), true},
		{"binary: deep structs", nested(strict, "\x0c\x00\x02", "", 17), true},
		{"compact: another version", "\x82\x22\x07", false},
		{"compact: a long number", "\x82\x21\xff\xff\xff\xff\x10", false},
		{"compact: a longer number", "\x82\x21\xff\xff\xff\xff\xff\x01", false},
		{"compact: a long name", "\x82\x21\x07\x81\x20", false},
		{"compact: no name", "\x82\x21\x07\x00", false},
		{"compact: a long string", compact + "\x18\x81\x20", true},
		{"compact: an unknown type", compact + "\x2e", true},
		{"compact: no type", compact + "\x10", true},
		{"compact: a field beyond the last", compact + "\x08\xfe\xff\x03\x00\x18", true},
		{"compact: a field's number of 17 bits", compact + "\x08\x80\x80\x04", true},
		{"compact: a large list", compact + "\x29\xf3\x81\x80\x01", true},
		{"compact: a large map", compact + "\x2b\x81\x80\x01", true},
		{"compact: a long i64", compact + "\x26\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", true},
		{"compact: deep lists", nested(compact, "\x29", strings.Repeat("\x19", 17), 1), true},
		{"compact: deep structs", nested(compact, "\x1c", "", 17), true},
		{"compact: deep maps", compact + "\x2b" + strings.Repeat("\x01\xbb", 17), true},
		{"json: not begun", "[]", false},
		{"json: a word", "[x", false},
		{"json: another version", `[2,"get_id",1,7,{}]`, false},
		{"json: a fraction", `[1.0,`, false},
		{"json: a zero before", `[01,`, false},
		{"json: a number too long", "[1" + strings.Repeat("0", 20), false},
		{"json: no name", `[1,"",1,7,{}]`, false},
		{"json: a name of two lines", "[1,\"get\nid\"", false},
		{"json: a wrong escape", `[1,"get\xid"`, false},
		{"json: not UTF-8", "[1,\"get\xffid\"", false},
		{"json: a long name", `[1,"` + strings.Repeat("x", 4097) + `"`, false},
		{"json: a large number of the call", `[1,"get_id",1,2147483648,`, false},
		{"json: a large type", `[1,"get_id",128,7,`, false},
		{"json: no number", `[1,"get_id",1}`, false},
		{"json: then no message", text + `{}]5`, false},
		{"json: nothing behind the head", text[:len(text)-1] + `]`, true},
		{"json: a word with a quote", text + `{"2":{"tf":tru"e}}]`, true},
		{"json: no arguments", text + `]`, true},
		{"json: null arguments", text + `null]`, true},
		{"json: more than arguments", text + `{},5]`, true},
		{"json: a field that is no number", text + `{"x":{"str":"a"}}]`, true},
		{"json: a field of 17 bits", text + `{"32768":{"str":"a"}}]`, true},
		{"json: an unknown type", text + `{"1":{"string":"a"}}]`, true},
		{"json: a number for a string", text + `{"1":{"str":5}}]`, true},
		{"json: two values", text + `{"1":{"str":"a","str":"b"}}]`, true},
		{"json: a comma before the end", text + `{"1":{"str":"a"},}]`, true},
		{"json: no comma", text + `{"1":{"str":"a"}"2":{"str":"b"}}]`, true},
		{"json: a wrong value", text + `{"2":{"i64":1x}}]`, true},
		{"json: a wrong list", text + `{"2":{"lst":["i64",1,1,]}}]`, true},
		{"json: a list closed by a brace", text + `{"2":{"lst":[}}}]`, true},
		{"json: a closed value", text + `{"2":{"lst":]`, true},
		{"json: a value of a comma", text + `{"2":{"lst":,`, true},
		{"json: a value not UTF-8", text + "{\"2\":{\"str\":\"\xff\"}}]", true},
		{"json: deep lists", text + `{"2":{"lst":` + strings.Repeat("[", 17), true},
		{"simplejson: no arguments", simple + `]`, true},
		{"simplejson: more than arguments", simple + `{}{}`, true},
		{"simplejson: deep", simple + `{"x":` + strings.Repeat(`{"x":`, 17), true},
		{"simplejson: a wrong value", simple + `{"x":truth}]`, true},
		{"simplejson: bare and wrong", `{"x":truth}`, true},
		{"binary, framed: no bytes", "\x00\x00\x00\x00", false},
		{"binary, framed: less than a message", "\x00\x00\x00\x05\x80\x01\x00\x01\x00", false},
		{"binary, framed: arguments cut off", "\x00\x00\x00\x14" + strict + "\x0b\x00", true},
		{"json, framed: arguments cut off", "\x00\x00\x00\x13" + text + `{"1`, true},
		{"binary, framed: then no bytes", "\x00\x00\x00\x13" + strict + "\x00" + "\x00\x00\x00\x00", false},
		{"binary, framed: then a long frame", "\x00\x00\x00\x13" + strict + "\x00" + "\x00\x00\x40\x01", false},
	} {
		s, _ := session(func(c *thriftrpc.Config) { c.AssumeMethod = "get_id" })
		out, _, err := workAll(s, []byte(tt.in))
		if err == nil || err == thriftrpc.ErrShort {
			t.Errorf("%s: %v; answered %q", tt.what, err, out)
			continue
		}
		if answered := bytes.Contains(out, []byte(err.Error())); answered != tt.answered {
			t.Errorf("%s (%v): answered %q", tt.what, err, out)
		}
	}
}

func TestSession_WhatIsUnusualAndRight(t *testing.T) {
	const text = `[1,"get_id",1,7,`
	for what, in := range map[string]string{
		"binary: the unused byte":            "\x80\x01\xff\x01\x00\x00\x00\x06get_id\x00\x00\x00\x07\x0b\x00\x01\x00\x00\x00\x02me\x00",
		"binary: the last of two agents":     "\x80\x01\x00\x01\x00\x00\x00\x06get_id\x00\x00\x00\x07\x0b\x00\x01\x00\x00\x00\x01!\x0b\x00\x01\x00\x00\x00\x02me\x00",
		"binary: 16 lists":                   nested("\x80\x01\x00\x01\x00\x00\x00\x06get_id\x00\x00\x00\x07\x0b\x00\x01\x00\x00\x00\x02me\x0f\x00\x02", "\x0f\x00\x00\x00\x01", "\x08\x00\x00\x00\x00\x00", 15),
		"compact: a field's number in full":  "\x82\x21\x07\x06get_id\x08\x02\x02me\x00",
		"compact: a field before":            "\x82\x21\x07\x06get_id\x21\x08\x02\x02me\x00",
		"json: space":                        " [ 1 ,\t\"get_id\" ,\n1 , 7 , { \"1\" : { \"str\" : \"me\" } } ]\r\n",
		"json: escapes":                      `[1,"get\u005fid",1,7,{"1":{"str":"\u006de"}}]`,
		"json: the user agent last":          text + `{"2":{"lst":["str",2,"]}",[]]},"-5":{"i64":-1},"1":{"str":"me"}}]`,
		"simplejson: further fields":         `["get_id",1,7,{"x":[1,{"y":null}],"useragent":"me","z":"\""}]`,
		"simplejson: a struct":               `{"useragent":"me"}`,
		"simplejson: a struct of no message": ` { "x" : 1.5e3 , "useragent" : "me" } `,
	} {
		s, f := session()
		first := in[:1]
		if first == " " {
			in = in[1:] // what a connection speaks is told by its first byte
		}
		if _, rest, err := workAll(s, []byte(in)); rest != 0 || err != thriftrpc.ErrShort || f.made.Load() != 1 {
			t.Errorf("%s: %d left, %d ids, %v", what, rest, f.made.Load(), err)
		}
	}
}

// TestSimpleJSON_AsJSON reads the answers as a program without Thrift does.
func TestSimpleJSON_AsJSON(t *testing.T) {
	s := start(t, func(c *thriftrpc.Config) { c.AssumeMethod = "get_timestamp" })
	eachTransport(t, s, func(t *testing.T, transport thrift.TTransport) {
		p := simpleJSON(transport)
		in := json.NewDecoder(transport)
		in.UseNumber()
		for seq, tt := range []struct {
			method string
			call   arguments
			want   string
		}{
			{"get_timestamp", arguments{}, `["get_timestamp",2,0,{"success":1700000000123}]`},
			{"get_worker_id", arguments{extra: allTypes}, `["get_worker_id",2,1,{"success":7}]`},
			{"get_x", arguments{}, `["get_x",3,2,{"message":"there is no method \"get_x\"","type":1}]`},
		} {
			w := writer{ctx: background, p: p}
			w.do(p.WriteMessageBegin(background, tt.method, thrift.CALL, int32(seq)))
			w.do(tt.call.Write(background, p))
			w.do(p.WriteMessageEnd(background))
			w.do(p.Flush(background))
			var got json.RawMessage
			if err := in.Decode(&got); w.err != nil || err != nil || string(got) != tt.want {
				t.Errorf("%s: %s, %v, %v; want %s", tt.method, got, err, w.err, tt.want)
			}
		}
	})
	c := dial(t, s)
	in := json.NewDecoder(c)
	for call, want := range map[string]string{
		"{}\n":                     `{"success":1700000000123}`,
		`{"useragent":""}`:         `{"success":1152921504606846976}`,
		`["get_worker_id",1,5,{}]`: `["get_worker_id",2,5,{"success":7}]`,
	} {
		send(t, c, []byte(call))
		var got json.RawMessage
		if err := in.Decode(&got); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v; want %s", call, got, err, want)
		}
	}
}

func TestNew_RefusesWhatCannotBe(t *testing.T) {
	for what, cfg := range map[string]thriftrpc.Config{
		"no IDs":            {},
		"an unknown method": {IDs: &ids{}, AssumeMethod: "get"},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			thriftrpc.New(cfg)
		}()
	}
}
