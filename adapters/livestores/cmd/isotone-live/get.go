package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/isotone/isotone/internal/live/store"
)

const (
	// getTimeout is the longest that a load of a node takes, and getSizeMax the most that it returns.
	getTimeout = 10 * time.Second
	getSizeMax = 8 << 20
	// urlBytesMax bounds a URL, as a node does.
	urlBytesMax = 64 << 10
)

// get loads the document once whose URL it reads, and prints it.
func get(in io.Reader, out io.Writer) error {
	text, err := io.ReadAll(io.LimitReader(in, urlBytesMax+1))
	if err != nil {
		return err
	}
	if len(text) > urlBytesMax {
		return errors.New("want a URL of at most 64 KiB")
	}
	u, err := store.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	l, err := open(u)
	if err != nil {
		return errors.New(u.Redact(err.Error()))
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), getTimeout)
	defer cancel()
	document, _, err := l.Load(ctx, getSizeMax)
	if err != nil {
		return errors.New(u.Redact(err.Error()))
	}
	_, err = out.Write(append(document, '\n'))
	return err
}
