package bench

import (
	"strings"
	"testing"
	"time"

	"github.com/isotone/isotone"
)

func TestOptions_TheDefaultIsValid(t *testing.T) {
	o := Default()
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
}

func TestOptions_EveryFaultIsListedInOneLine(t *testing.T) {
	o := Options{
		Targets: []string{"nonsense", "ftp://x:1"}, Protocol: "gopher", Connections: 0, Pipeline: -1, Rate: -1,
		Count: 0, Warmup: -time.Second, Timeout: 0, Backlog: 0, Threads: 0,
	}
	err := o.Validate()
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v", err)
	}
	for _, flag := range strings.Fields("target nonsense ftp protocol connections pipeline rate count duration warmup timeout backlog threads") {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("%q is missing in: %v", flag, err)
		}
	}
}

func TestOptions_Limits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Options)
		want   string // part of the error; "" if there is none
	}{
		{"rate of zero is a closed loop", func(o *Options) { o.Rate = 0 }, ""},
		{"a tiny rate", func(o *Options) { o.Rate = 1e-9 }, "--rate"},
		{"a huge rate", func(o *Options) { o.Rate = 1e12 }, "--rate"},
		{"largest count", func(o *Options) { o.Count = isotone.RangeCountMax }, ""},
		{"too large a count", func(o *Options) { o.Count = isotone.RangeCountMax + 1 }, "--count"},
		{"requests without duration", func(o *Options) { o.Duration, o.Requests = 0, 1 }, ""},
		{"a long pipeline", func(o *Options) { o.Pipeline = pipelineMax }, ""},
		{"too many streams", func(o *Options) { o.Protocol, o.Pipeline = "h2c", streamsMax+1 }, "--pipeline"},
		{"static file", func(o *Options) { o.Static = "/x" }, ""},
		{"a long pipeline of commands", func(o *Options) { o.Protocol, o.Pipeline = "resp", pipelineMax }, ""},
		{"too long a pipeline", func(o *Options) { o.Protocol, o.Pipeline = "resp", pipelineMax+1 }, "--pipeline"},
		{"static file over resp", func(o *Options) { o.Static, o.Protocol = "/x", "resp" }, "--static"},
		{"static file over h3", func(o *Options) { o.Static, o.Protocol = "/x", "h3" }, "--static"},
		{"static without a slash", func(o *Options) { o.Static = "x" }, "--static"},
		{"no target", func(o *Options) { o.Targets = nil }, "--target"},
		{"https and http", func(o *Options) { o.Targets = []string{"https://a:1", "http://a:2"} }, "--target"},
	} {
		o := Default()
		tt.change(&o)
		err := o.Validate()
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestParseTarget(t *testing.T) {
	for _, tt := range []struct {
		text, protocol string
		want           target
		ok             bool
	}{
		{"127.0.0.1:8080", "http1", target{"127.0.0.1:8080", false}, true},
		{"127.0.0.1:8080", "h3", target{"127.0.0.1:8080", true}, true},
		{"http://localhost:1/", "http1", target{"localhost:1", false}, true},
		{"https://localhost:1", "http1", target{"localhost:1", true}, true},
		{"http://localhost", "http1", target{"localhost:80", false}, true},
		{"https://[::1]", "h2", target{"[::1]:443", true}, true},
		{"http://localhost:1", "h2", target{}, false},
		{"https://localhost:1", "h2c", target{}, false},
		{"127.0.0.1:8080", "resp", target{"127.0.0.1:8080", false}, true},
		{"http://localhost:1", "resp", target{"localhost:1", false}, true},
		{"https://localhost:1", "resp", target{"localhost:1", true}, true},
		{"http://localhost:1/timestamp", "http1", target{}, false},
		{"http://u@localhost:1", "http1", target{}, false},
		{"localhost", "http1", target{}, false},
		{":8080", "http1", target{}, false},
		{"localhost:0", "http1", target{}, false},
		{"localhost:65536", "http1", target{}, false},
		{"localhost:http", "http1", target{}, false},
		{"a b:1", "http1", target{}, false},
		{"a\r\nX:1", "http1", target{}, false},
	} {
		got, err := parseTarget(tt.text, tt.protocol)
		if (err == nil) != tt.ok || tt.ok && got != tt.want {
			t.Errorf("%q, %s: %+v, %v; want %+v", tt.text, tt.protocol, got, err, tt.want)
		}
	}
}

func TestRequestPath(t *testing.T) {
	for _, tt := range []struct {
		change func(*Options)
		want   string
	}{
		{func(*Options) {}, "/timestamp"},
		{func(o *Options) { o.Count = 5 }, "/timestamp?n=5&format=range"},
		{func(o *Options) { o.Mode = isotone.ReadLease }, "/timestamp?mode=lease"},
		{func(o *Options) { o.Count, o.Mode = 2, isotone.ReadQuorum }, "/timestamp?n=2&format=range&mode=quorum"},
		{func(o *Options) { o.Timeline = "a/b" }, "/timestamp?timeline=a%2Fb"},
		{func(o *Options) { o.Mode, o.Timeline = isotone.ReadQuorum, "a" }, "/timestamp?mode=quorum&timeline=a"},
		{func(o *Options) { o.Static = "/x" }, "/x"},
	} {
		o := Default()
		tt.change(&o)
		if got := requestPath(&o); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
