package config_test

import (
	"strings"
	"testing"

	"github.com/isotone/isotone/internal/host/config"
)

func TestRedact_LeavesOutWhatMayBeSecret(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"host:80, a@b.example":          "host:80, a@b.example",
		"http://h:80/a":                 "http://h:80/a",
		"http://u:secret@h/a":           "http://***@h/a",
		"http://secret@h":               "http://***@h",
		"redis://:se/cr@et@h:6379/0#k":  "redis://***@h:6379/0#k",
		"https://h/a?token=secret#f":    "https://h/a?***",
		`x = "http://u:secret@h": want`: `x = "http://***@h": want`,
		"dns+srv:_x._tcp.h?count=3":     "dns+srv:_x._tcp.h?count=3",
		"a=redis://u:secret@h#k, b=http://u:secret@i?secret": "a=redis://***@h#k, b=http://***@i?***",
	} {
		if got := config.Redact(text); got != want || strings.Contains(got, "secret") {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func TestFault_HasNoPassword(t *testing.T) {
	_, err := parse(t, nil, "--trace-endpoint=http://u:hidden@collector:4318/?token=hidden", "--join=http://u:hidden@node:8080")
	if err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), `TRACE_ENDPOINT (--trace-endpoint) = "http://***@collector:4318/?***"`) {
		t.Error(err)
	}
}
