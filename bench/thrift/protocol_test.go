package main

import (
	"bufio"
	"encoding/binary"
	"strings"
	"testing"
)

const page = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 20\r\n\r\n1541815603606036480\n"

func TestWeb_ReadsTheIDOfAnAnswer(t *testing.T) {
	in := bufio.NewReader(strings.NewReader(page + page))
	for range 2 {
		id, err := web{}.answer(in)
		if err != nil || id != 1541815603606036480 {
			t.Fatalf("got %d, %v", id, err)
		}
	}
}

func TestWeb_RefusesWhatIsNoID(t *testing.T) {
	for name, text := range map[string]string{
		"another status": "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n1\n",
		"no body":        "HTTP/1.1 200 OK\r\n\r\n",
		"no number":      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
		"a part":         page[:len(page)-3],
	} {
		if id, err := (web{}).answer(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%s: got ID %d, want an error", name, id)
		}
	}
}

func TestWeb_DoesNotAllocate(t *testing.T) {
	text := strings.NewReader(strings.Repeat(page, 200))
	in := bufio.NewReader(text)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := (web{}).answer(in); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("an answer takes %v allocations, want 0", n)
	}
}

func TestFramed_ReadsTheIDOfAnAnswer(t *testing.T) {
	b := make([]byte, answerBytes)
	b[idAt-3] = 10
	binary.BigEndian.PutUint64(b[idAt:], 1541815603606036480)
	id, err := framed{}.answer(bufio.NewReader(strings.NewReader(string(b))))
	if err != nil || id != 1541815603606036480 {
		t.Fatalf("got %d, %v", id, err)
	}
	b[idAt-3] = 12
	if id, err := (framed{}).answer(bufio.NewReader(strings.NewReader(string(b)))); err == nil {
		t.Fatalf("got ID %d of an exception, want an error", id)
	}
}
